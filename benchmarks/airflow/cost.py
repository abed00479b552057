"""CPU cost of processes: the CPU seconds of a program and all it starts, of a local Airflow, and the machine's load."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]

from custody_local.processes import ProcessId, session_members

COMPONENTS = ("LocalExecutor", "scheduler", "dag-processor", "triggerer", "api-server")
"""Words in the command lines of Airflow's components; workers of the LocalExecutor are children of the scheduler."""


class Cost(NamedTuple):
    """Seconds on the clock, and of CPU over all processes."""

    wall: float
    cpu: float


def cost_of(command: Sequence[str], environ: Mapping[str, str]) -> Cost:
    """Run a program to its end.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, env=dict(environ), capture_output=True, check=True)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - started
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def session_cpu(leader: ProcessId) -> float:
    """CPU seconds so far of all processes of a session, those that ended included."""
    return sum(session_cpu_by_process(leader).values())


def session_cpu_by_process(leader: ProcessId) -> dict[str, float]:
    """The same by component of Airflow: what a component's ended children took counts for it."""
    total: Counter[str] = Counter()
    for member in session_members(leader):
        try:
            process = psutil.Process(member.pid)
            name, times = _component(process), process.cpu_times()
        except psutil.Error:
            continue
        # What a process collected of its ended children is counted there; living ones count for themselves.
        total[name] += times.user + times.system + times.children_user + times.children_system
    return dict(total)


def _component(process: psutil.Process) -> str:
    """The component that a process is, or that it descends from: Airflow gives its processes titles of their own."""
    for one in [process, *process.parents()]:
        title = " ".join(one.cmdline()).replace("_", "-")
        for name in COMPONENTS:
            if name in title:
                return name
    return "supervisor"


def load() -> str:
    """How busy this machine is: its average number of running processes over one and five minutes, and its cores."""
    one, five, _ = os.getloadavg()
    return f"{one:.1f} / {five:.1f} on {os.cpu_count()} cores"


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies, by the nearest rank."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def table(heading: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown; numbers with a fraction get two digits after the point."""

    def cell(value: object) -> str:
        return f"{value:.2f}" if isinstance(value, float) else str(value)

    lines = [heading, ["---"] * len(heading), *[[cell(value) for value in row] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
