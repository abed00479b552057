"""Hand-overs that are interrupted, doubled, or not answered: what was handed over outlives the producer's disks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest

from custody.errors import CustodyError, StorageError
from custody.rollover import handing_over, rollover_steps
from custody.rollover.merge import merge_unit
from custody.store import ObjectData
from custody.store.local import LocalStore
from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from custody.workspace import handoff
from custody.workspace.handoff import Handoff
from tests.crash.disk_bugs import puts_never_synced
from tests.crash.enumeration import enumerate_crashes, run_to
from tests.crash.handoff_scenarios import HANDED, HandingOver, HandOverPromises, at, hand_over
from tests.crash.interleaving import Times, Work, play
from tests.crash.memory_repository import NOW_MS, check_events, copied_segments, repository, run_pass
from tests.parts import Part


@pytest.mark.in_parts
def test_a_crash_at_any_operation_and_the_loss_of_all_containers_lose_nothing(part: Part) -> None:
    _, _, error = run_to(HandingOver())
    assert error is None
    modes = tuple(CrashMode) if part.number is None else (CrashMode.SYNCED_ONLY,)
    outcome = enumerate_crashes(HandingOver(), modes=modes, seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 80


def manifest_first() -> AbstractContextManager[object]:
    """The manifest is put before the journals: a crash in between declares what is not there."""
    right = handing_over._hand_over_group

    def wrong(workspace: Any, folder: Any, group: Any, state: Any, known: Any) -> Any:
        with patch.object(workspace.handoff, "put_journal", _only_digest):
            manifest = right(workspace, folder, group, state, known)
        for path in sorted(group.sealed):
            workspace.handoff.put_journal(folder, path.name, workspace.fs.read(path))
        return manifest

    return patch.object(handing_over, "_hand_over_group", wrong)


def _only_digest(_: object, name: str, data: bytes) -> handoff.HandedJournal:
    return handoff.HandedJournal(name=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def removed_when_merged() -> AbstractContextManager[object]:
    """What was handed over is removed once it is merged, before it is live."""
    right = merge_unit

    def wrong(workspace: Any, unit: str, groups: Any, *, ahead: Any = None) -> Any:
        report = right(workspace, unit, groups, ahead=ahead)
        for folder in workspace.handoff.folders():
            workspace.handoff.remove(folder)
        workspace.fs.remove_tree(workspace.paths.staging)
        return report

    return patch.object(rollover_steps, "merge_unit", wrong)


def not_synced() -> AbstractContextManager[object]:
    """Objects are written and never synced: a power loss takes what was declared safe."""
    return puts_never_synced("/handoff/")


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("bug", [pytest.param(manifest_first, marks=pytest.mark.slow), removed_when_merged, not_synced])
def test_a_seeded_bug_is_found(bug: Callable[[], AbstractContextManager[object]]) -> None:
    with bug():
        outcome = enumerate_crashes(HandingOver(), modes=[CrashMode.SYNCED_ONLY], seeds=1, first_alarm_only=True)
    assert CrashMode.SYNCED_ONLY in outcome.alarms


class LostAnswers(LocalStore):
    """A store that does one put and then says that it failed."""

    is_remote = True
    puts = 0
    lost_at = 0

    def put_if_absent(self, key: str, data: ObjectData) -> bool:
        done = super().put_if_absent(key, data)
        if "/handoff/" in key:
            LostAnswers.puts += 1
            if LostAnswers.puts == LostAnswers.lost_at:
                raise StorageError(f"{key}: no answer")
        return done


def _two_groups(fs: FileSystem) -> HandOverPromises:
    record = HandOverPromises()
    with repository(fs, HANDED).writer() as writer:
        record.append(writer, 2)
        writer.seal()
        record.append(writer, 3)
    return record


@pytest.mark.parametrize("lost_at", range(1, 5))  # two journals, two manifests
def test_a_put_whose_answer_was_lost_is_recognised(lost_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()
    record = _two_groups(fs)
    right = Handoff.__init__

    def on_lossy(self: Any, disk: Any, _: Any, home: str, copies: Any) -> None:
        right(self, disk, LostAnswers(disk, HANDED.store), home, copies)

    monkeypatch.setattr("custody.store.conditional_put.pause_between_tries", lambda _: None)
    monkeypatch.setattr(Handoff, "__init__", on_lossy)
    LostAnswers.puts, LostAnswers.lost_at = 0, lost_at
    assert len(at(fs).hand_over()) == 2
    assert LostAnswers.puts == 4
    monkeypatch.undo()
    for root in HANDED.containers:
        fs.remove_tree(root)
    run_pass(fs, settings=HANDED)
    check_events(fs, record, HANDED)


def _meanwhile(fs: FileSystem) -> None:
    at(fs).hand_over()
    with copied_segments():
        run_pass(fs, settings=HANDED)


@pytest.mark.in_parts
def test_a_hand_over_that_goes_on_when_another_one_and_a_whole_pass_are_done_does_no_harm(part: Part) -> None:
    def world() -> tuple[MemoryFileSystem, HandOverPromises]:
        fs = MemoryFileSystem()
        return fs, _two_groups(fs)

    disk, _ = world()
    steps = len(play(disk, Times(NOW_MS), {"paused": lambda fs: at(fs).hand_over()}, []).operations["paused"])
    assert steps > 30
    for step in part.of("paused hand-over", steps, 8):
        disk, record = world()
        actors: dict[str, Work] = {"paused": lambda fs: at(fs).hand_over(), "others": _meanwhile}
        played = play(disk, Times(NOW_MS), actors, [("paused", step), ("others", None)])
        errors = [error for error in played.errors.values() if not isinstance(error, CustodyError)]
        assert not errors, f"stopped at {step}: {errors}"
        check_events(disk, record, HANDED)
        hand_over(disk, record)
        for root in HANDED.containers:
            disk.remove_tree(root)
        run_pass(disk, settings=HANDED)
        check_events(disk, record, HANDED)
        assert not disk.list(HANDED.store / "main/provenance/handoff"), f"stopped at {step}: objects are left"
