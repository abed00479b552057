"""The Spark jobs of a build: one a step, one that publishes, one for all of it; a JSON report line a step.

A step that is done already is reported as it was, without a Spark session.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from custody.clock import SystemClock
from custody.config import Settings, load_settings
from custody.errors import CustodyError
from custody.spark.environment import job_program
from custody.spark.session import start_session
from custody.swh import open_graph
from custody.swh.build import NODE_FILTERS, PUBLISH, STEPS, Build, BuildDescription, StepOutput
from custody.swh.publishing import database_catalog, database_folder, publish
from custody.vfs import PosixFileSystem
from custody.workspace import StepReport, UnitReport, write_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = (*STEPS, PUBLISH)
"""Every step in its order."""


def main(steps: Sequence[str], argv: Sequence[str] | None = None) -> int:
    """Do steps of a build within one Spark session; return the process's exit code."""
    arguments = _parser(steps).parse_args(argv)
    session: SparkSession | None = None
    try:
        settings = load_settings(arguments.repository)
        for step in steps:
            report, session = _do(step, settings, arguments, session)
            sys.stdout.write(report.line() + "\n")
            sys.stdout.flush()
            if arguments.run_id is not None:
                write_report(PosixFileSystem(), settings.runs, arguments.run_id, report)
    except CustodyError as error:
        sys.stderr.write(f"custody: {error}\n")
        return error.exit_code
    finally:
        if session is not None:
            session.stop()
    return 0


def _do(
    step: str, settings: Settings, arguments: argparse.Namespace, session: SparkSession | None
) -> tuple[StepReport, SparkSession | None]:
    started = time.monotonic()
    fs = PosixFileSystem()
    folder = database_folder(settings)
    if step == PUBLISH:
        build = Build.open(fs, folder, arguments.build)
        done = publish(database_catalog(settings, fs, SystemClock()), build)
        details = [
            UnitReport(
                unit=build.name, events=done.rows, bytes=done.bytes, note=f"published as revision {done.revision}"
            )
        ]
    else:
        # Only now, as a build that is published can be looked at without its graph.
        graph = open_graph(fs, arguments.graph.resolve())
        description = BuildDescription(
            graph=str(graph.folder), fingerprint=graph.fingerprint(fs), node_filter=arguments.node_filter
        )
        build = Build.begin(fs, folder, arguments.build, description)
        output = build.output(step)
        note = "was done before"
        if output is None:
            # Here, as it loads PySpark, which a step that is done does not need.
            from custody.spark.swh.steps import run_step

            session = session or start_session(step)
            output, is_new = run_step(session, build, graph, step)
            note = f"{output.rounds} rounds" if is_new else "another attempt was faster"
        details = _details(output, note)
    return StepReport.of(step, str(settings.root), time.monotonic() - started, details), session


def _details(output: StepOutput, note: str) -> list[UnitReport]:
    tables: dict[str, UnitReport] = {}
    for file in output.files:
        former = tables.get(file.table, UnitReport(unit=file.table))
        size = former.bytes + file.bytes + file.index_bytes
        tables[file.table] = UnitReport(unit=file.table, events=former.events + file.rows, bytes=size, note=note)
    kept = [UnitReport(unit=f"kept/{name}", events=rows, note=note) for name, rows in output.kept.items()]
    return [*tables.values(), *kept]


def _parser(steps: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=job_program(steps[0] if len(steps) == 1 else "swh_all"),
        description=f"custody, {', '.join(steps)}: prints one JSON report line a step.",
    )
    parser.add_argument("--repository", type=Path, required=True, help="folder of the repository")
    parser.add_argument("--run-id", help="keep the report under this run, in the repository's runs folder")
    parser.add_argument("--attempt", help="who does this, for the log: of two attempts at a step the first one counts")
    parser.add_argument("--build", required=True, help="name of the build: steps of one name go on with each other")
    publishes_only = tuple(steps) == (PUBLISH,)
    parser.add_argument("--graph", type=Path, required=not publishes_only, help="folder of the graph's tables")
    parser.add_argument("--node-filter", choices=NODE_FILTERS, default=NODE_FILTERS[0], help="which revisions count")
    return parser
