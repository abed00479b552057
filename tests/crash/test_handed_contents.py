"""Contents are handed over and deleted: a crash at any operation, lost answers, and mistakes that must be noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from unittest.mock import patch

import pytest

from custody.errors import CustodyError, StorageError
from custody.flow.content import ClaimPlaces, ResourceClaim, handed_claims
from custody.flow.content.handed_claims import HandedClaims, HandedPiece
from custody.store import ObjectData
from custody.store.local import LocalStore
from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.crash.disk_bugs import puts_never_synced
from tests.crash.enumeration import Scenario, enumerate_crashes, run_to
from tests.crash.handed_contents_scenarios import (
    HANDED,
    DroppingHandedContents,
    HandedContents,
    HandingContentsOver,
    at,
    hand_over,
    new_disk,
)
from tests.crash.interleaving import Times, Work, play
from tests.crash.memory_repository import NOW_MS
from tests.parts import Part


@pytest.mark.in_parts
@pytest.mark.parametrize("scenario", [HandingContentsOver, DroppingHandedContents])
def test_a_crash_at_any_operation_loses_no_content_and_leaves_none(
    scenario: Callable[[], Scenario[HandedContents]], part: Part
) -> None:
    _, _, error = run_to(scenario())
    assert error is None
    modes = tuple(CrashMode) if part.number is None else (CrashMode.SYNCED_ONLY,)
    outcome = enumerate_crashes(scenario(), modes=modes, seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 50


@contextmanager
def manifest_first() -> Iterator[None]:
    """The manifest is put before the pieces, and believed: a crash in between declares what is not there."""
    right = HandedClaims.put

    def wrong(self: HandedClaims, *arguments: Any) -> int:
        with patch.object(HandedClaims, "_put_piece", _only_digest):
            right(self, *arguments)
        return right(self, *arguments)

    believed = property(lambda self: max(self.manifests, default=None))
    with patch.object(HandedClaims, "put", wrong), patch.object(handed_claims.StoredClaim, "bytes", believed):
        yield


def _only_digest(_: object, key: str, data: bytes) -> HandedPiece:
    return HandedPiece(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def not_synced() -> AbstractContextManager[object]:
    """Objects are written and never synced: a power loss takes what was declared safe."""
    return puts_never_synced("/content-handoff/")


def forgotten_on_disks_alone() -> AbstractContextManager[object]:
    """What expired goes from the disks, and stays in the store."""
    return patch.object(HandedClaims, "remove", lambda self, resources: 0)


def removed_with_their_section() -> AbstractContextManager[object]:
    """With one content of a writer all of the writer go from the store, those of a held event too."""

    def wrong(self: ClaimPlaces, resources: Iterable[ResourceClaim]) -> None:
        assert self.handed is not None
        chosen = list(resources)
        right(self, chosen)
        self.handed.remove(self.handed.listed("main") if chosen else [])

    right = ClaimPlaces.remove
    return patch.object(ClaimPlaces, "remove", wrong)


def manifest_last_to_go() -> AbstractContextManager[object]:
    """Pieces are removed, and then not their manifest: what was forgotten is still declared."""

    def wrong(self: HandedClaims, resource: ResourceClaim) -> int:
        for info in list(self._store.list(handed_claims._prefix(resource))):
            if not info.key.endswith("/manifest"):
                self._store.delete(info.key)
        return 0

    return patch.object(HandedClaims, "_remove", wrong)


@pytest.mark.parametrize(
    ("scenario", "bug"),
    [
        (HandingContentsOver, manifest_first),
        (HandingContentsOver, not_synced),
        (DroppingHandedContents, forgotten_on_disks_alone),
        (DroppingHandedContents, removed_with_their_section),
        (DroppingHandedContents, manifest_last_to_go),
    ],
)
def test_a_seeded_bug_is_found(
    scenario: Callable[[], Scenario[HandedContents]], bug: Callable[[], AbstractContextManager[object]]
) -> None:
    built = scenario()
    with bug():
        outcome = enumerate_crashes(built, modes=[CrashMode.SYNCED_ONLY], seeds=1, first_alarm_only=True)
    assert CrashMode.SYNCED_ONLY in outcome.alarms


class LostAnswers(LocalStore):
    """A store that does one put or deletion and then says that it failed."""

    is_remote = True
    done = 0
    lost_at = 0

    def put_if_absent(self, key: str, data: ObjectData) -> bool:
        written = super().put_if_absent(key, data)
        self._lose(key)
        return written

    def delete(self, key: str) -> None:
        super().delete(key)
        self._lose(key)

    def _lose(self, key: str) -> None:
        LostAnswers.done += 1
        if LostAnswers.done == LostAnswers.lost_at:
            raise StorageError(f"{key}: no answer")


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody.store.conditional_put.pause_between_tries", lambda _: None)
    monkeypatch.setattr(handed_claims, "open_store", lambda location, fs, root, **_: LostAnswers(fs, HANDED.store))


@pytest.mark.usefixtures("lossy")
@pytest.mark.parametrize("lost_at", range(1, 7))  # a piece and a manifest of each of three claims
def test_a_put_whose_answer_was_lost_is_recognised(lost_at: int) -> None:
    fs, record = new_disk(), HandedContents()
    with at(fs).writer() as writer:
        for size in (40, 8000, 8000):
            record.store(writer, size)
    LostAnswers.done, LostAnswers.lost_at = 0, lost_at
    hand_over(fs, record)
    assert LostAnswers.done == 6
    HandingContentsOver().check(fs, record)


@pytest.mark.usefixtures("lossy")
@pytest.mark.parametrize("lost_at", [1, 2])  # the manifest and the piece of the claim that goes
def test_a_deletion_whose_answer_was_lost_is_done_again(lost_at: int) -> None:
    LostAnswers.done, LostAnswers.lost_at = 0, 0
    scenario = DroppingHandedContents()
    fs, record = scenario.start(), scenario.new_record()
    LostAnswers.done, LostAnswers.lost_at = 0, lost_at
    with suppress(StorageError):
        scenario.run(fs, record)
    LostAnswers.lost_at = 0
    scenario.run(fs, record)
    scenario.check(fs, record)
    assert LostAnswers.done >= 2


@pytest.mark.in_parts
def test_a_hand_over_that_goes_on_when_another_one_is_done_and_contents_have_gone_does_no_harm(part: Part) -> None:
    def world() -> tuple[MemoryFileSystem, HandedContents]:
        fs, record = new_disk(), HandedContents()
        with at(fs).writer() as writer:
            for size in (40, 8000):
                record.store(writer, size)
        return fs, record

    def others(fs: FileSystem) -> None:
        at(fs).hand_over_contents()
        [large] = [item for item in at(fs).contents() if item.bytes > 8000]
        places = ClaimPlaces(fs, HANDED.content_store)
        places.remove([item for item, _ in places.listed("main") if large.claim.endswith(item.identifier)])

    disk, _ = world()
    steps = len(play(disk, Times(NOW_MS), {"paused": lambda fs: at(fs).hand_over_contents()}, []).operations["paused"])
    assert steps > 20
    for step in part.of("paused hand-over of contents", steps, 8):
        disk, record = world()
        actors: dict[str, Work] = {"paused": lambda fs: at(fs).hand_over_contents(), "others": others}
        played = play(disk, Times(NOW_MS), actors, [("paused", step), ("others", None)])
        errors = [error for error in played.errors.values() if not isinstance(error, CustodyError)]
        assert not errors, f"stopped at {step}: {errors}"
        # What was put behind the removal is listed, so that the next pass takes it away.
        places = ClaimPlaces(disk, HANDED.content_store)
        places.remove([item for item, _ in places.listed("main") if not places.is_on_disk(item)])
        at(disk).hand_over_contents()
        assert {item.place for item in at(disk).contents()} == {"both"}, f"stopped at {step}"
        small = min(record.contents)
        assert at(disk).content(at(disk).get(small)).read() == record.contents[small]
