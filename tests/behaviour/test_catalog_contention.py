"""Eight processes on one catalog of a disk: commits that commute all land, of those that conflict exactly one wins."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from custody.catalog import Catalog, verify
from custody.clock import SystemClock
from custody.store import LocalStore
from custody.vfs import PosixFileSystem
from tests.behaviour.places import add
from tests.support import python

PROCESSES = 8
COMMITS = 200
OPEN = """
import sys
from pathlib import Path
from custody.catalog import Action, AddFile, Catalog, CommitConflictError, RemoveFile
from custody.clock import SystemClock
from custody.store import LocalStore
from custody.vfs import PosixFileSystem
catalog = Catalog(LocalStore(PosixFileSystem(), Path(sys.argv[1])), "main", "provenance", SystemClock())
name, count = sys.argv[2], int(sys.argv[3])
catalog.load()
print("ready", flush=True)
sys.stdin.readline()
"""
ADDING = (
    OPEN
    + """
for number in range(count):
    catalog.commit([Action(add_file=AddFile(path=f"{name}/{number}"))])
"""
)
REMOVING = (
    OPEN
    + """
won = 0
for number in range(count):
    try:
        catalog.commit([
            Action(remove_file=RemoveFile(path=f"file/{number}")),
            Action(add_file=AddFile(path=f"merged/{name}/{number}")),
        ])
        won += 1
    except CommitConflictError as error:
        assert error.conflict.name == f"file/{number}"
print(won, flush=True)
"""
)


def _catalog(root: Path) -> Catalog:
    return Catalog(LocalStore(PosixFileSystem(), root), "main", "provenance", SystemClock())


def _together(source: str, root: Path, count: int) -> list[list[str]]:
    """Run a program in all processes at once; return what each printed."""
    with ExitStack() as stack:
        started = [stack.enter_context(python(source, root, name, count)) for name in range(PROCESSES)]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        outputs = []
        for process in started:
            assert process.stdout is not None
            outputs.append(process.stdout.read().split())
            assert process.wait(60) == 0
    return outputs


@pytest.mark.in_parts(4)
def test_adds_that_commute_all_land_in_one_line(tmp_path: Path) -> None:
    _together(ADDING, tmp_path, COMMITS)
    catalog = _catalog(tmp_path)
    state = catalog.load()
    assert state.revision == PROCESSES * COMMITS - 1
    assert set(state.files) == {f"{name}/{number}" for name in range(PROCESSES) for number in range(COMMITS)}
    for name in range(PROCESSES):  # each process's own commits are in its order
        own = [
            int(transaction.actions[0].add_file.path.partition("/")[2])
            for transaction in catalog.timeline()
            if transaction.actions[0].add_file.path.startswith(f"{name}/")
        ]
        assert own == list(range(COMMITS))
    assert verify(catalog, files=False).defects == []


def test_of_removes_that_conflict_exactly_one_wins(tmp_path: Path) -> None:
    _catalog(tmp_path).commit([add(f"file/{number}") for number in range(30)])
    won = [int(output[0]) for output in _together(REMOVING, tmp_path, 30)]
    state = _catalog(tmp_path).load()
    assert sum(won) == 30
    assert state.revision == 30
    assert sorted(int(path.rpartition("/")[2]) for path in state.files) == list(range(30))
    assert all(path.startswith("merged/") for path in state.files)
    for name, count in enumerate(won):
        assert sum(path.startswith(f"merged/{name}/") for path in state.files) == count
