"""Builds of software tables that were replaced go after the grace, or when the limit needs their room."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from custody.catalog import PrunedError
from custody.clock import ManualClock
from custody.config import Settings
from custody.retention import RETENTION_STEPS, measure_disk
from custody.retention.swh_builds import former_builds, remove_former
from custody.swh import ProvenanceDatabase
from custody.swh.build import STEPS, Build, BuildDescription
from custody.swh.publishing import database_catalog, database_folder, publish, published_state
from custody.vfs import PosixFileSystem
from custody.workspace import Unit, Workspace
from tests.swh.database import publish_reference, swhid
from tests.swh.graphs import Shape, random_graph
from tests.swh.reference import Reference

DAY_MS = 86_400_000
GRAPH = random_graph(Shape(5, 20, 15, 8, 2, 2, 3, 20, 0.1))


def settings_at(root: Path, **retention: Any) -> Settings:
    return Settings.model_validate({"root": root, "retention": {"grace": "7 days", **retention}})


@pytest.fixture
def published(tmp_path: Path) -> Settings:
    """Three builds, each in the place of the one before."""
    settings = settings_at(tmp_path)
    for name in ("one", "two", "three"):
        publish_reference(settings, name, Reference(GRAPH, "all"), "all")
    return settings


def names(settings: Settings) -> list[str]:
    return sorted(path.name for path in (database_folder(settings) / "builds").iterdir())


def test_what_was_replaced_stays_for_the_grace_and_then_goes_with_its_revisions(published: Settings) -> None:
    fs = PosixFileSystem()
    clock = clock_after(published, days=6)
    assert former_builds(published, fs, clock, needs_room=False) == []
    assert remove_former(published, fs, clock, needs_room=False) == (0, 0)
    assert published_state(database_catalog(published, fs, clock), 0).files
    clock = clock_after(published, days=8)
    count, size = remove_former(published, fs, clock, needs_room=False)
    assert count == 2
    assert size > 10_000
    assert names(published) == ["three"]
    catalog = database_catalog(published, fs, clock)
    for revision in (0, 1):
        with pytest.raises(PrunedError):
            published_state(catalog, revision)
    database = ProvenanceDatabase.open(fs, catalog.objects.files, published_state(catalog))
    reference = Reference(GRAPH, "all")
    node, held = next(iter(reference.holding().items()))
    assert database.whereis(swhid(reference, node)).author_date == held[0][0]
    assert remove_former(published, fs, clock, needs_room=False) == (0, 0)


def test_room_that_the_limit_needs_is_taken_without_a_grace_but_never_from_what_is_live_or_goes_on(
    published: Settings,
) -> None:
    fs, clock = PosixFileSystem(), clock_after(published, days=0)
    begun = Build.begin(
        fs, database_folder(published), "begun", BuildDescription(graph="/g", fingerprint="f", node_filter="all")
    )
    begun.attempt(STEPS[0])
    assert remove_former(published, fs, clock, needs_room=True)[0] == 2
    assert names(published) == ["begun", "three"]


def test_a_build_that_was_given_up_goes_when_nothing_touched_it_for_the_grace(published: Settings) -> None:
    fs = PosixFileSystem()
    description = BuildDescription(graph="/g", fingerprint="f", node_filter="all")
    for name in ("old", "new"):
        Build.begin(fs, database_folder(published), name, description)
    clock = clock_after(published, days=0)
    old = (clock.now_ms() - 8 * DAY_MS) / 1000
    os.utime(database_folder(published) / "builds" / "old" / "build.json", (old, old))
    assert [path.name for path in former_builds(published, fs, clock, needs_room=False)] == ["old"]


def test_an_earlier_build_that_is_published_again_is_live(published: Settings) -> None:
    fs, clock = PosixFileSystem(), clock_after(published, days=8)
    publish(database_catalog(published, fs, clock), Build.open(fs, database_folder(published), "one"))
    remove_former(published, fs, clock_after(published, days=30), needs_room=False)
    assert names(published) == ["one"]


def test_the_collection_of_garbage_takes_builds_along_when_the_repository_is_over_its_limit(
    published: Settings,
) -> None:
    fs, clock = PosixFileSystem(), clock_after(published, days=0)
    use = measure_disk(published, fs)
    assert use.kinds["software"] > 0.9 * use.total_bytes
    step = RETENTION_STEPS["retention_collect_garbage"]
    writer = published.repository.writer
    roomy = Workspace(published, writer, fs, clock)
    assert list(step.waiting(roomy)) == []
    (published.store / "filling").write_bytes(bytes(400_000))
    tight = settings_at(published.root, bytes_max=1 << 20)
    workspace = Workspace(tight, writer, fs, clock)
    assert list(step.waiting(workspace)) == [Unit(writer)]
    report = step.run(workspace, Unit(writer))
    assert report.note is not None
    assert report.note.endswith("2 builds of software tables removed")
    assert measure_disk(tight, fs).kinds["software"] < use.kinds["software"] * 0.6
    assert names(published) == ["three"]


def clock_after(settings: Settings, *, days: float) -> ManualClock:
    """A clock so long after the last build was published."""
    fs = PosixFileSystem()
    newest = max(
        transaction.commit_time_ms for transaction in database_catalog(settings, fs, ManualClock(0)).timeline()
    )
    return ManualClock(newest + int(days * DAY_MS) + 1)
