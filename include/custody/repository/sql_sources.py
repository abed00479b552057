"""What SQL is asked of: all live logs of all writers and the live tail, as one data set of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.dataset as ds

from custody.catalog import AddFile
from custody.eventlog import Damage, EventLog
from custody.model import EVENT_SCHEMA, lacking, to_present
from custody.repository import reading
from custody.repository.burial import buried_ids
from custody.repository.caches import caches_of
from custody.repository.found import Notices
from custody.repository.opening import open_log
from custody.repository.sql_transactions import transactions
from custody.rollover import Workspace

SQL_SCHEMA = pa.schema([pa.field("writer", pa.string(), nullable=False), *EVENT_SCHEMA])
"""The columns of the view `events`."""
_TIME = pa.timestamp("ms", tz="UTC")
_LOGS = pa.schema(
    [
        ("writer", pa.string()),
        ("path", pa.string()),
        ("partition", pa.string()),
        ("rows", pa.int64()),
        ("size_bytes", pa.int64()),
        ("first_event_id", pa.int64()),
        ("last_event_id", pa.int64()),
        ("first_event_time", _TIME),
        ("last_event_time", _TIME),
        ("sha256", pa.string()),
    ]
)
_FORMAT = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


class SqlSources:
    """The writers' events at one moment.

    Footers are checked here, pages when they are read. With `skip_damaged` every block is checked here, which reads
    the logs from end to end, and damaged ones are left out and named in the notices.

    Raises:
        CorruptionError: a log or a journal is damaged, and `skip_damaged` is off.
    """

    def __init__(self, workspaces: Sequence[Workspace], *, skip_damaged: bool) -> None:
        self._workspaces = workspaces
        self.notices = Notices(strict=not skip_damaged)
        self._skip_damaged = skip_damaged
        self._logs: list[EventLog] = []
        fragments: list[ds.Fragment] = []
        tails, rows, buried = [], [], []
        for workspace in workspaces:
            view = reading.snapshot(workspace, self.notices)
            for file in caches_of(workspace).live(workspace, view.state).files:
                rows.append(_row(workspace, file))
                fragments += self._fragment(workspace, file)
            tails.append(_with_writer(view.shown_tail, workspace.writer))
            ids = buried_ids(workspace, view.state, self.notices)
            buried.append(pa.table({"writer": pa.array([workspace.writer] * len(ids), pa.string()), "event_id": ids}))
        tail = pa.concat_tables([SQL_SCHEMA.empty_table(), *tails])
        stored = ds.FileSystemDataset(fragments, SQL_SCHEMA, _FORMAT)
        self.events = ds.dataset([stored, ds.dataset(tail)]) if fragments else ds.dataset(tail)
        self.buried = pa.concat_tables(buried) if buried else None
        """Writer and id of the events of logs that tombstones bury."""
        self.logs = pa.Table.from_pylist(rows, schema=_LOGS)

    def transactions(self) -> pa.Table:
        """Return what the catalogs' transactions did.

        Raises:
            CorruptionError: a transaction is damaged or missing.
        """
        return transactions(self._workspaces)

    def damage(self) -> Iterator[Damage]:
        """Look for damaged blocks, after a query failed, and yield them."""
        for log in self._logs:
            found: list[Damage] = []
            log.whole_blocks(found.append)
            yield from found

    def _fragment(self, workspace: Workspace, file: AddFile) -> Iterator[ds.Fragment]:
        """Yield a log as a part of the data set, and say what all its events have in common."""
        log = open_log(workspace, file, self.notices)
        if log is None:
            return
        self._logs.append(log)
        blocks = log.whole_blocks(self.notices) if self._skip_damaged else None
        common = (
            (ds.field("writer") == workspace.writer)
            & (ds.field("event_id") >= file.first_event_id)
            & (ds.field("event_id") <= file.last_event_id)
            & (ds.field("event_time") >= pa.scalar(file.first_event_time_ms, _TIME))
            & (ds.field("event_time") <= pa.scalar(file.last_event_time_ms, _TIME))
        )
        # What logs of an older schema version lack is what reading says of it; pyarrow alone would say null.
        held = log.schema.names
        for field in EVENT_SCHEMA:
            if field.name not in held and not field.nullable:
                common &= ds.field(field.name) == lacking(field)
        source = pa.BufferReader(pa.py_buffer(log.parquet()))
        yield _FORMAT.make_fragment(source, partition_expression=common, row_groups=blocks)


def _with_writer(table: pa.Table, writer: str) -> pa.Table:
    return to_present(table).add_column(0, SQL_SCHEMA.field(0), pa.array([writer] * table.num_rows, pa.string()))


def _row(workspace: Workspace, file: AddFile) -> dict[str, object]:
    return {
        "writer": workspace.writer,
        "path": str(workspace.paths.home / file.path),
        "partition": file.partition,
        "rows": file.rows,
        "size_bytes": file.size_bytes,
        "first_event_id": file.first_event_id,
        "last_event_id": file.last_event_id,
        "first_event_time": file.first_event_time_ms,
        "last_event_time": file.last_event_time_ms,
        "sha256": file.sha256.hex(),
    }
