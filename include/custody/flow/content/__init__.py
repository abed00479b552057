"""Room `flow`, contents: what FlowFiles hold, kept in resource claims on the store and found again by their claims."""

from custody.flow.content.claim_file import (
    CLAIM_SCHEME,
    ClaimFile,
    ResourceClaim,
    StoredContent,
    claims_in,
    claims_on_disk,
    sections_of,
    with_content,
)
from custody.flow.content.claim_places import ClaimPlaces
from custody.flow.content.containers import ContainerMark, ContentContainer, ContentContainers
from custody.flow.content.content_reader import Availability, Content, ContentReader, content_of, find_content
from custody.flow.content.content_writer import OPEN_SECONDS_MAX, ContentOptions, ContentStream, ContentWriter
from custody.flow.flowfile import DIGEST_ATTRIBUTE

__all__ = [
    "CLAIM_SCHEME",
    "DIGEST_ATTRIBUTE",
    "OPEN_SECONDS_MAX",
    "Availability",
    "ClaimFile",
    "ClaimPlaces",
    "ContainerMark",
    "Content",
    "ContentContainer",
    "ContentContainers",
    "ContentOptions",
    "ContentReader",
    "ContentStream",
    "ContentWriter",
    "ResourceClaim",
    "StoredContent",
    "claims_in",
    "claims_on_disk",
    "content_of",
    "find_content",
    "sections_of",
    "with_content",
]
