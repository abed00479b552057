"""Framing of records in an append-only file: mark, length, checksum, kind, payload.

A frame is `mark (4 bytes) | u32 payload length | u32 CRC-32 of length, kind and payload | u8 kind | payload`,
little-endian. The mark is no valid UTF-8, so no text from outside contains it: behind damage the next whole record is
found by a search for it. A bad record is a torn tail only when no whole record follows it: appends come one after
the other, so what lies before a whole record was once whole itself, whatever its length says now.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from custody.errors import CorruptionError

MARK = b"\xc5\x7e\xa1\x1d"
_HEAD = struct.Struct("<4sIIB")
HEAD_BYTES = _HEAD.size
PAYLOAD_BYTES_MAX = 1 << 30


def _checksum(length: int, kind: int, payload: bytes | memoryview) -> int:
    return zlib.crc32(payload, zlib.crc32(struct.pack("<IB", length, kind)))


def frame(kind: int, payload: bytes) -> bytes:
    """Return one record ready to be appended; `kind` is 0 to 255."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a record holds at most {PAYLOAD_BYTES_MAX} bytes, got {len(payload)}")
    return _HEAD.pack(MARK, len(payload), _checksum(len(payload), kind, payload), kind) + payload


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

    Torn is a bad record that no whole one follows: a power failure may leave any part of the last append.

    Raises:
        CorruptionError: a record fails its checksum and a whole one follows it.
    """
    view = memoryview(data)
    offset = start
    while offset < len(view):
        record = _whole_record(view, offset)
        rest = len(view) - offset
        if record is not None:
            yield record
            offset += HEAD_BYTES + len(record.payload)
        elif _whole_record_after(data, offset):
            raise CorruptionError(
                f"{path} @{offset}: expected a whole record with its checksum, got other bytes. "
                f"{rest} bytes from here on were not read."
            )
        else:
            yield TornTail(offset, rest)
            return


def _whole_record_after(data: bytes, offset: int) -> bool:
    """Whether a whole record begins anywhere behind `offset`; the bad record's own length cannot be trusted."""
    view = memoryview(data)
    position = data.find(MARK, offset + 1)
    while position >= 0:
        if _whole_record(view, position) is not None:
            return True
        position = data.find(MARK, position + 1)
    return False


def _whole_record(view: memoryview, offset: int) -> Frame | None:
    """Return the record at `offset`, None unless all of it is there and its checksum right."""
    if offset + HEAD_BYTES > len(view):
        return None
    mark, length, checksum, kind = _HEAD.unpack_from(view, offset)
    payload = view[offset + HEAD_BYTES : offset + HEAD_BYTES + length]
    if mark != MARK or len(payload) != length or checksum != _checksum(length, kind, payload):
        return None
    return Frame(offset, kind, payload)
