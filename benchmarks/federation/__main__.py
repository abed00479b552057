"""One reader over many writers: the same events under one writer and under several, and opening hundreds of writers.

`python -m benchmarks.federation --writers 8 --events 100000 --opened 200 --latency-ms 20`

The first part compares answers over all writers with those of one writer that has as many events: searches with exact
totals, lineages, SQL; the answers must be equal. Each question is asked of both by turns: the same one again and
again, as a page that is looked at, and another one each time. CPU time is that of this process and of those that it
waited for. The second part opens a repository of many small writers, cold (by a reader that was just made) and again
(where only what changed is read). With `--latency-ms` it does the same in a bucket: moto's S3 server in a process of
its own, and while it is read a proxy that adds so much to each request. There a reader has an empty disk at first, then
what it fetched (`disk`), and last it is the same reader again. With `--in-memory` the bucket is in the memory of this
process, and each request sleeps: hundreds of writers are there in a minute, and the server takes nothing of the cores.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from custody.capture.nifi_json import event_from_json
from custody.config import load_settings
from custody.model import to_batch
from custody.read.search import SearchResult
from custody.repository import Repository
from custody.sample import SampleOptions, sample_events
from custody.store import Traffic, counted, remote
from custody.store.traffic import Kind, note_requests
from tests.behaviour.s3 import BUCKET, s3_environment, s3_server
from tests.behaviour.store_proxy import store_proxy

_BASE = 5000
_WARM = 2
_OPENINGS = 5
_OPENINGS_OF_A_BUCKET = 1


@dataclass
class Times:
    """What one question took, in seconds, each time."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Add the times of the block."""
        cpu, wall = _cpu_seconds(), time.perf_counter()
        yield
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(_cpu_seconds() - cpu)


Ask = Callable[[Repository, int], object]


def measure(root: Path, writers: int, events: int, rounds: int) -> Iterator[tuple[str, Times, Times]]:
    """Yield what was asked, and what it takes of several writers and of one with as many events."""
    several, one = root / "several", root / "one"
    base = _base()
    if not several.exists():
        for folder in (several, one):
            Repository.create(folder)
        for number in range(writers):
            _store(several, f"w{number}", base, number * events, events)
            _store(one, "w", base, number * events, events)
        for folder in (several, one):
            # As the hourly maintenance does: one writer has as few logs as it can have.
            Repository.open(folder).compact()
    readers = [Repository.open(folder) for folder in (several, one)]
    for name, ask in _questions(base, writers * events):
        times = Times(), Times()
        for number in range(_WARM + rounds):
            answers = []
            for reader, taken in zip(readers, times, strict=True):
                # Shards, logs and filters are open from the first rounds on.
                with (taken if number >= _WARM else Times()).taken():
                    answers.append(ask(reader, number))
            if answers[0] != answers[1]:
                raise AssertionError(f"{name}: {answers[0]} of several writers, {answers[1]} of one")
        yield name, *times


def _questions(base: pa.RecordBatch, events: int) -> list[tuple[str, Ask]]:
    """Return what is asked: of the number of the time that it is asked, the last ones something else each time."""
    turns = events // base.num_rows or 1
    first = str(base.column("flowfile_uuid")[min(7, events - 1)])
    types = sorted({str(item) for item in base.column("event_type").unique().to_pylist()})

    def uuid(number: int) -> str:
        # Of another turn of the sample each time, so that one writer after the other has it.
        turn = 7 * number % turns
        return f"{turn:08x}{first[8:]}" if turn else first

    def search(text: Callable[[int], str], limit: int = 20) -> Ask:
        return lambda reader, number: _shown(reader.search(text(number), limit=limit))

    def other_types(number: int) -> str:
        return f"event_type:{types[number % len(types)]} AND file_size:[{number} TO 1000000000]"

    return [
        ("search by type, 20 newest, exact total", search(lambda _: "event_type:SEND")),
        ("search of everything, 1000 newest", search(lambda _: "", 1000)),
        ("search of one FlowFile", search(lambda _: f"flowfile_uuid:{first}")),
        ("lineage of one FlowFile", lambda it, _: it.lineage([first]).events),
        ("SQL, count by type", lambda it, _: _sql(it, "SELECT event_type, count(*) FROM events GROUP BY 1 ORDER BY 1")),
        ("facets of a type", lambda it, _: it.facets("event_type:SEND", ["component_type"])),
        (
            "other pages of the search by type",
            lambda it, n: _shown(it.search("event_type:SEND", limit=20, offset=100 + 20 * n)),
        ),
        ("other types and sizes", search(other_types)),
        ("other FlowFiles", search(lambda number: f"flowfile_uuid:{uuid(number + 1)}")),
        ("lineages of other FlowFiles", lambda it, n: it.lineage([uuid(n + 1)]).events),
    ]


def _shown(result: SearchResult) -> tuple[int, list[int]]:
    """Return what of an answer does not depend on which of the events of one moment come first."""
    return result.total, [item.event.event_time for item in result.events] if len(result.events) < 2 else []


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Opening(NamedTuple):
    """The first search over many small writers: medians of seconds, and what the last one asked of the store."""

    wall: float
    cpu: float
    store: Traffic

    def __str__(self) -> str:
        asked = f", {self.store.count} requests, {self.store.bytes_read / 1000:,.0f} kB" if self.store.count else ""
        return f"{self.wall * 1e3:.0f} ms ({self.cpu * 1e3:.0f} ms CPU{asked})"


def measure_opening(root: Path, writers: int, built: Callable[[], None] = lambda: None) -> dict[str, Opening]:
    """Return what a search of everything takes of a reader with an empty disk, with what it fetched, and of the same.

    `built` is called when all writers are there. Of a store that is a folder there is no second state.
    """
    folder = root / "many"
    settings = Repository.create(folder).settings
    base = _base()
    for number in range(writers):
        _append(folder, f"w{number}", base, number * 10, 10)
    # One pass: each looks at all writers.
    _roll_over(folder, workers=8)
    built()
    states = ("cold", "disk", "again") if settings.is_store_remote else ("cold", "again")
    taken: dict[str, list[Opening]] = {state: [] for state in states}
    for _ in range(_OPENINGS_OF_A_BUCKET if settings.is_store_remote else _OPENINGS):
        if settings.is_store_remote:
            # What a machine has that wrote none of it.
            for path in (settings.store, *settings.containers):
                shutil.rmtree(path, ignore_errors=True)
        reader = Repository.open(folder)
        for state in states:
            reader = reader if state == "again" else Repository.open(folder)
            times = Times()
            with counted() as counter, times.taken():
                total = reader.search("", limit=1).total
            if total != writers * 10:
                raise AssertionError(f"expected {writers * 10} events, got {total}")
            taken[state].append(Opening(times.wall[0], times.cpu[0], counter.traffic))
    return {
        state: Opening(
            statistics.median(each.wall for each in openings),
            statistics.median(each.cpu for each in openings),
            openings[-1].store,
        )
        for state, openings in taken.items()
    }


@contextmanager
def _bucket(latency_ms: float) -> Iterator[Callable[[], None]]:
    """Let repositories that are made meanwhile lie in a bucket; what is given makes it slow from then on."""
    with s3_server() as url, store_proxy(url) as proxy:
        variables = {**s3_environment(url), "CUSTODY__REPOSITORY__STORE": f"s3://{BUCKET}/{uuid4().hex}"}
        os.environ.update(variables)

        def slow_down() -> None:
            os.environ["AWS_ENDPOINT_URL"] = proxy.url
            proxy.latency_seconds = latency_ms / 1000

        try:
            yield slow_down
        finally:
            for name in variables:
                os.environ.pop(name, None)


def _sql(reader: Repository, text: str) -> list[object]:
    with reader.sql(text) as result:
        return [row for batch in result.batches() for row in batch.to_pylist()]


def _base() -> pa.RecordBatch:
    documents = islice(sample_events(SampleOptions(events=_BASE)), _BASE)
    return to_batch([event_from_json(json.loads(json.dumps(item))) for item in documents], 0)


def _store(root: Path, writer: str, base: pa.RecordBatch, first: int, count: int) -> None:
    """Store events, as `_append` does, and make them live."""
    _append(root, writer, base, first, count)
    _roll_over(root)


def _append(root: Path, writer: str, base: pa.RecordBatch, first: int, count: int) -> None:
    """Append events from a place on of an endless sequence: the sample over and over, each turn with other uuids."""
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


def _roll_over(root: Path, workers: int = 1) -> None:
    failed = [report for report in Repository.open(root).roll_over(workers=workers) if report.failed]
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


@contextmanager
def _bucket_in_memory(latency_ms: float) -> Iterator[Callable[[], None]]:
    """The same in the memory of this process: each request sleeps, and several go side by side as over a network."""
    seconds = 0.0
    note, begin = note_requests, remote.RemoteStore.__init__

    def noted(kind: Kind, number: int = 1, **sizes: int) -> None:
        time.sleep(seconds * number)
        note(kind, number, **sizes)

    def begun(store: remote.RemoteStore, *arguments: Any, **options: Any) -> None:
        begin(store, *arguments, **options)
        store.is_remote = True

    def slow_down() -> None:
        nonlocal seconds
        seconds = latency_ms / 1000

    with (
        patch.object(remote, "note_requests", noted),
        patch.object(remote.RemoteStore, "__init__", begun),
        patch.dict(os.environ, {"CUSTODY__REPOSITORY__STORE": f"memory://{uuid4().hex}"}),
    ):
        yield slow_down


def _told(what: str, openings: Mapping[str, Opening]) -> dict[str, dict[str, float]]:
    """Print the openings; return them as results."""
    sys.stdout.write(f"{what}: " + ", ".join(f"{state} {opening}" for state, opening in openings.items()) + "\n")
    sys.stdout.flush()
    return {
        f"{what}, {state}": {"cpu_ms": opening.cpu * 1e3, "wall_ms": opening.wall * 1e3}
        for state, opening in openings.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.federation", description=__doc__)
    parser.add_argument("--writers", type=int, default=8, help="writers of the first part")
    parser.add_argument("--events", type=int, default=100_000, help="events of each; 0 leaves the first part out")
    parser.add_argument("--opened", type=int, default=200, help="writers of the second part; 0 leaves it out")
    parser.add_argument(
        "--latency-ms", type=float, help="the second part in a bucket as well, each request so much later"
    )
    parser.add_argument("--in-memory", action="store_true", help="that bucket in the memory of this process")
    parser.add_argument("--rounds", type=int, default=11, help="how often each question counts")
    parser.add_argument("--folder", type=Path, help="where the repositories of the first part stay, to be asked again")
    parser.add_argument("--scratch", type=Path, help="the disk of the others; else that of temporary files")
    parser.add_argument("--output", type=Path, help="where the results go, too, as JSON")
    options = parser.parse_args(arguments)
    results: dict[str, dict[str, dict[str, float]]] = {"questions": {}, "openings": {}}
    if options.scratch is not None:
        options.scratch.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="custody-federation-", dir=options.scratch) as folder:
        if options.events:
            sys.stdout.write(
                f"| {options.writers} writers × {options.events:,} events "
                "| several: CPU, ms | wall | one: CPU, ms | wall | CPU × | wall × |\n|---|---|---|---|---|---|---|\n"
            )
            for name, several, one in measure(
                options.folder or Path(folder), options.writers, options.events, options.rounds
            ):
                four = [statistics.median(each) for each in (several.cpu, several.wall, one.cpu, one.wall)]
                names = ("several_cpu_ms", "several_wall_ms", "one_cpu_ms", "one_wall_ms")
                results["questions"][name] = {one: seconds * 1e3 for one, seconds in zip(names, four, strict=True)}
                cells = [f"{seconds * 1e3:.2f}" for seconds in four]
                cells += [f"{four[0] / four[2]:.2f}", f"{four[1] / four[3]:.2f}"]
                sys.stdout.write(f"| {name} | {' | '.join(cells)} |\n")
                sys.stdout.flush()
        if options.opened:
            opened = measure_opening(Path(folder), options.opened)
            results["openings"] |= _told(f"{options.opened} writers", opened)
            if options.latency_ms is not None:
                bucket = _bucket_in_memory if options.in_memory else _bucket
                with bucket(options.latency_ms) as slow_down:
                    found = measure_opening(Path(folder) / "bucket", options.opened, slow_down)
                results["openings"] |= _told(f"{options.opened} writers in a bucket, {options.latency_ms:g} ms", found)
    if options.output is not None:
        options.output.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
