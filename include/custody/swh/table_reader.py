"""One file of a table as it is asked: by key, some pages at a time.

What is read is checked: the head and the blocks of the index, each page by its checksum, and that the rows of a key are
where the index says that they are.

A table that is open for point queries: its files' indexes choose the file, the pages and the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa

from custody.errors import CorruptionError
from custody.swh.index_file import INDEX_SUFFIX, read_index, scattered_view
from custody.swh.pages import PageCache, PageReader
from custody.swh.tables import TableSpec
from custody.vfs import FileSystem

_PAGES_AT_ONCE = 128
"""Pages that are decoded together: at most half a million rows."""

_ALL = 1 << 62
"""More rows than there are, and few enough to be added to a place."""


class TableFile:
    """A file that is open for point queries, by any number of threads; it is mapped by the first that needs it.

    Args:
        sha256: what the catalog says of the file; None takes any index that is whole.
    """

    def __init__(self, fs: FileSystem, path: Path, cache: PageCache, sha256: bytes | None = None) -> None:
        self._fs = fs
        self._path = path
        self._cache = cache
        self.index = read_index(fs, path.with_suffix(INDEX_SUFFIX), sha256)

    def rows(self, keys: np.ndarray, reader: PageReader, first: int | None = None) -> list[pa.Table]:
        """Return the rows of some keys (uint64, sorted, all different), in the order of the file.

        Args:
            reader: of the columns that are wanted; the key is the first of them.
            first: of each key only so many rows.

        Raises:
            CorruptionError: the file is damaged.
        """
        if len(keys) == 1:
            return self._rows_of_one(int(keys[0]), reader, first)
        held = self.index.held(keys)
        pages = self.index.pages.of_keys(held) if len(held) else []
        left = np.full(len(held), _ALL if first is None else first)
        seen = np.zeros(len(held), bool)
        found: list[pa.Table] = []
        for start in range(0, len(pages), _PAGES_AT_ONCE):
            rows = self._rows(pages[start : start + _PAGES_AT_ONCE], reader)
            values = rows.column(0).chunk(0).to_numpy()
            begin, end = values.searchsorted(held, "left"), values.searchsorted(held, "right")
            seen |= begin < end
            end = np.minimum(end, begin + left)
            left -= end - begin
            if (begin < end).any():
                found.append(rows.take(pa.array(_between(begin, end))))
            if not left.any():
                break
        if not seen.all():
            self._refuse(f"expected rows of the key {held[~seen][0]}, as its index says, got none")
        return found

    def _rows_of_one(self, key: int, reader: PageReader, first: int | None) -> list[pa.Table]:
        """The same for one key, which plain integers are faster for than arrays."""
        if not self.index.holds(key):
            return []
        pages = self.index.pages.of_key(key)
        wanted = np.uint64(key)
        left = _ALL if first is None else first
        found: list[pa.Table] = []
        for part in _parts(pages, _PAGES_AT_ONCE if first is None else 1):
            rows = self._rows(part, reader)
            values = rows.column(0).chunk(0).to_numpy()
            begin, end = int(values.searchsorted(wanted, "left")), int(values.searchsorted(wanted, "right"))
            if begin < end:
                found.append(rows.slice(begin, min(end - begin, left)))
                left -= found[-1].num_rows
            if found and not left:
                break
        if not found:
            self._refuse(f"expected rows of the key {key}, as its index says, got none")
        return found

    def _rows(self, pages: Sequence[int], reader: PageReader) -> pa.Table:
        if len(pages) > 1:
            return self._read(pages, reader)
        return self._cache.get((self._path, pages[0], reader.columns), lambda: self._read(pages, reader))

    def _read(self, pages: Sequence[int], reader: PageReader) -> pa.Table:
        try:
            return reader.read(self._data, self.index.pages, pages)
        # A number that was flipped in a page's head may ask for more memory than there is.
        except (OSError, ValueError, pa.ArrowException, MemoryError) as error:
            self._refuse(f"pages {pages[0]} to {pages[-1]} cannot be read: {error}", error)

    @cached_property
    def _data(self) -> memoryview:
        return scattered_view(self._fs, self._path)

    def _refuse(self, what: str, cause: BaseException | None = None) -> NoReturn:
        raise CorruptionError(f"{self._path}: {what}. Build the database anew.") from cause


def _parts(pages: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Pages, some at a time: from a few on twice as many each time, as the first ones are often enough."""
    start = 0
    while start < len(pages):
        yield pages[start : start + size]
        start += size
        size = min(2 * size, _PAGES_AT_ONCE)


def _between(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """All places between some begins and ends."""
    lengths = end - begin
    starts = np.repeat(begin - (np.cumsum(lengths) - lengths), lengths)
    places: np.ndarray = starts + np.arange(len(starts))
    return places


class Table:
    """All files of one table; their indexes are read by the first question.

    Args:
        paths: the files, with their SHA-256 where the catalog tells it.
        cache: what was decoded lately, of all tables; None keeps nothing.
    """

    def __init__(
        self, fs: FileSystem, spec: TableSpec, paths: Mapping[Path, bytes | None], cache: PageCache | None = None
    ) -> None:
        self.spec = spec
        self._fs = fs
        self._paths = dict(sorted(paths.items()))
        self._cache = PageCache(0) if cache is None else cache
        self._readers: dict[tuple[str, ...], PageReader] = {}

    @cached_property
    def files(self) -> list[TableFile]:
        """The files with their indexes.

        Raises:
            CorruptionError: the head of an index is damaged, or another one is in its place.
        """
        return [TableFile(self._fs, path, self._cache, digest) for path, digest in self._paths.items()]

    def rows(self, keys: np.ndarray, columns: Sequence[str] | None = None, first: int | None = None) -> pa.Table:
        """Return the rows of some keys, sorted as the table is; the key is among the columns.

        Of some hundred pages at a time all is in memory, of the others what was found.

        Args:
            keys: uint64, in any order, repeated or not.
            columns: which other columns; all of them when not given.
            first: of each key only so many rows, the first ones in the table's order.

        Raises:
            CorruptionError: a file is damaged.
        """
        wanted = np.unique(keys) if len(keys) > 1 else keys
        others = self.spec.schema.names if columns is None else columns
        names = (self.spec.key, *(name for name in others if name != self.spec.key))
        reader = self._readers.get(names)
        if reader is None:
            reader = self._readers[names] = PageReader(self.spec, names)
        found = [part for file in self.files for part in file.rows(wanted, reader, first)] if len(wanted) else []
        if not found:
            return pa.table([pa.array([], self.spec.schema.field(name).type) for name in names], names=names)
        return found[0] if len(found) == 1 else pa.concat_tables(found)
