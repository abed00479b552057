"""Pages of a table's file: where they are, how some of them are decoded, and a cache of decoded ones.

Pages of all columns have the same rows, so a page stands for some rows, with a place for each column. The places are a
part of the file's index. As it has everything that decoding needs, the footer of the file is not read.

pyarrow can only decode whole column chunks. The reader therefore puts the wanted pages one behind the other as they
are, with a footer that describes them as the only row group of a small Parquet file. So Parquet's encodings are left to
pyarrow, and a hundred pages cost one call.

The cache keeps a page when it is needed for the second time within a while. Contents are spread over the whole table:
to keep what one query touched would only push out what others share, and take fresh memory each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from zlib_ng import zlib_ng

from custody.errors import CorruptionError
from custody.eventlog.parquet_footer import MAGIC, TAIL_BYTES, cut_footer, footer_of, read_varint, skip_struct, varint
from custody.swh.elias_fano import CheckedWords
from custody.swh.tables import TableSpec

if TYPE_CHECKING:
    from custody.store.ranged_file import RangedFile, Span

COLUMN = np.dtype([("codec", "<u4"), ("size", "<u4"), ("offset", "<u8"), ("crc32", "<u4"), ("zero", "<u4")])
"""Of a column: its codec, as Parquet numbers them, and its dictionary page, where it has one; part of the format."""
CODECS = {"UNCOMPRESSED": 0, "ZSTD": 6}
"""As Parquet's specification numbers them."""
CACHE_BYTES = 64 << 20
_SEEN_MAX = 512
"""How many pages that were needed once are remembered by name."""
_PAGES_OF_THREADS = 16
"""From so many pages on columns are decoded by several threads; for fewer that costs more than it gains."""
_UINT32_MAX = 0xFFFFFFFF
_DATA_PAGE = 0
_STRUCT, _STOP = 12, 0
_KIND, _SIZE, _DATA_HEAD, _DICTIONARY_HEAD = 1, 3, 5, 7
"""Fields of Parquet's PageHeader; the first field of either head is the number of values."""
_DICTIONARIES = frozenset({"type"})
"""Columns with few different values: decoded as numbers, not as a text a row."""
_PHYSICAL = {"INT64": 2, "BYTE_ARRAY": 6, "FIXED_LEN_BYTE_ARRAY": 7}
"""As Parquet's specification numbers the types of values; the encodings below as well."""
_PLAIN, _RLE, _DELTA, _RLE_DICTIONARY = 0, 3, 5, 8
_I32, _I64, _BINARY, _LIST = 5, 6, 8, 9
_I64_NEXT = bytes((1 << 4 | _I64,))
"""Head of a number that is the next field of its struct."""
_UNUSED_SIZE = _I64_NEXT + b"\0"
"""A size that has to be there, and that pyarrow does not look at."""


@dataclass(frozen=True, slots=True)
class PageIndex:
    """The pages of a file, in the order of its rows.

    From word `start` on: the first key of each page; then for each page its number of rows, and of each column the
    offset of its page in the file and a word of its size in bytes (lower half) and its CRC-32, its head included.
    """

    columns: np.ndarray
    words: CheckedWords
    start: int
    count: int
    stored: tuple[tuple[int, ...], ...] = ()
    """The columns as numbers of Python: codec; size, offset and CRC-32 of the dictionary page."""

    def __post_init__(self) -> None:
        """Take the columns apart."""
        object.__setattr__(self, "stored", tuple(tuple(row[:4]) for row in self.columns.tolist()))

    @property
    def firsts(self) -> np.ndarray:
        """The first key of each page."""
        return self.words.part(self.start, self.start + self.count)

    def of_key(self, key: int) -> range:
        """Return the pages that hold the rows of a key of this file."""
        sought, firsts = np.uint64(key), self.firsts
        # The rows of a key may begin in the page before the one that it is the first of.
        begin = max(int(firsts.searchsorted(sought, "left")) - 1, 0)
        return range(begin, int(firsts.searchsorted(sought, "right")))

    def of_keys(self, keys: np.ndarray) -> list[int]:
        """Return the pages that hold the rows of some keys of this file, in order."""
        firsts = self.firsts
        # As in `of_key`: the rows of a key may begin in the page before.
        begin = np.maximum(np.searchsorted(firsts, keys, side="left") - 1, 0)
        end = np.searchsorted(firsts, keys, side="right")
        # +1 where the pages of a key begin, -1 behind them: the running sum is positive at pages that some key needs.
        marks = np.zeros(self.count + 1, np.int64)
        np.add.at(marks, begin, 1)
        np.add.at(marks, end, -1)
        return [int(page) for page in np.flatnonzero(np.cumsum(marks)[:-1])]

    def places(self, page: int) -> list[int]:
        """Return the words of a page."""
        width = 1 + 2 * len(self.columns)
        start = self.start + self.count + page * width
        words: list[int] = self.words.part(start, start + width).tolist()
        return words


class PageReader:
    """Decodes pages of some columns of a table; for any number of threads."""

    def __init__(self, spec: TableSpec, columns: Sequence[str]) -> None:
        schema = pa.schema([spec.schema.field(name) for name in columns])
        self.columns = tuple(columns)
        sink = pa.BufferOutputStream()
        # An empty file gives pyarrow's own footer for these columns: only the row group is added by hand.
        pq.ParquetWriter(sink, schema, store_schema=False).close()
        empty = sink.getvalue().to_pybytes()
        length = int.from_bytes(empty[-TAIL_BYTES:-4], "little")
        self._footer = cut_footer(empty[-TAIL_BYTES - length : -TAIL_BYTES])
        kinds = pq.ParquetFile(pa.BufferReader(empty)).schema
        self._columns = [
            (spec.schema.get_field_index(name), _described(name, _PHYSICAL[kinds.column(place).physical_type]))
            for place, name in enumerate(columns)
        ]
        self._group = bytes((1 << 4 | _LIST, len(columns) << 4 | _STRUCT))
        self._dictionaries = sorted(_DICTIONARIES.intersection(columns))

    def fetch(self, file: RangedFile, index: PageIndex, pages: Sequence[int]) -> None:
        """Fetch what is not whole here of some pages of a file in an object store.

        Raises:
            NotFoundError: the file is gone.
            StorageError: the store or the disk refuses.
        """
        places = [index.places(page) for page in pages]
        checksums: dict[Span, int] = {}
        for number, _ in self._columns:
            _, dictionary, offset, crc32 = index.stored[number]
            checksums[offset, offset + dictionary] = crc32
            for place in places:
                start, at = place[1 + 2 * number], place[2 + 2 * number]
                checksums[start, start + (at & _UINT32_MAX)] = at >> 32

        def is_whole(span: Span) -> bool:
            return zlib_ng.crc32(file.view[span[0] : span[1]]) == checksums[span]

        file.fetch([span for span in checksums if not is_whole(span)], is_whole)

    def read(self, data: memoryview, index: PageIndex, pages: Sequence[int]) -> pa.Table:
        """Return the rows of some pages of a file; each column is one array.

        Raises:
            ValueError: a page is not the one that the index tells of.
            OSError, pyarrow.ArrowException, MemoryError: it is, and cannot be decoded.
        """
        places = [index.places(page) for page in pages]
        rows = sum(place[0] for place in places)
        count = varint(rows << 1)
        pieces: list[bytes | memoryview] = [MAGIC]
        chunks: list[bytes] = []
        position = len(MAGIC)
        for number, described in self._columns:
            codec, dictionary, offset, crc32 = index.stored[number]
            start = position
            if dictionary:
                pieces.append(_page(data, offset, dictionary, crc32))
                position += dictionary
            first = position
            at = 1 + 2 * number
            for place in places:
                size = place[at + 1] & _UINT32_MAX
                pieces.append(_page(data, place[at], size, place[at + 1] >> 32))
                position += size
            chunks.append(_chunk(described, codec, count, start, first, position))
        group = b"".join((self._group, *chunks, _UNUSED_SIZE, _I64_NEXT, count, b"\0"))
        pieces.append(footer_of(self._footer.before, self._footer.after, [group], rows)[len(MAGIC) :])
        # Memory of pyarrow's own: its threads let go of the bytes after the answer is there, and to free bytes of
        # Python's they would need Python's lock, which aborts a process that ends in that moment.
        with pa.BufferOutputStream() as whole:
            for piece in pieces:
                whole.write(piece)
            file = pq.ParquetFile(whole.getvalue(), read_dictionary=self._dictionaries, pre_buffer=False)
        table = file.read(use_threads=len(pages) >= _PAGES_OF_THREADS)
        if table.num_rows != rows:
            raise ValueError(f"expected {rows} rows, got {table.num_rows}")
        # One array a column: the caller finds its rows by one search.
        return table if table.column(0).num_chunks == 1 else table.combine_chunks()


class PageCache:
    """Keeps the pages that were used last, up to a number of bytes; for any number of threads."""

    def __init__(self, bytes_max: int = CACHE_BYTES) -> None:
        self._bytes_max = bytes_max
        self._held: OrderedDict[Hashable, tuple[pa.Table, int]] = OrderedDict()
        self._seen: OrderedDict[Hashable, None] = OrderedDict()
        self._lock = Lock()
        self.bytes = 0

    def get(self, key: Hashable, read: Callable[[], pa.Table]) -> pa.Table:
        """Return the page of a key; it is read when it is not here."""
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                # The front of the order is what was used longest ago: that goes first.
                self._held.move_to_end(key)
                return held[0]
        # Decoded without the lock: two threads may decode the same page at once, which costs less than waiting.
        page = read()
        with self._lock:
            if self._is_wanted_again(key) and (size := page.nbytes) <= self._bytes_max and key not in self._held:
                self._held[key] = page, size
                self.bytes += size
            while self.bytes > self._bytes_max:
                _, (_, gone) = self._held.popitem(last=False)
                self.bytes -= gone
        return page

    def _is_wanted_again(self, key: Hashable) -> bool:
        if key in self._seen:
            del self._seen[key]
            return True
        self._seen[key] = None
        if len(self._seen) > _SEEN_MAX:
            self._seen.popitem(last=False)
        return False


def page_words(pages: int, columns: int) -> int:
    """Return how many words the pages of a file take in its index."""
    return pages * (2 + 2 * columns)


def find_pages(
    data: memoryview, metadata: pq.FileMetaData, page_rows: int, path: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns (`COLUMN`) of a file that was just written, and of each page its row of words.

    Args:
        page_rows: rows of each page, but the last one of a row group.

    Raises:
        CorruptionError: its columns are not cut into such pages, or have several dictionaries.
    """
    rows: list[int] = []
    for group in range(metadata.num_row_groups):
        group_rows = metadata.row_group(group).num_rows
        rows += [page_rows] * (group_rows // page_rows) + [group_rows % page_rows] * (group_rows % page_rows > 0)
    columns = np.zeros(metadata.num_columns, COLUMN)
    places = np.empty((len(rows), 1 + 2 * metadata.num_columns), np.uint64)
    places[:, 0] = rows
    for number in range(metadata.num_columns):
        data_pages: list[tuple[int, int, int]] = []
        dictionaries: dict[bytes, int] = {}
        for group in range(metadata.num_row_groups):
            chunk = metadata.row_group(group).column(number)
            columns[number]["codec"] = CODECS[chunk.compression]
            offset = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
            for kind, values, start, end in _pages(data, offset, offset + chunk.total_compressed_size):
                if kind == _DATA_PAGE:
                    data_pages.append((values, start, end - start | zlib_ng.crc32(data[start:end]) << 32))
                else:
                    # Equal dictionaries of several row groups count as one: pages of all of them are decoded together.
                    dictionaries.setdefault(bytes(data[start:end]), start)
        if [page[0] for page in data_pages] != rows or len(dictionaries) > 1:
            raise CorruptionError(
                f"{path}: column {number}: expected pages of {page_rows} rows and one dictionary at most, got "
                f"{len(data_pages)} pages and {len(dictionaries)} dictionaries."
            )
        for page, start in dictionaries.items():
            columns[number]["size"], columns[number]["offset"] = len(page), start
            columns[number]["crc32"] = zlib_ng.crc32(page)
        places[:, 1 + 2 * number : 3 + 2 * number] = np.array(data_pages, np.uint64)[:, 1:]
    return columns, places


def _pages(data: memoryview, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The pages of a column chunk: kind, number of values, where it begins and ends."""
    while position < end:
        start = position
        field = kind = size = values = 0
        while (head := data[position]) != _STOP:
            field += head >> 4
            position += 1
            if head & 15 == _STRUCT:
                if field in (_DATA_HEAD, _DICTIONARY_HEAD):
                    values = read_varint(data, position + 1)[0] >> 1
                position = skip_struct(data, position)
                continue
            number, position = read_varint(data, position)
            if field == _KIND:
                kind = number >> 1
            elif field == _SIZE:
                size = number >> 1
        position += 1 + size
        yield kind, values, start, position


def _page(data: memoryview, offset: int, size: int, crc32: int) -> memoryview:
    page = data[offset : offset + size]
    if zlib_ng.crc32(page) != crc32:
        raise ValueError(f"the checksum of the page @{offset} does not match")
    return page


def _described(name: str, kind: int) -> bytes:
    """A ColumnChunk up to the codec in its ColumnMetaData: where it is (unused), type, encodings, name."""
    chunk = bytes((2 << 4 | _I64, 0, 1 << 4 | _STRUCT))
    encodings = b"".join(varint(one << 1) for one in (_PLAIN, _RLE, _DELTA, _RLE_DICTIONARY))
    kinds = bytes((1 << 4 | _I32, kind << 1, 1 << 4 | _LIST, 4 << 4 | _I32)) + encodings
    return chunk + kinds + bytes((1 << 4 | _LIST, 1 << 4 | _BINARY)) + varint(len(name)) + name.encode()


def _chunk(described: bytes, codec: int, count: bytes, start: int, first: int, end: int) -> bytes:
    """The whole ColumnChunk: further the codec, number of values, size, and places of the first pages."""
    sizes = _UNUSED_SIZE + _I64_NEXT + varint(end - start << 1)
    places = bytes((2 << 4 | _I64,)) + varint(first << 1)
    if first > start:
        places += bytes((2 << 4 | _I64,)) + varint(start << 1)
    return b"".join((described, bytes((1 << 4 | _I32, codec << 1, 1 << 4 | _I64)), count, sizes, places, b"\0\0"))
