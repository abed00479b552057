"""SQLite: one table of FlowFiles with their contents and one of events, WAL mode, synchronous=FULL."""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from contextlib import closing
from pathlib import Path

from benchmarks.append.peers.base import About
from benchmarks.flowfiles.measures import Answer, Order
from benchmarks.flowfiles.peers.threads import seconds

_BUSY_SECONDS = 60.0
_SCHEMA = (
    "CREATE TABLE flowfile (sequence INTEGER PRIMARY KEY, queue TEXT, uuid TEXT, attributes TEXT, content BLOB)",
    "CREATE INDEX place ON flowfile (queue, sequence)",
    "CREATE TABLE event (id INTEGER PRIMARY KEY, uuid TEXT, type TEXT, time INTEGER, attributes TEXT)",
)
_ENTER = "INSERT INTO flowfile VALUES (NULL, ?, ?, ?, ?)"
_FIRST = "SELECT sequence, uuid, attributes FROM flowfile WHERE queue = ? ORDER BY sequence LIMIT 1"
_MOVE = "UPDATE flowfile SET queue = ?, attributes = ? WHERE sequence = ?"
_EVENT = "INSERT INTO event VALUES (NULL, ?, ?, ?, ?)"
_DROP = (
    "DELETE FROM flowfile WHERE sequence IN (SELECT sequence FROM flowfile WHERE queue = 'q' ORDER BY sequence LIMIT ?)"
)


def _connect(folder: Path) -> sqlite3.Connection:
    # autocommit: transactions are begun and ended below, not by the module
    connection = sqlite3.connect(folder / "flowfiles.db", timeout=_BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _create(folder: Path) -> None:
    folder.mkdir()
    with closing(_connect(folder)) as connection:
        for statement in _SCHEMA:
            connection.execute(statement)


class SqlitePeer:
    """FlowFiles, their contents and events in one database, one connection a thread."""

    def __init__(self) -> None:
        self.about = About(
            key="sqlite",
            label="SQLite WAL",
            durable=True,
            description="journal_mode=WAL, synchronous=FULL; FlowFiles with their contents in one indexed table, "
            "events in another; one transaction a commit, one connection a thread",
            version=sqlite3.sqlite_version,
        )
        self.measures = frozenset({"commits", "fill", "open", "drain"})

    def measure(self, order: Order) -> Answer:
        """Do what the order says."""
        work = {"commits": _commits, "fill": _fill, "open": _open, "drain": _drain}
        return work[order.measure](Path(order.folder), order)

    def close(self) -> None:
        """Do nothing."""


def _commits(folder: Path, order: Order) -> Answer:
    _create(folder)
    done = [0] * order.threads
    content = bytes(order.bytes)
    end = time.perf_counter() + order.seconds

    def event(connection: sqlite3.Connection, name: str, kind: str, attributes: str) -> None:
        connection.execute(_EVENT, (name, kind, int(time.time() * 1000), attributes))

    def move(connection: sqlite3.Connection, source: str, target: str, kind: str, attribute: str | None) -> None:
        # At once for writing: one that reads first, and then writes, may find that others wrote meanwhile.
        connection.execute("BEGIN IMMEDIATE")
        sequence, name, text = connection.execute(_FIRST, (source,)).fetchone()
        if attribute is not None:
            text = json.dumps({**json.loads(text), attribute: "yes"})
        connection.execute(_MOVE, (target, text, sequence))
        event(connection, name, kind, text)
        connection.execute("COMMIT")

    def work(number: int) -> None:
        with closing(_connect(folder)) as connection:
            while time.perf_counter() < end:
                name, text = str(uuid.uuid4()), json.dumps(order.attributes)
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(_ENTER, (f"a{number}", name, text, content))
                event(connection, name, "RECEIVE", text)
                connection.execute("COMMIT")
                move(connection, f"a{number}", f"b{number}", "ATTRIBUTES_MODIFIED", "checked")
                move(connection, f"b{number}", f"c{number}", "ROUTE", None)
                done[number] += 3

    taken = seconds(order.threads, work)
    with closing(_connect(folder)) as connection:
        [waiting] = connection.execute("SELECT count(*) FROM flowfile WHERE queue LIKE 'c%'").fetchone()
    return Answer(seconds=taken, commits=sum(done), waiting=waiting)


def _fill(folder: Path, order: Order) -> Answer:
    _create(folder)
    with closing(_connect(folder)) as connection:
        begun = time.perf_counter()
        for _ in range(order.flowfiles // order.batch):
            rows = []
            for _ in range(order.batch):
                name = str(uuid.uuid4())
                attributes = {**order.attributes, "uuid": name, "filename": name, "path": "./"}
                rows.append(("q", name, json.dumps(attributes), None))
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_ENTER, rows)
            connection.execute("COMMIT")
        return Answer(seconds=time.perf_counter() - begun)


def _open(folder: Path, order: Order) -> Answer:
    begun = time.perf_counter()
    with closing(_connect(folder)) as connection:
        [waiting] = connection.execute("SELECT count(*) FROM flowfile WHERE queue = 'q'").fetchone()
        taken = time.perf_counter() - begun
        if order.checkpoint:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Answer(seconds=taken, waiting=waiting)


def _drain(folder: Path, order: Order) -> Answer:
    done = 0
    with closing(_connect(folder)) as connection:
        begun = time.perf_counter()
        while done < order.flowfiles:
            connection.execute("BEGIN IMMEDIATE")
            count = connection.execute(_DROP, (order.batch,)).rowcount
            connection.execute("COMMIT")
            if not count:
                raise AssertionError(f"the queue is empty after {done} FlowFiles")
            done += count
        return Answer(seconds=time.perf_counter() - begun, flowfiles=done)
