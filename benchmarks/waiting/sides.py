"""The questions of the benchmark, each asked in a process of its own."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

from benchmarks.catalog.peer import peak_rss_mib
from custody.repository import Repository
from custody.spark.without_pandas import without_pandas

Figures = dict[str, float]


def _words(repository: Repository, end: int) -> int:
    del end
    text = 'event_type:DROP AND details:"auto-terminated" AND file_size:[0 TO 100000000]'
    return repository.search(text, limit=5).total


def _uuid(repository: Repository, end: int) -> int:
    event = repository.get(end // 2)
    assert event is not None
    return repository.search(f"flowfile_uuid:{event.flowfile_uuid}", limit=20).total


def _by_id(repository: Repository, end: int) -> int:
    event = repository.get(end // 2)
    assert event is not None
    return event.event_id


def _lineage(repository: Repository, end: int) -> int:
    event = repository.get(end // 2)
    assert event is not None
    return repository.lineage([event.flowfile_uuid]).events


def _sql(repository: Repository, end: int) -> int:
    with repository.sql("select event_type, sum(file_size) as size, count(*) as n from events group by 1") as found:
        rows = [row for batch in found.batches() for row in batch.to_pylist()]
    assert sum(row["n"] for row in rows) == end
    return sum(int(row["size"] or 0) for row in rows)


QUESTIONS: dict[str, Callable[[Repository, int], int]] = {
    "words and a range": _words,
    "one event by its id": _by_id,
    "a uuid, behind a read of one event": _uuid,
    "lineage, behind a read of one event": _lineage,
    "SQL, two columns": _sql,
}


def ask(root: Path, question: str, end: int) -> Figures:
    """Ask one question; return its answer, seconds of CPU, the most MB of this process and of one that it started."""
    before = _cpu()
    with without_pandas():
        answer = QUESTIONS[question](Repository.open(root), end)
    # The engine's may count what this process had when it started it.
    below = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
    return {"answer": answer, "CPU s": _cpu() - before, "MB": peak_rss_mib() * 1.048576, "engine MB": below}


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
