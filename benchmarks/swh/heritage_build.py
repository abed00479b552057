"""The tables of a made-up graph by Software Heritage's own programs: `python -m benchmarks.swh heritage`.

The graph is exported, compressed and built from by their programs alone; custody builds the same graph in the same run,
or its results are taken from a folder that `build` wrote. What each step takes is printed side by side, then the rows
of both are compared. Besides what `heritage.py` names it takes

    cargo install swh-graph --version 12.1.2 --locked --features compression,orc --root FOLDER
    cargo install swh-provenance-db-build --version 0.5.0 --root FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.append.machine import Machine
from benchmarks.swh import build as custody_build
from benchmarks.swh import heritage_earliest
from benchmarks.swh.heritage_rows import compare
from benchmarks.swh.heritage_run import PROGRAMS, Step, Steps, build, compress
from benchmarks.swh.service import linked
from custody.swh.build import NODE_FILTERS

STEPS = {
    "swh_nodes": "list-provenance-nodes",
    "swh_earliest_timestamps": "compute-earliest-timestamps",
    "swh_max_leaf_timestamps": "list-directory-with-max-leaf-timestamp",
    "swh_directory_frontier": "compute-directory-frontier",
    "swh_frontier_directories_in_revisions": "frontier-directories-in-revisions",
    "swh_contents_in_revisions": "contents-in-revisions-without-frontier",
    "swh_contents_in_frontier_directories": "contents-in-directories",
    "swh_revisions_in_origins": "revisions-in-origins",
    "swh_publish": "swh-provenance-index",
}
"""custody's steps and what corresponds; there indexes are made at the end, here with the tables."""
RESULTS = "heritage.json"
_ASKED = 1000


def run_theirs(programs: Path, export: Path, folder: Path, node_filter: str) -> dict[str, dict[str, Step]]:
    """Compress an export and build from it; return what each step of both took.

    Raises:
        subprocess.CalledProcessError: a program failed; its log is in the folder.
    """
    graph = folder / "compressed" / "graph"
    graph.parent.mkdir(parents=True)
    compressing = Steps(programs, folder / "compressing")
    compress(compressing, export, graph)
    building = Steps(programs, folder / "building")
    (folder / "tables").mkdir()
    build(building, graph, folder / "tables", node_filter)
    return {"compressing": compressing.found, "building": building.found}


def run_ours(graph: Path, folder: Path, node_filter: str, memory: str) -> None:
    """Build by custody, as `python -m benchmarks.swh build` does."""
    custody_build.main([str(graph), str(folder), "--node-filter", node_filter, "--memory", memory])


def steps_of(results: Mapping[str, Any]) -> dict[str, Step]:
    """Return what each step of custody's build took."""
    return {
        name: {"seconds": step["seconds"], "cpu": step["processes_cpu_seconds"], "rss": step["rss_bytes_max"]}
        for name, step in results["steps"].items()
    }


def together(steps: Sequence[Step]) -> Step:
    """Return what steps took that ran one after the other."""
    cpu, seconds = (sum(step[part] for step in steps) for part in ("cpu", "seconds"))
    return {"seconds": seconds, "cpu": cpu, "rss": max(step["rss"] for step in steps)}


def table(results: Mapping[str, Any]) -> str:
    """Return both side by side, in Markdown: wall and CPU time, thousands of edges a second of each, peak of memory."""
    ours, theirs = results["custody"], results["heritage"]["building"]
    compressing = together(list(results["heritage"]["compressing"].values()))
    rows: list[tuple[str, Step | None, Step]] = [("compressing the graph", None, compressing)]
    rows += [(f"`{name}` / `{STEPS[name]}`", step, theirs[STEPS[name]]) for name, step in ours.items()]
    built = together(list(theirs.values()))
    rows.append(("the tables", together(list(ours.values())), built))
    rows.append(("the tables, and compressing before", rows[-1][1], together([compressing, built])))
    parts = ("wall s", "CPU s", "k edges/s wall", "k edges/s CPU", "peak MiB")
    lines = ["| step | " + " | ".join(f"{who}, {part}" for who in ("custody", "theirs") for part in parts) + " |"]
    lines.append("| --- " * (1 + 2 * len(parts)) + "|")
    for name, *both in rows:
        cells = [cell for step in both for cell in _cells(step, results["counts"]["edges"])]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cells(step: Step | None, edges: int) -> list[str]:
    if step is None:
        return ["–"] * 5
    rates = [f"{edges / 1e3 / step[part]:.0f}" if step[part] else "–" for part in ("seconds", "cpu")]
    return [f"{step['seconds']:.2f}", f"{step['cpu']:.2f}", *rates, str(int(step["rss"]) >> 20)]


def main(argv: Sequence[str] | None = None) -> int:
    """Build by both, print what it took, and compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.swh heritage", description=__doc__)
    parser.add_argument("graph", type=Path, help="as benchmarks.swh.graph makes it")
    parser.add_argument("folder", type=Path, help="a new one, for the compressed graph, tables, logs and results")
    parser.add_argument("--programs", type=Path, required=True, help="folder of the programs of Software Heritage")
    parser.add_argument("--node-filter", choices=NODE_FILTERS, default="all")
    parser.add_argument("--built", type=Path, help="folder that `build` wrote, instead of building here too")
    parser.add_argument("--memory", default="3g", help="heap of Spark for custody's build")
    arguments = parser.parse_args(argv)
    lacking = [name for name in PROGRAMS if not (arguments.programs / name).is_file()]
    if lacking:
        parser.error(f"{arguments.programs} lacks {', '.join(lacking)}")
    graph, folder = arguments.graph.resolve(), arguments.folder.resolve()
    folder.mkdir(parents=True)
    all_results: dict[str, Any] = {
        "machine": asdict(Machine.look(folder)),
        "node_filter": arguments.node_filter,
        "counts": json.loads((graph / "counts.json").read_text()),
    }
    export = folder / "export"
    # In a process of its own: what this one has had in memory would slow down starting all the others.
    subprocess.run([sys.executable, "-m", "benchmarks.swh.export", str(graph), str(export)], check=True)
    before = os.getloadavg()
    all_results["heritage"] = run_theirs(arguments.programs.resolve(), export, folder, arguments.node_filter)
    after = os.getloadavg()
    built = (arguments.built or folder / "custody").resolve()
    if arguments.built is None:
        run_ours(graph, built, arguments.node_filter, arguments.memory)
    results = json.loads((built / custody_build.RESULTS).read_text())
    all_results |= {"custody": steps_of(results), "load": before, "load_after": after}
    all_results["custody_load"] = [results["load"], results["load_after"]]
    (folder / RESULTS).write_text(json.dumps(all_results, indent=1) + "\n")
    loads = [f"{first[0]:.1f} to {last[0]:.1f}" for first, last in ((before, after), all_results["custody_load"])]
    sys.stdout.write(f"load of theirs {loads[0]}, of custody {loads[1]}\n{table(all_results)}")
    same = results["counts"] == all_results["counts"] and results["node_filter"] == all_results["node_filter"]
    if not same:
        sys.stderr.write(f"{built} is of another graph or filter: rows are not compared\n")
        return 1
    compressed = folder / "compressed" / "graph"
    sys.stdout.writelines(compare(graph, compressed, folder / "tables", linked(built, folder / "ours")))
    ask_earliest(arguments.programs.resolve(), compressed, graph, folder / "asking")
    return 0


def ask_earliest(programs: Path, compressed: Path, graph: Path, folder: Path) -> None:
    """Print what it takes both to find the earliest revisions of a thousand contents and directories."""
    steps, asked = Steps(programs, folder), folder / "asked.csv"
    heritage_earliest.draw(graph, _ASKED, asked)
    took, said = heritage_earliest.ask_both(steps, compressed, graph, asked, folder)
    sys.stdout.write(f"  {heritage_earliest.JOB}: {took['seconds']:.1f} s, CPU {took['cpu']:.1f} s\n{said}")
