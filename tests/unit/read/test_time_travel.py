"""Search at an earlier revision or time, over writers, without the events that were forgotten since."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from custody.catalog import PrunedError, prune
from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import ConfigurationError, NotFoundError
from custody.repository import EventSelection, Repository
from custody.rollover import STEPS
from custody.workspace import Workspace
from tests.support import append, event, sample

EVENTS = sample(300)
COMMITS = [(0, 100), (100, 200), (200, 300)]
BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Commits:
    """A repository whose commits lie an hour apart."""

    def __init__(self, root: Path, writer: str = "main") -> None:
        self._clock = ManualClock(int(BEGIN.timestamp() * 1000))
        self.repository = Repository.create(root)
        self.settings = self.repository.settings

    def commit(self, writer: str = "main") -> None:
        """Make what waits live; then an hour goes by."""
        for step in STEPS.values():
            for unit in step.units(self.settings):
                step.run(Workspace(self.settings, unit.writer, None, self._clock), unit)
        self._clock.advance(3_600_000)

    def as_writer(self, name: str) -> Repository:
        """The repository as another node opens it."""
        settings = {**self.settings.model_dump(), "root": self.settings.root, "repository": {"writer": name}}
        return Repository(Settings.model_validate(settings))


@pytest.fixture
def commits(tmp_path: Path) -> Commits:
    """Three revisions, and events that wait in a journal."""
    found = Commits(tmp_path / "demo")
    for first, end in COMMITS:
        append(found.repository, EVENTS[first:end])
        found.commit()
    append(found.repository, [event(9000), event(9001)])
    return found


def ids(repository: Repository, text: str = "", **options: object) -> list[int]:
    result = repository.search(text, **options)  # type: ignore[arg-type]
    assert result.total == len(result.events)
    return [stored.event.event_id for stored in result.events]


@pytest.mark.parametrize(("revision", "end"), [(0, 100), (1, 200), (2, 300)])
def test_a_revision_has_the_events_that_were_live_then(commits: Commits, revision: int, end: int) -> None:
    found = commits.repository
    assert ids(found, as_of=revision) == list(range(end - 1, -1, -1))
    moment = BEGIN + revision * HOUR
    for time in (moment, moment + HOUR - timedelta(milliseconds=1), moment.replace(tzinfo=None)):
        assert ids(found, as_of=time) == list(range(end - 1, -1, -1))
    routes = [n for n in range(end) if EVENTS[n].event_type == "ROUTE"]
    assert ids(found, "event_type:ROUTE", as_of=revision, oldest_first=True) == routes
    assert found.facets("", as_of=revision)[0] == {
        "event_type": Counter(item.event_type.lower() for item in EVENTS[:end])
    }
    assert len(ids(found)) == 302


def test_before_the_first_commit_there_was_nothing(commits: Commits) -> None:
    assert ids(commits.repository, as_of=BEGIN - HOUR) == []
    assert ids(Repository.create(commits.settings.root.parent / "empty"), as_of=BEGIN) == []


def test_pages_of_the_past_join_to_the_whole_while_events_become_live(commits: Commits) -> None:
    found: list[int] = []
    cursor = None
    while True:
        page = commits.repository.search("", limit=60, as_of=1, cursor=cursor)
        found += [stored.event.event_id for stored in page.events]
        cursor = page.cursor
        if cursor is None:
            break
        append(commits.repository, [event(5000 + len(found))])
        commits.commit()
    assert found == list(range(199, -1, -1))


def test_events_forgotten_since_stay_forgotten_also_when_they_were_erased(commits: Commits) -> None:
    found = commits.repository
    commits.commit()
    gone = {3, 150}
    found.forget(EventSelection(event_ids=tuple(gone)), "asked for")
    expected = [number for number in range(199, -1, -1) if number not in gone]
    assert ids(found, as_of=1) == expected
    assert [report.error for report in found.compact()] == [None] * 2
    again = Repository.open(commits.settings.root)
    assert ids(again, as_of=1) == expected
    assert again.search("", as_of=1).notices  # the shards of then are gone, their logs are read
    assert len(ids(again)) == 300


def test_a_log_that_is_gone_since_is_named_and_its_events_are_not_counted(commits: Commits) -> None:
    log = min((commits.settings.root / "store").rglob("*.parquet"))
    commits.repository.compact()
    log.unlink()
    result = Repository.open(commits.settings.root).search("", as_of=1)
    assert [stored.event.event_id for stored in result.events] == list(range(199, 99, -1))
    assert result.total == 100
    assert any(log.name in notice and "0 to 99" in notice for notice in result.notices)


def test_a_revision_that_is_not_there_or_not_kept_is_an_error(commits: Commits) -> None:
    for revision in (7, 3):
        with pytest.raises(NotFoundError, match=f"no revision {revision}"):
            commits.repository.search("", as_of=revision)
    catalog = Workspace(commits.settings, "main").catalog
    for number in range(4):
        append(commits.repository, [event(number)])
        commits.commit()
        catalog.checkpoint()
    assert prune(catalog, 4).floor > 0
    found = Repository.open(commits.settings.root)
    for past in (0, BEGIN):
        with pytest.raises(PrunedError):
            found.search("", as_of=past)


def test_each_writer_has_the_revisions_of_its_own(commits: Commits) -> None:
    other = commits.as_writer("edge")
    append(other, [event(7000, event_time=1), event(7001)])
    commits.commit()
    found = Repository.open(commits.settings.root)
    with pytest.raises(ConfigurationError, match="name the writer"):
        found.search("", as_of=0)
    assert ids(found, writer="edge", as_of=0) == [1, 0]
    assert ids(found, writer="main", as_of=0) == list(range(99, -1, -1))
    assert found.search("", as_of=BEGIN + 2 * HOUR).total == 300
    late = found.search("", as_of=BEGIN + 4 * HOUR)
    assert late.total == 304
    assert {stored.writer for stored in late.events} == {"main", "edge"}
    assert ids(found, writer="edge") == [1, 0]


def test_a_shard_of_then_that_was_lost_is_answered_from_its_log(commits: Commits) -> None:
    shutil.rmtree(min((commits.settings.containers[0] / "main/index").iterdir()))
    found = Repository.open(commits.settings.root)
    assert ids(found, "event_type:ROUTE", as_of=1) == [n for n in range(199, -1, -1) if EVENTS[n].event_type == "ROUTE"]
    assert found.search("", as_of=1).notices
