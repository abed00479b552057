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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

import msgspec
from zlib_ng import zlib_ng

from custody.errors import CorruptionError, FormatVersionError

# Marks and head are part of every format that is made of records: never change.
MARK = b"\xc5\x7e\xa1\x1d"
PART_MARK = b"\xc5\x7e\xa1\x1e"
_ANY_MARK = re.compile(b"\xc5\x7e\xa1[\x1d\x1e]")
_HEAD = struct.Struct("<4sIIB")
HEAD_BYTES = _HEAD.size
PAYLOAD_BYTES_MAX = 1 << 30
Document = TypeVar("Document", bound=msgspec.Struct)


def _checksum(length: int, kind: int, *pieces: bytes | memoryview) -> int:
    # Length and kind are covered too: a damaged head must not make other bytes pass for a record.
    checksum = zlib_ng.crc32(struct.pack("<IB", length, kind))
    for piece in pieces:
        checksum = zlib_ng.crc32(piece, checksum)
    return checksum


def frame(kind: int, *pieces: bytes | memoryview) -> bytes:
    """Return one record ready to be appended, whose payload is the pieces one after the other; `kind` is 0 to 255."""
    return b"".join(framed(kind, *pieces))


def framed(kind: int, *pieces: bytes | memoryview) -> tuple[bytes | memoryview, ...]:
    """Return one record as `frame` does, in pieces to be written one after the other; its payload is not copied."""
    length = sum(map(len, pieces))
    if length > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a record holds at most {PAYLOAD_BYTES_MAX} bytes, got {length}")
    return (_HEAD.pack(MARK, length, _checksum(length, kind, *pieces), kind), *pieces)


def join_records(kind: int, records: Sequence[bytes]) -> bytes:
    """Return several records as the parts of one; the mark is not part of the checksum."""
    return frame(kind, b"".join(piece for record in records for piece in (PART_MARK, memoryview(record)[4:])))


class Frame(msgspec.Struct, frozen=True, gc=False):
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
            record = _next_whole_record(view, offset + 1)
            end = len(view) if record is None else record.offset
            yield Gap(offset, end - offset)
            if record is None:
                return
        yield record
        offset = record.end


def misplaced_parts(data: bytes | memoryview, start: int = 0) -> Iterator[int]:
    """Yield where records that are no part of another one have the mark of a part: no checksum covers the mark."""
    return (item.offset for item in frames(data, start) if isinstance(item, Frame) and item.is_part)


def _next_whole_record(view: memoryview, start: int) -> Frame | None:
    """Return the first whole record that begins at `start` or behind it; a bad record's length cannot be trusted."""
    # A mark alone proves nothing, payloads of Arrow hold any bytes: the checksum decides.
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
    # Before the checksum, which costs a pass over as many bytes as a foreign length says.
    if mark not in (MARK, PART_MARK):
        return None
    payload = view[offset + HEAD_BYTES : offset + HEAD_BYTES + length]
    if len(payload) != length or checksum != _checksum(length, kind, payload):
        return None
    return Frame(offset, kind, payload, mark == PART_MARK)


@dataclass(frozen=True, slots=True)
class DocumentFormat(Generic[Document]):
    """The format of a small file: a preamble, and one record that holds a JSON document."""

    preamble: bytes
    """Seven letters and the version."""
    kind: int
    decoder: msgspec.json.Decoder[Document]
    name: str
    """The format's name, for messages: `lease`."""
    content: str
    """What the file holds, for messages: `a lease's holder`."""
    remedy: str
    """What to do about a damaged file."""

    def encode(self, document: Document) -> bytes:
        """Return the file's bytes."""
        return self.preamble + frame(self.kind, msgspec.json.encode(document))

    def decode(self, data: bytes, where: object) -> Document:
        """Return the document of a file; `where` it lies is named in errors.

        Raises:
            CorruptionError: it is damaged.
            FormatVersionError: it is of a version that this code does not know.
        """
        items = list(frames(data, len(self.preamble)))
        has_letters = data[:7] == self.preamble[:7]
        if not (has_letters and len(items) == 1 and isinstance(items[0], Frame) and items[0].kind == self.kind):
            raise CorruptionError(
                f"{where} @0: expected {self.content} with its checksum, got other bytes. {self.remedy}"
            )
        # Only after the checksum: where other bytes are damaged, too, the version byte proves nothing.
        if data[7] != self.preamble[7]:
            raise FormatVersionError(
                f"{where} @7: expected {self.name} version {self.preamble[7]}, got {data[7]}. Use a newer custody."
            )
        return self.decoder.decode(items[0].payload)


def read_head(
    data: memoryview, path: object, preamble: bytes, kind: int, header: msgspec.json.Decoder[Document], *, name: str
) -> tuple[Document, int]:
    """Return the header of a file of records, and where the first record behind it begins.

    Args:
        data: the file, or its beginning.
        path: where it lies; errors name it.
        preamble: what the file begins with: seven letters and the version.
        kind: of the record that holds the header, a JSON document.
        header: decodes it.
        name: the format's name, for messages: `resource claim`.

    Raises:
        FormatVersionError: it is of a version that this code does not know.
        CorruptionError: the head cannot be read.
    """
    shown = bytes(data[: len(preamble)])
    if shown != preamble:
        if shown[:-1] == preamble[:-1]:
            raise FormatVersionError(
                f"{path} @{len(preamble) - 1}: expected {name} version {preamble[-1]}, got {shown[-1]}. "
                "The file was written by a newer custody; use that one."
            )
        raise CorruptionError(f"{path} @0: expected the beginning of a {name}, {preamble!r}, got {shown!r}.")
    first = whole_record(data, len(preamble))
    if first is None or first.kind != kind or first.is_part:
        raise CorruptionError(f"{path} @{len(preamble)}: expected the header of a {name}, got other bytes.")
    try:
        return header.decode(first.payload), first.end
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptionError(f"{path} @{first.offset}: expected the header of a {name}: {error}.") from error


_SECTOR_BYTES = 512
"""What a disk writes as one: of an append that was not synced each sector survives or not, a lost one is zeros."""
# Each candidate costs a checksum of all bytes up to it, and foreign bytes may hold many marks.
_ENDS_MAX = 16
_ZERO_BYTES = re.compile(b"\0*")


@dataclass(frozen=True, slots=True)
class Tail:
    """The bytes behind the last whole record of a file that was appended to when its process died."""

    damaged: int
    """Up to here lie records that are all there and not as they were written: a crash leaves no such thing."""
    end: int
    """Up to here lies what may be the beginning of a write that was broken off."""
    is_certain: bool
    """Whether nothing behind `damaged` can be a record that was whole once: it is cut short, or was never written.

    Where a sector is missing, or other bytes are there than a record begins with, a lost write and damage to one that
    was synced look the same.
    """


def judge_tail(data: bytes | memoryview, start: int) -> Tail:
    """Tell damage from a torn write in what lies behind the last whole record, which ends at `start`.

    A record that is all there, of which its checksum or one other field of its head is wrong, or bytes of its payload,
    was whole: a write that was broken off is shorter, or lacks whole sectors.
    """
    view = memoryview(data)
    at = start
    while (end := _end_of_damaged(view, at)) is not None:
        at = end
    return Tail(at, len(view), _is_cut_short(view, at))


def _end_of_damaged(view: memoryview, offset: int) -> int | None:
    """Return where a damaged record that is all there ends, None when none begins at `offset`."""
    if offset + HEAD_BYTES > len(view) or _lacks_beginning(view, offset):
        return None
    head: tuple[bytes, int, int, int] = _HEAD.unpack_from(view, offset)
    mark, length, checksum, kind = head
    begin, stated_end = offset + HEAD_BYTES, offset + HEAD_BYTES + length
    # Candidates for the end, as the length may be what is damaged: where the head says, at the next marks, at the last
    # byte that is no zero, at the end of the file.
    marks = (match.start() for match in re.finditer(re.escape(MARK), view[begin:]))
    written = begin + len(bytes(view[begin:]).rstrip(b"\0"))
    for end in dict.fromkeys([stated_end, *(begin + at for at in islice(marks, _ENDS_MAX)), written, len(view)]):
        # All but the mark, or the length, is as it was written: the checksum says so.
        if end <= len(view) and checksum == _checksum(end - begin, kind, view[begin:end]):
            return end
    follows = bytes(view[stated_end : stated_end + len(MARK)])
    # The next record begins there, or would begin: so the length is right, and something else is damaged.
    is_in_place = MARK.startswith(follows) or (stated_end < len(view) and _is_zero(view[stated_end:]))
    if mark == MARK and stated_end <= len(view) and is_in_place and not _lacks_sector(view, offset, stated_end):
        return stated_end
    return None


def _is_cut_short(view: memoryview, offset: int) -> bool:
    """Whether what is left can hold no whole record: too few bytes, or nothing but zeros."""
    if offset + HEAD_BYTES > len(view) or _is_zero(view[offset:]):
        return True
    mark, length, _, _ = _HEAD.unpack_from(view, offset)
    return bool(mark == MARK and offset + HEAD_BYTES + length > len(view))


def _lacks_beginning(view: memoryview, offset: int) -> bool:
    """Whether all of a record is zeros that lies in the sector of the one before it: that write may have been lost."""
    # Without its mark the rest of the record can be there as it was written, and pass for one that was whole.
    boundary = -(-offset // _SECTOR_BYTES) * _SECTOR_BYTES
    return offset < boundary and _is_zero(view[offset:boundary])


def _lacks_sector(view: memoryview, start: int, stop: int) -> bool:
    """Whether a sector that begins in these bytes, or what there is of it, is nothing but zeros."""
    # The sector in which the record begins also holds older, synced bytes: it is not among those that a crash can lose.
    first = -(-start // _SECTOR_BYTES) * _SECTOR_BYTES
    return any(_is_zero(view[at : at + _SECTOR_BYTES]) for at in range(first, stop, _SECTOR_BYTES))


def _is_zero(view: memoryview) -> bool:
    return _ZERO_BYTES.fullmatch(view) is not None
