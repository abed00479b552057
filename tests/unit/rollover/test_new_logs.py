"""New logs: each event is announced once, whatever else happens to the catalogs in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.catalog import prune
from custody.config import Settings
from custody.repository import Repository
from custody.rollover import NewLogs, new_logs_since
from tests.support import append, event, run_steps


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.create(tmp_path / "repository")


def live(repository: Repository, first: int, count: int) -> None:
    append(repository, [event(number) for number in range(first, first + count)])
    run_steps(repository.settings)


def told(repository: Repository, before: NewLogs | None = None) -> NewLogs | None:
    return new_logs_since(repository.settings, {} if before is None else before.revisions)


def test_new_logs_are_announced_once(repository: Repository) -> None:
    assert told(repository) is None
    live(repository, 0, 5)
    first = told(repository)
    assert first is not None
    assert (first.files, first.events, first.since, first.repository) == (1, 5, {}, str(repository.settings.root))
    assert first.revisions == {"main": repository.workspace().catalog.load().revision}
    assert first.bytes == sum(path.stat().st_size for path in repository.settings.store.rglob("*.parquet"))
    assert told(repository, first) is None
    live(repository, 5, 2)
    live(repository, 7, 1)
    both = told(repository, first)
    assert both is not None
    assert (both.files, both.events, both.since) == (2, 3, first.revisions)
    assert told(repository, both) is None


def test_events_that_wait_in_journals_are_not_announced(repository: Repository) -> None:
    append(repository, [event()])
    run_steps(repository.settings, "rollover", "compress", "index")
    assert told(repository) is None
    run_steps(repository.settings, "commit")
    assert told(repository) is not None


def test_a_compaction_and_a_checkpoint_make_no_news_and_hide_none(repository: Repository) -> None:
    live(repository, 0, 3)
    first = told(repository)
    live(repository, 3, 4)
    repository.compact()
    repository.workspace().catalog.checkpoint()
    assert len(repository.workspace().catalog.load().files) == 1
    news = told(repository, first)
    assert news is not None
    assert (news.files, news.events) == (1, 4)
    later = repository.workspace().catalog.load().revision
    assert news.revisions == {"main": later}
    assert told(repository, news) is None


def test_everything_live_is_announced_where_the_past_was_pruned(repository: Repository) -> None:
    for start in range(0, 12, 2):
        live(repository, start, 2)
        repository.workspace().catalog.checkpoint()
    catalog = repository.workspace().catalog
    prune(catalog, catalog.load().revision)
    assert catalog.load().floor > 1
    news = new_logs_since(repository.settings, {"main": 0})
    assert news is not None
    assert (news.files, news.events) == (6, 12)


def test_a_catalog_that_is_shorter_than_it_was_is_announced_as_a_whole(repository: Repository) -> None:
    live(repository, 0, 2)
    news = new_logs_since(repository.settings, {"main": 1000, "gone": 5})
    assert news is not None
    assert news.events == 2


def test_each_writer_has_revisions_of_its_own(tmp_path: Path) -> None:
    root = Repository.create(tmp_path / "repository").settings.root
    for writer in ("east", "west"):
        live(Repository(Settings.model_validate({"root": root, "repository": {"writer": writer}})), 0, 2)
    repository = Repository.open(root)
    first = told(repository)
    assert first is not None
    assert (set(first.revisions), first.events) == ({"east", "west"}, 4)
    live(Repository(Settings.model_validate({"root": root, "repository": {"writer": "west"}})), 2, 1)
    second = told(repository, first)
    assert second is not None
    assert (second.events, second.revisions["east"]) == (1, first.revisions["east"])
