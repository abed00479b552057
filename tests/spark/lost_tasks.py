"""A driver of units of which some end their Python worker: prints what `run_tasks` returns, as JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from custody.spark.session import start_session
from custody.spark.tasks import Needs, plan_tasks, run_tasks, session_cores

GIB = 1 << 30


def main(folder: str) -> None:
    """Do ten units: one dies whenever another one of its kind is at work beside it, one always."""
    session = start_session("lost")
    try:
        context = session.sparkContext
        cores = session_cores(context)

        def work(unit: bytes) -> bytes:
            kind, number = unit.decode().split()
            with (Path(folder) / f"{kind}-{number}").open("a") as file:
                file.write("tried\n")
            mine = Path(folder) / f"at-work-{number}"
            mine.touch()
            try:
                time.sleep(1.5)
                beside = [path for path in Path(folder).glob("at-work-*") if path != mine]
            finally:
                mine.unlink()
            if kind == "poison" or (kind == "greedy" and beside):
                os.kill(os.getpid(), signal.SIGKILL)
            return f"{kind} {number} done beside {len(beside)}".encode()

        units = [b"plain 0", b"greedy 1", b"poison 2", b"large 3", b"large 4", b"plain 5"]
        memory = {b"plain": 1, b"greedy": 1, b"poison": 1, b"large": 2 * GIB}
        needs = [Needs(5 << 20, memory[unit.split()[0]]) for unit in units]
        tasks = plan_tasks(needs, GIB, cores)
        done = run_tasks(context, tasks, units, work, lambda position, problem: f"lost {position}: {problem}".encode())
    finally:
        session.stop()
    tries = {path.name: len(path.read_text().splitlines()) for path in Path(folder).glob("*-[0-9]")}
    result = {"cores": list(cores), "tasks": tasks, "done": [item.decode() for item in done], "tries": tries}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
