"""The programs of Software Heritage that compress a graph and build tables from it, and what each of them takes.

The order and the options are those of its pipeline (`swh.graph` 12.1.2, `swh.provenance` 0.5). Left out is what has no
part in the tables: names of persons in the clear, a check of the whole, and removing what is not needed any more.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa

from custody.swh.tables import (
    CONTENTS_IN_DIRECTORIES,
    CONTENTS_IN_REVISIONS,
    DIRECTORIES_IN_REVISIONS,
    NODES,
    REVISIONS_IN_ORIGINS,
)

PROGRAMS = (
    "swh-graph-extract",
    "swh-graph-compress",
    "swh-graph-index",
    "list-provenance-nodes",
    "compute-earliest-timestamps",
    "list-directory-with-max-leaf-timestamp",
    "compute-directory-frontier",
    "frontier-directories-in-revisions",
    "contents-in-revisions-without-frontier",
    "contents-in-directories",
    "revisions-in-origins",
    "swh-provenance-index",
    "find-earliest-revision",
)
_BUFFER_BYTES = 250_000_000
_LOOK_SECONDS = 0.02
Step = dict[str, float]


class Steps:
    """Runs programs one after the other, and keeps what each takes."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._logs = programs, folder / "logs"
        for made in (self._logs, folder / "scratch"):
            made.mkdir(parents=True)
        # As their pipeline sets them.
        given = {"TMPDIR": str(folder / "scratch"), "TZ": "UTC", "RUST_MIN_STACK": str(32 << 20)}
        self._environ = {**os.environ, **given}
        self.found: dict[str, Step] = {}

    def run(
        self, name: str, program: str, *arguments: object, given: Path | None = None, out: Path | None = None
    ) -> None:
        """Run a program, keep what it took, and print it.

        Args:
            given: a file that it reads as its input.
            out: a file for what it prints.

        Raises:
            subprocess.CalledProcessError: it failed; its log is in the folder.
        """
        command = [str(self._programs / program), *map(str, arguments)]
        started, so_far, peak = time.monotonic(), _children_seconds(), 0
        with (
            (self._logs / f"{name}.log").open("w") as log,
            Path(given or os.devnull).open() as asked,
            Path(out or os.devnull).open("w") as lines,
            subprocess.Popen(command, env=self._environ, stdin=asked, stdout=lines, stderr=log) as process,
        ):
            while process.poll() is None:
                peak = max(peak, _resident_bytes_max(process.pid))
                time.sleep(_LOOK_SECONDS)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        seconds, cpu = time.monotonic() - started, _children_seconds() - so_far
        self.found[name] = {"seconds": seconds, "cpu": cpu, "rss": peak, "load": os.getloadavg()[0]}
        sys.stdout.write(f"  {name}: {seconds:.2f} s, CPU {cpu:.2f} s, {peak >> 20} MiB\n")
        sys.stdout.flush()


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _resident_bytes_max(pid: int) -> int:
    """What a process had resident at most until now; the usage of children would include that of this process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def compress(steps: Steps, export: Path, graph: Path) -> None:
    """Compress an export; files of the compressed graph have names that begin with `graph`."""

    def file(end: str) -> Path:
        return graph.with_name(graph.name + end)

    def extract(name: str, *arguments: object, out: Path | None = None) -> None:
        steps.run(name, "swh-graph-extract", *arguments, out=out)

    def transform(name: str, *arguments: object) -> None:
        steps.run(name, "swh-graph-compress", *arguments)

    def index(name: str, *arguments: object) -> None:
        steps.run(name, "swh-graph-index", *arguments)

    def listed(what: str) -> int:
        """Extract labels or persons; the program wants some of the lists compressed."""
        extract(f"extract-{what}", f"extract-{what}", export, out=file(f".{what}.csv"))
        lines = file(f".{what}.csv").read_bytes()
        with pa.CompressedOutputStream(str(file(f".{what}.csv.zst")), "zstd") as out:
            out.write(lines)
        return lines.count(b"\n")

    nodes, function = file(".nodes"), file(".fmphgo")
    extract("extract-nodes", "extract-nodes", export, nodes)
    labels = listed("labels")
    counted = ("--target-stats", file(".nodes.stats.txt"), "--target-count", file(".nodes.count.txt"))
    extract("node-stats", "node-stats", "--swhids-dir", nodes, *counted)
    counted = ("--target-stats", file(".edges.stats.txt"), "--target-count", file(".edges.count.txt"))
    extract("edge-stats", "edge-stats", "--dataset-dir", export, *counted)
    number = ("--num-nodes", file(".nodes.count.txt").read_text().strip())
    transform("mph", "fmphgo-swhids", *number, nodes, function)
    hashed, base, bfs = ("--mph-algo", "fmphgo", "--function"), file("-base"), file("-bfs-simplified")
    extract("bv", "bv", *hashed, graph, *number, export, base)
    index("bv-ef", "ef", base)
    roots, orders = file("-bfs.roots.txt"), (file("-bfs.order"), file("-llp.order"))
    extract("bfs-roots", "bfs-roots", export, roots)
    transform("bfs", "bfs", *hashed, function, "--init-roots", roots, base, orders[0])
    transform("permute-bfs", "permute-and-symmetrize", base, bfs, "--permutation", orders[0])
    index("bfs-ef", "ef", bfs)
    index("bfs-dcf", "dcf", bfs)
    transform("llp", "llp", "-g", "-1,-2,-3,-4", bfs, orders[1])
    order = ("--order", file(".fmphgo.order"))
    composed = ("--input", orders[0], "--input", orders[1], "--output", order[1])
    transform("compose-orders", "compose-orders", *number, *composed)
    transform("permute-llp", "permute", base, graph, "--permutation", orders[0], "--permutation", orders[1])
    index("ef", "ef", graph)
    transform("transpose", "transpose", graph, file("-transposed"))
    index("transpose-ef", "ef", file("-transposed"))
    maps = ("--node2swhid", file(".node2swhid.bin"), "--node2type", file(".node2type.bin"))
    transform("maps", "maps", *number, "--swhids-dir", nodes, *hashed, function, *order, *maps)
    persons = listed("persons")
    transform(
        "mph-persons", "fmphgo-persons", "--num-persons", persons, file(".persons.csv.zst"), f"{graph}.persons.fmphgo"
    )
    known = (*hashed, graph, *order, *number)
    extract("node-properties", "node-properties", *known, "--person-function", file(".persons"), export, graph)
    names = file(".labels.vfunc")
    transform("mph-labels", "vfunc-labels", "--num-labels", labels, file(".labels.csv.zst"), names)
    transform("fcl-labels", "fcl", "--num-lines", labels, file(".labels.csv"), file(".labels.fcl"))
    labelled = ("edge-labels", *known, "--label-name-mphf", names)
    extract("edge-labels", *labelled, export, graph)
    extract("edge-labels-transposed", *labelled, "--transposed", export, file("-transposed"))
    index("edge-labels-ef", "labels-ef", file("-labelled"), number[1])
    index("edge-labels-transposed-ef", "labels-ef", file("-transposed-labelled"), number[1])
    transform("stats", "stats", "--graph", graph, "--stats", file(".stats"))


def build(steps: Steps, graph: Path, folder: Path, node_filter: str) -> None:
    """Build the tables of a compressed graph."""
    chosen = (graph, "--node-filter", node_filter)
    written = (*chosen, "--thread-buffer-size", _BUFFER_BYTES)
    nodes, earliest, latest = folder / NODES, folder / "earliest.bin", folder / "latest.bin"
    reachable, frontier = ("--reachable-nodes", nodes), ("--frontier-directories", folder / "directory_frontier")
    leaves, contents = ("--max-timestamps", latest), "--contents-out"
    for name, *arguments in (
        ("list-provenance-nodes", *chosen, "--nodes-out", nodes),
        ("compute-earliest-timestamps", *chosen, "--timestamps-out", earliest),
        (
            "list-directory-with-max-leaf-timestamp",
            *chosen,
            *reachable,
            "--timestamps",
            earliest,
            "--max-timestamps-out",
            latest,
        ),
        ("compute-directory-frontier", *written, *leaves, "--directories-out", frontier[1]),
        (
            "frontier-directories-in-revisions",
            *(*written, *reachable, *frontier, *leaves, "--directories-out", folder / DIRECTORIES_IN_REVISIONS),
        ),
        (
            "contents-in-revisions-without-frontier",
            *(*written, *reachable, *frontier, contents, folder / CONTENTS_IN_REVISIONS),
        ),
        ("contents-in-directories", *written, *frontier, contents, folder / CONTENTS_IN_DIRECTORIES),
        ("revisions-in-origins", *written, "--revisions-out", folder / REVISIONS_IN_ORIGINS),
        ("swh-provenance-index", "--database", folder.as_uri(), "--indexes", folder / "indexes"),
    ):
        steps.run(str(name), str(name), *arguments)
