"""A thousand replays of one plan, killed in the middle again and again: each once."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from custody.replay import save_plan
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests import forks
from tests.support import INCLUDE
from tests.unit.replay.replay_fixtures import drain, fill, found

SEED = 20260302
# Small transactions, so that there is a middle to be killed in.
RUN = """
import sys
from pathlib import Path
from custody.replay import replay_run
from custody.repository import Repository
replay_run.BATCH_EVENTS = 20
Repository.open(sys.argv[1]).replay(Path(sys.argv[2]), user="alice", on_progress=lambda *done: print(*done, flush=True))
"""


def _killed_run(folder: Path, plan: Path, steps: int, delay: float) -> bool:
    """Run the plan in a process of its own, and kill it some transactions later; return whether it was killed."""
    process = forks.Popen(
        [sys.executable, "-c", RUN, str(folder), str(plan)],
        stdout=forks.PIPE,
        text=True,
        env={"PYTHONPATH": str(INCLUDE)},
    )
    assert process.stdout is not None
    with process.stdout:
        for _ in range(steps):
            if not process.stdout.readline():
                break
        time.sleep(delay)
        process.kill()
    return process.wait() != 0


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("events", [300, pytest.param(1000, marks=pytest.mark.slow)])
def test_replays_that_are_killed_again_and_again_happen_once_each(events: int, tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    fill(repository, events)
    plan = repository.plan_replay("event_type:DROP")
    save_plan(PosixFileSystem(), tmp_path / "a.plan", plan)
    dice = random.Random(SEED)  # noqa: S311 - when to kill is no secret
    ledger: Counter[str] = Counter()
    kills = 0
    while _killed_run(repository.settings.root, tmp_path / "a.plan", dice.randint(2, 9), dice.random() * 0.03):
        kills += 1
        # What is there leaves the flow: that it is not there is no reason to send it again.
        if kills % 2:
            with repository.flowfiles() as flow:
                ledger.update(flowfile.uuid for flowfile, _ in drain(flow))
        assert kills < events
    assert kills > events // 250
    report = repository.replay(plan, user="alice")
    assert (report.done_before, report.replayed, report.stopped) == (events, 0, None)
    with repository.flowfiles() as flow:
        ledger.update(flowfile.uuid for flowfile, _ in drain(flow))
    assert ledger == Counter(plan.flowfile_uuid(item) for item in plan.events)
    replays = found(repository, "event_type:REPLAY")
    children = Counter(child for item in replays for child in item.child_uuids)
    assert children == ledger
    assert {item.flowfile_uuid for item in replays} == {item.flowfile_uuid for item in plan.events}
