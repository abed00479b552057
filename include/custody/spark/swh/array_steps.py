"""The steps of a build in arrays, for graphs of which some numbers for each node fit into memory.

Spark gives each task a part of the roots, and the task walks in arrays (`custody.swh.walks`). The first step decides:
it leaves `arrays` beside what it keeps, and the other steps follow. They keep the same and write the same tables as the
steps by joins.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from custody.spark.swh.work import HISTORY, Work, merge_runs
from custody.swh.build import FRONTIER_STEP, LEAVES_STEP, NODES_STEP, TIMESTAMPS_STEP
from custody.swh.graph import Graph
from custody.swh.tables import (
    CONTENTS_IN_DIRECTORIES,
    CONTENTS_IN_REVISIONS,
    DIRECTORIES_IN_REVISIONS,
    EARLIEST,
    REVISIONS_IN_ORIGINS,
)
from custody.swh.walks import tasks
from custody.swh.walks.graph_split import split_graph, write_node_runs
from custody.vfs import PosixFileSystem

ARRAYS = "arrays"
REACHABLE = "reachable"
IN_ARRAYS = "in arrays"
PARTS = 16
"""Into how many parts a step cuts its roots: more than a machine has cores, as parts take longer and shorter."""


def list_nodes(work: Work, graph: Graph) -> None:
    """Do the first step in this process, for a graph that fits into memory as a whole.

    Raises:
        InvalidInputError: a revision or release has several root directories; directories lie in each other.
    """
    fs, kept, edges = PosixFileSystem(), work.attempt / "kept", work.folder()
    work.rows_kept |= split_graph(fs, graph, work.build.description.node_filter, kept, edges)
    work.walks, reachable = IN_ARRAYS, kept / REACHABLE
    work.rows_kept[REACHABLE] = make_arrays(work, edges, kept / "roots", kept / "release_contents", reachable)
    for name, runs in write_node_runs(fs, graph, kept, work.folder()).items():
        merge_runs(work, name, runs)


def make_arrays(work: Work, edges: Path, roots: Path, released: Path, reachable: Path) -> int:
    """Make the arrays from the edges from directories, and list what is below the roots.

    Raises:
        InvalidInputError: directories lie in each other.
    """
    arrays = work.attempt / "kept" / ARRAYS
    return _alone(work, partial(tasks.make_graph_arrays, edges, roots, released, arrays, reachable))


def make_arrays_by_ranges(work: Work, edges: Path, roots: Path, released: Path, reachable: Path) -> int | None:
    """Do the same where not all arcs fit into memory; return None where walks would not either.

    Raises:
        InvalidInputError: directories lie in each other.
    """
    arrays, room = work.attempt / "kept" / ARRAYS, work.sizes.room
    task = partial(tasks.make_graph_arrays_by_ranges, edges, roots, released, arrays, reachable, work.folder(), room)
    count = _alone(work, task)
    return count if count != tasks.TOO_LARGE else None


def compute_earliest_timestamps(work: Work) -> None:
    """Find the earliest date of each content and directory, and the revision or release that it comes from."""
    runs = work.folder()
    direct = work.attempt / "kept" / "earliest_timestamps"
    task = partial(tasks.earliest_dates, _arrays(work), _roots(work), _released(work), direct, runs)
    work.rows_kept["earliest_timestamps"] = _alone(work, task)
    merge_runs(work, EARLIEST, runs)


def list_max_leaf_timestamps(work: Work) -> None:
    """Find the latest of the earliest dates of the contents in each directory, at any depth."""
    heads = work.build.description.node_filter == "heads"
    reachable = work.build.intermediate(NODES_STEP, "reachable") if heads else None
    dates = work.build.intermediate(TIMESTAMPS_STEP, "earliest_timestamps")
    target = work.attempt / "kept" / "max_leaf_timestamps"
    work.rows_kept["max_leaf_timestamps"] = _alone(
        work, partial(tasks.latest_contents, _arrays(work), dates, reachable, target)
    )


def compute_directory_frontier(work: Work) -> None:
    """Find the frontier: the topmost directories below a root that hold contents, all of them older than the root."""
    parts, target = work.folder(), work.attempt / "kept" / "directory_frontier"
    _each_part(work, partial(tasks.part_of_frontier, _arrays(work), _roots(work), _leaves(work), parts))
    work.rows_kept["directory_frontier"] = _alone(work, partial(tasks.whole_frontier, parts, target))


def list_frontier_directories_in_revisions(work: Work) -> None:
    """List the frontier directories of each dated root, as far as no other frontier directory lies above them."""
    runs = work.folder()
    arguments = (_arrays(work), _roots(work), _leaves(work), _frontier(work), runs, tasks.ROWS_OF_A_RUN)
    _each_part(work, partial(tasks.directories_in_revisions, *arguments))
    merge_runs(work, DIRECTORIES_IN_REVISIONS, runs)


def list_contents_in_revisions(work: Work) -> None:
    """List the contents of each dated root that are reached without a frontier directory."""
    runs = work.folder()
    arguments = (_arrays(work), _roots(work), _released(work), _frontier(work), runs, tasks.ROWS_OF_A_RUN)
    _each_part(work, partial(tasks.contents_in_revisions, *arguments))
    merge_runs(work, CONTENTS_IN_REVISIONS, runs)


def list_contents_in_frontier_directories(work: Work) -> None:
    """List all contents of each frontier directory, at any depth, also below other frontier directories."""
    runs = work.folder()
    arguments = (_arrays(work), _frontier(work), runs, tasks.ROWS_OF_A_RUN)
    _each_part(work, partial(tasks.contents_in_directories, *arguments))
    merge_runs(work, CONTENTS_IN_DIRECTORIES, runs)


def list_revisions_in_origins(work: Work) -> None:
    """List the origins that lead to each root, dated or not."""
    history, origins = work.build.intermediate(NODES_STEP, HISTORY), work.build.intermediate(NODES_STEP, "origins")
    arrays, runs = work.folder(), work.folder()
    _alone(work, partial(tasks.make_history_arrays, history, origins, arrays))
    _each_part(work, partial(tasks.revisions_in_origins, arrays, _roots(work), runs, tasks.ROWS_OF_A_RUN))
    merge_runs(work, REVISIONS_IN_ORIGINS, runs)


def _arrays(work: Work) -> Path:
    return work.build.intermediate(NODES_STEP, ARRAYS)


def _roots(work: Work) -> Path:
    return work.build.intermediate(NODES_STEP, "roots")


def _released(work: Work) -> Path:
    return work.build.intermediate(NODES_STEP, "release_contents")


def _leaves(work: Work) -> Path:
    return work.build.intermediate(LEAVES_STEP, "max_leaf_timestamps")


def _frontier(work: Work) -> Path:
    return work.build.intermediate(FRONTIER_STEP, "directory_frontier")


def _alone(work: Work, task: Callable[[], int]) -> int:
    """Do what is one task, in a worker of Spark's as all the others."""
    return work.each([None], partial(_without_argument, task))[0]


def _without_argument(task: Callable[[], int], nothing: None) -> int:
    return task()


def _each_part(work: Work, task: Callable[[tasks.Part], int]) -> None:
    work.each([(number, PARTS) for number in range(PARTS)], task)
