"""What the API adds to a search, and what a request waits for beside exports: `custody serve` beside the library.

`PYTHONPATH=include python -m benchmarks.api --events 1000000`

Each search is asked by turns, several times in a row, and CPU time counts, of all threads of a process:

- *library*: `Repository.search`, whose answer is objects.
- *documents*: the same and the JSON that `custody search --json` makes of it, which is what the API answers with.
- *API*: the process of `custody serve`, asked over one kept connection.
- *HTTP alone*: a process with the same HTTP server, which answers with as many bytes that it has already: no answer of
  the API can cost less than this and *documents*.

Both have answered each search before. Then `/healthz` is asked every 20 ms: alone, and beside two exports whose readers
take what comes.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import urlencode

import click
import httpx
import msgspec

from benchmarks.api.reader import reading
from benchmarks.environment import LOCAL
from benchmarks.eventlog.bulk import tables, write_journals
from custody.cli.output import answered
from custody.cli.search_cmd import json_document
from custody.lineage import Bounds
from custody.repository import Repository, StoredEvent
from custody.serving.api_documents import lineage_document
from custody.serving.api_door import NODES_MAX
from custody.vfs import PosixFileSystem
from tests.support import run_steps
from tests.unit.serving.serve_process import served

_GROUP_EVENTS = 250_000
_ASKED_EVERY_SECONDS = 0.02
_IN_A_ROW = 10
_READERS = 2
_SPAN_MS = 86_400_000
PAGES = (20, 100, 1000)
QUESTIONS = {
    "newest": "",
    "a type": "event_type:SEND",
    "type and component": "event_type:SEND AND component_type:Put*",
    "a wildcard": "filename:*7*",
}


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--events", type=click.IntRange(min=1000), default=1_000_000, help="Events of the repository.")
@click.option("--rounds", type=click.IntRange(min=1), default=20, help="Turns of ten for each search.")
@click.option("--seconds", type=click.FloatRange(min=1), default=20.0, help="Requests beside exports, for so long.")
@click.option("--repository", type=click.Path(path_type=Path), help="An existing repository, instead of a new one.")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk of a new repository.")
@click.option("--output", type=click.Path(path_type=Path), default=LOCAL / "api.json", help="Where the results go.")
def main(events: int, rounds: int, seconds: float, repository: Path | None, scratch: Path, output: Path) -> None:
    """Measure both, and print tables."""
    with ExitStack() as stack:
        if repository is None:
            scratch.mkdir(parents=True, exist_ok=True)
            repository = Path(stack.enter_context(TemporaryDirectory(dir=scratch))) / "repository"
            build_repository(repository, events)
        server = stack.enter_context(served(repository, "--door", "api"))
        alone = stack.enter_context(_http_alone())
        searches = _searches(Repository.open(repository), (server.url, server.process.pid), alone, rounds)
        health = _health(server.url, seconds)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"searches": searches, "health": health}, indent=1))
    _print(searches, health)


def build_repository(root: Path, events: int) -> None:
    """Make a repository with so many events, all of them live."""
    opened = Repository.create(root)
    write_journals(PosixFileSystem(), opened.settings, tables(events), group_events=_GROUP_EVENTS)
    run_steps(opened.settings)


def _searches(
    repository: Repository, server: tuple[str, int], alone: tuple[str, int], rounds: int
) -> dict[str, dict[str, float]]:
    """Return by question the medians of milliseconds of CPU, and of milliseconds that the library and the API take."""
    with closing(_Asked(*server)) as asked, closing(_Asked(*alone)) as alone_asked:
        return _compared(repository, asked, alone_asked, rounds)


def _compared(repository: Repository, asked: _Asked, alone_asked: _Asked, rounds: int) -> dict[str, dict[str, float]]:
    answers: dict[str, dict[str, float]] = {}
    kinds: dict[str, tuple[_Kind, str | None]] = {
        f"{name}, {page} shown": (
            _Kind(
                f"events?{urlencode({'q': text, 'limit': page})}",
                partial(repository.search, text, limit=page),
                partial(search_document, repository, text, page),
            ),
            text,
        )
        for page in PAGES
        for name, text in QUESTIONS.items()
    }
    kinds |= {name: (kind, None) for name, kind in _others(repository).items()}
    for question, (kind, text) in kinds.items():
        path = f"/api/v1/{kind.path}"
        answer = asked.get(path)
        expected = repository.search(text or "", limit=1).total
        total, size = json.loads(answer).get("total"), len(answer)
        if text is not None and total != expected:
            raise click.ClickException(f"{question}: the API counts {total} events, the library {expected}.")
        sides: dict[str, tuple[Callable[[], object], Callable[[], int]]] = {
            "library": (kind.library, time.process_time_ns),
            "documents": (kind.documents, time.process_time_ns),
            "api": (partial(asked.get, path), asked.cpu_ns),
            "http": (partial(alone_asked.get, f"/{size}"), alone_asked.cpu_ns),
        }
        cpu: dict[str, list[float]] = {side: [] for side in sides}
        wall: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(rounds):
            for side, (ask, cpu_ns) in sides.items():
                ask()
                started, began = time.perf_counter_ns(), cpu_ns()
                for _ in range(_IN_A_ROW):
                    ask()
                cpu[side].append((cpu_ns() - began) / _IN_A_ROW / 1e6)
                wall[side].append((time.perf_counter_ns() - started) / _IN_A_ROW / 1e6)
        one = {f"{side}_cpu": statistics.median(values) for side, values in cpu.items()}
        one |= {f"{side}_cpu_least": min(values) for side, values in cpu.items()}
        one |= {f"{side}_wall": statistics.median(values) for side, values in wall.items()}
        answers[question] = {**one, "matches": expected, "bytes": size}
        click.echo(f"{question}: {one}", err=True)
    return answers


class _Kind(NamedTuple):
    """A kind of question: its address below the API, the library's answer, and that with the JSON of it."""

    path: str
    library: Callable[[], object]
    documents: Callable[[], object]


def _others(repository: Repository) -> dict[str, _Kind]:
    """Return the questions that the pages ask besides pages of events, by their names."""
    [one] = repository.search("", limit=1).events
    uuid, longest = one.event.flowfile_uuid, repository.settings.query.attribute_characters_max
    spans = (max(0, one.event.event_time - _SPAN_MS), one.event.event_time, 60)
    fields = ["event_type", "component_name", "component_type", "source_node"]
    since, until = (datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds") for ms in spans[:2])
    bounds = {"q": "event_type:SEND", "since": since, "until": until, "buckets": spans[2]}
    answers: dict[str, tuple[str, Callable[[], object], Callable[[Any], object]]] = {
        "one event": (
            f"events/{one.writer}/{one.event.event_id}",
            lambda: repository.get(one.event.event_id, one.writer),
            lambda event: answered(event, repository.settings, whole=False),
        ),
        "a lineage": (
            f"lineage?{urlencode({'flowfile': uuid, 'depth': 1})}",
            lambda: repository.lineage([uuid], Bounds(NODES_MAX, depth_max=1)),
            lambda lineage: lineage_document(lineage, longest),
        ),
        "values of four fields": (
            f"events/facets?{urlencode({'q': 'event_type:SEND', 'field': fields}, doseq=True)}",
            lambda: repository.facets("event_type:SEND", fields),
            lambda found: {name: dict(values.most_common(50)) for name, values in found[0].items()},
        ),
        "a histogram of a day": (
            f"events/histogram?{urlencode(bounds)}",
            lambda: repository.histogram("event_type:SEND", *spans),
            lambda found: [dataclasses.asdict(bucket) for bucket in found[0]],
        ),
    }
    return {
        name: _Kind(path, library, lambda library=library, made=made: msgspec.json.encode(made(library())))  # type: ignore[misc]
        for name, (path, library, made) in answers.items()
    }


def search_document(repository: Repository, text: str, page: int) -> bytes:
    """Return the JSON that `custody search --json` makes of a search."""
    found = repository.search(text, limit=page)
    events = [StoredEvent(one.writer, answered(one.event, repository.settings, whole=False)) for one in found.events]
    return msgspec.json.encode(json_document(found, events, None))


class _Asked:
    """A server that is asked over one connection.

    Args:
        url: of the server.
        process: its number, of this machine.
    """

    def __init__(self, url: str, process: int) -> None:
        self._connection = HTTPConnection(url.removeprefix("http://"))
        # Linux's clock of the CPU time of another process, all of its threads together.
        self._clock = ~process << 3 | 2

    def get(self, path: str) -> bytes:
        """Return the body of an answer."""
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise click.ClickException(f"{path}: expected an answer, got {answer.status}: {body[:500]!r}")
        return body

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def cpu_ns(self) -> int:
        """Return the CPU time that the process has taken so far."""
        return time.clock_gettime_ns(self._clock)


@contextmanager
def _http_alone() -> Iterator[tuple[str, int]]:
    """Start a process with the HTTP server of custody and nothing behind it; yield its URL and number."""
    command = [sys.executable, "-m", "benchmarks.api.http_alone"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


def _timed(ask: Callable[[], object]) -> float:
    started = time.perf_counter()
    ask()
    return time.perf_counter() - started


def _health(url: str, seconds: float) -> dict[str, dict[str, float]]:
    """Return milliseconds that a request without work takes: alone, and beside exports of each form."""
    answers = {"alone": _asked(url, seconds)}
    for form in ("ndjson", "arrow", "csv"):
        started = time.perf_counter()
        with reading(url, form, _READERS) as taken:
            answers[f"beside two exports, {form}"] = _asked(url, seconds)
        spent = time.perf_counter() - started
        answers[f"beside two exports, {form}"]["exported_mb_s"] = sum(taken) / spent / 1e6
        click.echo(f"{form}: {answers[f'beside two exports, {form}']}", err=True)
    return answers


def _asked(url: str, seconds: float) -> dict[str, float]:
    times = []
    end = time.perf_counter() + seconds
    with httpx.Client(timeout=120) as client:
        while time.perf_counter() < end:
            times.append(_timed(lambda: client.get(f"{url}/healthz").raise_for_status()) * 1000)
            time.sleep(_ASKED_EVERY_SECONDS)
    times.sort()
    return {
        "median": statistics.median(times),
        "p99": times[int(len(times) * 0.99)],
        "most": times[-1],
        "requests": len(times),
    }


def _print(searches: dict[str, dict[str, float]], health: dict[str, dict[str, float]]) -> None:
    columns = (
        "search",
        "matches",
        "library",
        "documents",
        "API",
        "API / documents",
        "HTTP alone",
        "wall: library",
        "API",
    )
    rows: list[tuple[str, ...]] = [columns, ("---",) * len(columns)]
    for name, one in searches.items():
        cpu = {side: one[f"{side}_cpu"] for side in ("library", "documents", "api", "http")}
        times = f"{one['api_cpu'] / one['documents_cpu']:.2f}"
        shown = [f"{value:.2f}" for value in (cpu["library"], cpu["documents"], cpu["api"])]
        walls = [f"{one[f'{side}_wall']:.2f}" for side in ("library", "api")]
        rows.append((name, f"{one['matches']:,.0f}", *shown, times, f"{cpu['http']:.2f}", *walls))
    rows += [("",) * 5, ("`/healthz`", "median, ms", "99 of 100 below", "most", "exports, MB/s"), ("---",) * 5]
    for name, one in health.items():
        speed = f"{one['exported_mb_s']:.1f}" if "exported_mb_s" in one else "-"
        rows.append((name, f"{one['median']:.1f}", f"{one['p99']:.1f}", f"{one['most']:.1f}", speed))
    for row in rows:
        sys.stdout.write(f"| {' | '.join(row)} |\n" if len(row) > 1 else "\n")


if __name__ == "__main__":
    main()
