"""The Spark job of `ngsi_to_hdfs`: writes waiting notifications to the files of their destinations.

The driver holds the lease of the sink, commits and appends, for batches have one order. Where more waits than the start
of a session costs, executors read the notifications and make their lines. A session of Spark is started only where one
is needed: for that, for files on HDFS over RPC, and for tables.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from custody.config import Settings
from custody.errors import CustodyError, ExitCode
from custody.landing import parse_instant
from custody.lease import Attempt
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink.batch_plan import BatchResult
from custody.ngsi_sink.chunk import ChunkPlanner
from custody.ngsi_sink.hive_server import ensure_server_tables
from custody.ngsi_sink.opening import OpenSink, open_sink, sink_backlog
from custody.ngsi_sink.run import CHUNK_EVENTS, SinkReport
from custody.ngsi_sink.tables import PendingTables, TablesReport
from custody.repository import Repository
from custody.spark.environment import seconds_since_submit
from custody.spark.hdfs import rpc_files
from custody.spark.hive import ensure_tables, hive_folder, session_options
from custody.spark.ngsi_planner import ExecutorPlanner
from custody.spark.session import executor_variables, start_session
from custody.spark.without_pandas import without_pandas
from custody.vfs import PosixFileSystem
from custody.workspace import StepReport, UnitReport, report_place, write_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "ngsi_to_hdfs"
_LOGGER = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Write what is due; print one JSON report line and return the process's exit code."""
    startup = seconds_since_submit()
    arguments = _parser().parse_args(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    started = time.monotonic()
    try:
        until_ms = _milliseconds(parse_instant(arguments.until)) if arguments.until else None
        repository = Repository.open(arguments.repository)
        attempt = Attempt.parse(arguments.attempt) if arguments.attempt else Attempt.new("spark")
        with without_pandas(), _Session(repository.settings) as session:
            details = _work(
                repository, attempt, until_ms, session, take_over=arguments.take_over, with_journals=arguments.journals
            )
    except CustodyError as error:
        sys.stderr.write(f"custody: {error}\n")
        return error.exit_code
    seconds = time.monotonic() - started - session.seconds
    root = str(repository.settings.root)
    report = StepReport.of(NAME, root, seconds, details, startup_seconds=startup + session.seconds)
    sys.stdout.write(report.line() + "\n")
    sys.stdout.flush()
    if arguments.run_id is not None:
        write_report(*report_place(repository.settings), arguments.run_id, report, str(attempt))
    return ExitCode.SOME_WORK_FAILED if report.failed else ExitCode.DONE


class _Session:
    """The session of Spark of a run, which is started when it is first asked for; a context, which stops it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session: SparkSession | None = None
        self.seconds = 0.0
        """How long its start took."""

    @property
    def makes_tables(self) -> bool:
        values = self._settings.ngsi
        return values.hive and values.hive_tables != "server"

    def get(self) -> SparkSession:
        """Return the session."""
        if self._session is None:
            before = time.monotonic()
            # Executors read the store with them.
            options = executor_variables(self._settings.spark.executor_variables)
            self._session = start_session(
                NAME, {**options, **(session_options(self._settings) if self.makes_tables else {})}
            )
            self.seconds = time.monotonic() - before
        return self._session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            self._session.stop()


def _work(
    repository: Repository,
    attempt: Attempt,
    until_ms: int | None,
    session: _Session,
    *,
    take_over: bool,
    with_journals: bool,
) -> list[UnitReport]:
    """Write everything that is due, then make tables; return a report of each part that had something to do."""
    settings = repository.settings
    tables = PendingTables(PosixFileSystem(), hive_folder(settings))
    # Before lease and session: a run that finds nothing to do costs neither.
    if not sink_backlog(repository, with_journals=with_journals).is_any and not tables.all():
        return []
    parameters = Parameters.from_section(settings.ngsi, settings.root)
    for warning in parameters.values.hive_warnings():
        _LOGGER.warning("%s", warning)
    if session.makes_tables or parameters.values.backend == "binary":
        session.get()
    with (
        open_sink(
            repository,
            attempt,
            take_over=take_over,
            with_journals=with_journals,
            rpc=rpc_files(session.get()) if parameters.values.backend == "binary" else None,
            note=tables.note if settings.ngsi.hive else lambda _: None,
        ) as opened,
        ExecutorPlanner(settings, opened.parameters, session.get, with_journals=with_journals) as planner,
    ):
        _, reports = take_all(opened, until_ms, planner=planner)
        ended = time.monotonic()
        if settings.ngsi.hive:
            # Still under the lease of the sink: one JVM at a time can open the embedded metastore.
            tables_report = _make_tables(opened, tables, session.get() if session.makes_tables else None)
            warnings = settings.ngsi.hive_warnings()
            reports.append(_tables_report(tables_report, time.monotonic() - ended, warnings))
    return reports


def _make_tables(opened: OpenSink, tables: PendingTables, session: SparkSession | None) -> TablesReport:
    """Make the tables where the settings say, which is at a HiveServer2 where no session was started for them."""
    columns, parameters = opened.sink.columns, opened.parameters
    if session is None:
        return ensure_server_tables(tables, columns, parameters, opened.target)
    settings = opened.repository.settings
    return ensure_tables(session, settings, opened.fs, (), columns, parameters, opened.target)


def take_all(
    opened: OpenSink,
    until_ms: int | None = None,
    *,
    on_chunk: Callable[[BatchResult], None] = lambda _: None,
    chunk_events: int = CHUNK_EVENTS,
    planner: ChunkPlanner | None = None,
) -> tuple[SinkReport, list[UnitReport]]:
    """Write what was submitted again, then what waits; return the result of the latter, and a report of each.

    Raises as `custody.ngsi_sink.run.write_due`.
    """
    started = time.monotonic()
    again = opened.resubmit()
    between = time.monotonic()
    report = opened.run(until_ms=until_ms, on_chunk=on_chunk, chunk_events=chunk_events, planner=planner)
    seconds = time.monotonic() - between
    return report, [
        *([_report("again", again, between - started, opened)] if again.resubmitted or again.problems else []),
        _report("waiting", report, seconds, opened, opened.source.passed_over),
    ]


def _tables_report(report: TablesReport, seconds: float, warnings: Sequence[str]) -> UnitReport:
    counts = {"made": report.made, "got columns": report.extended, "wait": report.waiting}
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    # Tables are extras: what cannot be made fails no run, and is tried again with the next one.
    notes = [", ".join(parts), *report.problems, *(warnings if report.made else ())]
    return UnitReport(unit="tables", seconds=round(seconds, 3), note="; ".join(filter(None, notes)) or None)


def _report(
    unit: str, done: SinkReport, seconds: float, opened: OpenSink, passed_over: Sequence[str] = ()
) -> UnitReport:
    counts = {
        "batches": done.batches,
        "entries submitted again": done.resubmitted,
        "chunks planned by executors": done.planned_elsewhere,
        "files": done.files,
        "destinations": len(done.destinations),
        "without a destination": done.skipped,
        "events in the quarantine": done.quarantined,
        "parts in the quarantine": done.deferred,
        "destinations whose file is none": done.unusable_files,
        "not due yet": done.waiting,
        "damaged parts of logs passed over": len(passed_over),
    }
    note = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    if done.problems:
        note += f"; first {done.problems[0]}"
    error = "; ".join(done.problems[:3]) or None
    return UnitReport(
        unit=unit,
        events=done.records,
        bytes=done.bytes,
        seconds=round(seconds, 3),
        note=note or "nothing is due",
        files=tuple(map(opened.target.uri, done.paths)),
        # A file that refuses affects itself only. A target that takes nothing at all needs somebody's attention, and
        # so does a name that something other than a file has.
        error=error if done.is_stopped or done.unusable_files or unit == "again" else None,
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
        "--journals", action="store_true", help="take acknowledged notifications from journals, too, before a rollover"
    )
    parser.add_argument(
        "--until", help="what arrived before this instant is due, ISO 8601 (UTC without an offset), full batch or not"
    )
    return parser
