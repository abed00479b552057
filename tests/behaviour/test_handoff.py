"""A process is killed and its folder removed: what it handed over is in the store, what not is named."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from custody.cli.main import cli
from custody.clock import SystemClock
from custody.config import load_settings
from custody.errors import ConflictError, EarlierStateError, SupersededError
from custody.repository import Repository
from custody.rollover.handing_over import hand_over
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from tests.support import append, event, run_steps

PRODUCER = """
import sys, time
from pathlib import Path
from custody.repository import Repository
from tests.support import event
repository = Repository.open(Path(sys.argv[1]))
with repository.writer() as writer:
    for batch in range(3):
        writer.append([event(number) for number in range(5)])
        writer.seal()
    print(len(repository.hand_over()), flush=True)
    writer.append([event(number) for number in range(4)])
    print("acknowledged", flush=True)
    time.sleep(60)
"""


def new_repository(root: Path, store: Path) -> Path:
    root.mkdir()
    (root / "custody.toml").write_text(f'[repository]\nstore = "{store}"\n\n[journal]\nhandoff = "store"\n')
    return root


def run(root: Path, *arguments: object) -> Result:
    return CliRunner().invoke(cli, ["--repository", str(root), *map(str, arguments)])


def test_what_a_killed_process_handed_over_outlives_its_disk_and_the_rest_is_named(tmp_path: Path) -> None:
    producer, store = new_repository(tmp_path / "producer", tmp_path / "store"), tmp_path / "store"
    environment = {**os.environ, "PYTHONPATH": f"include{os.pathsep}."}
    with subprocess.Popen(
        [sys.executable, "-c", PRODUCER, str(producer)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in range(2)] == ["3", "acknowledged"]
        waiting = json.loads(run(producer, "handoff", "--json").stdout)
        oldest_ms = waiting["not_handed_over"]["main"].pop("oldest_ms")
        assert waiting["not_handed_over"]["main"] == {"groups": 1, "events": 4}
        assert 0 <= SystemClock().now_ms() - oldest_ms < 600_000
        status = json.loads(run(producer, "status", "--json").stdout)
        assert status["pending"]["groups_not_handed_over"] == 1
        process.send_signal(signal.SIGKILL)
    shutil.rmtree(producer)

    elsewhere = new_repository(tmp_path / "elsewhere", store)
    repository = Repository.open(elsewhere)
    assert [item.event_id for item in repository.events(0, 100)] == list(range(15))
    run_steps(repository.settings)
    assert [item.event_id for item in repository.events(0, 100)] == list(range(15))
    assert repository.status().writers[0].events_live == 15
    assert not list((store / "main").rglob("*.sealed"))
    # The name is the lost machine's until a person says that it is gone.
    assert run(elsewhere, "containers", "claim", "main", "--yes").exit_code == 0
    with repository.writer() as writer:
        assert writer.append([event()]).start >= 15


def test_a_machine_whose_name_was_claimed_by_another_one_hands_nothing_over(tmp_path: Path) -> None:
    first = new_repository(tmp_path / "first", tmp_path / "store")
    append(Repository.open(first), [event()] * 3)
    second = new_repository(tmp_path / "second", tmp_path / "store")
    assert run(second, "containers", "claim", "main", "--yes").exit_code == 0
    append(Repository.open(second), [event()] * 2)
    assert Repository.open(first).hand_over() == []
    assert [group.events for group in Repository.open(second).hand_over()] == [2]
    # One that had listed its groups when the name was still its own.
    workspace = Workspace(load_settings(first), "main", PosixFileSystem(), SystemClock())
    groups = workspace.foreign_groups()
    workspace.groups_on_containers = lambda firsts=None: groups  # type: ignore[method-assign,assignment]
    with pytest.raises((SupersededError, ConflictError)):
        list(hand_over(workspace))


def test_a_copy_of_a_disk_on_another_machine_is_refused(tmp_path: Path) -> None:
    first = new_repository(tmp_path / "first", tmp_path / "store")
    append(Repository.open(first), [event()] * 1)
    Repository.open(first).hand_over()
    second = Path(shutil.copytree(first, tmp_path / "second"))
    append(Repository.open(first), [event()] * 2)
    kept = sorted((second / "containers").rglob("*.sealed"))
    with pytest.raises(EarlierStateError, match="is of an earlier moment"):
        append(Repository.open(second), [event()] * 3)
    assert [group.events for group in Repository.open(first).hand_over()] == [2]
    assert sorted((second / "containers").rglob("*.sealed")) == kept


def test_off_hands_nothing_over_and_says_so(repository: Repository) -> None:
    append(repository, [event()] * 2)
    refused = run(repository.settings.root, "handoff")
    assert refused.exit_code == 11
    run_steps(repository.settings)
    assert not (repository.settings.store / "main/provenance/handoff").exists()
