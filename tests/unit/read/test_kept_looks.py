"""Looks that are kept: an answer holds all that was acknowledged before it, whatever the clock and the disk say.

The disk of these tests has a clock of its own: a change gets the time of its last tick, as on a real one.
"""

from __future__ import annotations

from builtins import list as list_of
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from custody.catalog import CatalogState
from custody.config import load_settings
from custody.model import Event
from custody.model.visibility import EventCondition, Visibility
from custody.read.search import SearchResult
from custody.repository import EventSelection, Repository
from custody.repository.writers import absorb_retired, retire_writer
from custody.vfs import Marks, PosixFileSystem
from custody.vfs.file_marks import Mark
from tests.support import event

TICK = 10_000_000
SECOND = 1_000_000_000
NOON = 1_772_452_800 * SECOND + TICK // 2
WRITERS = ("w0", "w1", "w2")


class TickingDisk(PosixFileSystem):
    """A disk on which a change gets the time of the last tick of a clock that tests set; all marks are of times alone.

    What was changed since the last look at a mark counts as changed at the time of the next one.
    """

    def __init__(self) -> None:
        self.clock_ns = NOON
        self.distance_ns = 0
        self.is_known = True
        self.listed = 0
        self._real: dict[str, Mark | None] = {}
        self._times: dict[str, int] = {}

    def marks(self, paths: Sequence[str]) -> Marks | None:
        real = super().marks(paths)
        assert real is not None
        files: list_of[Mark | None] = []
        for path, mark in zip(paths, real.files, strict=True):
            if mark is not None and self._real.get(path) != mark:
                self._times[path] = self.clock_ns // TICK * TICK + 1
            self._real[path] = mark
            files.append(None if mark is None else (self._times[path], self._times[path], 0, 0, 0))
        return Marks(tuple(files), self.clock_ns, self.distance_ns)

    def keeps_times(self, path: Path) -> bool:
        return self.is_known

    def list(self, folder: Path) -> list_of[str]:
        self.listed += 1
        return super().list(folder)

    def set_clock(self, step_ns: int) -> None:
        self.clock_ns += step_ns
        self.distance_ns += step_ns

    def pass_time(self, step_ns: int) -> None:
        self.clock_ns += step_ns


def named(root: Path, writer: str) -> Repository:
    settings = load_settings(root)
    section = settings.repository.model_copy(update={"writer": writer})
    return Repository(settings.model_copy(update={"repository": section}))


def made(number: int) -> Event:
    kind = ("CREATE", "SEND", "CREATE")[number % 3]
    return event(number, event_type=kind, event_time=1_700_000_000_000 + number % 7)


def store(root: Path, writer: str, first: int, count: int = 4) -> None:
    repository = named(root, writer)
    repository.append([made(n) for n in range(first, first + count)])
    assert not any(report.failed for report in repository.roll_over())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    Repository.create(tmp_path / "r")
    for number, writer in enumerate(WRITERS):
        store(tmp_path / "r", writer, 10 * number)
    return tmp_path / "r"


@pytest.fixture
def disk() -> TickingDisk:
    return TickingDisk()


@pytest.fixture
def reader(root: Path, disk: TickingDisk) -> Repository:
    return Repository(load_settings(root), disk)


def lists_of(reader: Repository, disk: TickingDisk) -> int:
    before = disk.listed
    # What is shown would open logs, and an open log can be read without a name.
    reader.search("", limit=0)
    return disk.listed - before


def settle(reader: Repository, disk: TickingDisk) -> None:
    """Look until nothing is listed any more."""
    # What there is to ask for, when it was changed, and what it is now that nobody changes it any more.
    lists_of(reader, disk)
    lists_of(reader, disk)
    disk.pass_time(SECOND)
    lists_of(reader, disk)
    assert lists_of(reader, disk) == 0


def test_what_did_not_change_is_not_listed_again(reader: Repository, disk: TickingDisk) -> None:
    assert lists_of(reader, disk) > 0
    assert lists_of(reader, disk) > 0, "its marks are of the same tick"
    disk.pass_time(SECOND)
    assert lists_of(reader, disk) > 0, "the first look with settled marks"
    assert lists_of(reader, disk) == 0
    disk.pass_time(SECOND)
    assert lists_of(reader, disk) == 0


def test_a_file_that_is_made_in_the_tick_of_the_former_look_is_seen(
    root: Path, reader: Repository, disk: TickingDisk
) -> None:
    for number in range(2):
        # Live, and nothing waits: as much as may be kept is kept.
        for _ in range(4):
            assert reader.search("").total == 12 + 5 * number
        # In the same tick: the folder of the journals gets the time that it had at the looks.
        named(root, "w1").append([event(100 + number)])
        assert reader.search("").total == 13 + 5 * number
        store(root, "w1", 200 + 10 * number)


def test_what_is_made_after_a_look_was_kept_is_seen(root: Path, reader: Repository, disk: TickingDisk) -> None:
    for number in range(4):
        settle(reader, disk)
        disk.pass_time(TICK)
        named(root, "w0").append([event(100 + number)])
        assert reader.search("").total == 13 + number
        assert not any(report.failed for report in named(root, "w0").roll_over())


@pytest.mark.parametrize("step_ns", [-SECOND, -3600 * SECOND, 3600 * SECOND])
def test_a_clock_that_is_set_ends_what_was_kept(
    root: Path, reader: Repository, disk: TickingDisk, step_ns: int
) -> None:
    settle(reader, disk)
    # Back to the very tick in which the folders were changed last: what is made now has the time that they have.
    disk.pass_time(abs(step_ns))
    if step_ns < 0:
        disk.set_clock(NOON - disk.clock_ns)
    else:
        disk.set_clock(step_ns)
    named(root, "w2").append([event(100)])
    assert reader.search("").total == 13


def test_where_times_are_not_relied_on_everything_is_listed(root: Path, reader: Repository, disk: TickingDisk) -> None:
    disk.is_known = False
    for _ in range(5):
        assert lists_of(reader, disk) >= len(WRITERS), "each folder of journals"
        disk.pass_time(SECOND)
    named(root, "w0").append([event(100)])
    assert reader.search("").total == 13


def test_a_transaction_in_a_folder_that_was_made_long_before_is_seen(
    root: Path, reader: Repository, disk: TickingDisk
) -> None:
    # A process makes the folder of the next revision, and waits for a disk before the transaction is there.
    folder = max((root / "store" / "w0" / "provenance" / "transactions").iterdir())
    following = folder.with_name(f"{int(folder.name) + 1:020d}")
    following.mkdir()
    settle(reader, disk)
    assert reader.search("").total == 12
    named(root, "w0").forget(EventSelection(flowfile_uuids=(event(1).flowfile_uuid,)), "asked", "w0")
    assert (following / "").is_dir()
    assert any(following.iterdir())
    assert [item.event.source_ordinal for item in reader.search("").events if item.writer == "w0"] == [3, 2, 0]


def test_a_writer_whose_folder_was_made_long_before_is_seen(root: Path, reader: Repository, disk: TickingDisk) -> None:
    settings = load_settings(root)
    for place in (settings.store, *settings.containers):
        (place / "later").mkdir()
    settle(reader, disk)
    assert reader.search("").total == 12
    named(root, "later").append([event(100)])
    assert reader.search("").total == 13


def test_a_log_that_is_removed_by_hand_is_named(root: Path, reader: Repository, disk: TickingDisk) -> None:
    settle(reader, disk)
    log = sorted((root / "store" / "w2").rglob("*.parquet"))[0]
    log.unlink()
    assert any(log.name in notice for notice in reader.search("", limit=0).notices)


def test_a_container_that_goes_is_told_of(root: Path, reader: Repository, disk: TickingDisk) -> None:
    settle(reader, disk)
    assert not reader.search("").notices
    state = next((root / "containers").glob("*/w1/STATE"))
    state.rename(state.with_name("STATE.away"))
    assert any("'w1'" in notice for notice in reader.search("").notices)


def told(result: SearchResult) -> tuple[object, ...]:
    shown = [(item.writer, item.event) for item in result.events]
    return result.total, shown, result.cursor, result.notices, result.lost, dict(result.as_of)


@pytest.mark.in_parts(2)
def test_who_asks_again_and_again_is_told_what_a_new_reader_is(root: Path) -> None:
    random = Random(5)  # noqa: S311 - the same choices each time
    seen = Visibility(None, (EventCondition.of({"event_type": "SEND"}),), ("filename",))
    all_seen = Repository.open(root)
    # What it keeps is of what it sees, also where somebody else reads through it.
    all_seen.search("event_type:CREATE", limit=5)
    readers = {None: all_seen, seen: all_seen.seen_by(seen)}
    first = 1000
    for turn in range(9):
        # One is retired in the end; one comes later than the reader.
        writer = random.choice(("w0", "w1", f"w{2 + turn // 5}"))
        change = random.choice(("append", "append", "store", "forget", "nothing"))
        if change == "append":
            named(root, writer).append([made(first + n) for n in range(3)])
        elif change == "store":
            store(root, writer, first, 7)
        elif change == "forget":
            named(root, "w0").forget(EventSelection(flowfile_uuids=(event(turn).flowfile_uuid,)), "asked", "w0")
        first += 10
        if turn == 7:
            assert not any(report.failed for report in Repository.open(root).roll_over())
            retire_writer(load_settings(root), "w2", "done")
            assert not absorb_retired(load_settings(root), "archive").failed
        for visibility, reader in readers.items():
            fresh = Repository.open(root) if visibility is None else Repository.open(root).seen_by(visibility)
            for text, options in (
                ("", {"limit": 3}),
                ("event_type:CREATE", {"limit": 5, "offset": turn}),
                ("file_size:[101 TO 105]", {"limit": 20, "oldest_first": True}),
                (f"flowfile_uuid:{event(turn).flowfile_uuid}", {"limit": 2}),
            ):
                pages = [each.search(text, **options) for each in (reader, reader, fresh)]  # type: ignore[arg-type]
                assert told(pages[0]) == told(pages[1]) == told(pages[2])
                cursor = pages[0].cursor
                if cursor is not None:
                    further = {**options, "offset": 0, "cursor": cursor}
                    assert told(reader.search(text, **further)) == told(fresh.search(text, **further))  # type: ignore[arg-type]


def test_pages_come_from_one_look_at_the_shards(root: Path) -> None:
    reader = Repository.open(root)
    every = [(item.writer, item.event.event_id) for item in Repository.open(root).search("", limit=100).events]
    found: list[tuple[str, int]] = []
    searched: list[int] = []
    cursor = None
    for _ in range(6):
        page = reader.search("", limit=2, cursor=cursor)
        found += [(item.writer, item.event.event_id) for item in page.events]
        cursor, searched = page.cursor, [*searched, sum(one.searched for one in page.explained.values())]
    assert found == every
    assert cursor is None
    # The first page asks for no more than it shows, the next one for more than it shows, and the others nothing.
    assert searched == [3, 3, 0, 0, 0, 0]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_what_is_behind_a_page_and_cannot_be_read_decides_what_is_on_it(tmp_path: Path, limit: int) -> None:
    root = tmp_path / "r"
    Repository.create(root)
    # Each in a log of its own; an event waits for those of its writer that have greater ids.
    for writer, times in (("w0", (90, 1, 50)), ("w1", (30,))):
        for event_time in times:
            named(root, writer).append([event(event_time, event_time=1_700_000_000_000 + event_time)])
            assert not any(report.failed for report in named(root, writer).roll_over())
    waits = sorted((root / "store" / "w0").rglob("*.parquet"))[1]
    waits.unlink()
    reader = Repository.open(root)
    for _ in range(2):
        shown = reader.search("", limit=limit).events
        assert [item.event.file_size - 100 for item in shown] == [50, 90, 30][:limit]


def test_damage_on_a_page_that_is_kept_is_told(root: Path) -> None:
    reader = Repository.open(root)
    assert reader.search("", limit=2).notices == ()
    log = sorted((root / "store" / "w0").rglob("*.parquet"))[0]
    data = log.read_bytes()
    log.write_bytes(data[:40] + bytes(200) + data[240:])
    fresh = Repository.open(root)
    pages = [each.search("", limit=12) for each in (reader, fresh)]
    assert [item.event for item in pages[0].events][:2] == [item.event for item in reader.search("", limit=2).events]
    assert pages[1].lost > 0
    assert pages[1].notices


def test_states_that_are_the_same_share_what_was_made_of_them(root: Path) -> None:
    reader = Repository.open(root)
    joined = [reader._looks.of_states(states(reader))]
    assert joined == [None]
    reader.search("")
    joined.append(reader._looks.of_states(states(reader)))
    reader.search("event_type:CREATE")
    joined.append(reader._looks.of_states(states(reader)))
    assert joined[1] is joined[2] is not None
    store(root, "w1", 500)
    reader.search("")
    joined.append(reader._looks.of_states(states(reader)))
    assert joined[3] not in (None, joined[2])


def states(reader: Repository) -> list[CatalogState]:
    return [workspace.newest_state() for workspace in reader.workspaces()]
