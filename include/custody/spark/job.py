"""The program of a Spark job: lists the units of each step, does them in parallel, prints one JSON report line a step.

The driver finds the units on disk and takes the leases of their writers, Spark hands each unit to a Python worker, each
unit is idempotent. A unit that fails does not stop the others; the job then ends with exit code 1 and the report names
the error. A job that was superseded by another attempt ends with 19, one that waited for another in vain with 14.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from custody.clock import SystemClock
from custody.config import Settings, load_settings
from custody.errors import CustodyError, ExitCode, LockedError, SupersededError
from custody.export.export_steps import EXPORT_STEPS
from custody.lease import Attempt, Heartbeat, Lease, superseded_error
from custody.maintenance.maintenance_steps import MAINTENANCE_STEPS
from custody.recovery import STEPS
from custody.retention import RETENTION_STEPS
from custody.spark.environment import job_program, seconds_since_submit
from custody.spark.session import start_session
from custody.vfs import PosixFileSystem
from custody.workspace import StepReport, UnitReport, Workspace, lease_folder, take_step_lease, write_report
from custody.workspace.step import Step, Unit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL_STEPS: Mapping[str, Step] = {**STEPS, **RETENTION_STEPS, **MAINTENANCE_STEPS, **EXPORT_STEPS}
"""Every step that has a job, by name."""


def main(steps: Sequence[str], argv: Sequence[str] | None = None) -> int:
    """Run steps in order within one Spark session; return the process's exit code."""
    startup = seconds_since_submit()
    arguments = _parser(steps).parse_args(argv)
    try:
        settings = load_settings(arguments.repository)
    except CustodyError as error:
        sys.stderr.write(f"custody: {error}\n")
        return error.exit_code
    attempt = Attempt.parse(arguments.attempt) if arguments.attempt else Attempt.new("spark")
    session: SparkSession | None = None
    try:
        for name in steps:
            report, session = run_step(
                name,
                settings,
                session,
                attempt,
                take_over=arguments.take_over,
                startup_seconds=startup,
                only=arguments.only,
            )
            startup = 0.0
            sys.stdout.write(report.line() + "\n")
            sys.stdout.flush()
            code = exit_code(report)
            # The report of a run's step is that of the attempt that won.
            if arguments.run_id is not None and code != SupersededError.exit_code:
                write_report(PosixFileSystem(), settings.runs, arguments.run_id, report)
            if code:
                return code
    finally:
        if session is not None:
            session.stop()
    return 0


def exit_code(report: StepReport) -> int:
    """Return the exit code of a step: 0, that of being superseded or locked out, or 1."""
    kinds = {unit.error_kind for unit in report.details if unit.error is not None}
    if SupersededError.kind in kinds:
        return SupersededError.exit_code
    if kinds == {LockedError.kind}:
        return LockedError.exit_code
    return ExitCode.SOME_WORK_FAILED if report.failed else ExitCode.DONE


def run_step(
    name: str,
    settings: Settings,
    session: SparkSession | None,
    attempt: Attempt,
    *,
    take_over: bool = False,
    startup_seconds: float = 0.0,
    only: Collection[str] = (),
) -> tuple[StepReport, SparkSession | None]:
    """Do all units of a step, each writer's under its lease.

    A session is started only when there are units, and returned for the next step. A writer whose lease cannot be had
    costs an error in the report; the others' units are done. `startup_seconds` is the time that it took to come here;
    the start of a session is added to it. With `only`, units of other names are left.
    """
    started = time.monotonic()
    step = ALL_STEPS[name]
    details: list[UnitReport] = []
    leases: dict[str, Lease] = {}
    units = _chosen(step.units(settings), only)
    if step.lease is not None:
        for writer in sorted({unit.writer for unit in units}):
            try:
                leases[writer] = take_step_lease(settings, writer, attempt, step.lease, take_over=take_over)
            except CustodyError as error:
                details.append(_failed(writer, error))
        # Listed again: what another attempt did until now is done.
        units = [unit for unit in _chosen(step.units(settings), only) if unit.writer in leases] if leases else []
    done: list[UnitReport] = []
    with Heartbeat(leases.values(), SystemClock(), settings.lease.dead_seconds):
        try:
            if units:
                if session is None:
                    before = time.monotonic()
                    session = start_session(name)
                    seconds = time.monotonic() - before
                    started, startup_seconds = started + seconds, startup_seconds + seconds
                # Workers get the number only: the driver holds the lease and gives its signs of life.
                epochs = {writer: lease.epoch for writer, lease in leases.items()}
                work = partial(execute, name, settings.to_json(), epochs)
                pieces = session.sparkContext.parallelize([msgspec.json.encode(unit) for unit in units], len(units))
                done = [msgspec.json.decode(report, type=step.report_type) for report in pieces.map(work).collect()]
                done = step.finish(settings, units, done)
        # All count as failed: it is unknown which units were done.
        except BaseException:
            _release(step, leases, leases)
            raise
    _release(step, leases, [unit.writer for unit, report in zip(units, done, strict=True) if report.error is not None])
    seconds = time.monotonic() - started
    report = StepReport.of(name, str(settings.root), seconds, [*details, *done], startup_seconds=startup_seconds)
    return report, session


def execute(name: str, settings_json: str, epochs: Mapping[str, int], unit_json: bytes) -> bytes:
    """Do one unit in a Python worker, under the epoch of its writer's lease; return its report as JSON."""
    # Into the executor's log: how far a long unit has come.
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    step = ALL_STEPS[name]
    unit = msgspec.json.decode(unit_json, type=step.unit_type)
    settings = Settings.from_json(settings_json)
    lease = None
    if step.lease is not None:
        lease = Lease(PosixFileSystem(), lease_folder(settings, unit.writer, step.lease), epochs[unit.writer])
    started = time.monotonic()
    try:
        # Time passed since the driver listed the units: a superseded attempt must not even begin one.
        if lease is not None:
            lease.check()
        report = step.run(Workspace(settings, unit.writer or settings.repository.writer, lease=lease), unit)
    except Exception as error:  # noqa: BLE001 - one bad unit must not stop the others; the report names it
        # Who is superseded meets errors of many kinds: the other attempt takes its files away.
        report = _failed(str(unit), error if lease is None or lease.is_current() else superseded_error(lease, error))
    seconds = round(time.monotonic() - started, 3)
    return msgspec.json.encode(msgspec.structs.replace(report, seconds=seconds))


def _chosen(units: Sequence[Unit], only: Collection[str]) -> list[Unit]:
    return [unit for unit in units if not only or str(unit) in only]


def _failed(unit: str, error: Exception) -> UnitReport:
    kind = error.kind if isinstance(error, CustodyError) else None
    return UnitReport(unit=unit, error=f"{type(error).__name__}: {error}", error_kind=kind)


def _release(step: Step, leases: Mapping[str, Lease], failed: Collection[str]) -> None:
    for writer, lease in leases.items():
        lease.release(failed=writer in failed, recovered=step.is_recovery)


def _parser(steps: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=job_program(steps[0] if len(steps) == 1 else "all"),
        description=f"custody, {', '.join(steps)}: prints one JSON report line a step.",
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
        "--only", action="append", default=[], metavar="UNIT", help="leave other units of the step alone"
    )
    return parser
