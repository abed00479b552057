"""The steps of a build by name, and how one is done: once, whole, whoever asks how often."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from custody.spark.swh import in_arrays
from custody.spark.swh.graph import list_nodes
from custody.spark.swh.relations import (
    compute_directory_frontier,
    compute_earliest_timestamps,
    list_contents_in_frontier_directories,
    list_contents_in_revisions,
    list_frontier_directories_in_revisions,
    list_max_leaf_timestamps,
    list_revisions_in_origins,
)
from custody.spark.swh.tables import Sizes, Work
from custody.swh.build import NODES_STEP, STEPS, Build, StepOutput
from custody.swh.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DOING = (
    compute_earliest_timestamps,
    list_max_leaf_timestamps,
    compute_directory_frontier,
    list_frontier_directories_in_revisions,
    list_contents_in_revisions,
    list_contents_in_frontier_directories,
    list_revisions_in_origins,
)
_IN_ARRAYS = (
    in_arrays.compute_earliest_timestamps,
    in_arrays.list_max_leaf_timestamps,
    in_arrays.compute_directory_frontier,
    in_arrays.list_frontier_directories_in_revisions,
    in_arrays.list_contents_in_revisions,
    in_arrays.list_contents_in_frontier_directories,
    in_arrays.list_revisions_in_origins,
)

SETTINGS = MappingProxyType(
    {
        # Many small parts, which Spark joins to as few as a round is worth.
        "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "32",
        # A task that writes rows by level writes its levels at once instead of sorting by them.
        "spark.sql.maxConcurrentOutputFileWriters": "64",
        # The folders of a walk are listed by the driver: a job for it would take longer.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    }
)
"""What walks need of Spark, whoever starts it."""


def doing(build: Build, graph: Graph) -> Mapping[str, Callable[[Work], None]]:
    """Return what each step does, in the order of the steps.

    Only the first one reads the graph itself, and decides how the others walk.
    """
    others = _IN_ARRAYS if build.has_kept(NODES_STEP, in_arrays.ARRAYS) else _DOING
    return MappingProxyType(dict(zip(STEPS, (partial(list_nodes, graph=graph), *others), strict=True)))


def run_step(
    session: SparkSession, build: Build, graph: Graph, step: str, sizes: Sizes | None = None
) -> tuple[StepOutput, bool]:
    """Do a step, unless it is done; return its output and whether it was done now.

    Raises:
        NotFoundError: a step before it did not finish.
        InvalidInputError: the graph breaks a rule.
    """
    former = build.output(step)
    if former is not None:
        return former, False
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    attempt = build.attempt(step)
    work = Work(session=session, attempt=attempt, build=build, step=step, sizes=sizes or Sizes())
    doing(build, graph)[step](work)
    return work.finish(), True
