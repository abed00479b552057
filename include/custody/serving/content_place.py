"""Where the contents before and after an event can be had: addresses of the API, and why where there is none."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec

from custody.config import ContentStore
from custody.flow.content import Availability, ContentReader
from custody.model import ContentClaim, Event
from custody.vfs import PosixFileSystem


class ContentPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a content can be had, and where."""

    availability: str
    size: int | None
    href: str | None


class ContentPlaces:
    """Says of events where their contents can be had; reads no content.

    Args:
        store: where contents lie.
        as_of: the moment that was asked for, as it was written: it goes along into the addresses.
    """

    def __init__(self, store: ContentStore, as_of: str | None) -> None:
        self._reader = ContentReader(PosixFileSystem(), store)
        self._then = "" if as_of is None else f"?{urlencode({'as_of': as_of})}"

    def after(self, writer: str, event: Event) -> ContentPlace | None:
        """Return the place of the content after an event; None where the event speaks of none."""
        return self._place(event.content_claim, f"events/{writer}/{event.event_id}/content{self._then}")

    def before(self, writer: str, event: Event) -> ContentPlace | None:
        """Return the place of the content before an event; None where the event speaks of none."""
        claim = event.previous_content_claim
        return self._place(claim, f"events/{writer}/{event.event_id}/content/previous{self._then}")

    def _place(self, claim: ContentClaim | None, href: str) -> ContentPlace | None:
        if claim is None:
            return None
        availability = self._reader.availability(claim)
        can_be_had = availability is Availability.AVAILABLE
        return ContentPlace(availability=str(availability), size=claim.size, href=href if can_be_had else None)
