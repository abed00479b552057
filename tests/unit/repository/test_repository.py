"""The repository: one view over journals and logs, exact totals, stable pages, whole lineages, a true status."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.clock import ManualClock
from custody.errors import ConfigurationError, CorruptionError, InvalidInputError, NotFoundError
from custody.model import Event
from custody.repository import Repository
from tests.support import append, event, files_below, numbered, run_steps, sample, unnumbered

EVENTS = sample(200)


@pytest.fixture
def mixed(repository: Repository) -> Repository:
    """Two live logs and two groups that wait in journals."""
    append(repository, EVENTS[:60])
    run_steps(repository.settings)
    append(repository, EVENTS[60:100])
    run_steps(repository.settings)
    append(repository, EVENTS[100:150])
    append(repository, EVENTS[150:])
    return repository


def with_writers(repository: Repository, events: dict[str, list[Event]]) -> Repository:
    root = repository.settings.root
    for name, items in events.items():
        (root / "custody.toml").write_text(f'[repository]\nwriter = "{name}"\n')
        append(Repository.open(root), items)
    opened = Repository.open(root)
    run_steps(opened.settings)
    return opened


def page(repository: Repository, limit: int, offset: int, text: str = "") -> list[tuple[str, int]]:
    result = repository.search(text, limit=limit, offset=offset)
    return [(stored.writer, stored.event.event_id) for stored in result.events]


def test_a_created_repository_can_be_opened(tmp_path: Path) -> None:
    Repository.create(tmp_path / "a" / "b")
    assert list(Repository.open(tmp_path / "a" / "b").events()) == []


def test_create_in_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="not empty"):
        Repository.create(tmp_path)
    assert files_below(tmp_path) == {"mine.txt": b"mine"}
    Repository.create(tmp_path / "new")
    with pytest.raises(ConfigurationError, match="already"):
        Repository.create(tmp_path / "new")


def test_open_without_a_repository_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="custody init"):
        Repository.open(tmp_path / "absent")


@pytest.mark.parametrize(("first", "count"), [(0, 1000), (0, 1), (59, 2), (95, 10), (149, 3), (199, 5), (200, 5)])
def test_events_are_read_in_order_over_logs_and_journals(mixed: Repository, first: int, count: int) -> None:
    assert list(mixed.events(first, count)) == numbered(EVENTS)[first : first + count]


def test_reading_no_ids_gives_no_events(mixed: Repository) -> None:
    assert list(mixed.events(0, 0)) == []
    assert list(mixed.events(10**30, 5)) == []
    assert mixed.get_many([]) == []
    with pytest.raises(InvalidInputError, match=r"expected 0 or more, got -1000"):
        mixed.events(-1000, 1000)


def test_get_many_finds_events_wherever_they_are(mixed: Repository) -> None:
    ids = [199, 0, 59, 60, 61, 61, 150, 999, -1, 10**30]
    assert mixed.get_many(ids) == [numbered(EVENTS)[n] for n in (0, 59, 60, 61, 150, 199)]
    assert mixed.get(75) == numbered(EVENTS)[75]
    for absent in (200, -1, 10**30):
        with pytest.raises(NotFoundError, match=f"no event {absent}"):
            mixed.get(absent)


def test_search_finds_an_event_as_soon_as_it_is_acknowledged(mixed: Repository) -> None:
    before = mixed.search("")
    assert (before.total, before.notices) == (200, ())
    run_steps(mixed.settings)
    assert mixed.search("") == before


def test_a_total_counts_all_whatever_the_page_shows(mixed: Repository) -> None:
    run_steps(mixed.settings)
    wanted = [item.event_id for item in numbered(EVENTS) if item.event_type == "DROP"][::-1]
    for limit, offset in [(5, 0), (5, 5), (1000, 0), (1, len(wanted) - 1), (5, len(wanted)), (5, 10_000)]:
        result = mixed.search("event_type:DROP", limit=limit, offset=offset)
        assert result.total == len(wanted)
        assert [item.event.event_id for item in result.events] == wanted[offset : offset + limit]


@pytest.mark.parametrize("limit", [1, 7, 50])
def test_pages_together_are_the_whole_answer(repository: Repository, limit: int) -> None:
    """Times do not follow ids here: nodes report late, and two writers count their own ids."""
    late = [event(n, event_time=1_772_409_600_000 + (n * 7919 % 100) * 1000) for n in range(40)]
    opened = with_writers(repository, {"one": late, "two": late[::-1] + EVENTS[:10]})
    whole = page(opened, 1000, 0)
    assert len(whole) == len(set(whole)) == opened.search("").total == 90
    pages = [item for offset in range(0, 90, limit) for item in page(opened, limit, offset)]
    assert pages == whole


def test_one_search_covers_all_writers_and_keeps_their_ids_apart(repository: Repository) -> None:
    opened = with_writers(repository, {"one": EVENTS[:30], "two": EVENTS[30:50]})
    assert opened.search("").total == 50
    assert unnumbered(opened.events(writer="one")) == EVENTS[:30]
    assert opened.get(3, "two") == numbered(EVENTS[30:])[3]
    with pytest.raises(NotFoundError):
        opened.get(25, "two")
    with pytest.raises(ConfigurationError, match="writer"):
        opened.get(0, "../one")


def test_events_of_several_writers_are_merged_by_their_time(repository: Repository) -> None:
    opened = with_writers(repository, {"one": [event(n) for n in (1, 4, 5)], "two": [event(n) for n in (2, 3, 6)]})
    ordinals = [stored.event.source_ordinal for stored in opened.search("").events]
    assert ordinals == [6, 5, 4, 3, 2, 1]


def test_a_live_log_that_is_lost_is_damage_and_not_an_empty_answer(mixed: Repository, tmp_path: Path) -> None:
    log = next(mixed.settings.store.rglob("00000000000000000060.parquet"))
    log.unlink()
    for question in (
        lambda: mixed.get(70),
        lambda: mixed.get_many([70], strict=True),
        lambda: list(mixed.events(strict=True)),
        lambda: list(mixed.events_between(0, 1 << 60, strict=True)),
    ):
        with pytest.raises(CorruptionError, match=log.name):
            question()
    stream = mixed.events()
    assert list(stream) == numbered(EVENTS)[:60] + numbered(EVENTS)[100:]
    for notices in (stream.notices, mixed.get_many([70, 71]).notices, mixed.search("").notices):
        [notice] = notices
        assert log.name in notice
        assert "events 60 to 99 are lost" in notice
    events = mixed.get_many([0, 59, 150])
    assert events == [numbered(EVENTS)[n] for n in (0, 59, 150)]
    assert events.notices == ()


def test_a_lost_shard_is_named_and_its_logs_answer(mixed: Repository) -> None:
    before = mixed.search("event_type:SEND")
    shard = max((mixed.settings.containers[0] / "main/index").iterdir())
    shard.rename(shard.with_name("elsewhere"))
    assert mixed.search("event_type:SEND") == before  # open already
    result = Repository.open(mixed.settings.root).search("event_type:SEND")
    assert (result.total, result.events) == (before.total, before.events)
    [notice] = result.notices
    assert "40 events were searched without an index" in notice
    assert shard.name in notice


def test_lineage_is_whole_or_says_that_it_was_cut(live: Repository) -> None:
    events = list(live.events(count=10_000))
    join = next(item for item in events if item.event_type == "JOIN")
    connected = {join.flowfile_uuid}
    while True:
        related = [item for item in events if connected & {item.flowfile_uuid, *item.parent_uuids, *item.child_uuids}]
        wider = {uuid for item in related for uuid in (item.flowfile_uuid, *item.parent_uuids, *item.child_uuids)}
        if wider <= connected:
            break
        connected |= wider
    graph = live.lineage([join.flowfile_uuid])
    assert graph.is_complete
    assert graph.events == len(related) > 10
    assert set(graph.nodes) == connected
    assert sorted(item.event_id for node in graph.nodes.values() for item in node.events) == sorted(
        item.event_id for item in related
    )

    tight = Repository(
        live.settings.model_copy(update={"query": live.settings.query.model_copy(update={"lineage_events_max": 5})})
    )
    cut = tight.lineage([join.flowfile_uuid])
    assert (cut.events, cut.is_complete) == (5, False)


def test_lineage_of_an_unknown_flowfile_is_not_found(live: Repository) -> None:
    with pytest.raises(NotFoundError, match="nobody"):
        live.lineage(["nobody"])


def test_lineage_goes_over_the_writers_of_a_cluster(repository: Repository) -> None:
    parent = event(0, flowfile_uuid="parent")
    fork = event(1, event_type="FORK", flowfile_uuid="parent", parent_uuids=("parent",), child_uuids=("child",))
    dropped = event(2, event_type="DROP", flowfile_uuid="child")
    opened = with_writers(repository, {"one": [parent, fork], "two": [dropped]})
    graph = opened.lineage(["child"])
    assert {uuid: node.writers for uuid, node in graph.nodes.items()} == {"parent": ("one", "one"), "child": ("two",)}
    assert graph.events == 3
    tree = CliRunner().invoke(cli, ["--repository", str(opened.settings.root), "lineage", "child"]).stdout
    assert "event 1 of one" in tree
    assert "event 0 of two" in tree


def test_the_status_agrees_with_the_disk(mixed: Repository) -> None:
    status = mixed.status()
    [writer] = status.writers
    assert (writer.writer, writer.database) == ("main", "provenance")
    assert (writer.events_live, writer.events_waiting, writer.next_event_id) == (100, 100, 200)
    assert (writer.logs, writer.shards, writer.revision) == (2, 2, 1)
    assert writer.transactions_since_checkpoint == 2
    assert writer.log_bytes == sum(path.stat().st_size for path in mixed.settings.store.rglob("*.parquet"))
    index = mixed.settings.containers[0] / "main/index"
    assert writer.shard_bytes == sum(path.stat().st_size for path in index.rglob("*") if path.is_file())
    assert (status.pending.sealed_groups, status.quarantined) == (2, 0)
    assert status.root == str(mixed.settings.root)


def test_status_of_a_new_repository_is_empty(repository: Repository) -> None:
    status = repository.status()
    assert (status.writers, status.quarantined, status.pending.is_any) == ((), 0, False)
    append(repository, [event()])
    [writer] = repository.status().writers
    assert (writer.revision, writer.last_commit_ms, writer.events_waiting) == (-1, None, 1)


def test_the_status_says_which_journals_wait_and_since_when(repository: Repository) -> None:
    clock = ManualClock(1_000_000)
    opened = Repository(repository.settings, clock=clock)
    append(opened, [event(1)])
    clock.advance(60_000)
    with opened.writer() as writer:
        writer.append([event(2)])
        [waiting] = opened.status().writers
        # The journal that is written to waits, too; the oldest says since when.
        assert (waiting.journals_waiting, waiting.waiting_since_ms) == (2, 1_000_000)
    run_steps(opened.settings)
    [live] = opened.status().writers
    assert (live.events_waiting, live.journals_waiting, live.waiting_since_ms) == (0, 0, None)


def test_the_clock_that_is_handed_in_tells_the_time_of_commits(repository: Repository) -> None:
    opened = Repository(repository.settings, clock=ManualClock(123_456))
    append(opened, [event()])
    opened.workspace().catalog.commit([])
    assert [transaction.commit_time_ms for transaction in opened.timeline()] == [123_456]
