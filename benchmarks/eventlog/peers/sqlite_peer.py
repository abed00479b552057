"""SQLite: one table with the event id as primary key and the event as one JSON text, decoded to an `Event` when read.

JSON text, not a column for each field: a row of one value is found and fetched quickest, msgspec decodes it in
microseconds, and the caller gets what custody gives. 37 columns would have to be put together to an `Event` again.
"""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import msgspec

from benchmarks.eventlog.measuring import Task, bytes_of, forget, points, tell, warm
from benchmarks.eventlog.peers.feed import batches
from custody.model import Event

_DECODER = msgspec.json.Decoder(Event)


def _fill(path: Path, task: Task) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE event (event_id INTEGER PRIMARY KEY, event TEXT NOT NULL)")
    encode = msgspec.json.encode
    for batch in batches(task):
        connection.executemany("INSERT INTO event VALUES (?, ?)", ((e.event_id, encode(e).decode()) for e in batch))
        connection.commit()
    connection.close()


def main(task: Task) -> None:
    """Fill a database, measure, remove it."""
    folder = task.folder("sqlite")
    folder.mkdir()
    path = folder / "events.sqlite"
    _fill(path, task)
    connection = sqlite3.connect(path)

    def ask(event_id: int) -> Event | None:
        row = connection.execute("SELECT event FROM event WHERE event_id = ?", (event_id,)).fetchone()
        return _DECODER.decode(row[0]) if row else None

    def cold() -> None:
        connection.close()
        forget([path], task)

    def anew(event_id: int) -> Event | None:
        nonlocal connection
        connection = sqlite3.connect(path)
        return ask(event_id)

    results = {"cold": points(anew, task.ids(task.cold_reads, 7), cold), "warm": warm(ask, task)}
    size = bytes_of([path])
    connection.close()
    shutil.rmtree(folder)
    tell({"version": sqlite3.sqlite_version, "events": task.events, "bytes": {"table": size}, "points": results})


if __name__ == "__main__":
    main(Task.given())
