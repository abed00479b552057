"""One file of a table as it is asked: by key, a row group at a time.

What is read is checked: the index and the footer by their SHA-256 when they are first needed, each page by its
checksum, and that the rows of a key are where the index says that they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from custody.errors import CorruptionError
from custody.swh.group_cache import GroupCache
from custody.swh.index_file import INDEX_SUFFIX, footer_digest, read_index
from custody.swh.tables import TableSpec
from custody.vfs import FileSystem

_DICTIONARIES = frozenset({"type"})
"""Columns with few different values: decoded as numbers, not as a text a row."""

_ALL = 1 << 62
"""More rows than there are, and few enough to be added to a place."""


class TableFile:
    """A file that is open for point queries, by any number of threads; it is opened by the first that needs it.

    Args:
        index_sha256: what the catalog says of the index; None takes any index that is whole.
    """

    def __init__(
        self, fs: FileSystem, spec: TableSpec, path: Path, cache: GroupCache, index_sha256: bytes | None = None
    ) -> None:
        self._fs = fs
        self._spec = spec
        self._path = path
        self._cache = cache
        self.index = read_index(fs, path.with_suffix(INDEX_SUFFIX), index_sha256)
        self._file: pq.ParquetFile | None = None
        # pyarrow's reader of a file keeps its place: one thread at a time.
        self._lock = Lock()

    def rows(self, keys: np.ndarray, columns: Sequence[str], first: int | None = None) -> list[pa.Table]:
        """Return the rows of some keys (uint64, sorted, all different), in the order of the file.

        Args:
            columns: which; the key is the first of them.
            first: of each key only so many rows.

        Raises:
            CorruptionError: the file is damaged.
        """
        held, groups = self._held(keys)
        left = np.full(len(held), _ALL if first is None else first)
        seen = np.zeros(len(held), bool)
        found: list[pa.Table] = []
        for number in groups:
            group = self._group(number, columns)
            values = group.column(0).chunk(0).to_numpy()
            begin, end = values.searchsorted(held, "left"), values.searchsorted(held, "right")
            seen |= begin < end
            end = np.minimum(end, begin + left)
            left -= end - begin
            found += _slices(group, begin, end)
            if not left.any():
                break
        if not seen.all():
            self._refuse(f"expected rows of the key {held[~seen][0]}, as its index says, got none")
        return found

    def _held(self, keys: np.ndarray) -> tuple[np.ndarray, Sequence[int]]:
        """Which keys the file has, and in which row groups."""
        if len(keys) == 1:
            key = int(keys[0])
            return (keys, self.index.groups_of(key)) if self.index.holds(key) else (keys[:0], ())
        held = self.index.held(keys)
        return held, self.index.groups(held) if len(held) else ()

    def _group(self, number: int, columns: Sequence[str]) -> pa.Table:
        return self._cache.get((self._path, number, tuple(columns)), lambda: self._read(number, columns))

    def _read(self, number: int, columns: Sequence[str]) -> pa.Table:
        try:
            with self._lock:
                group = self._opened().read_row_group(number, columns=list(columns), use_threads=False)
            if group.num_rows == 0 or group.column_names != list(columns):
                self._refuse(f"expected rows in row group {number}, got none")
            return group.combine_chunks()
        # A number that was flipped in a page's head may ask for more memory than there is.
        except (OSError, pa.ArrowException, MemoryError) as error:
            self._refuse(f"row group {number} cannot be read: {error}", error)

    def _opened(self) -> pq.ParquetFile:
        if self._file is None:
            data = self._fs.view(self._path)
            if footer_digest(data, self._path) != self.index.footer_sha256:
                self._refuse("the footer is not the one that its index was made for")
            self._file = pq.ParquetFile(
                pa.BufferReader(pa.py_buffer(data)),
                read_dictionary=sorted(_DICTIONARIES.intersection(self._spec.schema.names)),
                page_checksum_verification=True,
            )
        return self._file

    def _refuse(self, what: str, cause: BaseException | None = None) -> NoReturn:
        raise CorruptionError(f"{self._path}: {what}. Build the database anew.") from cause


def _slices(group: pa.Table, begin: np.ndarray, end: np.ndarray) -> Iterator[pa.Table]:
    """The rows between some begins and ends: one slice, or the rows one by one where there are many."""
    if len(begin) == 1:
        if begin[0] < end[0]:
            yield group.slice(int(begin[0]), int(end[0] - begin[0]))
        return
    lengths = end - begin
    if lengths.any():
        starts = np.repeat(begin - (np.cumsum(lengths) - lengths), lengths)
        yield group.take(pa.array(starts + np.arange(len(starts))))
