"""Numbers and uuids that are made from names, the same everywhere; this loads no more than msgspec.

The upper 20 bits of an ordinal are an hour since 1970 and the lower 43 a digest of names: events of one time get
ordinals near each other, and a look-up reads the logs of that time only. Without a time that every copy shares, all 63
bits are digest.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable

import msgspec

NAMESPACE = uuid.UUID("7d9ab0a7-9d1e-5b1c-9c43-6f6f1b3f7c50")
"""Namespace of all uuids that custody makes from names. Part of what is stored: never change it."""
_NAMESPACE_BYTES = NAMESPACE.bytes
# Hour and digest make the ordinals that are stored. Never change how: an event read again would count as a new one.
HOUR_MS = 3_600_000
HOUR_MAX = (1 << 20) - 1  # the year 2089; later hours share its numbers
HOUR_SHIFT = 43


def digest_ordinal(parts: Iterable[str | None], time_ms: int | None) -> int:
    """Return the ordinal of the event that these texts identify, from 0 to 2^63-1."""
    digest = int.from_bytes(hashlib.sha256(msgspec.json.encode(list(parts))).digest()[:8])
    if time_ms is None:
        return digest >> 1
    hour = min(max(time_ms, 0) // HOUR_MS, HOUR_MAX)
    return hour << HOUR_SHIFT | digest >> (64 - HOUR_SHIFT)


def uuid_of_name(kind: str, *parts: str | None) -> str:
    """Return the uuid of something that has only a name; the same name gives the same uuid everywhere."""
    # As uuid.uuid5, which makes an object of it first and takes four times as long.
    name = msgspec.json.encode([kind, *parts])
    digest = bytearray(hashlib.sha1(_NAMESPACE_BYTES + name, usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
