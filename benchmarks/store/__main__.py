"""A repository whose logs and shards lie in a bucket behind a slow network: what answers cost, cold and warm.

`PYTHONPATH=include python -m benchmarks.store --events 1000000 --latency-ms 20`

The bucket is moto's S3 server in a process of its own; a proxy adds the latency to every request. Each question is
asked by a reader with an empty disk (cold), by a new one on the same disk (warm disk), and by that one again (warm).
Answers are compared with those of the same events in a folder. Requests and bytes are those that custody counts.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import click

from benchmarks.environment import LOCAL
from benchmarks.eventlog.bulk import tables, write_journals
from custody.repository import Repository
from custody.store import Traffic, counted
from custody.vfs import PosixFileSystem
from tests.behaviour.s3 import BUCKET, s3_environment, s3_server
from tests.behaviour.store_proxy import StoreProxy, store_proxy
from tests.support import run_steps

_GROUP_EVENTS = 250_000
_STATES = ("cold", "warm disk", "warm")
Question = Callable[[Repository], object]


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--events", type=click.IntRange(min=1000), default=1_000_000, help="Events of the repository.")
@click.option("--latency-ms", type=click.FloatRange(min=0), default=20.0, help="Added to each request.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, help="Each question is asked so often in each state.")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk of the repositories.")
@click.option("--output", type=click.Path(path_type=Path), default=LOCAL / "store.json", help="Where the results go.")
def main(events: int, latency_ms: float, rounds: int, scratch: Path, output: Path) -> None:
    """Build a repository in a folder and one in a bucket, and ask both the same."""
    scratch.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=scratch) as folder, s3_server() as url, store_proxy(url) as proxy:
        local, remote = Path(folder) / "local", Path(folder) / "remote"
        _build(local, events)
        with _bucket(proxy):
            started = time.monotonic()
            with counted() as counter:
                _build(remote, events)
            click.echo(f"built after {time.monotonic() - started:.0f} s; {_asked(counter.traffic)}", err=True)
            # What a machine has that wrote none of it.
            shutil.rmtree(remote / "containers")
            proxy.latency_seconds = latency_ms / 1000
            rows = [
                row
                for question in _questions(local, events).items()
                for row in _measure(remote, local, question, rounds)
            ]
    results = {"events": events, "latency_ms": latency_ms, "load": os.getloadavg(), "rows": rows}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=1) + "\n")
    click.echo(table(results))


@contextmanager
def _bucket(proxy: StoreProxy) -> Iterator[None]:
    variables = {**s3_environment(proxy.url), "CUSTODY__REPOSITORY__STORE": f"s3://{BUCKET}/{uuid4().hex}"}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)


def _build(root: Path, events: int) -> None:
    repository = Repository.create(root)
    group: list[Any] = []
    for piece in tables(events):
        group.append(piece)
        if sum(part.num_rows for part in group) >= _GROUP_EVENTS:
            write_journals(PosixFileSystem(), repository.settings, group)
            run_steps(repository.settings)
            group = []
    if group:
        write_journals(PosixFileSystem(), repository.settings, group)
        run_steps(repository.settings)


def _questions(local: Path, events: int) -> dict[str, Question]:
    uuid = _of_folder(local).get(events // 2).flowfile_uuid
    return {
        "one event": lambda it: it.get(events // 3),
        "events of one FlowFile": lambda it: _found(it, f"flowfile_uuid:{uuid}", 20),
        "20 newest of a type, exact total": lambda it: _found(it, "event_type:SEND", 20),
        "total of a type and a time": lambda it: _found(
            it, "event_type:DROP AND event_time:[2026-03-01 TO 2026-03-09]", 0
        ),
    }


def _found(repository: Repository, text: str, limit: int) -> object:
    answer = repository.search(text, limit=limit)
    return answer.total, [stored.event for stored in answer.events]


def _measure(remote: Path, local: Path, question: tuple[str, Question], rounds: int) -> Iterator[dict[str, object]]:
    name, ask = question
    expected = ask(_of_folder(local))
    taken: dict[str, list[tuple[float, Traffic]]] = {state: [] for state in _STATES}
    for _ in range(rounds):
        shutil.rmtree(remote / "work", ignore_errors=True)
        reader = Repository.open(remote)
        for state in _STATES:
            reader = Repository.open(remote) if state == "warm disk" else reader
            with counted() as counter:
                started = time.perf_counter()
                answer = ask(reader)
                seconds = time.perf_counter() - started
            if answer != expected:
                raise AssertionError(f"{name}, {state}: another answer than in a folder")
            taken[state].append((seconds, counter.traffic))
    for state, times in taken.items():
        median = statistics.median(seconds for seconds, _ in times)
        asked = times[-1][1]
        yield {
            "question": name,
            "state": state,
            "ms": round(median * 1000, 1),
            "requests": asked.count,
            "ranges": asked.requests.get("range", 0),
            "bytes": asked.bytes_read,
        }


def _of_folder(root: Path) -> Repository:
    """Open the repository in a folder, whatever the environment says of the other one."""
    store = os.environ.pop("CUSTODY__REPOSITORY__STORE", None)
    try:
        return Repository.open(root)
    finally:
        if store is not None:
            os.environ["CUSTODY__REPOSITORY__STORE"] = store


def _asked(traffic: Traffic) -> str:
    written, read = traffic.bytes_written / 1e6, traffic.bytes_read / 1e6
    return f"{traffic.count} requests, {written:.1f} MB written, {read:.1f} MB read"


def table(results: dict[str, Any]) -> str:
    """Return the results as a table in Markdown."""
    lines = [
        f"{results['events']} events, {results['latency_ms']} ms a request",
        "",
        "| question | state | ms | requests | of them ranges | KB read |",
        "|---|---|---|---|---|---|",
    ]
    for row in results["rows"]:
        numbers = f"{row['ms']} | {row['requests']} | {row['ranges']} | {row['bytes'] / 1000:.0f}"
        lines.append(f"| {row['question']} | {row['state']} | {numbers} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
