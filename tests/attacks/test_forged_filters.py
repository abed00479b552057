"""Who can write to the containers rewrites filters with right checksums, so that searches pass shards over."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.config import load_settings
from custody.index import FilterFile, ShardFilter, write_filter_file
from custody.repository import Repository
from custody.rollover.keeping_filters import keep_filters
from custody.vfs import PosixFileSystem
from tests.attacks.attacker import build, findings, run

FS = PosixFileSystem()
SHARDS = 8


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Eight shards of five events each, and one file with all their filters."""
    repository = build(tmp_path / "repository", passes=SHARDS, events=5)
    assert keep_filters(repository.workspace()) == SHARDS
    return tmp_path / "repository"


def kept(root: Path) -> tuple[Path, list[ShardFilter]]:
    [path] = root.glob("**/main/filters/*.filters")
    file = FilterFile(FS, path)
    return path, list(file.filters(file.names))


def rewrite(path: Path, filters: list[ShardFilter]) -> None:
    path.unlink()
    write_filter_file(FS, path, filters)


def total(root: Path, text: str) -> int | None:
    return Repository(load_settings(root)).search(text, limit=1).total


def test_filters_that_lack_terms_are_named(root: Path) -> None:
    text = "flowfile_uuid:00000000-0000-4000-8000-000000000003"
    path, filters = kept(root)
    assert (total(root, text), findings(root)) == (1, set())
    empty = [
        ShardFilter(each.name, each.digest, each.bounds, each.kind, each.blocks * 0, dict(each.counts))
        for each in filters
    ]
    rewrite(path, empty)
    assert total(root, text) == 0, "the attack works: an event is not found"
    assert findings(root) == {"filters-damaged"}


def test_numbers_of_events_that_are_less_are_named(root: Path) -> None:
    path, filters = kept(root)
    less = [
        ShardFilter(each.name, each.digest, each.bounds, each.kind, each.blocks, dict.fromkeys(each.counts, 1))
        for each in filters
    ]
    rewrite(path, less)
    assert findings(root) == {"filters-damaged"}


def test_filters_of_shards_that_changed_places_are_named(root: Path) -> None:
    path, filters = kept(root)
    moved = [
        ShardFilter(one.name, other.digest, one.bounds, other.kind, other.blocks, dict(other.counts))
        for one, other in zip(filters, [*filters[1:], filters[0]], strict=True)
    ]
    rewrite(path, moved)
    assert findings(root) == {"filters-damaged"}


def test_a_repair_removes_forged_filters_and_searches_find_all(root: Path) -> None:
    path, filters = kept(root)
    rewrite(
        path, [ShardFilter(each.name, each.digest, each.bounds, each.kind, each.blocks * 0, {}) for each in filters]
    )
    assert run(root, "repair", "--yes").exit_code == 0
    assert not path.exists()
    assert total(root, "event_type:CREATE") == 5 * SHARDS
    assert findings(root) == set()
