"""What a reader waits for: pages in Chromium on many events, from the address to the first paint and the rows.

`PYTHONPATH=include python -m benchmarks.pages --events 10000000`

The pages have to be built (`make pages`), and the system needs Chromium. Each question is a page that is opened anew;
browser, server and repository are warm, as the first round is not counted. *Paint* is the browser's first contentful
paint; *rows* is when the first events stand in the table, *bars* when the histogram and the facets are there, too.

A new repository also has one FlowFile that became thousands, each with an event of its own. Of its lineage *picture* is
when the nearest FlowFiles are drawn, and *longest task* how long the page answered nobody.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote_plus

import click

from benchmarks.api.__main__ import QUESTIONS, build_repository
from benchmarks.environment import LOCAL
from custody.repository import Repository
from tests.airflow import browser
from tests.support import append, event, run_steps
from tests.unit.serving.serve_process import served

_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_WAIT_MS = 120_000
_ROUNDS_BEFORE = 1
_WIDE = "fa110000-0000-4000-8000-000000000000"
_WIDE_NAME = "a lineage of 5,000 FlowFiles"
_WATCH_TASKS = (
    "window.longest = 0; new PerformanceObserver(list => { for (const one of list.getEntries())"
    " window.longest = Math.max(window.longest, one.duration) }).observe({type: 'longtask', buffered: true})"
)


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--events", type=click.IntRange(min=1000), default=10_000_000, help="Events of the repository.")
@click.option("--rounds", type=click.IntRange(min=1), default=7, help="Each page is opened so often.")
@click.option("--repository", type=click.Path(path_type=Path), help="An existing repository, instead of a new one.")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk of a new repository.")
@click.option("--output", type=click.Path(path_type=Path), default=LOCAL / "pages.json", help="Where the results go.")
def main(events: int, rounds: int, repository: Path | None, scratch: Path, output: Path) -> None:
    """Measure, and print a table."""
    if reason := browser.missing():
        raise click.ClickException(reason)
    with ExitStack() as stack:
        if repository is None:
            scratch.mkdir(parents=True, exist_ok=True)
            repository = Path(stack.enter_context(TemporaryDirectory(dir=scratch))) / "repository"
            build_repository(repository, events)
            add_wide_lineage(Repository.open(repository))
        server = stack.enter_context(served(repository, "--door", "pages", "--quiet"))
        results = _opened(f"{server.url}/ui", Repository.open(repository), rounds)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=1))
    wide = results.pop(_WIDE_NAME, None)
    _print(results, ("paint", "rows", "bars"))
    if wide is not None:
        _print({_WIDE_NAME: wide}, ("paint", "rows", "picture", "longest task"))


def add_wide_lineage(repository: Repository, children: int = 5000) -> None:
    """Add a FlowFile that became so many others, each of which was sent; all of it is live."""
    uuids = [f"{_WIDE[:-12]}{number:012d}" for number in range(1, children + 1)]
    fork = event(1, event_type="FORK", flowfile_uuid=_WIDE, parent_uuids=[_WIDE], child_uuids=uuids)
    sent = [event(2 + at, event_type="SEND", flowfile_uuid=uuid) for at, uuid in enumerate(uuids)]
    append(repository, [fork, *sent])
    run_steps(repository.settings)


def _print(results: dict[str, dict[str, float]], parts: tuple[str, ...]) -> None:
    heading = ("page", "matches", *(f"{part}, s" for part in parts))
    rows: list[tuple[str, ...]] = [heading, ("---",) * len(heading)]
    for name, one in results.items():
        times = [f"{one[part]:.2f} (most {one[f'{part}_most']:.2f})" for part in parts]
        rows.append((name, f"{one['matches']:,.0f}" if "matches" in one else "", *times))
    for row in rows:
        sys.stdout.write(f"| {' | '.join(row)} |\n")


def _opened(url: str, repository: Repository, rounds: int) -> dict[str, dict[str, float]]:
    """Return seconds by page: medians, and the most."""
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    results: dict[str, dict[str, float]] = {}
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=browser.chromium(), args=[*arguments, "--no-proxy-server"]
        )
        page = chromium.new_context(viewport=browser.SIZE).new_page()
        page.set_default_timeout(_WAIT_MS)
        for name, text in QUESTIONS.items():
            found = repository.search(text, limit=1)
            address = f"{url}/search.html?q={quote_plus(text)}"
            results[name] = {**_measured(page, address, _rows_of_search, rounds), "matches": found.total}
            click.echo(f"{name}: {results[name]}", err=True)
        # Those of the wide lineage have neither attributes nor a small lineage.
        [newest] = repository.search(f"NOT flowfile_uuid:{_WIDE[:-12]}*", limit=1).events
        others = {
            "an event": f"event.html?writer={newest.writer}&event={newest.event.event_id}",
            "a lineage": f"lineage.html?flowfile={newest.event.flowfile_uuid}",
            "status": "status.html",
            "proof": "proof.html",
            "SQL: events by type": "sql.html?query=select+event_type,+count(*)+from+events+group+by+all",
        }
        for name, path in others.items():
            results[name] = _measured(page, f"{url}/{path}", _rows_of_page, rounds)
            click.echo(f"{name}: {results[name]}", err=True)
        wide = repository.search(f"flowfile_uuid:{_WIDE[:-12]}*", limit=1).total
        if wide:
            address = f"{url}/lineage.html?flowfile={_WIDE}&depth=all"
            results[_WIDE_NAME] = {**_wide_measured(page, address, rounds), "matches": wide}
            click.echo(f"{_WIDE_NAME}: {results[_WIDE_NAME]}", err=True)
        chromium.close()
    return results


def _wide_measured(page: Any, address: str, rounds: int) -> dict[str, float]:
    page.add_init_script(_WATCH_TASKS)
    times: dict[str, list[float]] = {"paint": [], "rows": [], "picture": [], "longest task": []}
    for _ in range(rounds + _ROUNDS_BEFORE):
        started = time.perf_counter()
        page.goto(address)
        page.get_by_role("region", name="FlowFiles of this lineage").get_by_role("rowheader").first.wait_for()
        times["rows"].append(time.perf_counter() - started)
        page.locator(".react-flow__node").first.wait_for()
        times["picture"].append(time.perf_counter() - started)
        times["paint"].append(page.evaluate(_PAINT) / 1000)
        times["longest task"].append(page.evaluate("window.longest") / 1000)
    return _medians(times)


def _measured(page: Any, address: str, rows_are_there: Callable[[Any], None], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {"paint": [], "rows": [], "bars": []}
    for _ in range(rounds + _ROUNDS_BEFORE):
        started = time.perf_counter()
        page.goto(address)
        rows_are_there(page)
        times["rows"].append(time.perf_counter() - started)
        page.wait_for_load_state("networkidle")
        page.locator(".loading").first.wait_for(state="detached")
        # Idle is said half a second after the last answer.
        times["bars"].append(_last_answer(page))
        times["paint"].append(page.evaluate(_PAINT) / 1000)
    return _medians(times)


def _medians(times: dict[str, list[float]]) -> dict[str, float]:
    counted = {name: values[_ROUNDS_BEFORE:] for name, values in times.items()}
    medians = {name: statistics.median(values) for name, values in counted.items()}
    return medians | {f"{name}_most": max(values) for name, values in counted.items()}


def _last_answer(page: Any) -> float:
    """Return after how many seconds the last answer that the page asked for had come."""
    ends = page.evaluate("performance.getEntriesByType('resource').map((one) => one.responseEnd)")
    return float(max(ends)) / 1000


def _rows_of_search(page: Any) -> None:
    page.get_by_role("region", name="Events that match").get_by_role("rowheader").first.wait_for()


def _rows_of_page(page: Any) -> None:
    page.locator(".loading").first.wait_for(state="detached")
    page.locator("table tbody tr").first.wait_for()


if __name__ == "__main__":
    main()
