"""One reader over many writers: the same events under one writer and under several, and opening hundreds of writers.

`python -m benchmarks.federation --writers 8 --events 100000 --opened 200`

The first part compares answers over all writers with those of one writer that has as many events: searches with exact
totals, a lineage, SQL; the answers must be equal. The second one opens a repository of many small writers, cold (by a
reader that was just made) and again (where only what changed is read).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc

from custody.capture.nifi_json import event_from_json
from custody.config import load_settings
from custody.model import to_batch
from custody.repository import Repository
from custody.sample import SampleOptions, sample_events

_BASE = 5000
_ROUNDS = 5


def measure(root: Path, writers: int, events: int) -> list[tuple[str, float, float]]:
    """Return what was asked, and the seconds that it takes of several writers and of one with as many events."""
    several, one = root / "several", root / "one"
    for folder in (several, one):
        Repository.create(folder)
    base = _base()
    for number in range(writers):
        _store(several, f"w{number}", base, number * events, events)
        _store(one, "w", base, number * events, events)
    for folder in (several, one):
        # As the hourly maintenance does: one writer has as few logs as it can have.
        Repository.open(folder).compact()
    uuid = str(base.column("flowfile_uuid")[7])
    questions: list[tuple[str, Callable[[Repository], object]]] = [
        ("search by type, 20 newest, exact total", lambda it: it.search("event_type:SEND", limit=20).total),
        ("search of everything, 1000 newest", lambda it: it.search("", limit=1000).total),
        ("search of one FlowFile", lambda it: it.search(f"flowfile_uuid:{uuid}").total),
        ("lineage of one FlowFile", lambda it: it.lineage([uuid]).events),
        ("SQL, count by type", lambda it: _sql(it, "SELECT event_type, count(*) FROM events GROUP BY 1 ORDER BY 1")),
    ]
    rows = []
    for name, ask in questions:
        answers = [_timed(ask, folder) for folder in (several, one)]
        if answers[0][0] != answers[1][0]:
            raise AssertionError(f"{name}: {answers[0][0]} of several writers, {answers[1][0]} of one")
        rows.append((name, answers[0][1], answers[1][1]))
    return rows


def measure_opening(root: Path, writers: int) -> tuple[float, float]:
    """Return the seconds of a first search over many small writers by a reader just made, and of the next one."""
    folder = root / "many"
    Repository.create(folder)
    base = _base()
    for number in range(writers):
        _store(folder, f"w{number}", base, number * 10, 10)
    cold: list[float] = []
    again: list[float] = []
    for _ in range(_ROUNDS):
        reader = Repository.open(folder)
        for seconds in (cold, again):
            started = time.perf_counter()
            total = reader.search("", limit=1).total
            seconds.append(time.perf_counter() - started)
            if total != writers * 10:
                raise AssertionError(f"expected {writers * 10} events, got {total}")
    return statistics.median(cold), statistics.median(again)


def _timed(ask: Callable[[Repository], object], folder: Path) -> tuple[object, float]:
    reader = Repository.open(folder)
    answer = ask(reader)  # opens what there is
    seconds = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        if ask(reader) != answer:
            raise AssertionError("the same question has another answer")
        seconds.append(time.perf_counter() - started)
    return answer, statistics.median(seconds)


def _sql(reader: Repository, text: str) -> list[object]:
    with reader.sql(text) as result:
        return [row for batch in result.batches() for row in batch.to_pylist()]


def _base() -> pa.RecordBatch:
    documents = islice(sample_events(SampleOptions(events=_BASE)), _BASE)
    return to_batch([event_from_json(json.loads(json.dumps(item))) for item in documents], 0)


def _store(root: Path, writer: str, base: pa.RecordBatch, first: int, count: int) -> None:
    """Store events from a place on of an endless sequence: the sample over and over, each time with other FlowFiles."""
    settings = load_settings(root)
    section = settings.repository.model_copy(update={"writer": writer})
    repository = Repository(settings.model_copy(update={"repository": section}))
    with repository.writer() as opened:
        done = 0
        while done < count:
            turn, start = divmod(first + done, base.num_rows)
            part = base.slice(start, min(base.num_rows - start, count - done))
            opened.append_columns(_of_turn(part, turn))
            done += part.num_rows
    failed = [report for report in repository.roll_over() if report.failed]
    if failed:
        raise AssertionError(str(failed))


def _of_turn(part: pa.RecordBatch, turn: int) -> pa.RecordBatch:
    names = part.schema.names
    columns = dict(zip(names, part.columns, strict=True))
    del columns["event_id"]
    if turn:
        uuids = columns["flowfile_uuid"]
        columns["flowfile_uuid"] = pc.utf8_replace_slice(uuids.cast(pa.string()), 0, 8, f"{turn:08x}")
    fields = [part.schema.field(name) for name in columns]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns.values(), fields, strict=True)],
        schema=pa.schema(fields),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.federation", description=__doc__)
    parser.add_argument("--writers", type=int, default=8, help="writers of the first part")
    parser.add_argument("--events", type=int, default=100_000, help="events of each; 0 leaves the first part out")
    parser.add_argument("--opened", type=int, default=200, help="writers of the second part; 0 leaves it out")
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="custody-federation-") as folder:
        if options.events:
            sys.stdout.write(f"| {options.writers} writers × {options.events:,} events | several, ms | one, ms | × |\n")
            sys.stdout.write("|---|---|---|---|\n")
            for name, several, one in measure(Path(folder), options.writers, options.events):
                sys.stdout.write(f"| {name} | {several * 1e3:.1f} | {one * 1e3:.1f} | {several / one:.2f} |\n")
        if options.opened:
            cold, again = measure_opening(Path(folder), options.opened)
            sys.stdout.write(f"{options.opened} writers: cold {cold * 1e3:.0f} ms, again {again * 1e3:.0f} ms\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
