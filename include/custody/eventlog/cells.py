"""The cells of single rows of a block, cut from its Parquet pages without decoding the block.

pyarrow decodes whole columns: two thousand rows for one event, and 20 to 30 µs a column whatever is in it. This module
reads the pages that custody's own writer makes: one data page of version 1 a column, zstd, and of encodings those of
`log_writer`. Each page is decompressed whole, and only what lies on the way to the row is looked at.

Anything else is refused with `UnlikeError`, never guessed: another codec, several pages of a column, another encoding.
The caller decodes the block with pyarrow then, so that what is read does not depend on which way it was read. The bytes
of the block must have been checked before.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zstandard

from custody.eventlog.parquet_footer import read_varint, skip_struct
from custody.model import EVENT_SCHEMA, ContentClaim, Event

_VARINT = rb"([\x80-\xff]*[\x00-\x7f])"
_I32 = rb"\x15" + _VARINT
# A PageHeader in Thrift's compact protocol: kind, size, size compressed, CRC-32, then the head of a data page (values
# and three encodings) or of a dictionary (values and one encoding).
_HEAD = re.compile(_I32 * 3 + rb"\x15[\x80-\xff]*[\x00-\x7f](?:\x1c" + _I32 * 4 + rb"|\x3c" + _I32 * 2 + rb")")
_DATA, _DICTIONARY = b"\x00", b"\x04"
"""Kinds of pages, as Thrift spells Parquet's 0 and 2; encodings below in the same way."""
_PLAIN, _RLE, _DELTA, _DELTA_LENGTH, _DELTA_TEXT, _BY_DICTIONARY = b"\x00", b"\x06", b"\x0a", b"\x0c", b"\x0e", b"\x10"
_STATISTICS, _SORTED = 0x1C, (0x11, 0x12)
_END = b"\0\0"
_LEVELS = struct.Struct("<I")
_INT64 = struct.Struct("<q")
_INT64_BITS = 64
_WIDTH_MAX = 56
"""Widest packed number that lies within eight bytes wherever it begins in the first of them."""
_UPPER_BYTES = 256
_UPPER = {1: -1, 2: int.from_bytes(b"\xaa" * _UPPER_BYTES, "little")}
"""The upper bits of packed levels by their width, up to the bytes of a run, of which writers make half as many."""
_ONE_BYTE = 127
_LEAST_RUN = 2
"""Head of the shortest run: one value, not packed."""
_MARGIN_BYTES = 1024
_WALKED_MAX = 48
"""Up to so many texts are passed one by one; beyond, all of a page are found together."""
_SMALL_BYTES = 64
"""Pages up to this size, compressed, are often equal in many columns: those of nothing but nulls."""

Numbers = npt.NDArray[np.int64]


class UnlikeError(ValueError):
    """A page is none that this module reads; pyarrow may read it."""


class _Page:
    """A page of a column chunk: its head, and where its compressed bytes lie."""

    __slots__ = ("encoding", "end", "kind", "size", "start", "values")

    def __init__(self, data: memoryview, position: int, end: int) -> None:
        head = _HEAD.match(data, position)
        if head is None:
            raise UnlikeError("a page's head")
        self.kind, size, packed, values, self.encoding, definition, repetition, entries, way = head.groups()
        place = head.end()
        if values is None:
            values, self.encoding = entries, way
            place += data[place] in _SORTED
        else:
            if definition != _RLE or repetition != _RLE:
                raise UnlikeError("levels")
            if data[place] == _STATISTICS:
                place = skip_struct(data, place + 1)
        if data[place : place + 2] != _END:
            raise UnlikeError("a page's head")
        self.size = read_varint(size, 0)[0] >> 1
        self.values = read_varint(values, 0)[0] >> 1
        self.start = place + 2
        self.end = self.start + (read_varint(packed, 0)[0] >> 1)
        # Bytes that are as many as before compression may be plain: nothing tells apart which.
        if self.end > end or self.end - self.start == self.size:
            raise UnlikeError("sizes")


class _Chunk:
    """The dictionary, if there is one, and the data page of one column of a block."""

    __slots__ = ("data", "dictionary")

    def __init__(self, dictionary: _Page | None, data: _Page) -> None:
        self.dictionary = dictionary
        self.data = data


class BlockCells:
    """The pages of one block of a log that has exactly the columns of EVENT_SCHEMA, for one thread.

    Raises, as its methods do:
        UnlikeError: they are none that this module reads.
    """

    def __init__(self, data: memoryview, start: int, length: int, rows: int) -> None:
        self._data = data
        self._rows = rows
        self._decompressor = zstandard.ZstdDecompressor()
        self._small: dict[bytes, bytes] = {}
        self._contents: dict[int, bytes] = {}
        self._lists = b""
        self._lists_row = -1
        self._bounds = (0, 0)
        self._chunks = list(self._found(start, start + length))
        if len(self._chunks) != _LEAVES:
            raise UnlikeError("columns")

    @property
    def row_bytes(self) -> int:
        """What a row takes before compression, on average."""
        return sum(chunk.data.size for chunk in self._chunks) // max(self._rows, 1)

    def event(self, event_id: int) -> Event | None:
        """Return the event with an id, None if the block does not have it."""
        try:
            row = self._row(event_id)
            return None if row is None else Event(**{name: cut(self, leaf, row) for name, leaf, cut in _FIELDS})
        except (IndexError, struct.error, zstandard.ZstdError, OverflowError, TypeError) as error:
            raise UnlikeError(str(error)) from error

    def _found(self, position: int, end: int) -> Iterator[_Chunk]:
        try:
            while position < end:
                page = _Page(self._data, position, end)
                dictionary = None
                if page.kind == _DICTIONARY:
                    if page.encoding != _PLAIN:
                        raise UnlikeError("a dictionary")
                    dictionary, page = page, _Page(self._data, page.end, end)
                if page.kind != _DATA:
                    raise UnlikeError("a kind of pages")
                yield _Chunk(dictionary, page)
                position = page.end
        except IndexError as error:
            raise UnlikeError("a page's head") from error

    def _bytes(self, page: _Page) -> bytes:
        content = self._contents.get(page.start)
        if content is None:
            packed = bytes(self._data[page.start : page.end])
            content = self._small.get(packed) or self._decompressor.decompress(packed)
            if len(content) != page.size:
                raise UnlikeError("sizes")
            self._contents[page.start] = content
            if len(packed) <= _SMALL_BYTES:
                self._small[packed] = content
        return content

    def _row(self, event_id: int) -> int | None:
        chunk = self._chunks[0]
        if chunk.data.encoding != _DELTA or chunk.data.values != self._rows:
            raise UnlikeError("ids")
        ids, _ = _deltas(self._bytes(chunk.data), 0, self._rows)
        row = int(ids.searchsorted(event_id))
        return row if row < len(ids) and ids[row] == event_id else None

    def number(self, leaf: int, row: int, most: int) -> int | None:
        """Return the cell of a column of numbers, in which `most` is the level of a value that is there."""
        chunk = self._chunks[leaf]
        place, start = self._place(chunk, row, most)
        return None if place is None else self._number(chunk, start, place)

    def text(self, leaf: int, row: int, most: int) -> str | None:
        """Return the cell of a column of texts; arguments as of `number`."""
        chunk = self._chunks[leaf]
        place, start = self._place(chunk, row, most)
        return None if place is None else self._texts(chunk, start, place, place + 1)[0]

    def _place(self, chunk: _Chunk, row: int, most: int) -> tuple[int | None, int]:
        """Return which of the values of a column that is no list a row has, and where they begin in the page."""
        if chunk.data.values != self._rows:
            raise UnlikeError("several pages")
        if not most:
            return row, 0
        content = self._bytes(chunk.data)
        start, end = _levels_at(content, 0)
        before, levels = _levels(content, start, most, row, row + 1)
        return (before if levels[0] == most else None), end

    def level(self, leaf: int, row: int) -> int:
        """Return the level of a cell of a column within a group, up to two."""
        content = self._bytes(self._chunks[leaf].data)
        return _levels(content, _levels_at(content, 0)[0], 2, row, row + 1)[1][0]

    def texts(self, leaf: int, row: int, most: int) -> list[str | None]:
        """Return the elements of the list that a row has in a column; a list may be empty, and is never absent."""
        chunk = self._chunks[leaf]
        content = self._bytes(chunk.data)
        start, end = _levels_at(content, 0)
        # Names and values of attributes have the same lists, each in a page of its own.
        lists = content[start:end]
        if lists != self._lists or row != self._lists_row:
            self._bounds = _list_bounds(lists, row, chunk.data.values)
            self._lists, self._lists_row = lists, row
        start, end = _levels_at(content, end)
        before, levels = _levels(content, start, most, *self._bounds)
        if levels == [0]:
            return []
        values = iter(self._texts(chunk, end, before, before + levels.count(most)))
        return [next(values) if level == most else None for level in levels]

    def _number(self, chunk: _Chunk, start: int, place: int) -> int:
        content = self._bytes(chunk.data)
        if chunk.data.encoding == _PLAIN:
            return int(_INT64.unpack_from(content, start + 8 * place)[0])
        if chunk.data.encoding == _DELTA:
            return int(_deltas(content, start, place + 1)[0][place])
        raise UnlikeError("an encoding")

    def _texts(self, chunk: _Chunk, start: int, first: int, end: int) -> list[str]:
        """Return the values from one up to another one of a column of texts; they begin at a place of its page."""
        content, encoding = self._bytes(chunk.data), chunk.data.encoding
        if first == end:
            return []
        if encoding == _BY_DICTIONARY and chunk.dictionary is not None:
            numbers = _packed_some(content, start + 1, content[start], first, end)
            entries = self._bytes(chunk.dictionary)
            count = chunk.dictionary.values
            pieces = [_plain(entries, 0, number, number + 1, count)[0] for number in numbers]
        elif chunk.dictionary is not None:
            raise UnlikeError("a dictionary")
        elif encoding == _PLAIN:
            pieces = _plain(content, start, first, end, chunk.data.values)
        elif encoding == _DELTA_LENGTH:
            lengths, base = _deltas(content, start, end)
            base += int(lengths[:first].sum())
            pieces = []
            for length in lengths[first:end].tolist():
                pieces.append(_piece(content, base, length))
                base += length
        elif encoding == _DELTA_TEXT:
            pieces = [_joined(content, start, place) for place in range(first, end)]
        else:
            raise UnlikeError("an encoding")
        try:
            return [piece.decode() for piece in pieces]
        except UnicodeDecodeError as error:
            raise UnlikeError("a text") from error


def _levels_at(content: bytes, position: int) -> tuple[int, int]:
    """Return where the levels begin whose length stands at a place of a page, and where they end."""
    end = position + 4 + _LEVELS.unpack_from(content, position)[0]
    if end > len(content):
        raise UnlikeError("levels")
    return position + 4, end


def _levels(content: bytes, position: int, most: int, first: int, last: int) -> tuple[int, list[int]]:
    """Return how many levels before a place are the highest one, and the levels from there up to another place.

    The highest one is 1 or 2, so that it alone has the upper bit of its width. Levels are a mix of runs: so many equal
    ones, or so many times eight that are packed.
    """
    width = most.bit_length()
    upper, mask = _UPPER[width], (1 << width) - 1
    before = done = 0
    found: list[int] = []
    while done < last:
        head = content[position]
        position += 1
        if head > _ONE_BYTE:
            head, position = read_varint(content, position - 1)
        # Nothing is never written, and would go on for ever.
        if head < _LEAST_RUN:
            raise UnlikeError("a run")
        if head & 1:
            size = (head >> 1) * width
            if size > _UPPER_BYTES:
                raise UnlikeError("a run")
            count = head >> 1 << 3
            bits = int.from_bytes(content[position : position + size], "little")
            position += size
            if done + count <= first:
                before += (bits & upper).bit_count()
            else:
                earlier = max(first - done, 0)
                before += (bits & upper & (1 << earlier * width) - 1).bit_count()
                found += [bits >> place * width & mask for place in range(earlier, min(last - done, count))]
        else:
            count = head >> 1
            value = content[position]
            position += 1
            if done + count <= first:
                if value == most:
                    before += count
            else:
                earlier = max(first - done, 0)
                if value == most:
                    before += earlier
                found += [value] * (min(last - done, count) - earlier)
        done += count
    return before, found


def _list_bounds(content: bytes, row: int, count: int) -> tuple[int, int]:
    """Return where the elements of a row begin and end, by levels of one bit that are 0 where a row begins."""
    position = done = 0
    left = row
    first = -1
    while done < count:
        head = content[position]
        position += 1
        if head > _ONE_BYTE:
            head, position = read_varint(content, position - 1)
        if head < _LEAST_RUN:
            raise UnlikeError("a run")
        length = head >> 1
        if head & 1:
            bits = int.from_bytes(content[position : position + length], "little")
            position += length
            length <<= 3
            begins = length - bits.bit_count()
            # Two rows may begin here: this one, and the one behind it.
            while left < begins:
                rest = ~bits & (1 << length) - 1
                for _ in range(left):
                    rest &= rest - 1
                place = done + (rest & -rest).bit_length() - 1
                if first >= 0:
                    return first, min(place, count)
                first = place
                left += 1
            left -= begins
        else:
            if not content[position]:
                if left < length:
                    if first >= 0:
                        return first, done + left
                    first = done + left
                    left += 1
                    if left < length:
                        return first, first + 1
                left -= length
            position += 1
        done += length
    if not 0 <= first < count:
        raise UnlikeError("lists")
    return first, count


def _packed_some(content: bytes, position: int, width: int, first: int, end: int) -> list[int]:
    """Return the numbers from one place up to another one of a mix of runs; of width 0 all are 0."""
    if not width:
        return [0] * (end - first)
    found: list[int] = []
    done = 0
    mask = (1 << width) - 1
    size = width + 7 >> 3
    while done < end:
        head = content[position]
        position += 1
        if head > _ONE_BYTE:
            head, position = read_varint(content, position - 1)
        if head < _LEAST_RUN:
            raise UnlikeError("a run")
        count = head >> 1
        if head & 1:
            for place in range(max(first - done, 0), min(end - done, count * 8)):
                at = position + (place * width >> 3)
                found.append(int.from_bytes(content[at : at + 8], "little") >> (place * width & 7) & mask)
            position += count * width
            count *= 8
        else:
            if done + count > first:
                value = int.from_bytes(content[position : position + size], "little")
                found += [value] * (min(end - done, count) - max(first - done, 0))
            position += size
        done += count
    return found


def _plain(content: bytes, position: int, first: int, end: int, count: int) -> list[bytes]:
    """Return some of the plain texts, at most `count`, that begin at a place of a page, each behind its length."""
    if end > _WALKED_MAX and (starts := _starts(content, position, end, count)) is not None:
        position, first, end = int(starts[first]), 0, end - first
    for _ in range(first):
        position += 4 + _LEVELS.unpack_from(content, position)[0]
    pieces = []
    for _ in range(first, end):
        length = _LEVELS.unpack_from(content, position)[0]
        pieces.append(_piece(content, position + 4, length))
        position += 4 + length
    return pieces


def _starts(content: bytes, position: int, end: int, count: int) -> Numbers | None:
    """Return where the first plain texts of a page begin, `end` or more, found at once by the zeros of short lengths.

    None where they cannot be told from what the texts hold. A place counts only if the chain of lengths from the first
    text on leads to it, so that no text can pass for a length.
    """
    # As much as that many texts of usual lengths take, and a little more.
    likely_bytes = (len(content) - position) * (end + 1) // max(count, 1)
    held = np.frombuffer(content, np.uint8, offset=position)[: likely_bytes + (likely_bytes >> 4) + _MARGIN_BYTES]
    zero = held == 0
    likely = np.flatnonzero(zero[1:-2] & zero[2:-1] & zero[3:])
    if len(likely) < end or likely[0]:
        return None
    likely = likely[:end]
    if not np.array_equal((likely + held[likely] + 4)[:-1], likely[1:]):
        return None
    return likely + position


def _piece(content: bytes, start: int, length: int) -> bytes:
    piece = content[start : start + length]
    if len(piece) != length:
        raise UnlikeError("texts")
    return piece


def _joined(content: bytes, position: int, place: int) -> bytes:
    """Return a text whose beginning is that of the one before it."""
    prefixes, position = _deltas(content, position, place + 1)
    lengths, position = _deltas(content, position, place + 1)
    ends = position + np.cumsum(lengths)
    text = b""
    needed = int(prefixes[place] + lengths[place])
    while True:
        shared = int(prefixes[place])
        start = int(ends[place] - lengths[place])
        text = _piece(content, start, needed - shared) + text
        if not shared:
            return text
        # What is shared comes from the last one before that has less of its beginning from others.
        needed = shared
        place = int(np.flatnonzero(prefixes[:place] < shared)[-1])


def _deltas(content: bytes, position: int, end: int) -> tuple[Numbers, int]:
    """Return the first numbers, up to `end`, of a run of differences, and the position behind all of them."""
    size, position = read_varint(content, position)
    parts, position = read_varint(content, position)
    total, position = read_varint(content, position)
    head, position = read_varint(content, position)
    value = head >> 1 ^ -(head & 1)
    if end > total or not parts or size % (32 * parts):
        raise UnlikeError("differences")
    blocks = -(-(total - 1) // size)
    head, behind = read_varint(content, position) if blocks else (0, position)
    # Texts of one length, and ids without gaps: the same block again and again, with nothing packed.
    same = content[position:behind] + bytes(parts)
    if content[position : position + len(same) * blocks] == same * blocks:
        return np.arange(end, dtype=np.int64) * (head >> 1 ^ -(head & 1)) + value, position + len(same) * blocks
    each = size // parts
    least: list[int] = []
    widths = bytearray()
    starts: list[int] = []
    left = total - 1
    for _ in range(blocks):
        head, position = read_varint(content, position)
        least.append(head >> 1 ^ -(head & 1))
        some = content[position : position + parts]
        position += parts
        # Parts behind the last number are not there, whatever their widths say.
        some = some[: -(-left // each)]
        for width in some:
            starts.append(position)
            position += width * each >> 3
        widths += some + bytes(parts - len(some))
        starts += [position] * (parts - len(some))
        left -= size
    if position > len(content) or max(widths) > _WIDTH_MAX:
        raise UnlikeError("differences")
    differences = _packed(content, starts, widths, each, end) + np.repeat(np.array(least), size)[: end - 1]
    values = np.empty(end, np.int64)
    values[0] = 0
    np.cumsum(differences, out=values[1:])
    return values + value, position


def _packed(content: bytes, starts: Sequence[int], widths: bytearray, each: int, end: int) -> Numbers:
    """Return the packed numbers of the parts of a run, as many as are needed for its first `end` values."""
    count = -(-(end - 1) // each)
    wide = np.frombuffer(widths, np.uint8)[:count].astype(np.int64)[:, None]
    bits = np.array(starts[:count], np.int64)[:, None] * 8 + wide * np.arange(each)
    if len(content) < _INT64.size:
        content += bytes(_INT64.size)
    windows = np.ndarray((len(content) - 7,), "<u8", content, 0, (1,))
    # Near the end of the page the window lies before it, and the number further up in it.
    places = np.minimum(bits >> 3, len(windows) - 1)
    numbers = windows[places] >> (bits - 8 * places).astype(np.uint64)
    masked: Numbers = (numbers & ((1 << wide) - 1).astype(np.uint64)).astype(np.int64)
    return masked.reshape(-1)[: end - 1]


_Cut = Callable[[BlockCells, int, int], Any]


def _number_cut(most: int) -> _Cut:
    return lambda cells, leaf, row: cells.number(leaf, row, most)


def _text_cut(most: int) -> _Cut:
    return lambda cells, leaf, row: cells.text(leaf, row, most)


def _uuids(cells: BlockCells, leaf: int, row: int) -> tuple[str | None, ...]:
    return tuple(cells.texts(leaf, row, 1))


def _attributes(cells: BlockCells, leaf: int, row: int) -> dict[str | None, str | None]:
    return dict(zip(cells.texts(leaf, row, 1), cells.texts(leaf + 1, row, 2), strict=True))


def _claim(cells: BlockCells, leaf: int, row: int) -> ContentClaim | None:
    if not cells.level(leaf, row):
        return None
    texts = [cells.text(leaf + place, row, 2) for place in range(3)]
    return ContentClaim(*texts, *(cells.number(leaf + place, row, 2) for place in (3, 4)))


def _fields() -> Iterator[tuple[str, int, _Cut]]:
    """Yield of each column its name, the number of its first leaf in Parquet, and how its cells are cut."""
    leaf = 0
    for field in EVENT_SCHEMA:
        cut: _Cut
        leaves = 1
        if pa.types.is_map(field.type):
            cut, leaves = _attributes, 2
        elif pa.types.is_list(field.type):
            cut = _uuids
        elif pa.types.is_struct(field.type):
            cut, leaves = _claim, field.type.num_fields
        else:
            cut = (_text_cut if pa.types.is_string(field.type) else _number_cut)(int(field.nullable))
        yield field.name, leaf, cut
        leaf += leaves


_FIELDS = tuple(_fields())
_LEAVES = sum(field.type.num_fields if pa.types.is_struct(field.type) else 1 + pa.types.is_map(field.type) for field in EVENT_SCHEMA)
