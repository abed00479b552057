"""Framing of records in an append-only file: mark, length, checksum, kind, payload.

A frame is `mark (4 bytes) | u32 payload length | u32 CRC-32 of length, kind and payload | u8 kind | payload`,
little-endian. No mark is valid UTF-8, so no text from outside contains one: behind damage the next whole record is
found by a search for it, and only the damaged one is lost.

Records that are written and synced together are the parts of one record. Parts have a mark of their own, so that they
are found when the record around them is damaged, and are not taken for something that was written later.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MARK = b"\xc5\x7e\xa1\x1d"
PART_MARK = b"\xc5\x7e\xa1\x1e"
_ANY_MARK = re.compile(b"\xc5\x7e\xa1[\x1d\x1e]")
_HEAD = struct.Struct("<4sIIB")
HEAD_BYTES = _HEAD.size
PAYLOAD_BYTES_MAX = 1 << 30


def _checksum(length: int, kind: int, *pieces: bytes | memoryview) -> int:
    checksum = zlib.crc32(struct.pack("<IB", length, kind))
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    return checksum


def frame(kind: int, *pieces: bytes | memoryview) -> bytes:
    """Return one record ready to be appended, whose payload is the pieces one after the other; `kind` is 0 to 255."""
    length = sum(map(len, pieces))
    if length > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a record holds at most {PAYLOAD_BYTES_MAX} bytes, got {length}")
    return b"".join((_HEAD.pack(MARK, length, _checksum(length, kind, *pieces), kind), *pieces))


def joined(kind: int, records: Sequence[bytes]) -> bytes:
    """Return several records as the parts of one; the mark is not part of the checksum."""
    return frame(kind, b"".join(piece for record in records for piece in (PART_MARK, memoryview(record)[4:])))


@dataclass(frozen=True, slots=True)
class Frame:
    """One intact record and where it began."""

    offset: int
    kind: int
    payload: memoryview
    is_part: bool = False
    """Whether it was written inside another record."""

    @property
    def end(self) -> int:
        """Where the next record begins."""
        return self.offset + HEAD_BYTES + len(self.payload)


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that are no whole record: damage, or the torn last write."""

    offset: int
    length: int


def frames(data: bytes | memoryview, start: int = 0) -> Iterator[Frame | Gap]:
    """Yield the whole records from `start` on, and the gaps between and behind them."""
    view = memoryview(data)
    offset = start
    while offset < len(view):
        record = whole_record(view, offset)
        if record is None:
            record = _nextwhole_record(view, offset + 1)
            end = len(view) if record is None else record.offset
            yield Gap(offset, end - offset)
            if record is None:
                return
        yield record
        offset = record.end


def misplaced_parts(data: bytes | memoryview, start: int = 0) -> Iterator[int]:
    """Yield where records that are no part of another one have the mark of a part: no checksum covers the mark."""
    return (item.offset for item in frames(data, start) if isinstance(item, Frame) and item.is_part)


def _nextwhole_record(view: memoryview, start: int) -> Frame | None:
    """Return the first whole record that begins at `start` or behind it; a bad record's length cannot be trusted."""
    for match in _ANY_MARK.finditer(view, start):
        record = whole_record(view, match.start())
        if record is not None:
            return record
    return None


def whole_record(view: memoryview, offset: int) -> Frame | None:
    """Return the record at `offset`, None unless all of it is there and its checksum right."""
    if offset + HEAD_BYTES > len(view):
        return None
    mark, length, checksum, kind = _HEAD.unpack_from(view, offset)
    if mark not in (MARK, PART_MARK):
        return None
    payload = view[offset + HEAD_BYTES : offset + HEAD_BYTES + length]
    if len(payload) != length or checksum != _checksum(length, kind, payload):
        return None
    return Frame(offset, kind, payload, mark == PART_MARK)
