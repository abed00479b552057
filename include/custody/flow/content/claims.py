"""Resource claims: the file that a content claim points into, and the events that carry such claims.

The container of a claim of custody's own is `custody:<writer>/<container>`. So a claim says by itself where its content
lies, also in an event of another writer, and is told from the claims of a NiFi whose events were ingested.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from custody.flow.flowfile import DIGEST_ATTRIBUTE
from custody.format.names import ContentPaths, is_claim, is_name, is_section
from custody.model import ContentClaim, Event

CLAIM_SCHEME = "custody:"


@dataclass(frozen=True, slots=True, order=True)
class ResourceClaim:
    """One file of a content repository, which holds the contents of several claims."""

    writer: str
    container: str
    section: str
    identifier: str

    @classmethod
    def of(cls, claim: ContentClaim | None) -> ResourceClaim | None:
        """Return the file that a claim speaks of; None for a claim of another content repository, or without one."""
        if claim is None or claim.container is None or claim.section is None or claim.identifier is None:
            return None
        return cls.parse(claim.container, claim.section, claim.identifier)

    @classmethod
    def parse(cls, container: str, section: str, identifier: str) -> ResourceClaim | None:
        """Return the file that the three fields of a claim name, None unless they are custody's."""
        if not container.startswith(CLAIM_SCHEME) or not is_section(section) or not is_claim(identifier):
            return None
        writer, _, name = container.removeprefix(CLAIM_SCHEME).partition("/")
        return cls(writer, name, section, identifier) if is_name(writer) and is_name(name) else None

    def path(self, store: Path) -> Path:
        """Return where the file lies."""
        return ContentPaths(store, self.writer).claim(self.container, self.section, self.identifier)

    def claim(self, offset: int, size: int) -> ContentClaim:
        """Return the claim of a content in this file; bytes."""
        return ContentClaim(
            container=f"{CLAIM_SCHEME}{self.writer}/{self.container}",
            section=self.section,
            identifier=self.identifier,
            offset=offset,
            size=size,
        )


@dataclass(frozen=True, slots=True)
class StoredContent:
    """A content that was acknowledged: where it lies and what it is."""

    claim: ContentClaim
    sha256: str
    """Hexadecimal."""

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self.claim.size or 0


def with_content(event: Event, stored: StoredContent) -> Event:
    """Return an event about a stored content: its claim, its size, and the digest that binds the two."""
    attributes: Mapping[str, str | None] = event.updated_attributes
    return msgspec.structs.replace(
        event,
        file_size=stored.size,
        content_claim=stored.claim,
        updated_attributes={**attributes, DIGEST_ATTRIBUTE: stored.sha256},
    )
