"""Processes that can be killed: drivers and supervisors among those of a session, recognised by their command lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]

from custody.spark.environment import job_of
from custody_local.processes import ProcessId, session_members
from custody_local.workers import workers

WRITER, DRIVER, WORKER = "writer", "Spark driver", "Airflow worker"
KINDS = (WRITER, DRIVER, WORKER)


@dataclass(frozen=True, slots=True)
class Target:
    """A process that may be killed, and what it was doing."""

    process: ProcessId
    kind: str
    work: str


def spark_drivers(leader: ProcessId) -> list[Target]:
    """Return the JVMs of spark-submits of a session, and the Python drivers that they started."""
    drivers = []
    for process, words in _commands(leader):
        job = next((word for word in words if "spark_jobs/" in word), None)
        if job is None:
            continue
        step = job.rpartition("/")[2].removesuffix(".py")
        following = words[words.index(job) + 1 : words.index(job) + 2]
        if following and job_of(following[0]) == (f"{step}.py", following):
            step = following[0]  # a job of several steps takes its step as first argument
        if any(word.endswith("deploy.SparkSubmit") for word in words):
            drivers.append(Target(process, DRIVER, f"JVM of {step}"))
        elif _is_python(words[0]) and job in words[1:3]:
            drivers.append(Target(process, DRIVER, f"Python of {step}"))
    return drivers


def airflow_workers(leader: ProcessId) -> list[Target]:
    """Return the workers that supervise a task. An idle one holds the lock of Airflow's queue: it is left alone."""
    return [
        Target(process, WORKER, "supervising a task")
        for process in workers(leader, idle=False)
        if _has_children(process.pid)
    ]


def _commands(leader: ProcessId) -> Iterator[tuple[ProcessId, list[str]]]:
    for process in sorted(session_members(leader), key=lambda member: member.pid):
        try:
            words = psutil.Process(process.pid).cmdline()
        except psutil.Error:
            continue
        if words:
            yield process, words


def _is_python(word: str) -> bool:
    return word.rpartition("/")[2].startswith("python")


def _has_children(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).children())
    except psutil.Error:
        return False
