"""What was freed stays with a program that is the process: arrays that are made again cost no page faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from custody.repository import Repository

_PROGRAM = """
import resource
import numpy as np

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        [np.ones(2 << 20, np.uint8) for _ in range(16)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
{made}
faults()  # the heap grows once
print(first, faults())
"""
_TASK = """
import sys
from custody.repository import Repository
from custody.spark.ingest import _execute
_execute(Repository.open(sys.argv[1]).settings.to_json(), None, b"[]")
"""
_PAGES = 20 * 16 * 512
"""Of the arrays, each 2 MiB."""


@pytest.mark.parametrize(
    "made", ["from custody.freed_memory import keep_freed_memory\nkeep_freed_memory()", _TASK], ids=["itself", "a task"]
)
def test_arrays_that_are_made_again_are_not_mapped_anew(tmp_path: Path, made: str) -> None:
    Repository.create(tmp_path / "r")
    program = _PROGRAM.format(made=made)
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "r")], capture_output=True, text=True, check=True
    )
    before, behind = map(int, run.stdout.split())
    assert before > _PAGES // 4, "what glibc does by itself"
    assert behind < _PAGES // 20
