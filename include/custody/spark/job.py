"""What every Spark job does: list the units of its steps, do them in parallel, print one JSON report line a step.

The driver finds the units on disk, Spark hands each one to a Python worker, each unit is idempotent. A unit that
fails does not stop the others; the job then ends with exit code 1 and the report names the error.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from custody.config import Settings, load_settings
from custody.errors import CustodyError
from custody.maintenance.steps import MAINTENANCE_STEPS, MaintenanceStep
from custody.retention import RETENTION_STEPS
from custody.rollover import STEPS, Step, StepReport, Unit, UnitReport, Workspace, write_report
from custody.vfs import PosixFileSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_FAILED = 1
ALL_STEPS: Mapping[str, Step] = {**STEPS, **RETENTION_STEPS, **MAINTENANCE_STEPS}
"""Every step that has a job, by name."""


def main(steps: Sequence[str], argv: Sequence[str] | None = None) -> int:
    """Run steps in order within one Spark session; return the process's exit code."""
    arguments = _parser(steps).parse_args(argv)
    try:
        settings = load_settings(arguments.repository)
    except CustodyError as error:
        sys.stderr.write(f"custody: {error}\n")
        return error.exit_code
    session: SparkSession | None = None
    try:
        for name in steps:
            report, session = run_step(name, settings, session)
            sys.stdout.write(report.line() + "\n")
            sys.stdout.flush()
            if arguments.run_id is not None:
                write_report(PosixFileSystem(), settings.runs, arguments.run_id, report)
            if report.failed:
                return EXIT_FAILED
    finally:
        if session is not None:
            session.stop()
    return 0


def run_step(name: str, settings: Settings, session: SparkSession | None) -> tuple[StepReport, SparkSession | None]:
    """Do all units of a step; a session is started only when there are any, and returned for the next step."""
    started = time.monotonic()
    step = ALL_STEPS[name]
    units = step.units(settings)
    details: list[UnitReport] = []
    if units:
        session = session or start_session(name)
        work = partial(execute, name, settings.to_json())
        pieces = session.sparkContext.parallelize([msgspec.json.encode(unit) for unit in units], len(units))
        kind = step.report_type if isinstance(step, MaintenanceStep) else UnitReport
        details = [msgspec.json.decode(done, type=kind) for done in pieces.map(work).collect()]
        if isinstance(step, MaintenanceStep):
            details = step.finish(settings, units, details)
    seconds = time.monotonic() - started
    return StepReport.of(name, str(settings.root), seconds, details), session


def execute(name: str, settings_json: str, unit_json: bytes) -> bytes:
    """Do one unit in a Python worker; return its report as JSON."""
    # Into the executor's log: how far a long unit has come.
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    step = ALL_STEPS[name]
    unit = msgspec.json.decode(unit_json, type=step.unit_type if isinstance(step, MaintenanceStep) else Unit)
    settings = Settings.from_json(settings_json)
    workspace = Workspace(settings, unit.writer or settings.repository.writer)
    started = time.monotonic()
    try:
        report = step.run(workspace, unit)
    except Exception as error:  # noqa: BLE001 - one bad unit must not stop the others; the report names it
        report = UnitReport(unit=str(unit), error=f"{type(error).__name__}: {error}")
    seconds = round(time.monotonic() - started, 3)
    return msgspec.json.encode(msgspec.structs.replace(report, seconds=seconds))


def start_session(name: str) -> SparkSession:
    """Return the Spark session of a job, under a name that Spark's pages show."""
    # Imported here: a job without work, and the tests of the argument parser, need no Spark.
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    session: SparkSession = builder.appName(f"custody-{name}").getOrCreate()
    return session


def _parser(steps: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"spark-submit {steps[0] if len(steps) == 1 else 'all'}.py",
        description=f"custody, {', '.join(steps)}: prints one JSON report line a step.",
    )
    parser.add_argument("--repository", type=Path, required=True, help="folder of the repository")
    parser.add_argument("--run-id", help="keep the report under this run, in the repository's runs folder")
    return parser
