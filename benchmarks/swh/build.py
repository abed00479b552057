"""`python -m benchmarks.swh build GRAPH FOLDER`: what each step of a build takes on a graph of some size.

Every step is a spark-submit of its own, as in the DAG; with `--dag` it is the DAG itself in an Airflow of its own. The
results are written after each step, so that a build that is stopped leaves what it cost until then; the same command
goes on with it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.append.machine import Machine
from benchmarks.swh.graph import write_graph
from benchmarks.swh.watch import Tasks, Watch, log_of, read_tasks, seconds_since
from custody.config import Settings, load_settings
from custody.repository import Repository
from custody.spark.environment import submit_environment
from custody.spark.submit import step_command
from custody.swh.build import NODE_FILTERS, PUBLISH, STEPS
from custody.swh.publishing import database_folder
from custody.vfs import PosixFileSystem

BUILD = "measured"
RESULTS = "results.json"


def prepare(folder: Path, memory: str) -> tuple[Settings, dict[str, str]]:
    """Make a repository, and the environment in which Spark keeps a log and has so much memory."""
    root, conf, events = folder / "repository", folder / "conf", folder / "events"
    settings = load_settings(root) if root.exists() else Repository.create(root).settings
    for folder_made in (conf, events, folder / "scratch"):
        folder_made.mkdir(exist_ok=True)
    lines = {
        "spark.driver.memory": memory,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.local.dir": str(folder / "scratch"),
    }
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    return settings, {**os.environ, **submit_environment(), "SPARK_CONF_DIR": str(conf)}


class Measured:
    """The results of one build, on disk after each step."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self._path = folder / RESULTS
        former = json.loads(self._path.read_text()) if self._path.exists() else {}
        # A build that was stopped goes on: what its steps took is known already.
        self.found: dict[str, Any] = {**facts, "steps": former.get("steps", {})}

    def add(self, step: str, seconds: float, watch: Watch, events: Path, report: Mapping[str, Any] | None) -> None:
        """Add a step, and write everything."""
        use, log = watch.use(step), log_of(events, f"custody-{step}")
        self.found["steps"][step] = {
            "seconds": seconds,
            "processes_cpu_seconds": round(use.cpu_seconds, 1),
            "rss_bytes_max": use.rss_bytes,
            "private_bytes_max": use.private_bytes,
            "worker_bytes_max": use.worker_bytes,
            "disk_bytes_max": use.disk_bytes,
            "spark": asdict(Tasks() if log is None else read_tasks(log)),
            "report": report,
        }
        self.write()

    def write(self) -> None:
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps(self.found, indent=1) + "\n")
        draft.replace(self._path)


def run_steps(measured: Measured, settings: Settings, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Submit one job a step.

    Raises:
        subprocess.CalledProcessError: a step failed; its output is in the folder.
    """
    folder = settings.root.parent
    with Watch(settings.root) as watch:
        for step in (name for name in (*STEPS, PUBLISH) if name not in measured.found["steps"]):
            started = time.monotonic()
            given = ["--repository", str(settings.root), *arguments]
            command = step_command(step, given, master="local[2]", environ=environ)
            with (folder / f"{step}.log").open("w") as log:
                done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stderr=log, text=True, check=True)
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            measured.add(step, seconds_since(started), watch, folder / "events", lines[-1] if lines else None)


def sizes(settings: Settings) -> dict[str, dict[str, int]]:
    """Return files, rows and bytes, indexes included, of each table that was built."""
    from custody.swh.build import Build

    sizes_by_table: dict[str, dict[str, int]] = {}
    for file in Build.open(PosixFileSystem(), database_folder(settings), BUILD).files().values():
        table = sizes_by_table.setdefault(file.table, {"files": 0, "rows": 0, "bytes": 0, "index_bytes": 0})
        table["files"] += 1
        table["rows"] += file.rows
        table["bytes"] += file.bytes
        table["index_bytes"] += file.index_bytes
    return sizes_by_table


def table(results: Mapping[str, Any]) -> str:
    """Return the results as a table in Markdown."""
    edges = results["counts"]["edges"]
    memory = "peak MiB | private MiB | worker MiB"
    lines = [
        f"| step | wall s | CPU s | CPU us an edge | {memory} | shuffled MiB | spilled MiB | disk MiB | Spark jobs |"
    ]
    lines.append("| --- " * 11 + "|")
    for name, step in results["steps"].items():
        cpu, spark = step["processes_cpu_seconds"], step["spark"]
        parts = (step["seconds"], cpu, round(cpu / edges * 1e6, 1), *_memory([step]))
        moved = (spark["shuffled_bytes"] >> 20, spark["spilled_disk_bytes"] >> 20, step.get("disk_bytes_max", 0) >> 20)
        lines.append(_line(name, *parts, *moved, spark["jobs"]))
    steps = results["steps"].values()
    wall, cpu = sum(step["seconds"] for step in steps), sum(step["processes_cpu_seconds"] for step in steps)
    shuffled = sum(step["spark"]["shuffled_bytes"] for step in steps) >> 20
    spilled = sum(step["spark"]["spilled_disk_bytes"] for step in steps) >> 20
    disk = max(step.get("disk_bytes_max", 0) for step in steps) >> 20
    jobs = sum(step["spark"]["jobs"] for step in steps)
    whole = (round(wall, 1), round(cpu, 1), round(cpu / edges * 1e6, 1), *_memory(steps), shuffled, spilled, disk, jobs)
    lines.append(_line("all", *whole))
    lines += ["", "| table | rows | bytes | bytes an edge |", "| --- " * 4 + "|"]
    for name, held in results.get("tables", {}).items():
        size = held["bytes"] + held["index_bytes"]
        lines.append(_line(name, held["rows"], size, round(size / edges, 2)))
    return "\n".join(lines) + "\n"


def _memory(steps: Iterable[Mapping[str, Any]]) -> list[int]:
    """The most MiB of any step: resident, without pages of files, and of one Python process."""
    names = ("rss_bytes_max", "private_bytes_max", "worker_bytes_max")
    return [max(step.get(name, 0) for step in steps) >> 20 for name in names]


def _line(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def main(argv: Sequence[str] | None = None) -> int:
    """Build, write results.json into the folder, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.swh build", description=__doc__)
    parser.add_argument("graph", type=Path, help="as benchmarks.swh.graph makes it")
    parser.add_argument("folder", type=Path, help="for the repository, logs and results")
    parser.add_argument("--edges", type=int, help="make the graph first, of about so many edges, where there is none")
    parser.add_argument("--node-filter", choices=NODE_FILTERS, default="all")
    parser.add_argument("--memory", default="2g", help="heap of the driver, which is Spark's executor too")
    parser.add_argument("--dag", action="store_true", help="through the DAG swh_provenance in an Airflow of its own")
    arguments = parser.parse_args(argv)
    folder: Path = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.edges is not None and not (arguments.graph / "counts.json").exists():
        write_graph(arguments.graph, arguments.edges)
    settings, environ = prepare(folder, arguments.memory)
    facts = {
        "machine": asdict(Machine.look(folder)),
        "load": os.getloadavg(),
        "memory": arguments.memory,
        "node_filter": arguments.node_filter,
        "dag": arguments.dag,
        "counts": json.loads((arguments.graph / "counts.json").read_text()),
    }
    measured = Measured(folder, facts)
    graph = arguments.graph.resolve()
    if arguments.dag:
        from benchmarks.swh.dag import run_dag

        run_dag(measured, settings, graph, arguments.node_filter, environ)
    else:
        given = ["--graph", str(graph), "--build", BUILD, "--node-filter", arguments.node_filter]
        run_steps(measured, settings, given, environ)
    measured.found |= {"tables": sizes(settings), "load_after": os.getloadavg()}
    measured.write()
    sys.stdout.write(table(measured.found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
