"""SQL over all events of all writers, answered by DuckDB in a process of its own.

The tables are `events`, `logs` and `transactions`, and those of software. The engine gets these and nothing else: no
file, no network, no extension and no variable of this process can be reached from a query, its settings are locked, and
only one SELECT is run. The logs are scanned by pyarrow, which reads the columns and blocks that the query needs and
verifies the checksum of every page; DuckDB's own reader of Parquet does not verify them. Events that must not be given
out are left out by the scan, and masked values are replaced there, so that the engine never has them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa

from custody.catalog import AddFile, Catalog, CatalogState, Transaction
from custody.catalog.codec import decode
from custody.catalog.pruning import PrunedReads, Restriction
from custody.clock import Clock
from custody.config import Settings
from custody.errors import ConflictError, CorruptionError, InvalidInputError, NotFoundError, StripeMissingError
from custody.eventlog import Damage, TableOfContents
from custody.eventlog.log_writer import BLOOM_FILTERS, STATISTICS
from custody.model import EVENT_SCHEMA, lacking, to_present
from custody.read.cache import caches_of, open_log, require_expired
from custody.read.results import Notices
from custody.read.tail import Tail, TailPart
from custody.read.time_travel import AsOf
from custody.read.tombstone_filter import hidden_ids
from custody.read.views import open_views
from custody.sql import (
    AskedOfColumn,
    EngineFailedError,
    EngineQuery,
    LogGoneError,
    LogPart,
    QueryInput,
    QueryLimits,
    StoredTable,
)
from custody.sql.restrictions import EVENTS, NUMBERS, TEXTS, TIMES
from custody.swh.publishing import database_catalog, published_state
from custody.swh.sql_tables import PREFIX, SOFTWARE_TABLES, damaged_files, files_of
from custody.vfs import FileSystem
from custody.workspace import Workspace

SQL_SCHEMA = pa.schema([pa.field("writer", pa.string(), nullable=False), *EVENT_SCHEMA])
"""The columns of the table `events`."""
LOGS = "logs"
_TIME = pa.timestamp("ms", tz="UTC")
_HIDDEN = pa.schema([("writer", pa.string()), ("event_id", pa.int64())])
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
TRANSACTIONS = "transactions"
TRANSACTIONS_SCHEMA = pa.schema(
    [
        ("writer", pa.string()),
        ("revision", pa.int64()),
        ("committed", pa.timestamp("ms", tz="UTC")),
        ("uuid", pa.string()),
        ("previous_digest", pa.string()),
        ("next_event_id", pa.int64()),
        ("files_added", pa.int64()),
        ("events_added", pa.int64()),
        ("bytes_added", pa.int64()),
        ("shards_added", pa.int64()),
        ("files_removed", pa.int64()),
        ("shards_removed", pa.int64()),
        ("other", pa.list_(pa.string())),
    ]
)
_OPENER = "custody.swh.sql_tables:open_table"
_COUNTED_ACTIONS = ("add_file", "add_shard", "remove_file", "remove_shard")
# Each attempt looks the logs up anew. Ten misses mean that logs go as fast as queries start.
_ATTEMPTS = 10
_TABLES = ("events", LOGS, TRANSACTIONS, *SOFTWARE_TABLES)


class SqlResult:
    """The rows of a query, which runs while they are read. To be closed, or used as a context.

    The engine works in a process of its own, which is killed when the query took too long, needs too much memory, or
    is interrupted (Ctrl-C), and when this process ends. `sources` looks the writers' events up; it is called again when
    a log expired meanwhile.

    Raises:
        InvalidInputError: the query cannot be read, is not one SELECT, names what is not allowed, or as `batches`.
        CorruptionError: as `batches`.
    """

    def __init__(
        self, settings: Settings, sources: Callable[[], SqlSources], text: str, seconds_max: float | None = None
    ) -> None:
        query = settings.query
        self._limits = QueryLimits(
            # The engine counts less than its process takes, so it gets half of the process's limit at most.
            engine_bytes=min(query.sql_memory_bytes, query.sql_process_bytes_max // 2),
            process_bytes=query.sql_process_bytes_max,
            spill_bytes=query.sql_spill_bytes_max,
            row_bytes=query.sql_row_bytes_max,
            seconds=seconds_max or query.sql_seconds_max,
        )
        for _ in range(_ATTEMPTS):
            try:
                self._begin(sources, text)
            except LogGoneError:
                # It expired since the sources were looked up; if it is lost instead, the next look-up raises.
                continue
            return
        raise ConflictError("SQL: logs expire too fast to be read. Try again.")

    explained: PrunedReads
    """How many logs and blocks there are, and how many of them the catalog's statistics ruled out."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._schema

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices of what could not be read and was left out."""
        return tuple(self._sources.notices)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises:
            CorruptionError: a log is damaged; the message names file, block and events.
            InvalidInputError: the query failed, or needs more time, memory or room than it may take.
        """
        while True:
            with self._damage_named():
                batches = self._engine.next_batches()
            if not batches:
                return
            yield from batches

    def close(self) -> None:
        """Stop the query, and remove what it spilled."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, sources: Callable[[], SqlSources], text: str) -> None:
        # The engine starts while the sources are looked up: its start takes about as long.
        self._engine = EngineQuery(text, _TABLES, self._limits, PRUNED_COLUMNS, SQL_SCHEMA.names)
        try:
            self._sources = found = sources()
            with self._damage_named():
                # A long history takes a while to read: only for queries that read it.
                read = self._engine.read()
                is_read = TRANSACTIONS in read.tables
                transactions = found.transactions() if is_read else TRANSACTIONS_SCHEMA.empty_table()
                tables = {LOGS: found.logs, TRANSACTIONS: transactions}
                self.explained, parts = found.pruned(read.asked)
                tail = found.tail(read.columns) if EVENTS in read.tables else SQL_SCHEMA.empty_table()
                stored = found.stored(read.tables)
                self._schema = self._engine.start(
                    QueryInput(parts, tail, found.hidden, tables, stored, found.masks, SQL_SCHEMA)
                )
        # The engine runs already: it must not outlive a failed start.
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        """Look for the damage that made a query fail."""
        try:
            yield
        except EngineFailedError as error:
            # The engine does not know what it read: a query that fails over a damaged block fails with any message.
            # Only now, after a failure: checking all blocks first would read every log from end to end for one column.
            for damage in self._sources.damage():
                raise CorruptionError(f"{damage} The option --skip-damaged leaves it out.") from error
            # No block is damaged, so the query itself failed.
            raise InvalidInputError(str(error)) from error.__cause__


class SoftwareSource:
    """The published database of software, now or at a revision of its catalog; looked up when a query reads it."""

    def __init__(self, settings: Settings, fs: FileSystem, clock: Clock, revision: int | None = None) -> None:
        self._settings = settings
        self._fs = fs
        self._clock = clock
        self._revision = revision
        self._read: list[str] = []

    def stored(self, names: list[str]) -> dict[str, StoredTable]:
        """Return where some tables lie.

        Raises:
            NotFoundError: nothing was published by then.
        """
        self._read = names
        state = self._state()
        return {name: self._table(state, name) for name in names}

    def damage(self) -> Iterator[Damage]:
        """Read the files of the tables that the query reads from end to end, and yield the damaged ones."""
        if self._read:
            yield from damaged_files(self._fs, self._catalog.objects.files, self._state(), self._read)

    @cached_property
    def _catalog(self) -> Catalog:
        # Only when it is needed: most queries are about events alone.
        return database_catalog(self._settings, self._fs, self._clock)

    def _state(self) -> CatalogState:
        return published_state(self._catalog, self._revision)

    def _table(self, state: CatalogState, name: str) -> StoredTable:
        files = files_of(state, self._catalog.objects.files, name.removeprefix(PREFIX))
        return StoredTable(_OPENER, [(os.fsencode(path), sha256) for path, sha256 in sorted(files.items())])


class SqlSources:
    """The writers' events at one moment.

    Footers are checked here, pages when they are read. With `skip_damaged` every block is checked here, which reads
    the logs from end to end, and damaged ones are left out and named in the notices. With `as_of` the moment is an
    earlier one: events and logs are those that were live then, transactions those that were committed.

    Raises:
        CorruptionError: a log or a journal is damaged, and `skip_damaged` is off.
        NotFoundError, PrunedError: as `snapshot_at`.
    """

    def __init__(
        self,
        workspaces: Sequence[Workspace],
        software: SoftwareSource | None = None,
        *,
        skip_damaged: bool,
        as_of: AsOf | None = None,
    ) -> None:
        self._software = software
        self._revisions: list[tuple[Workspace, int]] = []
        """Each writer's revision of the moment."""
        self.notices = Notices(strict=not skip_damaged)
        self._skip_damaged = skip_damaged
        self.parts: list[LogPart] = []
        self._files: list[tuple[Workspace, AddFile, TableOfContents]] = []
        self.masks: tuple[str, ...] = ()
        """Patterns of names of attributes whose values must not be given out."""
        self._tails: list[tuple[str, Tail]] = []
        rows, hidden = [], [_HIDDEN.empty_table()]
        for workspace, view in open_views(workspaces, self.notices, as_of):
            # Rows of logs and transactions count all events: who may not see all of them gets none of these.
            seen = workspace.visibility
            is_whole = seen is None or not seen.hides_events
            self.masks = self.masks if seen is None else tuple({*self.masks, *seen.mask.patterns})
            if is_whole:
                self._revisions.append((workspace, view.state.revision))
            # Logs and tail of one snapshot: an event is in one of them.
            for file in caches_of(workspace).live(workspace, view.state).files:
                rows += [_log_row(workspace, file)] if is_whole else []
                self.parts += self._part(workspace, file)
            self._tails.append((workspace.writer, view.visible_tail(workspace)))
            ids = hidden_ids(workspace, view.state, self.notices)
            hidden.append(pa.table([pa.repeat(workspace.writer, len(ids)), ids], schema=_HIDDEN))
        self.hidden = pa.concat_tables(hidden)
        """Writer and id of the events of logs that tombstones hide."""
        self.logs = pa.Table.from_pylist(rows, schema=_LOGS)

    def tail(self, columns: Collection[str] | None) -> pa.RecordBatchReader:
        """Return the acknowledged events that are in no log yet, without those that must not be given out.

        They have the columns of SQL_SCHEMA that are asked for, besides `writer` and `event_id`, or all.
        """
        fields = [field for field in SQL_SCHEMA if columns is None or field.name in (*columns, "writer", "event_id")]
        schema = pa.schema(fields)
        return pa.RecordBatchReader.from_batches(schema, self._tail_batches(schema))

    def _tail_batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        names = schema.names[1:]
        for writer, tail in self._tails:
            for look in tail.looks():
                if not isinstance(look, TailPart):
                    columns = look.select(names)
                elif len(names) == len(EVENT_SCHEMA):
                    columns = look.table()
                else:
                    # One chunk a part: a record is small, and each batch has a head.
                    columns = pa.table({name: look.column(name).combine_chunks() for name in names})
                columns = to_present(columns, names)
                writers = pa.array([writer], pa.string()).take(pa.array(np.zeros(columns.num_rows, np.int8)))
                yield from columns.add_column(0, SQL_SCHEMA.field(0), writers).cast(schema).to_batches()

    def transactions(self) -> pa.Table:
        """Return what the catalogs' transactions did.

        Raises:
            CorruptionError: a transaction is damaged or missing, and damage is not left out.
        """
        return _transactions(self._revisions, self.notices)

    def stored(self, tables: Collection[str]) -> dict[str, StoredTable]:
        """Return where those of some tables lie that are tables of software.

        Raises:
            NotFoundError: there is one, and no database of software is published.
        """
        names = sorted(set(tables) & set(SOFTWARE_TABLES))
        if not names:
            return {}
        if self._software is None:
            raise NotFoundError(f"{names[0]}: this repository has no database of software.")
        return self._software.stored(names)

    def damage(self) -> Iterator[Damage]:
        """Look for damaged blocks and tables of software, after a query failed, and yield them."""
        if self._software is not None:
            yield from self._software.damage()
        for workspace, file, _ in self._files:
            damages: list[Damage] = []
            log = open_log(workspace, file, damages.append, whole=True)
            if log is not None:
                log.whole_blocks(damages.append)
            yield from (damage for damage in damages if not damage.is_doubt)

    def pruned(self, asked: Sequence[Sequence[AskedOfColumn]]) -> tuple[PrunedReads, list[LogPart]]:
        """Return the logs, and of these the blocks, that can hold an event that is asked for."""
        alternatives = [[_restriction(each) for each in conditions] for conditions in asked]
        reads, parts = PrunedReads(), []
        for (_, file, toc), part in zip(self._files, self.parts, strict=True):
            blocks = reads.blocks_of(file, alternatives, toc)
            if blocks is not None:
                blocks = blocks if part.blocks is None else sorted({*blocks} & {*part.blocks})
                part = msgspec.structs.replace(part, blocks=blocks)
            if part.blocks != []:
                parts.append(part)
        return reads, parts

    def _is_there(self, workspace: Workspace, file: AddFile) -> bool:
        """Whether a log still has its name: it may be open here, but the engine opens it anew."""
        try:
            if workspace.catalog.objects.files.exists(file.path):
                return True
            require_expired(workspace, file)
        except (CorruptionError, StripeMissingError) as error:
            where, ids = workspace.log_place(file.path), (file.first_event_id, file.last_event_id)
            self.notices(Damage(where, None, *ids, str(error), is_away=isinstance(error, StripeMissingError)))
        return False

    def _part(self, workspace: Workspace, file: AddFile) -> Iterator[LogPart]:
        """Yield the description of a log for the engine."""
        log = open_log(workspace, file, self.notices, whole=True)
        if log is None or not self._is_there(workspace, file):
            return
        # Remembered, because the engine does not know what it read when it fails.
        self._files.append((workspace, file, log.toc))
        columns = log.schema.names
        yield LogPart(
            path=os.fsencode(log.path),
            writer=workspace.writer,
            first_event_id=file.first_event_id,
            last_event_id=file.last_event_id,
            first_event_time_ms=file.first_event_time_ms,
            last_event_time_ms=file.last_event_time_ms,
            blocks=log.whole_blocks(self.notices) if self._skip_damaged else None,
            footer=log.mended_footer(),
            # Columns that a log of an older schema version lacks get the values that reading gives them; pyarrow alone
            # would say null.
            lacks={
                field.name: lacking(field).as_py()
                for field in EVENT_SCHEMA
                if field.name not in columns and not field.nullable
            },
        )


def _restriction(asked: AskedOfColumn) -> Restriction:
    """Return a condition as the catalog compares it: texts as UTF-8."""

    def compared(value: int | str) -> int | bytes:
        return value.encode() if isinstance(value, str) else value

    return Restriction(
        column=asked.column,
        least=None if asked.least is None else compared(asked.least),
        greatest=None if asked.greatest is None else compared(asked.greatest),
        values=None if asked.values is None else tuple(map(compared, asked.values)),
    )


def _kind_of(column: pa.Field) -> str:
    if pa.types.is_timestamp(column.type):
        return TIMES
    return NUMBERS if pa.types.is_integer(column.type) else TEXTS


PRUNED_COLUMNS = {name: _kind_of(EVENT_SCHEMA.field(name)) for name in (*STATISTICS, *BLOOM_FILTERS)}
"""The columns that the catalog knows something of, and how their constants are read."""


def _transactions(revisions: Sequence[tuple[Workspace, int]], notices: Notices) -> pa.Table:
    """Return the transactions of writers up to a revision of each.

    Each was checked against its predecessor, as far as that is there.

    A transaction that cannot be read is left out and named if `notices` are not strict; in any case if a later
    transaction declares it lost for good.

    Raises:
        CorruptionError: a transaction is damaged or missing, and `notices` are strict.
    """
    rows = [
        _transaction_row(workspace, each)
        for workspace, revision in revisions
        for each in _kept_transactions(workspace, revision, notices)
    ]
    return pa.Table.from_pylist(rows, schema=TRANSACTIONS_SCHEMA)


def _kept_transactions(workspace: Workspace, last: int, notices: Notices) -> list[Transaction]:
    state = workspace.catalog.load()
    if state.revision < 0 or last < 0:
        return []
    try:
        return list(workspace.catalog.timeline(None, last))
    except (CorruptionError, NotFoundError) as error:
        readable, problems = _read_each(workspace, state.floor, last)
        if not problems:  # all can be read, but one does not follow from the other
            notices(Damage(workspace.paths.home, None, None, None, str(error)))
        known_lost = {lost for each in readable for action in each.actions for lost in action.note.lost_revisions}
        for revision, damage in problems.items():
            if revision in known_lost:
                text = f"{damage} A later revision says that revision {revision} is lost."
                notices(Damage(damage.path, None, None, None, text, is_doubt=True))
            else:
                notices(damage)
        return readable


def _read_each(workspace: Workspace, first: int, last: int) -> tuple[list[Transaction], dict[int, Damage]]:
    """Return the transactions that can be read by themselves, and what is wrong with the others, by revision."""
    objects = workspace.catalog.objects
    readable: dict[int, Transaction] = {}
    problems = {
        revision: Damage(
            Path(objects.store.locate(objects.folder(revision).rstrip("/"))),
            None,
            None,
            None,
            f"revision {revision} has no transaction that can be read",
        )
        for revision in range(first, last + 1)
    }
    for item in objects.list():
        if item.is_checkpoint or item.revision not in problems:
            continue
        where = objects.store.locate(item.key)
        try:
            transaction = decode(objects.store.get(item.key), where)
        except (CorruptionError, NotFoundError) as error:
            problems[item.revision] = Damage(Path(where), None, None, None, str(error))
            continue
        # Name and content must agree: an object under the name of another one proves nothing.
        if (transaction.revision, transaction.uuid) == (item.revision, item.uuid.bytes):
            readable[item.revision] = transaction
            del problems[item.revision]
    return [readable[revision] for revision in sorted(readable)], problems


def _transaction_row(workspace: Workspace, transaction: Transaction) -> dict[str, object]:
    kinds = [action.WhichOneof("kind") for action in transaction.actions]
    files = [action.add_file for action in transaction.actions if action.HasField("add_file")]
    return {
        "writer": workspace.writer,
        "revision": transaction.revision,
        "committed": transaction.commit_time_ms,
        "uuid": str(UUID(bytes=transaction.uuid)),
        "previous_digest": transaction.previous_digest.hex(),
        "next_event_id": transaction.next_event_id,
        "files_added": len(files),
        "events_added": sum(file.rows for file in files),
        "bytes_added": sum(file.size_bytes for file in files),
        "shards_added": kinds.count("add_shard"),
        "files_removed": kinds.count("remove_file"),
        "shards_removed": kinds.count("remove_shard"),
        "other": [kind for kind in kinds if kind not in _COUNTED_ACTIONS],
    }


def _log_row(workspace: Workspace, file: AddFile) -> dict[str, object]:
    return {
        "writer": workspace.writer,
        "path": str(workspace.log_place(file.path)),
        "partition": file.partition,
        "rows": file.rows,
        "size_bytes": file.size_bytes,
        "first_event_id": file.first_event_id,
        "last_event_id": file.last_event_id,
        "first_event_time": file.first_event_time_ms,
        "last_event_time": file.last_event_time_ms,
        "sha256": file.sha256.hex(),
    }
