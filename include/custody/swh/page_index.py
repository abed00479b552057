"""Where the pages of a table's file are, and what they are checked by: a part of its index.

Pages of all columns have the same rows, so a page stands for some rows, with a place for each column. As the index has
all that a page needs to be decoded, the footer of the file is not read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from custody.errors import CorruptionError
from custody.eventlog.footer import read_varint, skip_struct
from custody.swh.checked_words import CheckedWords

COLUMN = np.dtype([("codec", "<u4"), ("size", "<u4"), ("offset", "<u8"), ("crc32", "<u4"), ("zero", "<u4")])
"""Of a column: its codec, as Parquet numbers them, and its dictionary page, where it has one; part of the format."""

CODECS = {"UNCOMPRESSED": 0, "ZSTD": 6}
"""As Parquet's specification numbers them."""

_DATA_PAGE = 0
_STRUCT, _STOP = 12, 0
_KIND, _SIZE, _DATA_HEAD, _DICTIONARY_HEAD = 1, 3, 5, 7
"""Fields of Parquet's PageHeader; the first field of either head is the number of values."""


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
        wanted, firsts = np.uint64(key), self.firsts
        # The rows of a key may begin in the page before the one that it is the first of.
        begin = max(int(firsts.searchsorted(wanted, "left")) - 1, 0)
        return range(begin, int(firsts.searchsorted(wanted, "right")))

    def of_keys(self, keys: np.ndarray) -> list[int]:
        """Return the pages that hold the rows of some keys of this file, in order."""
        firsts = self.firsts
        begin = np.maximum(np.searchsorted(firsts, keys, side="left") - 1, 0)
        end = np.searchsorted(firsts, keys, side="right")
        marks = np.zeros(self.count + 1, np.int64)
        np.add.at(marks, begin, 1)
        np.add.at(marks, end, -1)
        return [int(page) for page in np.flatnonzero(np.cumsum(marks)[:-1])]

    def places(self, page: int) -> list[int]:
        """Return the words of a page."""
        width = 1 + 2 * len(self.columns)
        start = self.start + self.count + page * width
        found: list[int] = self.words.part(start, start + width).tolist()
        return found


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
        left = metadata.row_group(group).num_rows
        rows += [page_rows] * (left // page_rows) + [left % page_rows] * (left % page_rows > 0)
    columns = np.zeros(metadata.num_columns, COLUMN)
    places = np.empty((len(rows), 1 + 2 * metadata.num_columns), np.uint64)
    places[:, 0] = rows
    for number in range(metadata.num_columns):
        found: list[tuple[int, int, int]] = []
        dictionaries: dict[bytes, int] = {}
        for group in range(metadata.num_row_groups):
            chunk = metadata.row_group(group).column(number)
            columns[number]["codec"] = CODECS[chunk.compression]
            offset = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
            for kind, values, start, end in _pages(data, offset, offset + chunk.total_compressed_size):
                if kind == _DATA_PAGE:
                    found.append((values, start, end - start | zlib.crc32(data[start:end]) << 32))
                else:
                    dictionaries.setdefault(bytes(data[start:end]), start)
        if [page[0] for page in found] != rows or len(dictionaries) > 1:
            raise CorruptionError(
                f"{path}: column {number}: expected pages of {page_rows} rows and one dictionary at most, got "
                f"{len(found)} pages and {len(dictionaries)} dictionaries."
            )
        for page, start in dictionaries.items():
            columns[number]["size"], columns[number]["offset"] = len(page), start
            columns[number]["crc32"] = zlib.crc32(page)
        places[:, 1 + 2 * number : 3 + 2 * number] = np.array(found, np.uint64)[:, 1:]
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
