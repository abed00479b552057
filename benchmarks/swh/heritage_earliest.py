"""The earliest revisions of some contents and directories, by the program of Software Heritage and by custody's job."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.swh.build import prepare
from benchmarks.swh.export import hashes_by_id
from benchmarks.swh.heritage_run import Step, Steps
from custody.spark.submit import step_command

PROGRAM, JOB = "find-earliest-revision", "swh_find_earliest_revision"


def draw(graph: Path, count: int, path: Path, seed: int = 11) -> None:
    """Write identifiers of random contents and directories as both read them."""
    hashes, kinds = hashes_by_id(graph)
    chosen = np.random.default_rng(seed).choice(np.flatnonzero(np.isin(kinds, ["cnt", "dir"])), count, replace=False)
    lines = [f"swh:1:{kind}:{row.tobytes().hex()}\n" for kind, row in zip(kinds[chosen], hashes[chosen], strict=True)]
    path.write_text("swhid\n" + "".join(lines))


def ask_both(steps: Steps, compressed: Path, graph: Path, asked: Path, folder: Path) -> tuple[Step, str]:
    """Ask both; return what custody's job took, and what is to be said of the answers.

    Raises:
        subprocess.CalledProcessError: one failed.
    """
    theirs, ours = folder / "earliest.csv", folder / "earliest"
    steps.run(PROGRAM, PROGRAM, compressed, given=asked, out=theirs)
    environ = prepare(folder, "1g")[1]
    given = ["--graph", str(graph), "--swhids", str(asked), "--out", str(ours)]
    command = step_command(JOB, given, master="local[2]", environ=environ)
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with (folder / f"{JOB}.log").open("w") as log:
        subprocess.run(command, env=environ, stdout=log, stderr=log, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    took = {"seconds": time.monotonic() - started, "cpu": cpu, "load": os.getloadavg()[0]}
    return took, _compare(theirs, ours)


def _compare(theirs: Path, ours: Path) -> str:
    there = csv.read_csv(theirs).sort_by("swhid")
    here = pa.concat_tables([csv.read_csv(path) for path in sorted(ours.glob("*.csv"))]).sort_by("swhid")
    said = f"  {PROGRAM}: {len(there)} answers there, {len(here)} here"
    if there["swhid"].to_pylist() == here["swhid"].to_pylist():
        for name in there.schema.names[1:]:
            differs = sum(one != two for one, two in zip(there[name].to_pylist(), here[name].to_pylist(), strict=True))
            said += f", {differs} with another {name}"
    return said + "\n"
