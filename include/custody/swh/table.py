"""A table that is open for point queries: its files' indexes choose the file, the pages and the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from custody.swh.page_cache import PageCache
from custody.swh.page_reader import PageReader
from custody.swh.table_reader import TableFile
from custody.swh.tables import TableSpec
from custody.vfs import FileSystem


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
