"""Retired writers: the slot of one is taken by no process, so that none fails for a name that is done with."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from custody.clock import SystemClock
from custody.config import load_settings
from custody.errors import ConfigurationError, LockedError
from custody.ingest.slots import take_slot
from custody.repository import Repository
from custody.repository.writers import retire_writer
from custody.vfs import PosixFileSystem
from tests.support import event, run_steps
from tests.unit.capture.sample_inputs import run_event
from tests.unit.serving.serve_process import served


def retired(root: Path, slots: int, *names: str) -> None:
    """A repository with slots, some of whose writers are retired."""
    Repository.create(root)
    (root / "custody.toml").write_text(f"[repository]\nwriter_slots = {slots}\n")
    repository = Repository.open(root)
    with ExitStack() as held:
        for number in range(slots):
            held.enter_context(repository.writer()).append([event(number)])
    run_steps(repository.settings)
    for name in names:
        retire_writer(load_settings(root), name, "its machine was given back")


def test_the_slot_of_a_retired_writer_is_passed_over(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    retired(root, 3, "main-2")
    settings, fs, clock = load_settings(root), PosixFileSystem(), SystemClock()
    with take_slot(fs, settings, clock) as one, take_slot(fs, settings, clock) as other:
        assert (one.name, other.name) == ("main", "main-3")
        with pytest.raises(LockedError, match="all 2 writer slots, 'main' to 'main-3'"):
            take_slot(fs, settings, clock)


def test_slots_that_are_all_retired_are_refused_by_their_reason(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    retired(root, 2, "main", "main-2")
    with pytest.raises(ConfigurationError, match="its machine was given back"):
        take_slot(PosixFileSystem(), load_settings(root), SystemClock())


def test_workers_of_a_server_take_the_slots_that_are_not_retired(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    retired(root, 3, "main-2")
    with served(root, "--quiet", "--workers", "2", "--door", "openlineage") as at:
        body = json.dumps(run_event("START", 1)).encode()
        assert at.post("/api/v1/lineage", body, {"content-type": "application/json"}).status_code == 201
        assert "is started again" not in at.log()


def test_a_server_with_too_few_slots_beside_the_retired_says_which_they_are(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    retired(root, 2, "main-2")
    with (
        pytest.raises(
            AssertionError, match=r"expected at least 2, one for each of serve.workers, got 1 beside the reti"
        ),
        served(root, "--quiet", "--workers", "2", "--door", "openlineage"),
    ):
        pass
