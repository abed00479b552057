"""The process of a step is killed before each durable operation of the whole chain; the next run finishes its work.

Rollover and retention, all steps, under leases, on a real disk. The kills come from a file system that the test puts
below the steps. Afterwards every answer is that of a repository on which nobody was killed: event by event, search by
search, and nothing is left over.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from custody.config import load_settings
from custody.repository import EventSelection, Repository
from custody.vfs import PosixFileSystem
from tests.chain import CHAIN, Answers, answers, run_chain
from tests.support import FailingFileSystem, append, event, python, unnumbered

ROOT = Path(__file__).parents[2]
DAYS_MS = 86_400_000
NAMING = ("link", "rename", "remove", "add_directory", "remove_directory")
# It imports everything and starts no thread, so that each fork begins like a new process.
NURSERY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from custody.config import load_settings
from tests.behaviour.test_killed_steps import KillingFileSystem
from tests.chain import run_chain
for line in sys.stdin:
    root, kill_at = line.split()
    child = os.fork()
    if child == 0:
        run_chain(load_settings(Path(root)), KillingFileSystem(int(kill_at)))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class KillingFileSystem(FailingFileSystem):
    """A real disk whose process kills itself before durable operation number `fail_at` (from 1); 0 lets it live."""

    kinds = FailingFileSystem.kinds | {"append", "link", "add_directory", "remove_directory"}

    def strike(self, kind: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def points(operations: Sequence[str]) -> list[int]:
    """Return where to kill, from 1: after each operation that changes a name, before each that gives a final one.

    A kill shows nothing else: what was written and has no name yet is the same leftover however long it is, and what
    was not synced is there all the same, as power is not lost (tests/crash). Of files that go one after the other, the
    first and the last.
    """
    found = set()
    for number, name in enumerate(operations, 1):
        is_inside = operations[max(number - 2, 0) : number + 1] == ["remove"] * 3
        if name in NAMING and not is_inside:
            found |= {number + 1, number} if name in ("link", "rename") else {number + 1}
    return sorted(point for point in found if point <= len(operations))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An old log, a held one, and what waits: a sealed group, and the journal of a writer that died."""
    root = Repository.create(tmp_path_factory.mktemp("killed") / "repository").settings.root
    text = '[repository]\ncontainers = ["disk1", "disk2"]\n[catalog]\ncheckpoint_every = 1\n'
    text += "[eventlog]\nlog_bytes_target = 4096\n"
    (root / "custody.toml").write_text(text)
    opened = Repository.open(root)
    for numbers in (range(2), range(2, 4)):
        append(opened, [event(number) for number in numbers])
        run_chain(opened.settings, PosixFileSystem())
    opened.hold("case", EventSelection(flowfile_uuids=[event(2).flowfile_uuid]), "asked for", "legal")
    now = opened._clock.now_ms()
    append(opened, [event(number, event_time=now + 1000 * DAYS_MS, details="a text") for number in range(4, 7)])
    append(opened, [event(number, event_time=now + 1000 * DAYS_MS) for number in range(7, 9)])
    # As a killed writer leaves its journal: open, its last record torn.
    last = sorted(root.rglob("*.sealed"))[-1]
    last.write_bytes(last.read_bytes() + b"\x40\x00half a record")
    last.rename(last.with_suffix(".journal"))
    (root / "custody.toml").write_text(f'{text}[retention]\nage_max = "1 day"\ngrace = "0 seconds"\n')
    return root


def expected_of(prepared: Path, folder: Path) -> tuple[Answers, list[str], list[tuple[int, str]]]:
    """Return what an undisturbed run answers, its operations, and at which of them each step began."""
    root = Path(shutil.copytree(prepared, folder / "undisturbed"))
    fs, begun = KillingFileSystem(), []
    run_chain(load_settings(root), fs, lambda name: begun.append((len(fs.operations), name)))
    return _answered(root), fs.operations, begun


def _answered(root: Path) -> Answers:
    return answers(Repository.open(root))


@pytest.mark.slow
def test_a_step_that_is_killed_before_any_operation_is_finished_by_the_next_run(prepared: Path, tmp_path: Path) -> None:
    expected, operations, begun = expected_of(prepared, tmp_path)
    assert [item.source_ordinal for item in expected.events] == list(range(2, 9)), (
        "the old log is gone, the rest is there"
    )
    assert (expected.waiting, expected.left_over) == (0, ())
    assert [name for _, name in begun] == [step.name for step in CHAIN]
    root = tmp_path / "repository"
    killed = 0
    with python(NURSERY, ROOT) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for point in points(operations):
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(prepared, root)
            where = f"operation {point} ({operations[point - 1]}), {max(item for item in begun if item[0] < point)[1]}"
            nursery.stdin.write(f"{root} {point}\n")
            nursery.stdin.flush()
            code = int(nursery.stdout.readline())
            assert code == -signal.SIGKILL, f"{where}: exit code {code}"
            killed += 1
            middle = unnumbered(Repository.open(root).events(count=1000))
            promised = [item for item in unnumbered(expected.events) if item not in middle]
            assert not promised, f"{where}: acknowledged events are not found after the kill"
            run_chain(load_settings(root), PosixFileSystem())
            assert _answered(root) == expected, where
    assert killed == len(points(operations)) > 150
    print(json.dumps({"operations": len(operations), "kills": killed}))  # noqa: T201 - the figures of the run
