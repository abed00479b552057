"""Framing of records in an append-only file: length, checksum, kind, payload.

A frame is `u32 payload length | u32 CRC-32 of length, kind and payload | u8 kind | payload`, little-endian. The
checksum covers the length, so that a damaged length is not mistaken for a torn tail in the middle of a file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from custody.errors import CorruptionError

_HEAD = struct.Struct("<IIB")
HEAD_BYTES = _HEAD.size
PAYLOAD_BYTES_MAX = 1 << 30


def _checksum(length: int, kind: int, payload: bytes | memoryview) -> int:
    return zlib.crc32(payload, zlib.crc32(struct.pack("<IB", length, kind)))


def frame(kind: int, payload: bytes) -> bytes:
    """Return one record ready to be appended; `kind` is 0 to 255."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a record holds at most {PAYLOAD_BYTES_MAX} bytes, got {len(payload)}")
    return _HEAD.pack(len(payload), _checksum(len(payload), kind, payload), kind) + payload


@dataclass(frozen=True, slots=True)
class Frame:
    """One intact record and where it began."""

    offset: int
    kind: int
    payload: memoryview


@dataclass(frozen=True, slots=True)
class TornTail:
    """The last record is incomplete: an append that no caller was told of."""

    offset: int
    lost_bytes: int


def frames(data: bytes, start: int, path: Path) -> Iterator[Frame | TornTail]:
    """Yield the records of a file from `start`; a torn tail comes last, as a TornTail.

    Torn is a record that the file ends inside of, or zeros to the end of the file (space allotted, never written).

    Raises:
        CorruptionError: a record before the last bytes of the file fails its checksum.
    """
    view = memoryview(data)
    offset = start
    while offset < len(view):
        rest = len(view) - offset
        if rest < HEAD_BYTES:
            yield TornTail(offset, rest)
            return
        length, checksum, kind = _HEAD.unpack_from(view, offset)
        end = offset + HEAD_BYTES + length
        payload = view[offset + HEAD_BYTES : end]
        if end <= len(view) and checksum == _checksum(length, kind, payload):
            yield Frame(offset, kind, payload)
            offset = end
        elif end >= len(view) or not any(view[offset:]):
            yield TornTail(offset, rest)
            return
        else:
            raise CorruptionError(
                f"{path} @{offset}: expected a record with checksum {checksum:#010x}, got other bytes. "
                f"{rest} bytes from here on were not read."
            )
