"""The program of a Spark job: lists the units of each step, does them in parallel, prints one JSON report line a step.

The driver finds the units on disk and takes the leases of their writers. Spark hands each unit to a Python worker, or
the driver does them itself where they are less work than the start of a session; each unit is idempotent. A unit that
fails does not stop the others; the job then ends with exit code 1 and the report names the error. A job that was
superseded by another attempt ends with 19, one that waited for another in vain with 14.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from custody.config import Settings, load_settings
from custody.errors import CustodyError, StorageError
from custody.lease import Attempt
from custody.repository.local_pass import ALL_STEPS, LocalUnits
from custody.spark.environment import job_program, seconds_since_submit
from custody.spark.executor import execute, run_on_executors, units_away
from custody.spark.placement import Placement, end_with_spark_submit, place_units, unit_sizes
from custody.spark.session import executor_variables, start_session
from custody.spark.tasks import Needs, plan_tasks, run_tasks, session_cores
from custody.spark.without_pandas import without_pandas
from custody.workspace import Start, UnitReport, exit_code, run_pass
from custody.workspace.question import one_question
from custody.workspace.step import Step, Unit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Arrow, hashing and syncs leave the interpreter's lock; more threads were no faster for the units of so small a step.
_DRIVER_THREADS = 2


def main(steps: Sequence[str], argv: Sequence[str] | None = None) -> int:
    """Run steps in order within one Spark session; return the process's exit code."""
    startup = seconds_since_submit()
    arguments = _parser(steps).parse_args(argv)
    try:
        settings = load_settings(arguments.repository)
    except CustodyError as error:
        sys.stderr.write(f"custody: {error}\n")
        return error.exit_code
    with without_pandas():
        return _run(steps, settings, arguments, startup)


def _run(steps: Sequence[str], settings: Settings, arguments: argparse.Namespace, startup: float) -> int:
    code, runner = 0, SparkUnits()
    try:
        for report in run_pass(
            [ALL_STEPS[name] for name in steps],
            settings,
            runner,
            Attempt.parse(arguments.attempt) if arguments.attempt else Attempt.new("spark"),
            take_over=arguments.take_over,
            run_id=arguments.run_id,
            startup_seconds=startup,
            only=arguments.only,
        ):
            sys.stdout.write(report.line() + "\n")
            sys.stdout.flush()
            code = exit_code(report)
    finally:
        runner.stop()
    return code


class SparkUnits:
    """Does units in the Python workers of one Spark session, or in this driver: `place_units` decides for each step.

    The session is started for the first step that needs it.
    """

    def __init__(self) -> None:
        self._session: SparkSession | None = None
        self._local: LocalUnits | None = None
        self._in_driver = False

    def start(self, step: Step, settings: Settings, units: Sequence[Unit]) -> Start:
        """Decide where the units are done, say so, and start the session if they need it and there is none yet."""
        away = units_away(step, settings, units)
        if away:
            placement = place_units(step, settings, away)
        else:
            placement = Placement(True, "the step works on disks of this machine, which executors do not share")
        sys.stderr.write(f"custody: {step.name}: done in {placement}\n")
        self._in_driver = placement.in_driver
        before = time.monotonic()
        if placement.in_driver and self._local is None:
            end_with_spark_submit()
            self._local = LocalUnits(_DRIVER_THREADS)
        elif not placement.in_driver and self._session is None:
            self._session = start_session(step.name, executor_variables(settings.spark.executor_variables))
        return Start(time.monotonic() - before, str(placement))

    def run(self, step: Step, settings: Settings, units: Sequence[Unit], epochs: Mapping[str, int]) -> list[UnitReport]:
        """Do units in parallel, each as a task of its own, or in threads of the driver."""
        if self._in_driver and self._local is not None:
            return self._local.run(step, settings, units, epochs)
        assert self._session is not None  # noqa: S101 - `start` comes first
        context = self._session.sparkContext
        work = partial(_execute, step.name, settings.to_json(), dict(epochs))

        def collect(sent: Sequence[Unit]) -> Sequence[bytes]:
            # One look at each catalog for all units, and not one for each.
            with one_question():
                sizes = list(unit_sizes(step, settings, sent))
            needs = [Needs(size, step.memory_bytes(size)) for size in sizes]
            tasks = plan_tasks(needs, settings.spark.core_memory_bytes, session_cores(context))
            most = max((task.cores for task in tasks), default=1)
            sys.stderr.write(f"custody: {step.name}: {len(sent)} units in {len(tasks)} tasks of up to {most} cores\n")

            def lost(position: int, problem: str) -> bytes:
                error = StorageError(
                    f"unit {sent[position]}: executors were lost with it, at last one that did nothing else "
                    f"({problem}). See the executor's log; give executors more memory, or smaller units "
                    "(docs/clusters.md)."
                )
                report = step.report_type(
                    unit=str(sent[position]), error=f"StorageError: {error}", error_kind=error.kind
                )
                return msgspec.json.encode(report)

            return run_tasks(context, tasks, [msgspec.json.encode(unit) for unit in sent], work, lost)

        return run_on_executors(step, settings, units, epochs, collect)

    def stop(self) -> None:
        """Stop the session."""
        if self._session is not None:
            self._session.stop()


def _execute(name: str, settings_json: str, epochs: Mapping[str, int], unit_json: bytes) -> bytes:
    # Into the executor's log: how far a long unit has come.
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    return execute(name, settings_json, epochs, unit_json)


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
