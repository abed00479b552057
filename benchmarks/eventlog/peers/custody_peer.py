"""custody: builds the repository with the real steps, and reads it as its users do.

Built in slices, so that the journals and staged events of one slice lie on the disk at a time. The first slice is a
tenth of all events: what a point read costs is measured there too, and again when all events are live.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.eventlog.bulk import tables, write_journals
from benchmarks.eventlog.measuring import Task, bytes_of, forget, pace, points, tell, warm
from benchmarks.eventlog.publishing import publish
from custody.config import load_settings
from custody.recovery import STEPS
from custody.repository import Repository
from custody.vfs import PosixFileSystem

SLICE_EVENTS = 1_000_000
NAME = "repository"
_OBJECTS_MAX = 200_000


def slices(events: int, base: int) -> Iterator[int]:
    """Yield how many tables of `base` events each slice has: a tenth of all first, then as much as fits."""
    left = -(-events // base)
    yield (done := max(left // 10, 1))
    left -= done
    while left > 0:
        yield (done := min(left, SLICE_EVENTS // base))
        left -= done


def write_slice(task: Task, number: int) -> None:
    """Write one slice's sealed journals."""
    root = task.folder(NAME)
    repository = Repository.create(root) if number == 0 else Repository.open(root)
    sizes = list(slices(task.events, task.base))
    first = sum(sizes[:number])
    chosen = islice(tables(task.events, task.base), first, first + sizes[number])
    write_journals(PosixFileSystem(), repository.settings, chosen, group_events=2 * SLICE_EVENTS)


def publish_slice(task: Task) -> None:
    """Make what was compressed live, and remove what it was made of."""
    root = task.folder(NAME)
    publish(Repository.open(root).workspace())
    settings = load_settings(root)
    for unit in STEPS["sweep"].units(settings):
        STEPS["sweep"].run(Repository.open(root).workspace(unit.writer), unit)


def logs(task: Task) -> list[Path]:
    """Return the live logs; nothing else lies in the store's data folders."""
    return sorted(task.folder(NAME).rglob("data/**/*.parquet"))


def point_reads(task: Task, events: int) -> dict[str, Any]:
    """Measure reads of one event: cold, warm, and warm without the cache of decoded blocks."""
    root = task.folder(NAME)
    files = [path for path in root.rglob("*") if path.is_file()]

    def cold() -> None:
        gc.collect()  # what the last one mapped would stay in memory
        forget(files, task)

    def anew(event_id: int) -> object:
        return Repository.open(root).get(event_id)

    anew(0)  # so that all modules are imported
    results: dict[str, Any] = {"cold": points(anew, task.ids(task.cold_reads, 7, events), cold)}
    results["warm"] = warm(Repository.open(root).get, task, events)
    settings = load_settings(root)
    query = settings.query.model_copy(update={"cache_bytes": 0})
    bare = Repository(settings.model_copy(update={"query": query}))
    results["warm_uncached"] = warm(bare.get, task, events)
    return results


def in_order(task: Task) -> dict[str, Any]:
    """Measure reading from the first event on, in one thread."""
    repository = Repository.open(task.folder(NAME))
    pa.set_cpu_count(1)

    def columns() -> int:
        return sum(table.num_rows for table in repository.events(0, task.events).tables())

    def objects() -> int:
        return sum(1 for _ in repository.events(0, min(task.events, _OBJECTS_MAX)))

    list(repository.events(0, 1))  # so that all modules are imported
    results = {"arrow": pace(columns), "objects": pace(objects)}
    assert results["arrow"]["events"] == task.events, f"read {results['arrow']['events']} of {task.events} events"
    return results


def sizes_of(task: Task) -> dict[str, Any]:
    """Return the bytes of logs and of their tables of contents, and how many of a log's are each column's."""
    paths = logs(task)
    columns: Counter[str] = Counter()
    for path in paths:
        footer = pq.read_metadata(path)
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                columns[column.path_in_schema.partition(".")[0]] += column.total_compressed_size
    tocs = bytes_of(path.with_suffix(".toc") for path in paths)
    return {"bytes": {"log": bytes_of(paths), "toc": tocs}, "column_bytes": dict(columns.most_common())}


def main(task: Task) -> None:
    """Do what the task names."""
    works: dict[str, Callable[[], object]] = {
        "write": lambda: write_slice(task, task.extra["slice"]),
        "publish": partial(publish_slice, task),
        "points": lambda: point_reads(task, task.extra["events"]),
        "in_order": partial(in_order, task),
        "sizes": partial(sizes_of, task),
    }
    tell({"result": works[task.extra["work"]]()})


if __name__ == "__main__":
    main(Task.given())
