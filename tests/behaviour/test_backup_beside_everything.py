"""Backups while producers, flows and passes work and are killed: each that counts is one moment, and goes on.

The ledger is outside of the repository: each process writes a number down once it was acknowledged.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from custody.backup import restore
from custody.maintenance.findings import damages
from custody.maintenance.verification import verify_repository
from custody.repository import Component, Repository
from custody.vfs import PosixFileSystem
from tests.behaviour.places import s3_url
from tests.behaviour.s3 import BUCKET, s3_environment
from tests.support import INCLUDE, append, event, run_steps

__all__ = ["s3_url"]
ROOT = Path(__file__).parents[2]
STEP = Component(id="dag.step", type="Step")
COMMAND = "from custody.cli.main import main; main()"
RANGE = 1_000_000
"""Numbers of events of one life of a producer."""
PRODUCER = """
import os, sys, time
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from custody.repository import Repository
from tests.support import event
root, ledger, number = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[4])
with Repository.open(root).writer(wait_seconds=30) as writer:
    out = os.open(ledger / f"events-{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for turn in range(100_000):
        writer.append([event(number), event(number + 1)])
        os.write(out, b"%d\\n%d\\n" % (number, number + 1))
        number += 2
        if turn % 40 == 39:
            writer.seal()
        time.sleep(0.005)
"""
FLOW = """
import os, sys, time
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from custody.repository import Component, Repository
root, ledger, number = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[4])
step = Component(id="dag.step", type="Step")
with Repository.open(root).flowfiles(wait_seconds=30) as flow:
    flow.connect("in")
    out = os.open(ledger / f"flowfiles-{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        with flow.session(step) as session:
            flowfile = session.create({"number": str(number)})
            session.write_bytes(flowfile, str(number).encode() * 50)
            session.transfer(flowfile, "in")
        os.write(out, b"%d\\n" % number)
        number += 1
        if number % 3 == 0:
            with flow.session(step) as session:
                flowfile = session.get("in")
                if flowfile is not None:
                    session.terminate(flowfile, "success")
        time.sleep(0.01)
"""
PASSES = """
import os, sys, time
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from custody.errors import CustodyError
from custody.repository import Repository
turn = 0
out = os.open(Path(sys.argv[2]) / f"passes-{sys.argv[4]}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    repository = Repository.open(Path(sys.argv[1]))
    try:
        repository.roll_over()
        turn += 1
        os.write(out, b"%d\\n" % turn)
        if turn % 3 == 0:
            repository.compact()
    except CustodyError as error:
        print(error, file=sys.stderr)
    time.sleep(0.1)
"""


@dataclass
class _Process:
    program: str
    life: int
    process: subprocess.Popen[bytes]


class Works:
    """Processes that work on a repository, each of which is killed and replaced now and then."""

    def __init__(self, root: Path, ledger: Path) -> None:
        self._root = root
        self._ledger = ledger
        self._lives = 0
        self.processes = [self._start(program) for program in (PRODUCER, PRODUCER, FLOW, PASSES)]

    def _start(self, program: str) -> _Process:
        self._lives += 1
        arguments = [str(self._root), str(self._ledger), str(ROOT), str(self._lives * RANGE)]
        with (self._ledger / f"errors-{self._lives}").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                env={**os.environ, "PYTHONPATH": str(INCLUDE)},
                stdout=errors,
                stderr=errors,
            )
        return _Process(program, self._lives, process)

    def strike(self, chance: random.Random) -> None:
        """Kill one of the processes, and start it anew."""
        place = chance.randrange(len(self.processes))
        killed = self.processes[place]
        killed.process.kill()
        killed.process.wait()
        self.processes[place] = self._start(killed.program)

    def end(self) -> None:
        for one in self.processes:
            one.process.kill()
            one.process.wait()


@contextmanager
def working(root: Path, ledger: Path) -> Iterator[Works]:
    works = Works(root, ledger)
    try:
        yield works
    finally:
        works.end()


def told(ledger: Path, kind: str) -> set[int]:
    """The numbers that were acknowledged; a kill may cut the last line off."""
    lines = [line for path in ledger.glob(f"{kind}-*") for line in path.read_bytes().splitlines(keepends=True)]
    return {int(line) for line in lines if line.endswith(b"\n")}


def _is_under_way(root: Path, ledger: Path) -> bool:
    if len(told(ledger, "events")) < 100 or len(told(ledger, "flowfiles")) < 20 or not told(ledger, "passes"):
        return False
    # The first passes may have ended before anything was sealed.
    return any(writer.events_live for writer in Repository.open(root).status().writers)


@dataclass(frozen=True)
class Before:
    """What had been acknowledged before a backup began."""

    events: set[int]
    flowfiles: set[int]


def back_up(root: Path, target: str, ledger: Path, kill_after: float | None) -> tuple[int, Before] | None:
    """Make a backup in a process of its own, or kill it; return its number, and what has to be in it."""
    before = Before(told(ledger, "events"), told(ledger, "flowfiles"))
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, "-r", str(root), "backup", target, "--json"],
        env={**os.environ, "PYTHONPATH": str(INCLUDE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            out, errors = process.communicate(timeout=kill_after or 120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return None
    assert process.returncode == 0, errors.decode()
    return json.loads(out)["manifest"]["number"], before


def number_of(flowfile_uuid: str) -> int:
    return int(flowfile_uuid[-12:])


def judge(folder: Path, before: Before) -> None:
    """What was acknowledged before the backup is there once, nothing is damaged, and work goes on."""
    repository = Repository.open(folder)
    checked = verify_repository(repository.workspaces(), repository.settings, PosixFileSystem())
    assert not damages(checked.findings), damages(checked.findings)
    run_steps(repository.settings)
    writers = [item.writer for item in repository.workspaces()]
    held = [one for writer in writers for one in repository.events(count=1_000_000, writer=writer)]
    produced = Counter(number_of(one.flowfile_uuid) for one in held if one.event_type == "CREATE" and not _is_flow(one))
    assert before.events <= produced.keys(), sorted(before.events - produced.keys())[:5]
    assert max(produced.values()) == 1
    # Each FlowFile waits with its content, or has ended: once, also after all that wait are ended here.
    with repository.flowfiles() as flow:
        while True:
            with flow.session(STEP) as session:
                flowfile = session.get("in")
                if flowfile is None:
                    break
                number = flowfile.attributes["number"]
                assert session.read_bytes(flowfile) == number.encode() * 50
                session.terminate(flowfile, "success")
    events = [one for writer in writers for one in repository.events(count=1_000_000, writer=writer) if _is_flow(one)]
    made = Counter(int(one.updated_attributes["number"] or 0) for one in events if one.event_type == "CREATE")
    ended = Counter(one.flowfile_uuid for one in events if one.event_type == "DROP")
    assert before.flowfiles <= made.keys(), sorted(before.flowfiles - made.keys())[:5]
    assert set(made.values()) <= {1}
    assert sorted(ended.values()) == [1] * len(made)
    new = append(repository, [event(7)])
    assert new.start > 1 << 30


def _is_flow(one: object) -> bool:
    return str(getattr(one, "component_id", "")) == STEP.id


@pytest.mark.in_parts(3)
@pytest.mark.parametrize("place", ["folder", "target in a bucket", "all in buckets"])
@pytest.mark.parametrize("backups", [3, pytest.param(25, marks=pytest.mark.slow)])
def test_each_backup_beside_killed_work_is_one_moment(
    tmp_path: Path, place: str, backups: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, ledger, chance = tmp_path / "repository", tmp_path / "ledger", random.Random(5)  # noqa: S311 - a seed, no secret
    Repository.create(root)
    ledger.mkdir()
    target, store, restored_store = str(tmp_path / "target"), "store", None
    if place != "folder":
        for name, value in s3_environment(request.getfixturevalue("s3_url")).items():
            monkeypatch.setenv(name, value)
        target = f"s3://{BUCKET}/{uuid4().hex}"
    if place == "all in buckets":
        store = f"s3://{BUCKET}/{uuid4().hex}"
    (root / "custody.toml").write_text(
        f'[repository]\nwriter_slots = 4\nstore = "{store}"\n[flowfiles]\ncheckpoint_seconds = 1.5\n'
    )
    made = []
    with ExitStack() as stack:
        works = stack.enter_context(working(root, ledger))
        deadline = time.monotonic() + 60
        while not _is_under_way(root, ledger):
            assert time.monotonic() < deadline, [path.read_text() for path in ledger.glob("errors-*")]
            time.sleep(0.1)
        for number in range(backups):
            if number % 3 == 1:
                back_up(root, target, ledger, kill_after=chance.uniform(0.3, 2.0))
            works.strike(chance)
            found = back_up(root, target, ledger, None)
            assert found is not None
            made.append(found)
    assert len({number for number, _ in made}) == backups
    for number, before in made:
        folder = tmp_path / f"restored-{number}"
        if place == "all in buckets":
            restored_store = f"s3://{BUCKET}/{uuid4().hex}"
        done = restore(target, folder, number=number, store=restored_store)
        assert not damages(done.findings), damages(done.findings)
        assert sum(item.end.live_events for item in done.writers) > 0, "passes ran beside"
        judge(folder, before)
