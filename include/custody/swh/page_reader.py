"""Decodes some pages of a file with pyarrow, which only knows how to decode whole column chunks.

The pages are put one behind the other as they are, with a footer that describes them as the only row group of a small
Parquet file. So what Parquet's encodings are is left to pyarrow, and a hundred pages cost one call.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from custody.eventlog.footer import MAGIC, TAIL_BYTES, cut_footer, footer_of, varint
from custody.swh.page_index import PageIndex
from custody.swh.tables import TableSpec

_DICTIONARIES = frozenset({"type"})
"""Columns with few different values: decoded as numbers, not as a text a row."""

_PHYSICAL = {"INT64": 2, "BYTE_ARRAY": 6, "FIXED_LEN_BYTE_ARRAY": 7}
"""As Parquet's specification numbers the types of values; the encodings below as well."""
_PLAIN, _RLE, _DELTA, _RLE_DICTIONARY = 0, 3, 5, 8
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_I64_NEXT = bytes((1 << 4 | _I64,))
"""Head of a number that is the next field of its struct."""
_UNUSED_SIZE = _I64_NEXT + b"\0"
"""A size that has to be there, and that pyarrow does not look at."""
_SIZE = 0xFFFFFFFF
_PAGES_OF_THREADS = 16
"""From so many pages on columns are decoded by several threads; for fewer that costs more than it gains."""


class PageReader:
    """Decodes pages of some columns of a table; for any number of threads."""

    def __init__(self, spec: TableSpec, columns: Sequence[str]) -> None:
        schema = pa.schema([spec.schema.field(name) for name in columns])
        self.columns = tuple(columns)
        sink = pa.BufferOutputStream()
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
                size = place[at + 1] & _SIZE
                pieces.append(_page(data, place[at], size, place[at + 1] >> 32))
                position += size
            chunks.append(_chunk(described, codec, count, start, first, position))
        group = b"".join((self._group, *chunks, _UNUSED_SIZE, _I64_NEXT, count, b"\0"))
        pieces.append(footer_of(self._footer.before, self._footer.after, [group], rows)[len(MAGIC) :])
        file = pq.ParquetFile(pa.BufferReader(b"".join(pieces)), read_dictionary=self._dictionaries, pre_buffer=False)
        table = file.read(use_threads=len(pages) >= _PAGES_OF_THREADS)
        if table.num_rows != rows:
            raise ValueError(f"expected {rows} rows, got {table.num_rows}")
        return table if table.column(0).num_chunks == 1 else table.combine_chunks()


def _page(data: memoryview, offset: int, size: int, crc32: int) -> memoryview:
    page = data[offset : offset + size]
    if zlib.crc32(page) != crc32:
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
