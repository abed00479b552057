"""The Spark jobs of a build: one for each step, one that publishes, and one for all of it.

A step is done once, as a whole, however often it is asked for: a step that is done is reported as it was then, and
neither a Spark session is started for that nor PySpark imported. Each step prints its report as one line of JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from custody.clock import SystemClock
from custody.config import Settings, load_settings
from custody.errors import ConfigurationError, CustodyError
from custody.spark.placement import Placement, end_with_spark_submit
from custody.spark.session import start_session
from custody.spark.swh import array_steps
from custody.spark.swh.array_steps import ARRAYS
from custody.spark.swh.work import BYTES_OF_AN_ARC, HISTORY, Sizes, Work, rows_in
from custody.spark.without_pandas import without_pandas
from custody.swh import open_graph
from custody.swh.build import NODE_FILTERS, NODES_STEP, PUBLISH, STEPS, Build, BuildDescription, StepOutput
from custody.swh.graph import Graph
from custody.swh.publishing import database_catalog, database_folder, publish
from custody.vfs import PosixFileSystem
from custody.workspace import FILES_MAX, StepReport, UnitReport, report_place, write_report
from custody.workspace.run_reports import file_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = (*STEPS, PUBLISH)
"""Every step in its order."""

SETTINGS = MappingProxyType(
    {
        # Many small parts, which Spark joins to as few as a round is worth.
        "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "32",
        # A task that writes rows by level writes its levels at once instead of sorting by them.
        "spark.sql.maxConcurrentOutputFileWriters": "64",
        # The driver lists the folders of a walk itself: a job for that would take longer.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    }
)
"""What walks need of Spark, whoever starts it."""
HISTORY_STEP = STEPS[-1]
_ARCS = "swh.memory_bytes"
_IN_ARRAYS = MappingProxyType(
    dict(
        zip(
            STEPS[1:],
            (
                array_steps.compute_earliest_timestamps,
                array_steps.list_max_leaf_timestamps,
                array_steps.compute_directory_frontier,
                array_steps.list_frontier_directories_in_revisions,
                array_steps.list_contents_in_revisions,
                array_steps.list_contents_in_frontier_directories,
                array_steps.list_revisions_in_origins,
            ),
            strict=True,
        )
    )
)


def main(steps: Sequence[str], argv: Sequence[str] | None = None) -> int:
    """Do steps of a build, with one Spark session for those that need one; return the process's exit code."""
    arguments = _parser(steps).parse_args(argv)
    session: SparkSession | None = None
    try:
        settings = load_settings(arguments.repository)
        for step in steps:
            report, session = _do(step, settings, arguments, session)
            sys.stdout.write(report.line() + "\n")
            sys.stdout.flush()
            if arguments.run_id is not None:
                write_report(*report_place(settings), arguments.run_id, report, arguments.attempt)
    except CustodyError as error:
        sys.stderr.write(f"custody: {error}\n")
        return error.exit_code
    finally:
        if session is not None:
            session.stop()
    return 0


def run_step(
    session: SparkSession | None,
    build: Build,
    graph: Graph,
    step: str,
    sizes: Sizes | None = None,
    attempt_name: str = "",
) -> tuple[StepOutput, bool]:
    """Do a step, unless it is done; return its output and whether it was done now. The output names the attempt.

    Without a session it is done in this process: the first step, and those that walk in arrays.

    Raises:
        NotFoundError: a step before it did not finish.
        InvalidInputError: the graph breaks a rule.
    """
    former = build.output(step)
    if former is not None:
        return former, False
    if session is not None:
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
    sizes = sizes or Sizes()
    function = _function(build, graph, step, sizes, in_driver=session is None)
    work = Work(
        started_session=session,
        attempt=build.attempt(step),
        build=build,
        step=step,
        sizes=sizes,
        attempt_name=attempt_name,
    )
    function(work)
    return work.finish(), True


def walks_in_arrays(build: Build, step: str, sizes: Sizes) -> bool:
    """Whether a step walks in arrays, by tasks that ask nothing of Spark.

    The first step, the only one that reads the graph itself, decides: in arrays where what walks need of the graph fits
    into memory, by joins otherwise. Histories are walked in arrays where their arcs fit, too.
    """
    if step == NODES_STEP or not build.has_intermediate(NODES_STEP, ARRAYS):
        return False
    if step != HISTORY_STEP or not build.has_intermediate(NODES_STEP, HISTORY):
        return True
    return rows_in(build.intermediate(NODES_STEP, HISTORY)) <= sizes.arcs_in_arrays


def place_step(build: Build, graph: Graph, step: str, settings: Settings, sizes: Sizes) -> Placement:
    """Decide where a step is done, by the edges of the graph.

    Raises:
        ConfigurationError: driver and executors share no folder, and the driver has no memory for the step.
    """
    edges, most = graph.tables["edges"].rows(), settings.swh.driver_edges_max
    if step == NODES_STEP:
        fits, reason = edges <= sizes.arcs_in_arrays, f"the graph has more edges than {_ARCS} lets be in memory at once"
    else:
        fits, reason = walks_in_arrays(build, step, sizes), "the step is made of joins and sorts"
    if settings.is_staging_stored:
        # Steps hand each other files in the work folder, which is this machine's alone.
        if not fits:
            raise ConfigurationError(
                f'{step}: {reason}; with repository.staging = "store" no executor shares the folder in which steps '
                f"hand each other files, expected {_ARCS} of at least {edges * BYTES_OF_AN_ARC} for {edges} edges and "
                "a driver with that much memory. Or build where driver and executors share repository.work_folder."
            )
        return Placement(True, "no executor shares repository.work_folder")
    if not settings.spark.driver_bytes_max:
        return Placement(False, "spark.driver_bytes_max is 0")
    if not fits:
        return Placement(False, reason)
    if edges > most:
        return Placement(False, f"the graph has {edges} edges, swh.driver_edges_max is {most}")
    return Placement(True, f"the graph has {edges} edges of at most {most}")


def _function(build: Build, graph: Graph, step: str, sizes: Sizes, *, in_driver: bool) -> Callable[[Work], None]:
    if step == NODES_STEP and in_driver:
        return partial(array_steps.list_nodes, graph=graph)
    if walks_in_arrays(build, step, sizes):
        return _IN_ARRAYS[step]
    # Imported here, because they load PySpark.
    from custody.spark.swh import join_steps
    from custody.spark.swh.nodes_step import list_nodes

    functions: tuple[Callable[[Work], None], ...] = (
        partial(list_nodes, graph=graph),
        join_steps.compute_earliest_timestamps,
        join_steps.list_max_leaf_timestamps,
        join_steps.compute_directory_frontier,
        join_steps.list_frontier_directories_in_revisions,
        join_steps.list_contents_in_revisions,
        join_steps.list_contents_in_frontier_directories,
        join_steps.list_revisions_in_origins,
    )
    return dict(zip(STEPS, functions, strict=True))[step]


def _do(
    step: str, settings: Settings, arguments: argparse.Namespace, session: SparkSession | None
) -> tuple[StepReport, SparkSession | None]:
    started = time.monotonic()
    fs, place = PosixFileSystem(), None
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
            graph=str(graph.folder),
            fingerprint=graph.fingerprint(fs),
            node_filter=arguments.node_filter,
            graph_version=graph.version,
        )
        build = Build.begin(fs, folder, arguments.build, description)
        # Looked up before a session is started, which takes seconds.
        output, is_new = build.output(step), False
        note, attempt_name = "was done before", arguments.attempt or ""
        if output is None:
            sizes = Sizes.of_memory(settings.swh.memory_bytes)
            place = place_step(build, graph, step, settings, sizes)
            sys.stderr.write(f"custody: {step}: done in {place}\n")
            if place.in_driver:
                end_with_spark_submit()
            else:
                session = session or start_session(step)
            # With a session Spark may want it.
            with without_pandas() if place.in_driver else nullcontext():
                spark = None if place.in_driver else session
                output, is_new = run_step(spark, build, graph, step, sizes, attempt_name)
            note = _note(output) if is_new else "another attempt was faster"
        details = _details(build, output, note, is_ours=is_new or _is_same_task(output.attempt, attempt_name))
    seconds = time.monotonic() - started
    return StepReport.of(step, str(settings.root), seconds, details, place=str(place) if place else None), session


def _note(output: StepOutput) -> str:
    rounds = f"{output.rounds} rounds"
    return f"{rounds}, walks {output.walks}" if output.walks else rounds


def _is_same_task(one: str, other: str) -> bool:
    """Whether two attempts are tries of one task: the second one reports what the first one made before it died."""
    return bool(one and other) and one.rpartition("/")[0] == other.rpartition("/")[0]


def _details(build: Build, output: StepOutput, note: str, *, is_ours: bool) -> list[UnitReport]:
    """Return the reports of a step's tables; only whoever made them names their files as written."""
    tables: dict[str, UnitReport] = {}
    for file, *paths in build.table_files(output):
        former = tables.get(file.table, UnitReport(unit=file.table))
        named = [*former.files, *map(file_uri, paths)] if is_ours else []
        tables[file.table] = UnitReport(
            unit=file.table,
            events=former.events + file.rows,
            bytes=former.bytes + file.bytes + file.index_bytes,
            note=note,
            files=tuple(named[:FILES_MAX]),
        )
    intermediate = [UnitReport(unit=f"kept/{name}", events=rows, note=note) for name, rows in output.kept.items()]
    return [*tables.values(), *intermediate]


def _parser(steps: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"spark-submit {steps[0] if len(steps) == 1 else 'swh_all'}.py",
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
