"""Position deletes: which rows of an event log tombstones hide, as files that every engine leaves out by itself.

A file of deletes is named by the log and by the tombstones that can mean an event of it, with the number of rows that
it hides: what was found out once is not read again, and everybody writes the same file under a name.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from custody.catalog import AddFile, AddTombstone, columns_needed, may_match, visible
from custody.errors import CorruptionError, NotFoundError
from custody.eventlog import Damage, EventLog
from custody.iceberg.table_folder import TableFolder
from custody.store import put_object
from custody.workspace import Workspace

# Iceberg's reserved ids of the two columns; part of its specification.
PATH_ID, POSITION_ID = 2_147_483_546, 2_147_483_545
_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={b"PARQUET:field_id": str(PATH_ID).encode()}),
        pa.field("pos", pa.int64(), nullable=False, metadata={b"PARQUET:field_id": str(POSITION_ID).encode()}),
    ]
)
_NAME_DIGITS = 40


@dataclass(frozen=True, slots=True)
class HiddenRows:
    """A file of deletes: its key, how many rows of which log it hides, and its size."""

    key: str
    log: str
    """Where the log lies, as manifests name it."""
    rows: int
    size_bytes: int


class HiddenRowsFolder:
    """The files of deletes of a table; one that is there is not made again."""

    def __init__(self, workspace: Workspace, folder: TableFolder) -> None:
        self._workspace = workspace
        self._folder = folder
        self._there: dict[str, str] | None = None
        """Keys of files by the first part of their names."""

    def of(self, file: AddFile, location: str, stones: Iterable[AddTombstone]) -> HiddenRows | None:
        """Return the deletes of a log under some tombstones, which are written where needed; None when it needs none.

        Durability: on return the file survives power loss.
        """
        bounds = file.first_event_id, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms
        affecting = sorted((stone for stone in stones if may_match(stone, *bounds)), key=lambda stone: stone.id)
        if not affecting:
            return None
        parts = [location.encode(), file.sha256, *(stone.id for stone in affecting)]
        name = hashlib.sha256(b"\0".join(parts)).hexdigest()[:_NAME_DIGITS]
        key = self._known().get(name)
        if key is None:
            key = self._written(file, location, affecting, name)
        rows = int(key.rpartition("-")[2].partition(".")[0])
        if not rows:
            return None
        info = self._folder.store.head(key)
        if info is None:
            raise NotFoundError(f"{self._folder.locate(key)}: was removed in this moment. Publish again.")
        return HiddenRows(key, location, rows, info.size_bytes)

    def _known(self) -> dict[str, str]:
        if self._there is None:
            keys = self._folder.store.keys(self._folder.deletes)
            self._there = {key.removeprefix(self._folder.deletes).partition("-")[0]: key for key in keys}
        return self._there

    def _written(self, file: AddFile, location: str, stones: Sequence[AddTombstone], name: str) -> str:
        places, is_whole = hidden_places(self._workspace, file, stones)
        if not is_whole:
            # The log may be repaired: then its rows are looked at anew, under the other name.
            name = hashlib.sha256(f"{name} {places.tobytes()!r}".encode()).hexdigest()[:_NAME_DIGITS]
        table = pa.table([pa.repeat(pa.scalar(location), len(places)), pa.array(places, pa.int64())], schema=_SCHEMA)
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd")
        key = f"{self._folder.deletes}{name}-{len(places)}.parquet"
        # Of equal rows others write the same; what lies there is as good.
        put_object(self._folder.store, key, sink.getvalue())
        self._known()[name] = key
        return key


def hidden_places(
    workspace: Workspace, file: AddFile, stones: Sequence[AddTombstone]
) -> tuple[npt.NDArray[np.int64], bool]:
    """Return the rows of a log that tombstones hide, counted from 0, and whether all of it could be read.

    Rows that cannot be read count as hidden: to give out less than is there is a notice, to give out what was forgotten
    would be a breach.
    """
    is_hidden = np.ones(file.rows, np.bool_)
    damages: list[Damage] = []
    try:
        path = workspace.log_path(file.path)
        log = EventLog(workspace.fs, path, sha256=file.sha256, toc_sha256=file.toc_sha256)
        counts = log.toc.blocks["rows"].astype(np.int64)
        columns = sorted({"event_id", *columns_needed(stones)})
        for number, end in enumerate(np.cumsum(counts).tolist()):
            for table in log.tables([number], columns, damages.append):
                is_hidden[end - table.num_rows : end] = ~np.asarray(visible(stones, table), np.bool_)
    except (CorruptionError, NotFoundError):
        return np.flatnonzero(is_hidden), False
    return np.flatnonzero(is_hidden), not any(not damage.is_doubt for damage in damages)
