"""What was handed over is verified: a manifest or a journal with other bytes is named, and the walk goes on."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from custody.clock import SystemClock
from custody.config import Settings
from custody.maintenance.findings import Level
from custody.maintenance.verification import verify_repository
from custody.repository import Repository
from custody.serving.repository_measures import RepositoryMeasures
from custody.store import ObjectStore
from custody.vfs import PosixFileSystem
from tests.support import append, run_steps, sample


@pytest.fixture(params=["folder", "memory"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Repository:
    """Two groups are handed over, and a third one is not."""
    store = "store" if request.param == "folder" else f"memory://{uuid4().hex}"
    settings = {"root": tmp_path, "repository": {"store": store}, "journal": {"handoff": "store"}}
    opened = Repository(Settings.model_validate(settings))
    for start in (0, 10):
        append(opened, sample(20)[start : start + 10])
    opened.hand_over()
    append(opened, sample(5))
    return opened


def store_of(repository: Repository) -> ObjectStore:
    return repository.workspace().catalog.objects.store


def keys(repository: Repository, *, manifests: bool) -> list[str]:
    found = store_of(repository).keys("main/provenance/handoff/")
    return [key for key in found if key.endswith("/manifest") == manifests]


def kinds(repository: Repository, level: Level = Level.DEFAULT) -> list[str]:
    fresh = Repository(repository.settings)
    report = verify_repository(fresh.workspaces(), fresh.settings, PosixFileSystem(), level)
    return [item.kind for item in report.findings if item.kind.startswith("handoff")]


def changed(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


def test_what_is_whole_gives_no_finding_and_the_rest_is_counted(repository: Repository) -> None:
    assert kinds(repository) == []
    measures = RepositoryMeasures(repository, PosixFileSystem(), SystemClock())()
    counts = {measure.name: measure.value for measure in measures}
    assert (counts["groups_not_handed_over"], counts["events_not_handed_over"]) == (1, 5)
    repository.hand_over()
    measures = RepositoryMeasures(repository, PosixFileSystem(), SystemClock())()
    assert {measure.name: measure.value for measure in measures}["groups_not_handed_over"] == 0


def test_a_journal_with_other_bytes_is_named_by_its_digest_and_one_that_is_cut_or_gone_by_its_size(
    repository: Repository,
) -> None:
    store, [key, *_] = store_of(repository), keys(repository, manifests=False)
    good = store.get(key)
    store.put(key, changed(good))
    assert (kinds(repository, Level.QUICK), kinds(repository)) == ([], ["handoff-damaged"])
    store.put(key, good[:-1])
    assert kinds(repository, Level.QUICK) == ["handoff-damaged"]
    store.delete(key)
    assert (kinds(repository, Level.QUICK), kinds(repository)) == (["handoff-damaged"], ["handoff-damaged"])
    store.put(key, good)
    assert kinds(repository) == []


def test_a_manifest_that_is_damaged_is_named_and_the_walk_goes_on(repository: Repository) -> None:
    store, [key, other] = store_of(repository), keys(repository, manifests=True)
    store.put(key, changed(store.get(key)))
    assert kinds(repository, Level.QUICK) == ["handoff-damaged"]
    store.delete(other)
    assert sorted(kinds(repository)) == ["handoff-damaged", "handoff-unfinished"]
    # The remedy that the finding names.
    store.delete(key)
    assert len(repository.hand_over()) == 3
    assert kinds(repository) == []


def test_what_is_live_is_no_part_of_the_check(repository: Repository) -> None:
    store = store_of(repository)
    kept = {key: store.get(key) for key in store.keys("main/provenance/handoff/")}
    run_steps(repository.settings)
    assert kinds(repository) == []
    # As a hand-over leaves it that goes on after the pass.
    for key, data in kept.items():
        store.put(key, data[:-1])
    assert kinds(repository) == []


def test_a_repository_that_hands_nothing_over_has_no_such_numbers(tmp_path: Path) -> None:
    measures = RepositoryMeasures(Repository.create(tmp_path / "plain"), PosixFileSystem(), SystemClock())()
    assert not [measure.name for measure in measures if "handed" in measure.name]
