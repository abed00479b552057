"""Watch over Spark jobs: their memory, CPU and disk while they run, and what Spark's log says of its tasks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

_SECONDS = 0.5
_LOOKS_A_MEASURE = 4


@dataclass
class Use:
    """Of one job: the most memory of all its processes at once, their CPU time, the most disk it held."""

    rss_bytes: int = 0
    private_bytes: int = 0
    """Of the resident memory what is no page of a mapped file: the system takes those back where it needs memory."""
    worker_bytes: int = 0
    """The same of one Python process, the largest one."""
    cpu_seconds: float = 0.0
    disk_bytes: int = 0


class Watch:
    """Looks every half second at the processes that run a job of `spark_jobs` for one repository."""

    def __init__(self, repository: Path) -> None:
        self._repository = str(repository)
        self._ends = threading.Event()
        self._cpu: dict[str, dict[int, float]] = {}
        self._use: dict[str, Use] = {}
        self._disk: dict[str, int] = {}
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def use(self, job: str) -> Use:
        """Return what the job of that name took so far."""
        return replace(
            self._use.get(job, Use()),
            cpu_seconds=sum(self._cpu.get(job, {}).values()),
            disk_bytes=self._disk.get(job, 0),
        )

    def _look(self) -> None:
        looks = 0
        while not self._ends.wait(_SECONDS):
            looks += 1
            if looks % _LOOKS_A_MEASURE == 0:
                self._measure()
            alive: dict[str, dict[int, psutil.Process]] = {}
            for process in psutil.process_iter():
                job = self._job(process)
                if job is not None:
                    held = alive.setdefault(job, {})
                    held.update({one.pid: one for one in [process, *_children(process)]})
            for job, processes in alive.items():
                self._add(job, processes)

    def _measure(self) -> None:
        """What attempts hold on disk: rounds and runs that go when a step ends, what it keeps, and its tables."""
        for attempt in Path(self._repository).glob("store/*/swh/builds/*/attempt.*"):
            job = attempt.name.split(".")[1]
            held = 0
            for path in attempt.rglob("*"):
                # Files come and go meanwhile.
                with suppress(FileNotFoundError):
                    held += path.stat().st_size
            self._disk[job] = max(self._disk.get(job, 0), held)

    def _job(self, process: psutil.Process) -> str | None:
        try:
            words = process.cmdline()
        except psutil.Error:
            return None
        if self._repository not in words:
            return None
        # A job of several steps takes its step as first argument.
        place = next((place for place, word in enumerate(words) if Path(word).parent.name == "spark_jobs"), None)
        if place is None:
            return None
        name = Path(words[place]).stem
        return words[place + 1] if name == "swh" else name

    def _add(self, job: str, processes: dict[int, psutil.Process]) -> None:
        now, cpu = Use(), self._cpu.setdefault(job, {})
        for pid, process in processes.items():
            try:
                memory, times, name = process.memory_info(), process.cpu_times(), process.name()
            except psutil.Error:
                continue
            private = memory.rss - memory.shared
            now.rss_bytes += memory.rss
            now.private_bytes += private
            if name.startswith("python"):
                now.worker_bytes = max(now.worker_bytes, private)
            cpu[pid] = times.user + times.system
        most = self._use.setdefault(job, Use())
        for measure in ("rss_bytes", "private_bytes", "worker_bytes"):
            setattr(most, measure, max(getattr(most, measure), getattr(now, measure)))


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        children: list[psutil.Process] = process.children(recursive=True)
    except psutil.Error:
        return []
    return children


@dataclass
class Tasks:
    """Sums over the tasks of one job; bytes, seconds."""

    jobs: int = 0
    tasks: int = 0
    run_seconds: float = 0.0
    cpu_seconds: float = 0.0
    gc_seconds: float = 0.0
    spilled_memory_bytes: int = 0
    spilled_disk_bytes: int = 0
    shuffled_bytes: int = 0
    peak_execution_bytes: int = 0


def read_tasks(path: Path) -> Tasks:
    """Read the event log of one Spark application."""
    tasks = Tasks()
    for event in _events(path):
        tasks.jobs += event["Event"] == "SparkListenerJobStart"
        metrics = event.get("Task Metrics") if event["Event"] == "SparkListenerTaskEnd" else None
        if metrics:
            tasks.tasks += 1
            tasks.run_seconds += metrics["Executor Run Time"] / 1e3
            tasks.cpu_seconds += metrics["Executor CPU Time"] / 1e9
            tasks.gc_seconds += metrics["JVM GC Time"] / 1e3
            tasks.spilled_memory_bytes += metrics["Memory Bytes Spilled"]
            tasks.spilled_disk_bytes += metrics["Disk Bytes Spilled"]
            tasks.shuffled_bytes += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
            tasks.peak_execution_bytes = max(tasks.peak_execution_bytes, metrics.get("Peak Execution Memory", 0))
    return tasks


def _events(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            # Plans are long and of no use here.
            if line.startswith(('{"Event":"SparkListenerJobStart"', '{"Event":"SparkListenerTaskEnd"')):
                yield json.loads(line)


def log_of(folder: Path, name: str) -> Path | None:
    """Return the newest event log in a folder of the application of that name; None if there is none."""
    named = [path for path in folder.iterdir() if path.is_file() and _application(path) == name]
    return max(named, key=lambda path: path.stat().st_mtime, default=None)


def _application(path: Path) -> str | None:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith('{"Event":"SparkListenerApplicationStart"'):
                name: str = json.loads(line)["App Name"]
                return name
    return None


def seconds_since(started: float) -> float:
    return round(time.monotonic() - started, 1)
