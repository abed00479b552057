"""One system answers questions to a database; run as a program in an environment that has it, it prints JSON.

All systems follow the same plan, a lookup by key a table, so that what is compared is the lookup: identifiers to ids,
ids to the earliest revision, this one to its identifier, its first origin, and that one's URL. A question is a list of
identifiers, each as hash key, type and hash.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Asked = Sequence[tuple[int, str, str]]
Answer = tuple[str | None, str | None]
"""Hash of the revision and URL of the origin, None where there is none."""
Lookup = Callable[[str, str, list[int], tuple[str, ...]], Iterable[Any]]
"""Table, its key, keys, columns: gives the rows."""
WARM_UP = 30


def planned(lookup: Lookup, asked: Asked) -> list[Answer]:
    """Answer by lookups, as custody does it."""
    found = lookup("node_ids", "hash_key", [key for key, _, _ in asked], ("sha1_git", "type", "id"))
    ids = {(kind, bytes(sha1)): node for sha1, kind, node in found}
    nodes = [ids[kind, bytes.fromhex(sha1)] for _, kind, sha1 in asked]
    anchors: dict[int, int] = dict(lookup("earliest_revisions", "node", nodes, ("node", "revrel")))
    revisions = list(set(anchors.values()))
    names: dict[int, bytes] = dict(lookup("nodes", "id", revisions, ("id", "sha1_git")))
    origins: dict[int, int] = {}
    for revision, origin in lookup("revisions_in_origins", "revrel", revisions, ("revrel", "ori")):
        origins[revision] = min(origin, origins.get(revision, origin))
    urls: dict[int, str] = dict(lookup("origins", "id", list(set(origins.values())), ("id", "url")))
    held = [anchors.get(node, -1) for node in nodes]
    return [(bytes(names[one]).hex() if one in names else None, urls.get(origins.get(one, -1))) for one in held]


def open_duckdb(folder: Path) -> Callable[[Asked], list[Answer]]:
    """DuckDB over the Parquet files, footers kept in memory; one key by a prepared statement."""
    import duckdb

    connection = duckdb.connect(config={"threads": os.cpu_count() or 1})
    connection.execute("SET parquet_metadata_cache = true")
    prepared: set[str] = set()

    def lookup(table: str, key: str, keys: list[int], columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
        select = f"SELECT {', '.join(columns)} FROM read_parquet('{folder / table}/*.parquet') WHERE {key}"  # noqa: S608
        if len(keys) != 1:
            return connection.execute(f"{select} IN ({', '.join(map(str, keys)) or 'NULL'})").fetchall()
        if table not in prepared:
            connection.execute(f"PREPARE ask_{table} AS {select} = ?")
            prepared.add(table)
        return connection.execute(f"EXECUTE ask_{table}({keys[0]}::UBIGINT)").fetchall()

    return lambda asked: planned(lookup, asked)


def open_datafusion(folder: Path) -> Callable[[Asked], list[Answer]]:
    """DataFusion over the Parquet files, with page index and filters pushed into the reading."""
    import datafusion

    config = datafusion.SessionConfig().with_parquet_pruning(True)
    for name in ("pushdown_filters", "reorder_filters", "enable_page_index"):
        config = config.set(f"datafusion.execution.parquet.{name}", "true")
    context = datafusion.SessionContext(config)
    for table in sorted(path.name for path in folder.iterdir() if path.is_dir()):
        context.register_parquet(table, str(folder / table))

    def lookup(table: str, key: str, keys: list[int], columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
        wanted = ", ".join(f"arrow_cast({one}, 'UInt64')" for one in keys) or "NULL"
        batches = context.sql(f"SELECT {', '.join(columns)} FROM {table} WHERE {key} IN ({wanted})").collect()  # noqa: S608
        return [row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]

    return lambda asked: planned(lookup, asked)


def open_custody(folder: Path, cache_bytes: int) -> Callable[[Asked], list[Answer]]:
    """This project's reader."""
    from custody.swh import ObjectType, ProvenanceDatabase, Swhid
    from custody.vfs import PosixFileSystem

    files = {path.name: dict.fromkeys(path.glob("*.parquet")) for path in folder.iterdir() if path.is_dir()}
    database = ProvenanceDatabase(PosixFileSystem(), files, cache_bytes)

    def ask(asked: Asked) -> list[Answer]:
        swhids = [Swhid(ObjectType(kind), bytes.fromhex(sha1)) for _, kind, sha1 in asked]
        occurrences = [database.whereis(swhids[0])] if len(swhids) == 1 else database.whereis_many(swhids)
        return [(None if place.anchor is None else place.anchor.sha1_git.hex(), place.origin) for place in occurrences]

    return ask


SYSTEMS: dict[str, Callable[[Path], Callable[[Asked], list[Answer]]]] = {
    "custody": lambda folder: open_custody(folder, 256 << 20),
    "custody, nothing cached": lambda folder: open_custody(folder, 0),
    "DuckDB": open_duckdb,
    "DataFusion": open_datafusion,
}


def drop_cached(folder: Path) -> None:
    """Drop the files of a database from the page cache; nobody may have them mapped."""
    gc.collect()
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def read_bytes() -> int:
    """How much this process has had read from disks, in bytes."""
    return int(Path("/proc/self/io").read_text().partition("\nread_bytes: ")[2].partition("\n")[0])


def ask_warm(open_system: Callable[[Path], Any], folder: Path, questions: Sequence[Asked]) -> dict[str, Any]:
    """Ask one after the other; the first ones are not counted."""
    ask = open_system(folder)
    answers, walls = [], []
    for asked in questions[:WARM_UP]:
        ask(asked)
    started = time.process_time()
    for asked in questions[WARM_UP:]:
        before = time.perf_counter()
        answers.append(ask(asked))
        walls.append(time.perf_counter() - before)
    spent = time.process_time() - started
    return {"walls": walls, "cpu": spent / len(walls), "read": 0, "answers": answers}


def ask_cold(open_system: Callable[[Path], Any], folder: Path, questions: Sequence[Asked]) -> dict[str, Any]:
    """Before each question everything is dropped and opened anew; opening counts."""
    open_system(folder)(questions[0])  # what is imported
    answers, walls, cpu, read = [], [], 0.0, 0
    for asked in questions:
        drop_cached(folder)
        before, started, so_far = time.perf_counter(), time.process_time(), read_bytes()
        ask = open_system(folder)
        answers.append(ask(asked))
        walls.append(time.perf_counter() - before)
        cpu += time.process_time() - started
        read += read_bytes() - so_far
        del ask
    return {"walls": walls, "cpu": cpu / len(walls), "read": read / len(walls), "answers": answers}


def main() -> None:
    """Ask: system, folder, file of questions, and `warm` or `cold` are the arguments."""
    system, folder, file, mode = sys.argv[1:]
    questions = json.loads(Path(file).read_text())
    json.dump((ask_warm if mode == "warm" else ask_cold)(SYSTEMS[system], Path(folder), questions), sys.stdout)


if __name__ == "__main__":
    main()
