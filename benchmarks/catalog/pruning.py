"""What statistics and bloom filters spare a query: `PYTHONPATH=include python -m benchmarks.catalog.pruning`.

The same questions to the same logs: custody as it is, custody when it may leave out nothing before the scan, and DuckDB
on the plain files. Each figure is the median of several runs, in seconds of CPU of all processes, so that other work on
the machine changes little; custody's include the start of the engine's process, for which `select 1` is the measure.
"""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
import duckdb

from custody.model import Event
from custody.repository import Repository
from custody.rollover import STEPS
from custody.workspace import Workspace

_START_MS = 1_772_409_600_000


def _event(number: int, log: int) -> Event:
    uuid = f"{(number * 2_654_435_761) % (1 << 32):08x}-0000-4000-8000-{number:012x}"
    attributes: dict[str, str | None] = {
        "filename": f"orders-{number % 997}.csv",
        "path": f"/landing/{number % 89}",
        "uuid": uuid,
    }
    return Event(
        event_type=("SEND", "RECEIVE", "ROUTE", "DROP")[number % 4],
        event_time=_START_MS + number * 40,
        flowfile_uuid=uuid,
        component_id=f"{number % 31:08d}-0000-4000-8000-000000000001",
        component_type="PutHDFS",
        details=f"stored {number * 7919 % 100_003} bytes of {uuid[:8]}",
        file_size=log * 1_000_000 + number % 50_000,
        source_node=f"node-{log % 4}",
        source_ordinal=number,
        updated_attributes=attributes,
    )


def _fill(root: Path, events: int, logs: int) -> Repository:
    repository = Repository.create(root)
    each = events // logs
    for log in range(logs):
        with repository.writer() as writer:
            writer.append([_event(number, log) for number in range(log * each, (log + 1) * each)])
        for step in STEPS.values():
            for unit in step.units(repository.settings):
                step.run(Workspace(repository.settings, unit.writer), unit)
    return repository


def _median(times: int, run: Callable[[], object]) -> float:
    run()  # the first one reads the files into the page cache
    seconds = []
    for _ in range(times):
        start = _cpu_seconds()
        run()
        seconds.append(_cpu_seconds() - start)
    return statistics.median(seconds)


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of all that it waited for: the engine ends with its query."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--events", default=200_000, help="Events in all.")
@click.option("--logs", default=20, help="Logs that they lie in.")
@click.option("--times", default=7, help="Measured runs of each question.")
def main(events: int, logs: int, times: int) -> None:
    """Measure point and range questions with and without what the catalog knows."""
    with tempfile.TemporaryDirectory() as folder:
        repository = _fill(Path(folder) / "repository", events, logs)
        files = sorted(str(path) for path in Path(folder).rglob("data/*/events/*.parquet"))
        size = sum(map(os.path.getsize, files)) / 1e6
        click.echo(f"{events} events, {len(files)} logs, {size:.1f} MB, load {os.getloadavg()[0]:.1f}")
        start = _median(times, lambda: _rows(repository, "select 1"))
        click.echo(f"select 1: {start:.2f} s")
        click.echo("| asked for | rows | blocks left | custody | custody, nothing ruled out | DuckDB on the files |")
        click.echo("|---|---|---|---|---|---|")
        uuid = _event(events // 3, 0).flowfile_uuid
        for condition in (
            f"flowfile_uuid = '{uuid}'",
            f"flowfile_uuid in ('{uuid}', 'none')",
            "flowfile_uuid = 'ffffffff-0000-4000-8000-ffffffffffff'",
            "file_size between 7020000 and 7020100",
            "source_node = 'node-2' and file_size < 2500000",
            f"source_ordinal = {events // 2}",
        ):
            _measure(repository, files, condition, times)


def _rows(repository: Repository, text: str) -> list[object]:
    with repository.sql(text) as result:
        return [batch.to_pylist() for batch in result.batches()]


def _measure(repository: Repository, files: list[str], condition: str, times: int) -> None:
    columns = "count(*), min(details), max(updated_attributes['filename'])"

    def custody(source: str) -> tuple[object, object]:
        with repository.sql(f"select {columns} from {source} where {condition}") as result:  # noqa: S608 - its own
            return [batch.to_pylist() for batch in result.batches()], result.explained

    def plain() -> object:
        with duckdb.connect() as connection:
            text = f"select {columns} from read_parquet(?) where {condition}"  # noqa: S608 - its own
            return connection.execute(text, [files]).fetchall()

    (answer, explained), (whole, _) = custody("events"), custody("(from events) events")
    if answer != whole:
        raise AssertionError(f"{condition}: {answer} with pruning, {whole} without")
    rows = answer[0][0]["count_star()"]  # type: ignore[index]
    left = f"{explained.blocks - explained.blocks_pruned} of {explained.blocks}"  # type: ignore[attr-defined]
    seconds = [
        _median(times, lambda: custody("events")),
        _median(times, lambda: custody("(from events) events")),
        _median(times, plain),
    ]
    click.echo(f"| `{condition[:60]}` | {rows} | {left} | " + " | ".join(f"{each:.2f} s" for each in seconds) + " |")


if __name__ == "__main__":
    main()
