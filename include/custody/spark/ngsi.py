"""The Spark job of `ngsi_to_hdfs`: notifications that wait become files of their destinations.

The driver holds the lease of the sink and commits, for batches have one order. A session of Spark is started for what
needs one: files on HDFS by RPC.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from custody.errors import CustodyError
from custody.landing import instant
from custody.lease import Attempt
from custody.ngsi.persist import Persisted
from custody.repository import Repository
from custody.repository.persisting import persisting
from custody.rollover import StepReport, UnitReport, write_report
from custody.spark.job import EXIT_FAILED
from custody.spark.startup import seconds_since_submit
from custody.vfs import PosixFileSystem

NAME = "ngsi_to_hdfs"


def main(argv: Sequence[str] | None = None) -> int:
    """Write what is due; print one JSON report line and return the process's exit code."""
    startup = seconds_since_submit()
    arguments = _parser().parse_args(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    started = time.monotonic()
    attempt = Attempt.parse(arguments.attempt) if arguments.attempt else Attempt.new("spark")
    try:
        until_ms = _milliseconds(instant(arguments.until)) if arguments.until else None
        repository = Repository.open(arguments.repository)
        details = _persist(repository, attempt, until_ms, take_over=arguments.take_over)
    except CustodyError as error:
        sys.stderr.write(f"custody: {error}\n")
        return error.exit_code
    seconds = time.monotonic() - started
    report = StepReport.of(NAME, str(repository.settings.root), seconds, details, startup_seconds=startup)
    sys.stdout.write(report.line() + "\n")
    sys.stdout.flush()
    if arguments.run_id is not None:
        write_report(PosixFileSystem(), repository.settings.runs, arguments.run_id, report)
    return EXIT_FAILED if report.failed else 0


def _persist(repository: Repository, attempt: Attempt, until_ms: int | None, *, take_over: bool) -> list[UnitReport]:
    """Take what was submitted again, then what waits; return a report of each that had anything to do."""
    with persisting(repository, attempt, take_over=take_over) as opened:
        begun = time.monotonic()
        again = opened.submit_again()
        between = time.monotonic()
        done = opened.run(until_ms=until_ms)
        return [
            *([_report("again", again, between - begun)] if again.again or again.problems else []),
            _report("waiting", done, time.monotonic() - between, opened.waiting.passed_over),
        ]


def _report(unit: str, done: Persisted, seconds: float, passed_over: Sequence[str] = ()) -> UnitReport:
    counts = {
        "batches": done.batches,
        "entries submitted again": done.again,
        "files": done.files,
        "destinations": len(done.destinations),
        "without a destination": done.left,
        "events in the quarantine": done.aside,
        "parts in the quarantine": done.deferred,
        "not due yet": done.waiting,
        "damaged parts of logs passed over": len(passed_over),
    }
    note = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    error = "; ".join(done.problems[:3]) or None
    return UnitReport(
        unit=unit,
        events=done.records,
        bytes=done.bytes,
        seconds=round(seconds, 3),
        note=note or "nothing is due",
        # What a file refused costs itself only; a target that takes nothing at all is somebody's work.
        error=error if done.is_stopped or unit == "again" else None,
    )


def _milliseconds(time_of: datetime) -> int:
    return int(time_of.timestamp() * 1000)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spark-submit ngsi_to_hdfs.py",
        description="custody, notifications to files and Hive tables: prints one JSON report line.",
    )
    parser.add_argument("--repository", type=Path, required=True, help="folder of the repository")
    parser.add_argument("--run-id", help="keep the report under this run, in the repository's runs folder")
    parser.add_argument(
        "--attempt", help="who does this, <task>/<try>: a later try of a task takes over from an earlier one at once"
    )
    parser.add_argument(
        "--take-over", action="store_true", help="take the work over from an attempt that lives; it ends as superseded"
    )
    parser.add_argument(
        "--until", help="what arrived before this instant is due, ISO 8601 (UTC without an offset), full batch or not"
    )
    return parser
