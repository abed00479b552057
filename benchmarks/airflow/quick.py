"""Measurements without a running Airflow: reading the DAG files, waiting sensors, the start of a job."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.airflow.cost import Cost, cost_of, percentile
from benchmarks.environment import ROOT
from custody.recovery import STEPS
from custody.repository import Repository
from custody.spark.environment import job_of, jobs_folder, spark_home, submit_environment
from custody.spark.submit import spark_conf
from custody.vfs import PosixFileSystem
from tests.support import append, event, run_steps

_LOOKING = ("list", "exists", "is_directory", "size", "modified_ms", "read", "is_locked")
_PARSE = """
import json, sys, time, logging, warnings
warnings.simplefilter("ignore")
from airflow.dag_processing.dagbag import DagBag
from airflow.dag_processing import processor
before, cpu = time.perf_counter(), time.process_time()
from importlib import import_module
from pathlib import Path
plugins = Path(sys.argv[1]) / "plugins"
for file in sorted(plugins.rglob("*.py")):
    import_module(".".join(file.relative_to(plugins).with_suffix("").parts).removesuffix(".__init__"))
middle = time.perf_counter()
bag = DagBag(Path(sys.argv[1]) / "dags")
seconds = {Path(one.file).name: one.duration.total_seconds() for one in bag.dagbag_stats}
cpu = time.process_time() - cpu
print("FOUND" + json.dumps({"plugins": middle - before, **seconds, "cpu": cpu, "errors": len(bag.import_errors)}))
"""
_SMALL_JOB = """
import sys
from pyspark.sql import SparkSession
session = SparkSession.builder.getOrCreate()
assert session.sparkContext.parallelize([1], 1).map(abs).collect() == [1]
session.stop()
"""


def python_environment() -> dict[str, str]:
    """The environment in which DAG files, plugins and jobs find custody."""
    path = os.pathsep.join(str(ROOT / part) for part in ("plugins", "include", "."))
    return {**os.environ, "PYTHONPATH": path, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}


def parse(times: int) -> dict[str, float]:
    """Read plugins and DAG files in fresh interpreters; return the median seconds of each and of all together."""
    found: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as home:
        for _ in range(times):
            done = subprocess.run(
                [sys.executable, "-c", _PARSE, str(ROOT)],
                env={**python_environment(), "AIRFLOW_HOME": home},
                capture_output=True,
                text=True,
                check=True,
            )
            line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND"))
            found.append(json.loads(line.removeprefix("FOUND")))
    assert not any(one.pop("errors") for one in found)
    cpu = median(one.pop("cpu") for one in found)
    each = {name: median(one[name] for one in found) for name in found[0]}
    return {**each, "all of them": median(sum(one.values()) for one in found), "CPU seconds of all of them": cpu}


def starts(times: int) -> dict[str, Cost]:
    """Start and end Spark jobs, in turn without and with the flags and the class archive; return the medians.

    The small job starts a session and a Python worker; the others are steps of custody that find nothing to do.
    """
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "small.py"
        job.write_text(_SMALL_JOB)
        Repository.create(Path(folder) / "repository")
        environ = {**python_environment(), **submit_environment()}
        submit = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]"]
        bare = [*submit, "--conf", "spark.driver.host=127.0.0.1"]
        quick = [*submit, *(part for key, value in spark_conf().items() for part in ("--conf", f"{key}={value}"))]
        plain = {key: value for key, value in environ.items() if key != "SPARK_LAUNCHER_OPTS"}

        def idle(step: str) -> Cost:
            file, first = job_of(step)
            job = [str(jobs_folder() / file), *first, "--repository", str(Path(folder) / "repository")]
            return cost_of([*quick, *job], environ)

        def idle_pass() -> Cost:
            each = [idle(step) for step in STEPS]
            return Cost(sum(cost.wall for cost in each), sum(cost.cpu for cost in each))

        kinds: dict[str, Callable[[], Cost]] = {
            "small job, Spark as it comes": lambda: cost_of([*bare, str(job)], plain),
            "small job, flags and class archive": lambda: cost_of([*quick, str(job)], environ),
            "a step that finds nothing to do": lambda: idle("commit"),
            "a pass of all steps that find nothing to do": idle_pass,
        }
        costs: dict[str, list[Cost]] = {name: [] for name in kinds}
        for _ in range(times):
            for name, run in kinds.items():
                costs[name].append(run())
    return {
        name: Cost(median(cost.wall for cost in found), median(cost.cpu for cost in found))
        for name, found in costs.items()
    }


def sensors(count: int, seconds: float, logs: int, poke_seconds: float = 5.0) -> dict[str, float]:
    """Let many journal triggers wait in one event loop over one repository; return what a minute of it costs."""
    sys.path.append(str(ROOT / "plugins"))
    from custody_airflow.triggers import JournalTrigger

    with tempfile.TemporaryDirectory() as folder:
        repository = Repository.create(Path(folder) / "repository")
        for number in range(logs):
            append(repository, [event(number)])
            run_steps(repository.settings, "rollover", "compress", "index", "commit", "sweep")
        root = str(repository.settings.root)
        calls: Counter[str] = Counter()
        for name in _LOOKING:
            setattr(PosixFileSystem, name, _counted(name, getattr(PosixFileSystem, name), calls))

        async def wait() -> tuple[float, float, list[float]]:
            async def one() -> None:
                async for _ in JournalTrigger(root, poke_seconds).run():
                    raise AssertionError("there is nothing to do")

            waiting = [asyncio.create_task(one()) for _ in range(count)]
            await asyncio.sleep(poke_seconds)  # imports and the first look are not what is measured
            calls.clear()
            late: list[float] = []
            begun, cpu = time.monotonic(), time.process_time()
            while time.monotonic() - begun < seconds:
                before = time.monotonic()
                await asyncio.sleep(0.05)
                late.append(time.monotonic() - before - 0.05)
            cost = time.process_time() - cpu, time.monotonic() - begun, late
            for task in waiting:
                task.cancel()
            return cost

        cpu, wall, late = asyncio.run(wait())
    looks = calls["is_locked"]  # one a writer and look, and there is one writer
    return {
        "CPU seconds a minute": cpu * 60 / wall,
        "looks a minute": looks * 60 / wall,
        "file-system calls a look": sum(calls.values()) / max(looks, 1),
        "event loop late, p99, ms": percentile(late, 0.99) * 1000,
    }


def _counted(name: str, real: Callable[..., Any], calls: Counter[str]) -> Callable[..., Any]:
    def call(fs: PosixFileSystem, path: Path) -> Any:
        calls[name] += 1
        return real(fs, path)

    return call
