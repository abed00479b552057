"""What SQL is asked of: all live logs of all writers, and the live tail."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa

from custody.catalog import AddFile
from custody.errors import CorruptionError
from custody.eventlog import Damage
from custody.model import EVENT_SCHEMA, lacking, to_present
from custody.repository import reading
from custody.repository.burial import buried_ids
from custody.repository.caches import caches_of
from custody.repository.found import Notices
from custody.repository.opening import open_log, require_expired
from custody.repository.sql_transactions import transactions
from custody.rollover import Workspace
from custody.sql import LogPart

SQL_SCHEMA = pa.schema([pa.field("writer", pa.string(), nullable=False), *EVENT_SCHEMA])
"""The columns of the table `events`."""
LOGS = "logs"
_TIME = pa.timestamp("ms", tz="UTC")
_BURIED = pa.schema([("writer", pa.string()), ("event_id", pa.int64())])
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
        self.parts: list[LogPart] = []
        self._files: list[tuple[Workspace, AddFile]] = []
        tails, rows, buried = [SQL_SCHEMA.empty_table()], [], [_BURIED.empty_table()]
        for workspace in workspaces:
            view = reading.snapshot(workspace, self.notices)
            for file in caches_of(workspace).live(workspace, view.state).files:
                rows.append(_row(workspace, file))
                self.parts += self._part(workspace, file)
            tails.append(_with_writer(view.shown_tail, workspace.writer))
            ids = buried_ids(workspace, view.state, self.notices)
            buried.append(pa.table([pa.repeat(workspace.writer, len(ids)), ids], schema=_BURIED))
        self.tail = pa.concat_tables(tails)
        """The acknowledged events that are in no log yet, without those that must not be given out."""
        self.buried = pa.concat_tables(buried)
        """Writer and id of the events of logs that tombstones bury."""
        self.logs = pa.Table.from_pylist(rows, schema=_LOGS)

    def transactions(self) -> pa.Table:
        """Return what the catalogs' transactions did.

        Raises:
            CorruptionError: a transaction is damaged or missing, and damage is not left out.
        """
        return transactions(self._workspaces, self.notices)

    def damage(self) -> Iterator[Damage]:
        """Look for damaged blocks, after a query failed, and yield them."""
        for workspace, file in self._files:
            found: list[Damage] = []
            log = open_log(workspace, file, found.append)
            if log is not None:
                log.whole_blocks(found.append)
            yield from found

    def _is_there(self, workspace: Workspace, file: AddFile) -> bool:
        """Whether a log, which may be open here, has its name: the engine opens it anew."""
        path = workspace.paths.home / file.path
        if workspace.fs.exists(path):
            return True
        try:
            require_expired(workspace, file)
        except CorruptionError as error:
            self.notices(Damage(path, None, file.first_event_id, file.last_event_id, str(error)))
        return False

    def _part(self, workspace: Workspace, file: AddFile) -> Iterator[LogPart]:
        """Yield what the engine has to know of a log."""
        log = open_log(workspace, file, self.notices)
        if log is None or not self._is_there(workspace, file):
            return
        self._files.append((workspace, file))
        held = log.schema.names
        yield LogPart(
            path=os.fsencode(log.path),
            writer=workspace.writer,
            first_event_id=file.first_event_id,
            last_event_id=file.last_event_id,
            first_event_time_ms=file.first_event_time_ms,
            last_event_time_ms=file.last_event_time_ms,
            blocks=log.whole_blocks(self.notices) if self._skip_damaged else None,
            footer=log.mended_footer(),
            # What logs of an older schema version lack is what reading says of it; pyarrow alone would say null.
            lacks={
                field.name: lacking(field).as_py()
                for field in EVENT_SCHEMA
                if field.name not in held and not field.nullable
            },
        )


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
