"""SQLite: one table in WAL mode with synchronous=FULL, one transaction a batch, one connection a thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec

from benchmarks.append import load
from benchmarks.append.grid import Cell, Reading
from benchmarks.append.peers.base import About
from benchmarks.append.workload import Workload
from custody.model import Event

_BUSY_SECONDS = 60.0
_COLUMNS = tuple(name for name in Event.__struct_fields__ if name not in {"event_id", "extra"})
_TABLE = f"CREATE TABLE event (event_id INTEGER PRIMARY KEY, {', '.join(_COLUMNS)})"
_INSERT = f"INSERT INTO event ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608 - own names

Row = tuple[str | int | None, ...]


def _row(event: Event) -> Row:
    return tuple(_value(getattr(event, name)) for name in _COLUMNS)


def _value(value: object) -> str | int | None:
    if value is None or isinstance(value, str | int):
        return value
    return msgspec.json.encode(value).decode()


def _connect(file: Path) -> sqlite3.Connection:
    # autocommit: transactions are begun and ended below, not by the module
    connection = sqlite3.connect(file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


class SqlitePeer:
    """Inserts rows that were made outside the clock, their JSON too: what SQLite pays for is storing."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._rows: dict[int, list[list[Row]]] = {}
        self.about = About(
            key="sqlite",
            label="SQLite WAL",
            durable=True,
            description="journal_mode=WAL, synchronous=FULL, one table, no index, one transaction a batch, "
            "one connection a thread; rows and their JSON made outside the clock",
            version=sqlite3.sqlite_version,
        )

    def measure(self, cell: Cell, seconds: float, folder: Path, *, verify: bool) -> Reading:
        """Insert from all threads, each with its own connection."""
        folder.mkdir()
        file = folder / "events.sqlite"
        with ExitStack() as held:
            connections = [held.enter_context(closing(_connect(file))) for _ in range(cell.threads)]
            connections[0].execute(_TABLE)
            appends = [_append_to(connection) for connection in connections]
            reading = load.run(appends, self._batches(cell.batch_events), cell.batch_events, seconds)
        if not verify:
            return reading
        with closing(_connect(file)) as connection:
            return reading.with_stored(int(connection.execute("SELECT count(*) FROM event").fetchone()[0]))

    def close(self) -> None:
        """Do nothing."""

    def _batches(self, batch_events: int) -> list[list[Row]]:
        if batch_events not in self._rows:
            self._rows[batch_events] = [
                [_row(event) for event in batch] for batch in self._workload.batches(batch_events)
            ]
        return self._rows[batch_events]


def _append_to(connection: sqlite3.Connection) -> Callable[[list[Row]], None]:
    def append(rows: list[Row]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_INSERT, rows)
        connection.execute("COMMIT")

    return append
