"""The Spark job of `provenance_ingest`: ingests the files of an interval in parallel, one writer slot for each task.

With one slot (`repository.writer_slots`) one task reads all files, in order. Files that are less work than the start of
a Spark session are read by the driver, one task after the other.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from custody.config import Settings
from custody.errors import CustodyError, ExitCode
from custody.freed_memory import keep_freed_memory
from custody.landing import Interval, LandedFile
from custody.repository import Repository
from custody.repository.landing_ingest import ingest_landed, shares, waiting_files
from custody.spark.environment import seconds_since_submit
from custody.spark.placement import end_with_spark_submit, place_bytes
from custody.spark.session import start_session
from custody.spark.without_pandas import without_pandas
from custody.workspace import Start, StepReport, UnitReport, report_place, write_report

NAME = "ingest"


def main(argv: Sequence[str] | None = None) -> int:
    """Ingest what waits in an interval; print one JSON report line and return the process's exit code."""
    startup = seconds_since_submit()
    arguments = _parser().parse_args(argv)
    try:
        interval = Interval.parse(arguments.start, arguments.end)
        repository = Repository.open(arguments.repository)
        started = time.monotonic()
        with without_pandas():
            details, start = _ingest(repository, interval, arguments.run_id)
    except CustodyError as error:
        sys.stderr.write(f"custody: {error}\n")
        return error.exit_code
    settings = repository.settings
    seconds = time.monotonic() - started - start.seconds
    startup += start.seconds
    report = StepReport.of(NAME, str(settings.root), seconds, details, startup_seconds=startup, place=start.place)
    sys.stdout.write(report.line() + "\n")
    sys.stdout.flush()
    if arguments.run_id is not None:
        write_report(*report_place(settings), arguments.run_id, report, arguments.attempt)
    return ExitCode.SOME_WORK_FAILED if report.failed else ExitCode.DONE


def _ingest(repository: Repository, interval: Interval, run_id: str | None) -> tuple[list[UnitReport], Start]:
    """Ingest what waits; return a report of each file, where it was read and how long the start of Spark took."""
    files = waiting_files(repository, interval)
    # Without work no session: its start would take longer than everything else.
    if not files:
        return [], Start()
    tasks = shares(files, repository.settings.repository.writer_slots)
    placement = place_bytes(repository.settings, (file.bytes for file in files))
    sys.stderr.write(f"custody: {NAME}: done in {placement}\n")
    work = partial(_execute, repository.settings.to_json(), run_id)
    pieces = [msgspec.json.encode(share) for share in tasks]
    seconds = 0.0
    if placement.in_driver:
        end_with_spark_submit()
        done = list(map(work, pieces))
    else:
        before = time.monotonic()
        session = start_session(NAME)
        seconds = time.monotonic() - before
        try:
            done = session.sparkContext.parallelize(pieces, len(pieces)).map(work).collect()
        finally:
            session.stop()
    reports = [report for piece in done for report in _REPORTS.decode(piece)]
    order = {file.file: number for number, file in enumerate(files)}
    ordered = sorted(reports, key=lambda report: order.get(report.unit, len(order)))
    return ordered, Start(seconds, str(placement))


_REPORTS = msgspec.json.Decoder(list[UnitReport])
_FILES = msgspec.json.Decoder(list[LandedFile])


def _execute(settings_json: str, run_id: str | None, share: bytes) -> bytes:
    """Ingest one task's files, in a Python worker or the driver; return their reports as JSON."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    keep_freed_memory()  # a task is the process, in either place
    files = _FILES.decode(share)
    return msgspec.json.encode(ingest_landed(Repository(Settings.from_json(settings_json)), files, run_id))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spark-submit ingest.py", description="custody, ingest of landing folders: prints one JSON report line."
    )
    parser.add_argument("--repository", type=Path, required=True, help="folder of the repository")
    parser.add_argument("--run-id", help="keep the report under this run, in the repository's runs folder")
    parser.add_argument("--attempt", help="who does this, for the log: a writer's lock keeps others away from its slot")
    parser.add_argument("--start", required=True, help="start of the interval, ISO 8601 (UTC without an offset)")
    parser.add_argument("--end", required=True, help="end of the interval, which does not belong to it")
    return parser
