"""What the API adds to a search, and what a request waits for beside exports: `custody serve` beside the library.

`PYTHONPATH=include python -m benchmarks.api --events 1000000`

Each search is asked by turns of the library in this process and of a server over one kept connection; both have asked
it before. Then `/healthz` is asked every 20 ms: alone, and beside two exports whose readers take what comes.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import httpx

from benchmarks.environment import LOCAL
from benchmarks.eventlog.bulk import tables, write_journals
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.support import run_steps
from tests.unit.serving.serve_process import served

_GROUP_EVENTS = 250_000
_ASKED_EVERY_SECONDS = 0.02
_PAGE = 100
QUESTIONS = {
    "newest": "",
    "a type": "event_type:SEND",
    "type and component": "event_type:SEND AND component_type:Put*",
    "a wildcard": "filename:*7*",
}


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--events", type=click.IntRange(min=1000), default=1_000_000, help="Events of the repository.")
@click.option("--rounds", type=click.IntRange(min=3), default=50, help="Each search is asked so often.")
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
            _build(repository, events)
        server = stack.enter_context(served(repository, "--door", "api"))
        searches = _searches(Repository.open(repository), f"{server.url}/api/v1/events", rounds)
        health = _health(server.url, seconds)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"searches": searches, "health": health}, indent=1))
    _print(searches, health)


def _build(root: Path, events: int) -> None:
    opened = Repository.create(root)
    write_journals(PosixFileSystem(), opened.settings, tables(events), group_events=_GROUP_EVENTS)
    run_steps(opened.settings)


def _searches(repository: Repository, url: str, rounds: int) -> dict[str, dict[str, float]]:
    """Return milliseconds by question: medians of the library and of the API, and how many events match."""
    answers = {}
    with httpx.Client(timeout=120) as client:
        for name, text in QUESTIONS.items():

            def library(text: str = text) -> int:
                return repository.search(text, limit=_PAGE).total

            def api(text: str = text) -> int:
                total: int = client.get(url, params={"q": text, "limit": _PAGE}).raise_for_status().json()["total"]
                return total

            expected = library()
            if api() != expected:
                raise click.ClickException(f"{name}: the API counts {api()} events, the library {expected}.")
            times: dict[str, list[float]] = {"library": [], "api": []}
            for _ in range(rounds):
                times["library"].append(_timed(library))
                times["api"].append(_timed(api))
            medians = {side: statistics.median(values) * 1000 for side, values in times.items()}
            answers[name] = {**medians, "matches": expected}
            click.echo(f"{name}: {answers[name]}", err=True)
    return answers


def _timed(ask: Callable[[], object]) -> float:
    started = time.perf_counter()
    ask()
    return time.perf_counter() - started


def _health(url: str, seconds: float) -> dict[str, dict[str, float]]:
    """Return milliseconds that a request without work takes: alone, and beside exports of each form."""
    answers = {"alone": _asked(url, seconds)}
    for form in ("ndjson", "arrow", "csv"):
        stop = threading.Event()
        taken = [0]
        readers = [threading.Thread(target=_read, args=(url, form, stop, taken)) for _ in range(2)]
        for reader in readers:
            reader.start()
        started = time.perf_counter()
        answers[f"beside two exports, {form}"] = _asked(url, seconds)
        stop.set()
        for reader in readers:
            reader.join()
        spent = time.perf_counter() - started
        answers[f"beside two exports, {form}"]["exported_mb_s"] = taken[0] / spent / 1e6
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


def _read(url: str, form: str, stop: threading.Event, taken: list[int]) -> None:
    """Take export after export as fast as they come."""
    with httpx.Client(timeout=120) as client:
        while not stop.is_set():
            with client.stream("GET", f"{url}/api/v1/events/export", params={"format": form}) as answer:
                if answer.status_code == 503:  # one of before is not ended yet
                    time.sleep(_ASKED_EVERY_SECONDS)
                    continue
                answer.raise_for_status()
                for piece in answer.iter_raw():
                    taken[0] += len(piece)
                    if stop.is_set():
                        break


def _print(searches: dict[str, dict[str, float]], health: dict[str, dict[str, float]]) -> None:
    columns = ("search, 100 events shown", "matches", "library, ms", "API, ms", "more by")
    rows: list[tuple[str, ...]] = [columns, ("---",) * 5]
    for name, one in searches.items():
        more = one["api"] - one["library"]
        added = f"{more:.1f} ms, {more / one['library']:.0%}"
        rows.append((name, f"{one['matches']:,.0f}", f"{one['library']:.1f}", f"{one['api']:.1f}", added))
    rows += [("",) * 5, ("`/healthz`", "median, ms", "99 of 100 below", "most", "exports, MB/s"), ("---",) * 5]
    for name, one in health.items():
        speed = f"{one['exported_mb_s']:.1f}" if "exported_mb_s" in one else "-"
        rows.append((name, f"{one['median']:.1f}", f"{one['p99']:.1f}", f"{one['most']:.1f}", speed))
    for row in rows:
        sys.stdout.write(f"| {' | '.join(row)} |\n" if len(row) > 1 else "\n")


if __name__ == "__main__":
    main()
