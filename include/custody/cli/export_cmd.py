"""`custody export`: events are delivered to other systems, each at least once and in order."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from custody.cli.options import json_option
from custody.cli.output import clean, print_json, print_table, stderr, time_text, working
from custody.clock import SystemClock
from custody.config import load_settings
from custody.errors import ConfigurationError, ConflictError, CustodyError, ExitCode, InvalidInputError
from custody.export.export_run import Export, ExportReport, ExportRun, parse_position
from custody.lease import Attempt
from custody.vfs import PosixFileSystem

_NEVER_GIVES_UP = float("inf")


@click.command()
@click.argument("names", nargs=-1)
@click.option("--follow", is_flag=True, help="Go on until Ctrl-C: deliver what comes, and wait for receivers.")
@click.option("--poll", default=1.0, show_default=True, type=click.FloatRange(0.05), help="Seconds between looks.")
@click.option("--list", "is_list", is_flag=True, help="Print how far each export is, and deliver nothing.")
@click.option("--resend", is_flag=True, help="Deliver once more what the receiver refused and the quarantine has.")
@click.option("--rewind", "positions", multiple=True, metavar="WRITER:EVENT_ID", help="Go on from this event instead.")
@json_option
@click.pass_obj
def export(
    repository: Path,
    names: tuple[str, ...],
    follow: bool,
    poll: float,
    is_list: bool,
    resend: bool,
    positions: tuple[str, ...],
    as_json: bool,
) -> None:
    """Deliver events to the receivers NAMES of the settings, or to all of them.

    Each receiver is a table [exports.NAME] of custody.toml; docs/export.md has their kinds. A receiver gets every event
    at least once, a writer's in the order of their ids, from where the last run ended. What it refuses goes to the
    quarantine, and the events behind it on.

    \b
    Example:
      custody -r demo export
      custody -r demo export marquez --follow
      custody -r demo export --list
      custody -r demo export marquez --rewind main:0
    """
    if sum((follow, is_list, resend, bool(positions))) > 1:
        raise click.UsageError("--follow, --list, --resend and --rewind exclude each other")
    exports = _chosen(repository, names)
    if is_list:
        _show(exports, as_json=as_json)
        return
    if positions:
        _rewind(exports, positions, as_json=as_json)
        return
    reports = _follow(exports, poll) if follow else [_deliver(item, is_again=resend) for item in exports]
    _print(reports, as_json=as_json)
    if any(report.refused for report in reports):
        sys.exit(ExitCode.SOME_WORK_FAILED)


def _chosen(repository: Path, names: Sequence[str]) -> list[Export]:
    settings = load_settings(repository)
    if not settings.exports:
        raise ConfigurationError(
            f"{settings.root}: the settings name no receiver. Add a table [exports.NAME] to custody.toml; see "
            "docs/export.md."
        )
    chosen = dict.fromkeys(names) or sorted(settings.exports)
    return [Export(settings, name, PosixFileSystem(), SystemClock()) for name in chosen]


def _deliver(export: Export, *, is_again: bool) -> ExportReport:
    with export.started(Attempt.new("export")) as run, working(f"export {export.name}"):
        return run.resend() if is_again else run.deliver_waiting()


def _follow(exports: Sequence[Export], poll_seconds: float) -> list[ExportReport]:
    """Deliver until somebody stops this process: a thread an export, so that none waits for another's receiver."""
    totals = [ExportReport(export.name) for export in exports]
    failures: list[CustodyError] = []
    with _stopped_by_signals() as stop:

        def work(export: Export, total: ExportReport) -> None:
            try:
                with export.started(Attempt.new("export")) as run:
                    _go_on(run, total, stop, poll_seconds)
            # One that ends ends all of them: whoever supervises the process sees it and starts it again.
            except CustodyError as error:
                failures.append(error)
                stop.set()

        threads = [
            threading.Thread(target=work, args=pair, name=f"custody-export-{pair[0].name}")
            for pair in zip(exports, totals, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for failure in failures:
        raise failure
    return totals


def _go_on(run: ExportRun, total: ExportReport, stop: threading.Event, poll_seconds: float) -> None:
    shown = time.monotonic()
    while not stop.is_set():
        try:
            report = run.deliver_waiting(retry_seconds=_NEVER_GIVES_UP, stop=stop)
        except ConflictError:
            continue  # journals moved too fast for one look
        except CustodyError:
            if stop.is_set():  # a receiver that was away when the process was told to end
                return
            raise
        total.delivered += report.delivered
        total.bytes += report.bytes
        total.refused += report.refused
        total.notices += [text for text in report.notices if text not in total.notices]
        if report.delivered and time.monotonic() - shown > 1:
            shown = time.monotonic()
            stderr().print(clean(f"{total.export}: {total.delivered} events delivered"))
        stop.wait(poll_seconds)


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Yield what SIGINT and SIGTERM set, while the context lasts."""
    stop = threading.Event()
    former = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _show(exports: Sequence[Export], *, as_json: bool) -> None:
    states = [export.status() for export in exports]
    if as_json:
        print_json(states)
        return
    rows = [
        (item.export, item.kind, item.url, item.delivered, item.waiting, item.refused, time_text(item.updated_ms))
        for item in states
    ]
    print_table("", ("export", "kind", "url", "delivered#", "waiting#", "refused#", "last delivery"), rows)


def _rewind(exports: Sequence[Export], positions: Sequence[str], *, as_json: bool) -> None:
    if len(exports) != 1:
        raise click.UsageError("--rewind needs the NAME of one export")
    writers = {item.writer for item in exports[0].workspaces()}
    chosen = dict(parse_position(text) for text in positions)
    for writer in chosen:
        if writer not in writers:
            known = ", ".join(sorted(writers)) or "none"
            raise InvalidInputError(f"--rewind: expected a writer of this repository ({known}), got {writer!r}.")
    cursors = exports[0].rewind(chosen, Attempt.new("export"))
    if as_json:
        print_json(msgspec.to_builtins(cursors))
        return
    print_table("the next run begins at", ("writer", "event#"), sorted(cursors.next_event_ids.items()))


def _print(reports: Sequence[ExportReport], *, as_json: bool) -> None:
    if as_json:
        print_json(reports)
        return
    print_table("", ("export", "delivered#", "refused#"), [(r.export, r.delivered, r.refused) for r in reports])
    for report in reports:
        for notice in report.notices:
            stderr().print(clean(f"custody: {report.export}: {notice}"))
        if report.refused:
            stderr().print(clean(f"custody: {report.export}: what was refused is in custody quarantine list"))
