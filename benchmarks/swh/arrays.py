"""`python -m benchmarks.swh arrays GRAPH FOLDER --memory-bytes 2400000000`: the task that makes the arrays, alone.

It is the task of a build's first step, with the room that the setting `swh.memory_bytes` gives, or at once with
`--at-once`, in a process of its own that is watched: its memory without pages of mapped files, its CPU time, and what
it holds on disk. What Spark gives it in a build (arcs from directories, and roots) is taken from the graph before.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from custody.spark.swh.work import Sizes
from custody.swh.walks import tasks

_SECONDS = 0.2
_LOOKS_A_MEASURE = 10
_ROWS = 1 << 20


@dataclass
class Figures:
    """What the task took."""

    arcs: int
    arcs_at_once: int
    rows: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    private_bytes_max: int = 0
    rss_bytes_max: int = 0
    disk_bytes_max: int = 0
    arrays_bytes: int = 0


def prepare(graph: Path, folder: Path) -> int:
    """Write the arcs from directories and the roots as the first step does; return how many arcs there are."""
    count = 0
    for name in ("edges", "roots", "released"):
        (folder / name).mkdir(parents=True)
    for path in sorted((graph / "edges").glob("*.parquet")):
        # A file at a time: the graph may be larger than memory.
        rows = pq.read_table(path)
        of_directories = rows.filter(pc.equal(rows["src_type"], "dir")).select(["src", "dst", "dst_type", "name"])
        ids = {name: of_directories[name].cast(pa.int64()) for name in ("src", "dst")}
        for name, column in ids.items():
            of_directories = of_directories.set_column(of_directories.column_names.index(name), name, column)
        pq.write_table(of_directories, folder / "edges" / path.name, row_group_size=_ROWS)
        count += of_directories.num_rows
        is_root = pc.and_(pc.equal(rows["src_type"], "rev"), pc.equal(rows["dst_type"], "dir"))
        tops = rows.filter(is_root)["dst"].cast(pa.int64())
        pq.write_table(pa.table({"top": tops}), folder / "roots" / path.name)
        released = rows.filter(pc.and_(pc.equal(rows["src_type"], "rel"), pc.equal(rows["dst_type"], "cnt")))
        pq.write_table(pa.table({"cnt": released["dst"].cast(pa.int64())}), folder / "released" / path.name)
    return count


def make(folder: Path, sizes: Sizes | None, results: Path) -> None:
    """Do the task, by ranges unless there are no sizes, and leave how many rows it returned."""
    inputs = (folder / "edges", folder / "roots", folder / "released", folder / "arrays", folder / "reachable")
    if sizes is None:
        rows = tasks.make_graph_arrays(*inputs)
    else:
        rows = tasks.make_graph_arrays_by_ranges(*inputs, folder / "scratch", sizes.room)
    results.write_text(json.dumps(rows))


def watch(folder: Path, figures: Figures, sizes: Sizes | None) -> Figures:
    """Run the task in a process of its own and look at it until it ends.

    Raises:
        RuntimeError: it failed.
    """
    results, started, looks = folder / "rows.json", time.monotonic(), 0
    process = multiprocessing.get_context("spawn").Process(target=make, args=(folder, sizes, results))
    process.start()
    seen = psutil.Process(process.pid)
    while process.is_alive():
        with suppress(psutil.Error):
            memory, times = seen.memory_info(), seen.cpu_times()
            figures.private_bytes_max = max(figures.private_bytes_max, memory.rss - memory.shared)
            figures.rss_bytes_max = max(figures.rss_bytes_max, memory.rss)
            figures.cpu_seconds = round(times.user + times.system, 1)
        if looks % _LOOKS_A_MEASURE == 0:
            held = sum(_held(folder / name) for name in ("scratch", "arrays", "reachable"))
            figures.disk_bytes_max = max(figures.disk_bytes_max, held)
        looks += 1
        time.sleep(_SECONDS)
    process.join()
    if process.exitcode:
        raise RuntimeError(f"the task ended with {process.exitcode}")
    figures.wall_seconds = round(time.monotonic() - started, 1)
    figures.rows, figures.arrays_bytes = json.loads(results.read_text()), _held(folder / "arrays")
    return figures


def _held(folder: Path) -> int:
    held = 0
    for path in folder.rglob("*"):
        # Files go meanwhile.
        with suppress(FileNotFoundError):
            held += path.stat().st_size
    return held


def main(argv: Sequence[str] | None = None) -> int:
    """Make the arrays of a graph and print what it took as one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.swh arrays", description=__doc__)
    parser.add_argument("graph", type=Path, help="as benchmarks.swh.graph makes it")
    parser.add_argument("folder", type=Path, help="a new folder for what is read and made")
    parser.add_argument("--memory-bytes", type=int, default=3_600_000_000, help="as swh.memory_bytes")
    parser.add_argument("--at-once", action="store_true", help="with all arcs in memory")
    arguments = parser.parse_args(argv)
    arcs = prepare(arguments.graph, arguments.folder)
    sizes = None if arguments.at_once else Sizes.of_memory(arguments.memory_bytes)
    figures = Figures(arcs, arcs if sizes is None else sizes.room.arcs)
    sys.stdout.write(json.dumps(asdict(watch(arguments.folder, figures, sizes))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
