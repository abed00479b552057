"""A table that is open for point queries: its files' indexes choose the file, the row groups and the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from custody.swh.table_file import TableFile
from custody.swh.tables import TableSpec
from custody.vfs import FileSystem


class Table:
    """All files of one table."""

    def __init__(self, fs: FileSystem, spec: TableSpec, paths: Iterable[Path]) -> None:
        self.spec = spec
        self._files = [TableFile(fs, spec, path) for path in sorted(paths)]

    def rows(self, keys: np.ndarray, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of some keys, sorted as the table is; the key is among the columns.

        Args:
            keys: uint64, in any order, repeated or not.
            columns: which other columns; all of them when not given.

        Raises:
            CorruptionError: a file is damaged.
        """
        wanted = np.unique(keys)
        names = self.spec.schema.names if columns is None else [self.spec.key, *columns]
        found = [file.rows(wanted, names) for file in self._files] if len(wanted) else []
        tables = [table for table in found if table is not None]
        if not tables:
            return pa.table([pa.array([], self.spec.schema.field(name).type) for name in names], names=list(names))
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)
