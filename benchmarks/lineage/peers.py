"""The systems that are asked for a lineage: custody, DuckDB over custody's own Parquet files, and SQLite with an index.

Each returns the ids of the events; custody with whole events, the others with the columns that a graph needs. Their
recursion is the same: FlowFiles reached, events that mention them, FlowFiles that these mention.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import duckdb
import pyarrow as pa

from custody.lineage import Bounds
from custody.repository import Repository

COLUMNS = ("event_id", "event_type", "event_time", "flowfile_uuid", "component_type", "file_size")
_REACHED = """
with recursive reached(uuid) as (
  select ? union
  select other.uuid from reached
  join mentions as one on one.uuid = reached.uuid
  join mentions as other on other.event_id = one.event_id
)
select {columns} from events where event_id in (select event_id from mentions join reached using (uuid))
order by event_id
"""
_SLOW_MS = 3000
_SQL = _REACHED.format(columns=", ".join(COLUMNS))

Ask = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class Asked:
    """How long each lineage took when it was asked the first time and again, in ms, by layout; and the memory."""

    first: dict[str, list[float]]
    again: dict[str, list[float]]
    memory_bytes: int
    """The most that the process had, mapped files included; it did nothing else."""


def opened_custody(folder: Path, size: int) -> Ask:
    """Return how custody is asked, in an open repository."""
    repository = Repository.open(folder)
    bounds = Bounds(max(2 * size, 10_000))

    def ask(uuid: str) -> list[int]:
        lineage = repository.lineage([uuid], bounds)
        return sorted(event.event_id for node in lineage.nodes.values() for event in node.events)

    return ask


def opened_duckdb(folder: Path, _: int) -> Ask:
    """Return how DuckDB is asked, over the live logs of a repository."""
    workspace = Repository.open(folder).workspace()
    paths = [str(workspace.paths.home / path) for path in workspace.state().files]
    database = duckdb.connect()
    database.execute("set enable_progress_bar = false")
    listed = ", ".join(f"'{path}'" for path in paths)
    database.execute(
        f"create view events as select * replace (epoch_ms(event_time) as event_time) from read_parquet([{listed}])"  # noqa: S608
    )
    database.execute(
        "create view mentions as select event_id, "
        "unnest(list_concat([flowfile_uuid], parent_uuids, child_uuids)) as uuid from events"
    )
    return lambda uuid: [row[0] for row in database.execute(_SQL, [uuid]).fetchall()]


def opened_sqlite(folder: Path, _: int) -> Ask:
    """Return how SQLite is asked; its file lies beside the repository."""
    database = sqlite3.connect(sqlite_path(folder))
    database.execute("pragma cache_size = -262144")  # 256 MiB, as much as custody may keep
    return lambda uuid: [row[0] for row in database.execute(_SQL, [uuid]).fetchall()]


def sqlite_path(folder: Path) -> Path:
    """Return where the file of SQLite lies."""
    return folder.with_name(f"{folder.name}.sqlite")


def write_sqlite(folder: Path, tables: Iterable[pa.Table]) -> None:
    """Store the columns that a graph needs, and which event mentions which FlowFile, with an index."""
    database = sqlite3.connect(sqlite_path(folder))
    database.execute("pragma journal_mode = off")
    database.execute("pragma synchronous = off")
    database.execute(f"create table events ({', '.join(COLUMNS)}, primary key (event_id)) without rowid")
    database.execute("create table mentions (uuid text, event_id integer, primary key (uuid, event_id)) without rowid")
    database.execute("create table unsorted (uuid text, event_id integer)")
    for table in tables:
        events = table.select(COLUMNS)
        at = events.schema.get_field_index("event_time")
        columns = events.set_column(at, "event_time", events.column(at).cast(pa.int64())).to_pydict().values()
        places = ", ".join("?" * len(COLUMNS))
        database.executemany(f"insert into events values ({places})", zip(*columns, strict=True))  # noqa: S608
        named = table.select(["event_id", "flowfile_uuid", "parent_uuids", "child_uuids"]).to_pydict()
        rows = zip(*named.values(), strict=True)
        pairs = ((uuid, event_id) for event_id, own, up, down in rows for uuid in {own, *up, *down})
        database.executemany("insert into unsorted values (?, ?)", pairs)
    # Sorted once: a key of uuids grows by random places otherwise, which takes hours.
    database.execute("insert into mentions select distinct uuid, event_id from unsorted order by 1, 2")
    database.execute("create index mentioned on mentions (event_id)")
    database.execute("drop table unsorted")
    database.commit()
    database.close()


PEERS = {"custody": opened_custody, "SQLite": opened_sqlite, "DuckDB": opened_duckdb}


def about(name: str) -> str:
    """Return what a peer is."""
    if name == "DuckDB":
        return f"DuckDB {version('duckdb')}: recursive CTE over custody's Parquet files, no index"
    if name == "SQLite":
        return f"SQLite {sqlite3.sqlite_version}: recursive CTE, six columns and an index of mentions, 256 MiB of cache"
    return "custody: an open repository with its default settings, whole events"


def ask_all(name: str, folder: Path, size: int, asked: dict[str, list[tuple[str, list[int]]]], repeats: int) -> Asked:
    """Ask a peer for each lineage once, then some times again; in a process that does nothing else.

    Raises:
        AssertionError: it gives other events than were planted.
    """
    ask = PEERS[name](folder, size)
    first: dict[str, list[float]] = {}
    again: dict[str, list[float]] = {}
    for layout, lineages in asked.items():
        first[layout] = [_timed(ask, *lineage) for lineage in lineages]
        again[layout] = []
        for lineage in lineages:
            # Once outside the clock: others were asked since. Who needs seconds keeps nothing that this would change.
            is_slow = _timed(ask, *lineage) > _SLOW_MS
            again[layout] += [_timed(ask, *lineage) for _ in range(1 if is_slow else repeats)]
            if is_slow:
                break
    return Asked(first, again, _most_memory())


def _most_memory() -> int:
    # Not getrusage, which begins with what the parent had.
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) << 10


def _timed(ask: Ask, uuid: str, expected: list[int]) -> float:
    start = time.perf_counter()
    event_ids = ask(uuid)
    seconds = time.perf_counter() - start
    assert event_ids == expected, f"the lineage of {uuid} has other events than were planted"
    return seconds * 1e3
