"""Search at an earlier revision or time, over writers, without the events that were forgotten since."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from custody.catalog import PrunedError, prune
from custody.cli.main import cli
from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import ConfigurationError, InvalidInputError, NotFoundError
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

    def advance(self, by: timedelta) -> None:
        """Set the clock of who commits."""
        self._clock.advance(by // timedelta(milliseconds=1))

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


@pytest.mark.parametrize(("revision", "end"), [(0, 100), (1, 200), (2, 300)])
def test_every_way_to_read_answers_as_of_a_revision(commits: Commits, revision: int, end: int) -> None:
    found = commits.repository
    for as_of in (revision, BEGIN + revision * HOUR):
        assert [item.event_id for item in found.events(0, 1000, as_of=as_of)] == list(range(end))
        assert [item.event_id for item in found.events(end - 3, 2, as_of=as_of)] == [end - 3, end - 2]
        assert found.get(end - 1, as_of=as_of).flowfile_uuid == EVENTS[end - 1].flowfile_uuid
        with pytest.raises(NotFoundError, match=rf"has no event {end} that was live as of"):
            found.get(end, as_of=as_of)
        assert [item.event_id for item in found.get_many([0, end - 1, end, 301], as_of=as_of)] == [0, end - 1]
        with found.sql("select count(*), max(event_id) from events", as_of=as_of) as result:
            assert [row for batch in result.batches() for row in batch.to_pylist()] == [
                {"count_star()": end, "max(event_id)": end - 1}
            ]
        with found.sql(
            "select (select count(*) from logs) l, (select max(revision) from transactions) t", as_of=as_of
        ) as r:
            assert [row for batch in r.batches() for row in batch.to_pylist()] == [{"l": revision + 1, "t": revision}]


def test_every_way_to_read_knows_nothing_before_the_first_commit(commits: Commits) -> None:
    found, before = commits.repository, BEGIN - HOUR
    assert list(found.events(as_of=before)) == []
    with found.sql("select count(*) n from events", as_of=before) as result:
        assert [row for batch in result.batches() for row in batch.to_pylist()] == [{"n": 0}]
    with pytest.raises(NotFoundError):
        found.get(0, as_of=before)


def test_a_lineage_of_then_lacks_what_came_later_and_what_was_forgotten_since(tmp_path: Path) -> None:
    commits = Commits(tmp_path / "demo")
    found = commits.repository
    parent, child, grandchild = (f"00000000-0000-4000-8000-00000000000{n}" for n in range(3))
    steps = [(parent, (), "CREATE"), (child, (parent,), "FORK"), (grandchild, (child,), "FORK")]
    for number, (uuid, parents, kind) in enumerate(steps):
        values = {"parent_uuids": parents, "child_uuids": (uuid,)} if parents else {}
        source = parents[0] if parents else uuid
        append(found, [event(number, flowfile_uuid=source, event_type=kind, **values)])
        commits.commit()
    assert set(found.lineage([parent]).nodes) == {parent, child, grandchild}
    for as_of in (1, BEGIN + HOUR):
        assert set(found.lineage([parent], as_of=as_of).nodes) == {parent, child}
        assert set(found.expand(1, "children", as_of=as_of).nodes) >= {child}
    with pytest.raises(NotFoundError):
        found.lineage([grandchild], as_of=1)
    with pytest.raises(NotFoundError):
        found.expand(2, "children", as_of=1)
    found.forget(EventSelection(event_ids=(0,)), "asked for")
    ids_then = {item.event_id for node in found.lineage([child], as_of=1).nodes.values() for item in node.events}
    assert ids_then == {1}


def test_a_revision_of_several_writers_needs_its_writer_in_sql_and_lineage(commits: Commits) -> None:
    append(commits.as_writer("edge"), [event(7000, event_time=1)])
    commits.commit()
    found = Repository.open(commits.settings.root)
    with pytest.raises(ConfigurationError, match="name the writer"):
        found.sql("select 1", as_of=0)
    with pytest.raises(ConfigurationError, match="name the writer"):
        found.lineage([EVENTS[0].flowfile_uuid], as_of=0)
    with found.sql("select distinct writer from events", as_of=0, writer="edge") as result:
        assert [row for batch in result.batches() for row in batch.to_pylist()] == [{"writer": "edge"}]
    assert found.lineage([EVENTS[0].flowfile_uuid], as_of=0, writer="main").events > 0


def test_the_commands_take_a_revision_or_a_time(commits: Commits) -> None:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["-r", str(commits.settings.root), *arguments])

    assert json.loads(run("event", "99", "--as-of", "0", "--json").stdout)["event_id"] == 99
    assert run("event", "100", "--as-of", "0").exit_code == NotFoundError.exit_code
    listed = run("events", "--count", "500", "--as-of", "2026-05-01T01:00:00", "--json").stdout.splitlines()
    assert len(listed) == 200
    rows = run("sql", "select count(*) n from events", "--as-of", "1", "--json").stdout
    assert json.loads(rows) == {"n": 200}
    uuid = EVENTS[250].flowfile_uuid
    assert run("lineage", uuid, "--as-of", "2").exit_code == 0
    assert run("lineage", "250", "--as-of", "0").exit_code == NotFoundError.exit_code
    assert run("content", "get", "250", "--as-of", "0").exit_code == NotFoundError.exit_code
    assert "live as of 0" in run("content", "get", "250", "--as-of", "0").stderr
    assert run("events", "--as-of", "someday").exit_code == InvalidInputError.exit_code


def test_a_commit_by_a_clock_that_was_ahead_is_noticed_and_named(tmp_path: Path) -> None:
    commits = Commits(tmp_path / "demo")
    for first, end in COMMITS:
        append(commits.repository, EVENTS[first:end])
        # The second commit is stamped a year ahead, and so is the one after it.
        commits.advance(timedelta(days=365) if first == 100 else timedelta())
        commits.commit()
        commits.advance(-timedelta(days=365) if first == 100 else timedelta())
    opened = commits.repository
    asked = BEGIN + 3 * HOUR
    for answer in (opened.search("", as_of=asked), opened.search("", as_of=asked + timedelta(days=100))):
        assert answer.total == 100
        assert "revisions 1 to 2 had been committed by then" in "".join(answer.notices)
    assert opened.search("", as_of=2, writer="main").notices == ()
    assert opened.search("").notices == ()
    assert opened.search("", as_of=BEGIN + timedelta(days=366)).notices == ()
    done = CliRunner().invoke(cli, ["-r", str(opened.settings.root), "status"])
    assert "revisions 1 to 2" in done.stderr.replace("\n", " ")
    done = CliRunner().invoke(cli, ["-r", str(opened.settings.root), "verify"])
    assert (done.exit_code, "catalog-clocks" in done.stdout) == (0, True)
    done = CliRunner().invoke(cli, ["-r", str(opened.settings.root), "catalog", "at", "2026-05-01T03:00"])
    assert "revisions 1 to 2" in done.stderr.replace("\n", " ")
