"""Events that lineages met are kept: read once, within a bound, and never given out when they were forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from custody.eventlog import EventLog
from custody.lineage import Lineage
from custody.read.cache import caches_of
from custody.repository import Repository
from custody.repository.soft_delete import EventSelection
from tests.support import append, event, run_steps

FAMILY = ("parent", "child")
EVENTS = [
    event(0, event_type="RECEIVE", flowfile_uuid="parent"),
    event(1, event_type="FORK", flowfile_uuid="parent", parent_uuids=("parent",), child_uuids=("child",)),
    *(event(number) for number in range(2, 300)),
    event(300, event_type="SEND", flowfile_uuid="child"),
    event(301, event_type="DROP", flowfile_uuid="parent"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two logs of several blocks, the lineage in both."""
    Repository.create(tmp_path / "demo")
    (tmp_path / "demo" / "custody.toml").write_text("[eventlog]\nblock_bytes_max = 20000\n")
    repository = Repository.open(tmp_path / "demo")
    for part in (EVENTS[:150], EVENTS[150:]):
        append(repository, part)
        run_steps(repository.settings)
    return tmp_path / "demo"


def ids_of(lineage: Lineage) -> list[int]:
    return sorted(one.event_id for node in lineage.nodes.values() for one in node.events)


def test_a_lineage_that_was_asked_before_reads_no_log(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository.open(root)
    first = repository.lineage(["parent"])
    assert ids_of(first) == [0, 1, 300, 301]

    def refuse(*_: object) -> None:
        raise AssertionError("a log was read")

    monkeypatch.setattr(EventLog, "rows", refuse)
    assert repository.lineage(["parent"]) == first
    assert replace(repository.lineage(["child"]), starts=first.starts) == first
    with pytest.raises(AssertionError, match="a log was read"):
        repository.get(5)


def test_an_event_that_was_forgotten_since_is_not_given_out(root: Path) -> None:
    repository = Repository.open(root)
    assert ids_of(repository.lineage(["parent"])) == [0, 1, 300, 301]
    Repository.open(root).forget(EventSelection(event_ids=(300,)), "asked for")
    assert ids_of(repository.lineage(["parent"])) == [0, 1, 301]
    assert ids_of(repository.lineage(["parent"])) == [0, 1, 301]


def test_nothing_is_kept_beyond_the_bound(root: Path) -> None:
    (root / "custody.toml").write_text("[eventlog]\nblock_bytes_max = 20000\n[query]\ncache_bytes = 0\n")
    repository = Repository.open(root)
    for _ in range(2):
        assert ids_of(repository.lineage(["parent"])) == [0, 1, 300, 301]
    cache = caches_of(repository.workspace()).events._cache
    assert (len(cache), cache.cost_max) == (0, 0)


def test_both_caches_together_have_the_size_of_the_setting(root: Path) -> None:
    caches = caches_of(Repository.open(root).workspace())
    size = Repository.open(root).settings.query.cache_bytes
    assert caches.events._cache.cost_max + caches.decoded.cost_max == size
