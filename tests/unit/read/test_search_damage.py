"""Search where blocks of logs cannot be read: pages pass over them, facets name them, the forgotten stay hidden."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.catalog import AddFile
from custody.cli.main import cli
from custody.config import Settings
from custody.errors import CorruptionError, InvalidInputError
from custody.eventlog import EventLog
from custody.model import Event
from custody.repository import EventSelection, Repository, SearchResult
from custody.vfs import PosixFileSystem
from tests.support import append, flipped, numbered, run_steps, sample

EVENTS = numbered(sample(260))
LOGS = ((0, 100), (100, 200))
FIRST, OTHER = "main", "other"
Found = list[tuple[str, int]]


def opened(root: Path, writer: str = FIRST) -> Repository:
    sections = {"repository": {"writer": writer}, "eventlog": {"block_bytes_max": 20_000}}
    return Repository(Settings.model_validate({"root": root, **sections}))


def fill(repository: Repository, events: list[Event]) -> None:
    """Two logs of several blocks, and events that wait in a journal."""
    for start, end in LOGS:
        append(repository, events[start:end])
        run_steps(repository.settings)
    append(repository, events[200:])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "one"
    fill(opened(root), EVENTS)
    return root


@pytest.fixture(scope="module")
def made_by_two(tmp_path_factory: pytest.TempPathFactory, made: Path) -> Path:
    """The same of two writers; the second one has the events in another order of time."""
    root = Path(shutil.copytree(made, tmp_path_factory.mktemp("made") / "two"))
    fill(opened(root, OTHER), EVENTS[130:] + EVENTS[:130])
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


@pytest.fixture
def root_of_two(made_by_two: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made_by_two, tmp_path / "copy"))


def files(root: Path, writer: str = FIRST) -> list[AddFile]:
    state = opened(root).workspace(writer).catalog.load()
    return sorted(state.files.values(), key=lambda file: file.first_event_id)


def log_path(root: Path, number: int, writer: str = FIRST) -> Path:
    return opened(root).workspace(writer).paths.home / files(root, writer)[number].path


def damage(root: Path, number: int, blocks: slice = slice(None), writer: str = FIRST) -> set[int]:
    """Flip a bit in some blocks of a log; return the ids that they hold."""
    path = log_path(root, number, writer)
    found = EventLog(PosixFileSystem(), path).toc.blocks
    assert len(found) > 2
    data = path.read_bytes()
    lost: set[int] = set()
    for block in found[blocks]:
        data = flipped(data, 8 * int(block["offset"] + block["length"] // 2))
        lost.update(range(int(block["first_event_id"]), int(block["first_event_id"] + block["rows"])))
    path.write_bytes(data)
    return lost


def pages(repository: Repository, text: str = "", **how: object) -> list[SearchResult]:
    """Read all pages; the offset, if any, is that of the first."""
    found = [repository.search(text, **how)]  # type: ignore[arg-type]
    how.pop("offset", None)
    while (cursor := found[-1].cursor) is not None:
        found.append(repository.search(text, cursor=cursor, **how))  # type: ignore[arg-type]
        assert len(found) < 1000
    return found


def given(found: list[SearchResult]) -> Found:
    return [(stored.writer, stored.event.event_id) for page in found for stored in page.events]


def check_pages(found: list[SearchResult], expected: Found, lost: int, limit: int, offset: int = 0) -> None:
    """All pages but the last are full; together they hold every readable event once, and count what is lost."""
    assert given(found) == expected[offset:]
    assert [len(page.events) for page in found[:-1]] == [limit] * (len(found) - 1)
    assert len(found) == max(-(-(len(expected) - offset) // limit), 1)
    assert {page.total for page in found} == {len(expected) + lost}
    assert sum(page.lost for page in found) == lost


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("limit", [1, 3, 1000])
@pytest.mark.parametrize("number", [0, 1])
def test_paging_goes_on_behind_a_log_that_cannot_be_read(
    root: Path, number: int, limit: int, oldest_first: bool
) -> None:
    lost = damage(root, number)
    assert lost == set(range(*LOGS[number]))
    found = pages(opened(root), "event_type:ROUTE", limit=limit, oldest_first=oldest_first)
    matching = [n for n, event in enumerate(EVENTS) if event.event_type == "ROUTE"]
    left = [(FIRST, n) for n in matching if n not in lost]
    missing = len(matching) - len(left)
    check_pages(found, left if oldest_first else left[::-1], missing, limit)
    for page in found:
        assert (f"{log_path(root, number)} block" in "".join(page.notices)) >= (page.lost > 0)


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("offset", [0, 30, 400])
def test_an_offset_passes_over_events_that_can_be_read(root: Path, offset: int, oldest_first: bool) -> None:
    lost = damage(root, 1, slice(1, 3)) | damage(root, 0, slice(0, 1))
    left = [(FIRST, n) for n in range(len(EVENTS)) if n not in lost]
    found = pages(opened(root), limit=7, offset=offset, oldest_first=oldest_first)
    check_pages(found, left if oldest_first else left[::-1], len(lost), 7, offset)
    # And so do offsets alone.
    parts = [opened(root).search(limit=50, offset=n, oldest_first=oldest_first) for n in range(0, 300, 50)]
    assert given(parts) == (left if oldest_first else left[::-1])


def in_order(writers: dict[str, list[Event]], lost: dict[str, set[int]], *, oldest_first: bool) -> Found:
    """The readable events as a merge by time gives them, each writer's by id."""
    left = {
        name: [
            (event.event_time, name, event.event_id) for event in numbered(events) if event.event_id not in lost[name]
        ]
        for name, events in writers.items()
    }
    queues = {name: found if oldest_first else found[::-1] for name, found in left.items()}
    merged: Found = []
    while any(queues.values()):
        heads = [queue[0] for queue in queues.values() if queue]
        pick = min(heads, key=lambda head: head[0]) if oldest_first else max(heads, key=lambda head: head[0])
        queues[pick[1]] = queues[pick[1]][1:]
        merged.append(pick[1:])
    return merged


@pytest.mark.parametrize("damaged", [False, True])
def test_pages_of_several_writers_hold_every_readable_event_once(root_of_two: Path, damaged: bool) -> None:
    lost: dict[str, set[int]] = {FIRST: set(), OTHER: set()}
    if damaged:
        lost = {
            FIRST: damage(root_of_two, 1) | damage(root_of_two, 0, slice(1, 2)),
            OTHER: damage(root_of_two, 0, slice(0, 1), OTHER),
        }
    writers = {FIRST: EVENTS, OTHER: EVENTS[130:] + EVENTS[:130]}
    repository = opened(root_of_two)
    for oldest_first in (False, True):
        expected = in_order(writers, lost, oldest_first=oldest_first)
        for limit, offsets in ((17, (0, 5)), (50, (1, 77, 1000))):
            for offset in offsets:
                found = pages(repository, limit=limit, offset=offset, oldest_first=oldest_first)
                check_pages(found, expected, sum(map(len, lost.values())), limit, offset)
        # A merge of what matches, which is not what matches of the merge: times do not go with the ids.
        others = {name: {n for n, item in enumerate(writers[name]) if item.event_type != "ROUTE"} for name in writers}
        left_out = {name: lost[name] | others[name] for name in writers}
        few = in_order(writers, left_out, oldest_first=oldest_first)
        for offset in (0, 1, 5):
            found = pages(repository, "event_type:ROUTE", limit=1, offset=offset, oldest_first=oldest_first)
            assert given(found) == few[offset:]
            assert all(len(page.events) == 1 for page in found)


@pytest.mark.parametrize("oldest_first", [False, True])
def test_an_offset_with_a_cursor_counts_from_the_cursor(root_of_two: Path, oldest_first: bool) -> None:
    repository = opened(root_of_two)
    order = given([repository.search(limit=1000, oldest_first=oldest_first)])
    for limit in (1, 2, 9):
        for offset in (0, 1, 5, 30):
            expected, cursor = list(order), None
            for _ in range(5):
                page = repository.search(limit=limit, offset=offset, cursor=cursor, oldest_first=oldest_first)
                assert given([page]) == expected[offset : offset + limit]
                expected, cursor = expected[offset + limit :], page.cursor


@pytest.mark.parametrize("number", [{"limit": -1}, {"offset": -1}])
def test_a_limit_or_an_offset_below_zero_is_refused(root: Path, number: dict[str, int]) -> None:
    with pytest.raises(InvalidInputError, match="expected 0 or more, got -1"):
        opened(root).search(**number)  # type: ignore[arg-type]


def test_a_page_without_events_has_the_total_and_no_cursor(root: Path) -> None:
    damage(root, 1)
    found = opened(root).search(limit=0)
    assert (found.total, found.events, found.cursor) == (len(EVENTS), (), None)


def test_facets_do_not_count_lost_events_and_name_them(root: Path) -> None:
    lost = damage(root, 1, slice(0, 2))
    repository = opened(root)
    for _ in range(2):
        counts, notices = repository.facets()
        assert counts["event_type"] == Counter(
            event.event_type.lower() for n, event in enumerate(EVENTS) if n not in lost
        )
        assert [f"block {block}: " in notice for block, notice in enumerate(notices)] == [True, True]
    # Nothing is said where what they count is whole.
    whole = EVENTS[max(lost) + 1]
    counts, notices = repository.facets(f"flowfile_uuid:{whole.flowfile_uuid} AND event_time:{whole.event_time}")
    assert sum(counts["event_type"].values()) >= 1
    assert notices == ()


def test_a_log_that_is_gone_is_named_by_every_answer_that_it_may_belong_to(root: Path) -> None:
    log_path(root, 0).unlink()
    repository = opened(root)
    late = max(event.event_time for event in EVENTS)
    for _ in range(2):
        page = repository.search(limit=1)
        assert (page.total, [stored.event for stored in page.events]) == (len(EVENTS), EVENTS[-1:])
        assert "found no file" in "".join(page.notices)
        counts, notices = repository.facets()
        assert counts["event_type"] == Counter(event.event_type.lower() for event in EVENTS[100:])
        assert "found no file" in "".join(notices)
    assert repository.search(f"event_time:[{late + 1} TO]").notices == ()


def test_a_log_that_is_gone_is_neither_found_nor_counted_as_of_then(root: Path) -> None:
    log_path(root, 0).unlink()
    repository = opened(root)
    newest = repository.workspace().catalog.load().revision
    found = pages(repository, limit=9, as_of=newest)
    check_pages(found, [(FIRST, n) for n in range(199, 99, -1)], 0, 9)
    assert all("expired since, or was compacted" in "".join(page.notices) for page in found)


@pytest.mark.parametrize("oldest_first", [False, True])
def test_an_earlier_revision_is_paged_past_damage(root: Path, oldest_first: bool) -> None:
    lost = damage(root, 1, slice(1, 3))
    repository = opened(root)
    newest = repository.workspace().catalog.load().revision
    left = [(FIRST, n) for n in range(200) if n not in lost]
    found = pages(repository, limit=11, as_of=newest, oldest_first=oldest_first)
    check_pages(found, left if oldest_first else left[::-1], len(lost), 11)


def shard_of(root: Path, number: int) -> Path:
    workspace = opened(root).workspace()
    shards = sorted(workspace.catalog.load().shards.values(), key=lambda shard: shard.first_event_id)
    return workspace.shard_path(shards[number])


@pytest.mark.parametrize("oldest_first", [False, True])
def test_a_damaged_shard_beside_a_damaged_log_costs_what_the_log_lost(root: Path, oldest_first: bool) -> None:
    lost = damage(root, 1, slice(1, 3))
    shutil.rmtree(shard_of(root, 1))
    left = [(FIRST, n) for n in range(len(EVENTS)) if n not in lost]
    found = pages(opened(root), limit=11, oldest_first=oldest_first)
    # Nothing is left that could count what is lost: the notices name it.
    check_pages(found, left if oldest_first else left[::-1], 0, 11)
    assert all("block 1: " in "".join(page.notices) for page in found)


def test_a_lineage_passes_over_lost_events(root: Path) -> None:
    uuid = Counter(event.flowfile_uuid for event in EVENTS[150:]).most_common(1)[0][0]
    before = opened(root).lineage([uuid])
    lost = damage(root, 0, slice(0, 2))
    repository = opened(root)
    for _ in range(2):
        found = repository.lineage([uuid])
        ids = {event.event_id for node in found.nodes.values() for event in node.events}
        every = {event.event_id for node in before.nodes.values() for event in node.events}
        assert ids == every - lost or (ids < every - lost and found.notices)


def forget(root: Path) -> set[int]:
    """Forget by what only the events themselves tell; return the ids that are meant."""
    [name, value] = Counter(
        (name, value) for event in EVENTS[100:200] for name, value in event.updated_attributes.items() if value
    ).most_common(12)[-1][0]
    opened(root).forget(EventSelection(attributes={name: value}), "asked for")
    return {
        n
        for n, event in enumerate(EVENTS)
        if value in (event.updated_attributes.get(name), event.previous_attributes.get(name))
    }


def sql_ids(repository: Repository, *, skip_damaged: bool) -> set[int]:
    with repository.sql("SELECT event_id FROM events", skip_damaged=skip_damaged) as result:
        return {row["event_id"] for batch in result.batches() for row in batch.to_pylist()}


def test_what_is_forgotten_stays_so_after_a_damaged_block_was_met_and_is_whole_again(root: Path) -> None:
    gone = forget(root)
    path = log_path(root, 1)
    whole = path.read_bytes()
    lost = damage(root, 1, slice(1, 3))
    assert gone & lost
    repository = opened(root)
    readable = set(range(len(EVENTS))) - gone - lost
    for _ in range(3):
        page = repository.search(limit=1000)
        assert {stored.event.event_id for stored in page.events} == readable
        assert page.total == len(readable)  # what may be forgotten is not counted
        assert "block 1: " in "".join(page.notices)
        counts, notices = repository.facets()
        assert sum(counts["event_type"].values()) == len(readable)
        assert "block 1: " in "".join(notices)
        assert sql_ids(repository, skip_damaged=True) == readable
        with pytest.raises(CorruptionError, match="block 1: "):
            sql_ids(repository, skip_damaged=False)
    path.write_bytes(whole)
    for _ in range(2):
        left = set(range(len(EVENTS))) - gone
        page = repository.search(limit=1000)
        assert ({stored.event.event_id for stored in page.events}, page.total, page.notices) == (left, len(left), ())
        assert sum(repository.facets()[0]["event_type"].values()) == len(left)
        assert sql_ids(repository, skip_damaged=False) == left


def test_what_a_tombstone_cannot_mean_is_counted_and_named_as_lost(root: Path) -> None:
    lost = damage(root, 1, slice(1, 3))
    opened(root).forget(EventSelection(event_ids=[min(lost), 5, 250]), "asked for")
    left = set(range(len(EVENTS))) - {min(lost), 5, 250}
    found = pages(opened(root), limit=9)
    check_pages(found, [(FIRST, n) for n in sorted(left - lost, reverse=True)], len(lost & left), 9)


def test_a_damaged_journal_that_is_whole_again_is_read_anew(root: Path) -> None:
    [journal] = root.rglob("*.sealed")
    whole = journal.read_bytes()
    journal.write_bytes(flipped(whole, 8 * (len(whole) // 2)))
    repository = opened(root)
    for _ in range(2):
        found = repository.search(limit=1000)
        assert found.total == len(found.events) < len(EVENTS)
        assert journal.name in "".join(found.notices)
    journal.write_bytes(whole)
    found = repository.search(limit=1000)
    assert (found.total, len(found.events), found.notices) == (len(EVENTS), len(EVENTS), ())


def test_the_count_of_a_selection_names_what_could_not_be_read(root: Path) -> None:
    lost = damage(root, 1, slice(1, 3))
    meant = EventSelection(from_ms=0, to_ms=1 << 60)
    found = opened(root).count_selected(meant)
    assert found == {FIRST: len(EVENTS) - len(lost)}
    assert [f"block {number}: " in notice for number, notice in enumerate(found.notices, 1)] == [True, True]
    (root / "custody.toml").touch()
    command = ["--repository", str(root), "forget", "--to", str(1 << 60), "--reason", "asked", "--dry-run"]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    assert "block 1: " in result.stderr
