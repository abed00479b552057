"""A process that was stopped while others went on does no harm: a hint is a hint; no repair takes from it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import pytest

from custody.catalog import (
    Action,
    AddTombstone,
    Catalog,
    ForkError,
    PrunedError,
    RemoveFile,
    collect_garbage,
    kept_files,
    plan_repair,
    prune,
    repair,
    salvage,
    verify,
)
from custody.catalog import catalog as log_module
from custody.catalog.checkpoints import checkpoint_message, write_checkpoint, write_hint
from custody.catalog.codec import decode, encode
from custody.catalog.state import CatalogState, FencedError
from custody.clock import ManualClock
from custody.errors import CorruptionError, NotFoundError, StorageError
from custody.store import LocalStore, ObjectData, ObjectInfo, put_object
from custody.vfs import PosixFileSystem
from tests.unit.catalog.catalogs import START_MS, add, build, open_catalog, transactions, value

STONE = AddTombstone(id=b"s" * 16, event_ids=[3], reason="asked for")
CLOCK = ManualClock(START_MS)


def _go_on(root: Path, commits: int = 5) -> CatalogState:
    """Others forget, commit, write checkpoints, and prune all that they can."""
    catalog = open_catalog(root)
    if not catalog.load().tombstones:
        catalog.commit([Action(add_tombstone=STONE)])
    for _ in range(commits):
        catalog.commit([add(f"later-{uuid4()}")])
        catalog.checkpoint()
    prune(catalog, catalog.load().revision)
    return catalog.load()


def _write_late(root: Path, late: CatalogState) -> None:
    """Leave what a process leaves that ended right after it wrote a checkpoint of a pruned revision, and the hint."""
    objects = open_catalog(root).objects
    objects.store.put(objects.key(late.revision, late.uuid, checkpoint=True), encode(checkpoint_message(late)))
    write_hint(objects, late)


def test_a_checkpoint_that_is_written_late_leaves_nothing_and_no_older_hint(tmp_path: Path) -> None:
    slow = build(tmp_path, 2)
    slow.load()
    right = write_checkpoint

    def stopped(objects: object, state: CatalogState) -> object:
        with patch.object(log_module, "write_checkpoint", right):
            expected.append(_go_on(tmp_path))
        return right(objects, state)  # type: ignore[arg-type]

    expected: list[CatalogState] = []
    with patch.object(log_module, "write_checkpoint", side_effect=[None]) as patched:
        patched.side_effect = lambda objects, state: stopped(objects, state) if not expected else right(objects, state)
        slow.checkpoint()
    assert value(open_catalog(tmp_path).load()) == value(expected[0])
    assert open_catalog(tmp_path).load().tombstones
    hint = slow.chain.hinted()
    assert hint is not None
    assert hint.revision == max(item.revision for item in slow.objects.checkpoints())
    assert min(item.revision for item in slow.objects.list()) == expected[0].floor
    report = verify(open_catalog(tmp_path), files=False)
    assert (report.defects, report.notices) == ([], [])


def test_a_hint_to_a_pruned_revision_is_passed_over_by_readers_writers_and_repairs(tmp_path: Path) -> None:
    late = build(tmp_path, 2).load()
    expected = _go_on(tmp_path)
    _write_late(tmp_path, late)
    assert value(open_catalog(tmp_path).load()) == value(expected)
    plan = plan_repair(open_catalog(tmp_path))
    assert (plan.is_needed, plan.good.revision) == (False, expected.revision)
    repair(open_catalog(tmp_path), CLOCK)
    report = verify(open_catalog(tmp_path), files=False)
    assert report.defects == []
    assert any("the newest checkpoint is that of" in notice for notice in report.notices)
    assert any("before the floor are still there" in notice for notice in report.notices)
    after = open_catalog(tmp_path).commit([add("more")])
    assert after.revision == expected.revision + 1
    assert set(after.tombstones) == {STONE.id.hex()}
    open_catalog(tmp_path).checkpoint()
    prune(open_catalog(tmp_path), expected.floor)
    report = verify(open_catalog(tmp_path), files=False)
    assert (report.defects, report.notices) == ([], [])


def test_an_old_hint_and_a_damaged_transaction_between_two_checkpoints_open_at_the_later_one(tmp_path: Path) -> None:
    catalog = build(tmp_path, 2)
    catalog.checkpoint()
    old = catalog.load()
    catalog.commit([Action(add_tombstone=STONE)])
    catalog.commit([add("more")])
    expected = value(catalog.load())
    catalog.checkpoint()
    write_hint(catalog.objects, old)
    transactions(tmp_path)[2].write_bytes(b"damaged")
    assert value(open_catalog(tmp_path).load()) == expected
    _, state = repair(open_catalog(tmp_path), CLOCK)
    assert value(state) == expected
    assert set(state.tombstones) == {STONE.id.hex()}
    assert salvage(catalog.objects).counts()["tombstones"] == 1


def test_a_reader_whose_revision_has_a_late_checkpoint_does_not_take_it_for_the_newest(tmp_path: Path) -> None:
    build(tmp_path, 2)
    slow = open_catalog(tmp_path)
    late = slow.load()
    expected = _go_on(tmp_path)
    _write_late(tmp_path, late)
    assert slow.load().revision == expected.revision
    assert slow.commit([add("more")]).revision == expected.revision + 1


def test_a_reader_does_not_follow_what_was_committed_behind_a_pruned_revision(tmp_path: Path) -> None:
    build(tmp_path, 2)
    slow, slower = open_catalog(tmp_path), open_catalog(tmp_path)
    slow.load()
    state = slower.load()
    key, data = slower.continuation(state, [add("phantom")], 0)
    expected = _go_on(tmp_path)
    slow.objects.store.put(key, data)  # by a process that ended before it looked again
    assert value(slow.load()) == value(expected)
    assert "phantom" not in slow.commit([add("more")]).files


def test_a_first_commit_that_was_overtaken_by_others_and_their_prune_lands_on_top(tmp_path: Path) -> None:
    slow = open_catalog(tmp_path)
    right = Catalog.settle

    def overtaken(self: Catalog) -> CatalogState:
        state = right(self)
        if self is slow and state.revision < 0:
            with patch.object(Catalog, "settle", right):
                build(tmp_path, 2)
                _go_on(tmp_path)
        return state

    with patch.object(Catalog, "settle", overtaken):
        slow.commit([add("first")])
    state = open_catalog(tmp_path).load()
    assert "first" in state.files
    assert state.revision > 8
    assert verify(open_catalog(tmp_path), files=False).defects == []


def test_a_commit_that_was_itself_pruned_before_it_looked_again_does_not_claim_that_nothing_was_written(
    tmp_path: Path,
) -> None:
    catalog = build(tmp_path, 2)
    right = put_object

    def published(*args: object) -> bool:
        landed = right(*args)  # type: ignore[arg-type]
        with patch.object(log_module, "put_object", right):
            _go_on(tmp_path)
        return landed

    with (
        patch.object(log_module, "put_object", published),
        pytest.raises(StorageError, match="others pruned revision 2 meanwhile"),
    ):
        catalog.commit([add("mine")])
    assert "mine" in open_catalog(tmp_path).load().files


def test_a_hint_of_another_catalog_says_nothing(tmp_path: Path) -> None:
    catalog = build(tmp_path / "one")
    expected = value(catalog.load())
    other = build(tmp_path / "other", 9)
    other.checkpoint()
    hint = Path("main/provenance/transactions/newest-checkpoint")
    shutil.copy(tmp_path / "other" / hint, tmp_path / "one" / hint)
    assert value(open_catalog(tmp_path / "one").load()) == expected
    assert plan_repair(open_catalog(tmp_path / "one")).is_needed is False
    report = verify(open_catalog(tmp_path / "one"), files=False)
    assert report.defects == []
    assert any("it is of another catalog" in notice for notice in report.notices)


@pytest.mark.parametrize("at", [2, 3])
def test_a_checkpoint_of_another_transaction_is_a_fork_for_readers_of_the_past_and_of_now(
    tmp_path: Path, at: int
) -> None:
    catalog = build(tmp_path)
    store = catalog.objects.store
    foreign = checkpoint_message(catalog.at(at))
    foreign.uuid = uuid4().bytes
    foreign.live_paths.append("stolen")
    foreign.live_files.append(add("stolen").add_file.SerializeToString())
    store.put(catalog.objects.key(at, foreign.uuid, checkpoint=True), encode(foreign))
    with pytest.raises(ForkError, match=f"revision {at} forks") as caught:
        open_catalog(tmp_path).load()
    assert len(caught.value.uuids) == 2
    with pytest.raises(ForkError, match=f"revision {at} forks"):
        catalog.chain.at(at)
    assert any(defect.part == "object" for defect in verify(open_catalog(tmp_path), files=False).defects)
    plan, state = repair(open_catalog(tmp_path), CLOCK)
    assert (len(plan.checkpoints), state.revision, "stolen" in state.files) == (1, 3, False)
    assert verify(open_catalog(tmp_path), files=False).defects == []


def test_verify_of_a_catalog_whose_checkpoint_at_the_floor_is_gone_names_it(tmp_path: Path) -> None:
    late = build(tmp_path, 2).load()
    state = _go_on(tmp_path)
    objects = open_catalog(tmp_path).objects
    objects.store.put(objects.key(late.revision, late.uuid, checkpoint=True), encode(checkpoint_message(late)))
    folder = tmp_path / "main/provenance/transactions" / f"{state.floor:020d}"
    shutil.rmtree(folder)
    defects = [str(defect) for defect in verify(open_catalog(tmp_path), files=False).defects]
    assert any(str(folder) in text for text in defects)


def test_the_past_beside_a_prune_is_pruned_and_not_damaged(tmp_path: Path) -> None:
    catalog = build(tmp_path, 2)
    reader, asked, timed = (open_catalog(tmp_path) for _ in range(3))
    for each in (reader, asked, timed):
        each.load()
    timeline = reader.timeline()
    assert next(timeline).revision == 0
    _go_on(tmp_path)
    with pytest.raises(PrunedError, match="revision 0 was pruned, the earliest is"):
        list(timeline)

    def overtaken(what: Callable[[Catalog, CatalogState], object]) -> None:
        late = open_catalog(tmp_path)
        right = Catalog.load
        state = late.load()

        def load(self: Catalog) -> CatalogState:
            if self is late and not done:
                done.append(self)
                return state
            return right(self)

        done: list[Catalog] = []
        _go_on(tmp_path)
        with patch.object(Catalog, "load", load), pytest.raises(PrunedError):
            what(late, state)

    overtaken(lambda late, state: late.at(state.floor))
    overtaken(lambda late, state: late.revision_at(state.commit_time_ms - 1))
    overtaken(lambda late, _: list(late.timeline()))
    assert catalog.load().floor > 0


def test_which_files_are_kept_is_told_beside_a_prune_too(tmp_path: Path) -> None:
    build(tmp_path, 2)
    _go_on(tmp_path)
    late = open_catalog(tmp_path)
    right = Catalog.timeline
    pruned: list[CatalogState] = []

    def timeline(self: Catalog, *args: int) -> object:
        if not pruned:
            pruned.append(_go_on(tmp_path))
        return right(self, *args)

    with patch.object(Catalog, "timeline", timeline):
        paths = kept_files(late)
    assert set(open_catalog(tmp_path).load().files) <= paths


def _log(number: int) -> str:
    return f"data/2026-03-01/events/{number:020d}.parquet"


def test_a_file_that_is_listed_while_it_is_on_its_way_to_the_trash_is_put_back(tmp_path: Path) -> None:
    build(tmp_path, 1)

    class Stopped(LocalStore):
        def move(self, source: str, target: str) -> None:
            super().move(source, target)
            if source.endswith(_log(7)):
                open_catalog(tmp_path).commit([add(_log(7), 7)])

    late = Catalog(Stopped(PosixFileSystem(), tmp_path), "main", "provenance", CLOCK)
    for number in (7, 8):
        late.objects.store.put(f"main/provenance/{_log(number)}", b"data")
    garbage = collect_garbage(late, ManualClock(START_MS * 2), older_than_ms=0)
    assert (garbage.moved, garbage.restored) == ([_log(8)], [_log(7)])
    assert (tmp_path / "main/provenance" / _log(7)).read_bytes() == b"data"


def test_a_file_that_was_written_anew_since_it_was_seen_is_left_alone(tmp_path: Path) -> None:
    catalog = build(tmp_path, 1)
    path = tmp_path / "main/provenance" / _log(7)
    catalog.objects.store.put(f"main/provenance/{_log(7)}", b"old")

    class Stopped(LocalStore):
        def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
            return (ObjectInfo(info.key, info.size_bytes, 0) for info in super().list(prefix, after=after))

    late = Catalog(Stopped(PosixFileSystem(), tmp_path), "main", "provenance", CLOCK)
    now = ManualClock(int(path.stat().st_mtime * 1000) + 1000)
    garbage = collect_garbage(late, now, older_than_ms=3_600_000)
    assert (garbage.moved, garbage.young) == ([], [_log(7)])


def test_a_file_that_is_written_anew_between_the_look_and_the_move_is_put_back(tmp_path: Path) -> None:
    build(tmp_path, 1)
    path = tmp_path / "main/provenance" / _log(7)

    class Stopped(LocalStore):
        def move(self, source: str, target: str) -> None:
            path.write_bytes(b"new")
            super().move(source, target)

    late = Catalog(Stopped(PosixFileSystem(), tmp_path), "main", "provenance", CLOCK)
    late.objects.store.put(f"main/provenance/{_log(7)}", b"old")
    written = path.stat().st_mtime
    os.utime(path, (written - 7200, written - 7200))
    garbage = collect_garbage(late, ManualClock(int(written * 1000)), older_than_ms=3_600_000)
    assert (garbage.moved, garbage.young, path.read_bytes()) == ([], [_log(7)], b"new")


def test_a_name_whose_events_may_yet_become_live_is_never_on_its_way_to_the_trash(tmp_path: Path) -> None:
    """A writer takes the place of an old leftover and lists it beside a collection: no reader misses it."""
    build(tmp_path, 1)
    moves: list[str] = []

    class Watched(LocalStore):
        def move(self, source: str, target: str) -> None:
            moves.append(source)
            super().move(source, target)

    late = Catalog(Watched(PosixFileSystem(), tmp_path), "main", "provenance", CLOCK)
    for number in (7, 10, 12):
        late.objects.store.put(f"main/provenance/{_log(number)}", b"leftover")
    garbage = collect_garbage(late, ManualClock(START_MS * 2), older_than_ms=0)
    assert (garbage.moved, garbage.ahead) == ([_log(7)], [_log(10), _log(12)])
    open_catalog(tmp_path).commit([add(_log(10), 10)], next_event_id=11)
    garbage = collect_garbage(late, ManualClock(START_MS * 2), older_than_ms=0)
    assert (garbage.moved, garbage.ahead) == ([], [_log(12)])
    assert len(moves) == 1


def test_nothing_goes_to_the_trash_while_the_catalog_is_empty(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.objects.store.put(f"main/provenance/{_log(0)}", b"of a catalog that is lost")
    garbage = collect_garbage(catalog, ManualClock(START_MS * 2), older_than_ms=0)
    assert (garbage.moved, garbage.ahead) == ([], [_log(0)])


def test_a_collection_can_be_limited_and_the_next_one_goes_on(tmp_path: Path) -> None:
    catalog = build(tmp_path, 1)
    for number in range(5):
        catalog.objects.store.put(f"main/provenance/{_log(number)}", b"data")
    now = ManualClock(START_MS * 2)
    reports = [collect_garbage(open_catalog(tmp_path), now, older_than_ms=0, limit=2) for _ in range(3)]
    assert [(len(each.moved), each.left) for each in reports] == [(2, 3), (2, 1), (1, 0)]
    later = ManualClock(START_MS * 3)
    reports = [collect_garbage(open_catalog(tmp_path), later, older_than_ms=0, limit=3) for _ in range(2)]
    assert [len(each.deleted) for each in reports] == [3, 2]


def test_a_foreign_transaction_does_not_disturb_time_travel(tmp_path: Path) -> None:
    clock = ManualClock(START_MS)
    catalog = open_catalog(tmp_path, clock)
    for number in range(9):
        catalog.commit([add(f"file-{number}", number)])
        clock.advance(1000)
    for path in transactions(tmp_path)[1:8]:
        message = decode(path.read_bytes(), path)
        message.commit_time_ms = 1
        for name in (uuid4(), "00000000-0000-0000-0000-000000000000"):
            (path.parent / f"{name}.txn").write_bytes(encode(message))
    assert [open_catalog(tmp_path).revision_at(START_MS + 1000 * number) for number in range(9)] == list(range(9))


@pytest.mark.parametrize("revision", [0, 3, 4])
def test_a_folder_with_the_name_of_a_transaction_is_none(tmp_path: Path, revision: int) -> None:
    expected = value(build(tmp_path).load())
    folder = tmp_path / "main/provenance/transactions" / f"{revision:020d}"
    for name in (uuid4(), "00000000-0000-0000-0000-000000000000"):
        (folder / f"{name}.txn").mkdir(parents=True)
    assert value(open_catalog(tmp_path).load()) == expected
    assert any(defect.part == "object" for defect in verify(open_catalog(tmp_path), files=False).defects)
    assert plan_repair(open_catalog(tmp_path)).is_needed is False
    assert open_catalog(tmp_path).revision_at(START_MS + 3) == 3
    state = open_catalog(tmp_path).commit([add("more", 99)])
    for _ in range(3):
        open_catalog(tmp_path).commit([Action(remove_file=RemoveFile(path="more"))])
        open_catalog(tmp_path).checkpoint()
        state = open_catalog(tmp_path).commit([add("more", 99)])
    prune(open_catalog(tmp_path), state.revision)
    assert open_catalog(tmp_path).load().floor > 4


def test_a_folder_in_the_very_place_of_the_next_transaction_is_named(tmp_path: Path) -> None:
    catalog = build(tmp_path)
    key = catalog.chain.next_key(catalog.load())
    assert key is not None
    (tmp_path / key).mkdir(parents=True)
    with pytest.raises(StorageError, match=key.rpartition("/")[2]):
        open_catalog(tmp_path).commit([add("more", 99)])


def test_a_catalog_that_is_damaged_in_a_transaction_stays_damaged_for_who_has_it_open(tmp_path: Path) -> None:
    catalog = build(tmp_path, 2)
    catalog.load()
    open_catalog(tmp_path).commit([add("more", 50)])
    transactions(tmp_path)[2].write_bytes(b"damaged")
    with pytest.raises(CorruptionError):
        catalog.load()


def _stopped_before_its_put(go_on: Callable[[], object]) -> Callable[..., bool]:
    """`put_object` for a process that is stopped before its first put, while others go on."""
    left = [go_on]

    def put(store: LocalStore, key: str, data: ObjectData) -> bool:
        while left:
            with patch.object(log_module, "put_object", put_object):
                left.pop()()
        return put_object(store, key, data)

    return put


def test_two_processes_that_loaded_the_same_epoch_begin_two(tmp_path: Path) -> None:
    build(tmp_path, 1)
    slow, quick = open_catalog(tmp_path), open_catalog(tmp_path)
    assert slow.load().epoch == quick.load().epoch == 0
    with patch.object(log_module, "put_object", _stopped_before_its_put(quick.begin_epoch)):
        assert slow.begin_epoch() == 2
    assert (quick.epoch, slow.epoch) == (1, 2)
    with pytest.raises(FencedError, match="epoch 2 was started by another process"):
        quick.commit([add("quick")])
    assert "slow" in slow.commit([add("slow")]).files
    epochs = [transaction.epoch for transaction in open_catalog(tmp_path).timeline()]
    assert epochs == [0, 1, 2, 2]


def test_a_process_whose_takeover_failed_stays_refused(tmp_path: Path) -> None:
    older, younger = build(tmp_path, 1), open_catalog(tmp_path)
    assert (older.begin_epoch(), younger.begin_epoch()) == (1, 2)
    with (
        patch.object(log_module, "put_object", side_effect=StorageError("disk full")),
        pytest.raises(StorageError, match="disk full"),
    ):
        older.begin_epoch()
    with pytest.raises(FencedError, match="epoch 2 was started by another process"):
        older.commit([add("older")])


def test_threads_that_share_a_catalog_never_see_less_than_was_committed(tmp_path: Path) -> None:
    catalog = build(tmp_path, 3)
    newest = catalog.load()
    in_place, looks = catalog.chain.is_in_place, count()

    def often_pruned(state: CatalogState) -> bool:
        # Now and then, as where others pruned what this reader knew: it forgets all, and begins again.
        return next(looks) % 3 != 0 and in_place(state)

    def look(number: int) -> list[int]:
        revisions = []
        for _ in range(150):
            if number % 2:
                with pytest.raises(NotFoundError, match="nothing was committed"):
                    catalog.revision_at(0)
            revisions += [catalog.load().revision, catalog.at(newest.revision).revision]
        return revisions

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with patch.object(catalog.chain, "is_in_place", often_pruned), ThreadPoolExecutor(4) as threads:
            revisions = [revision for of_thread in threads.map(look, range(4)) for revision in of_thread]
    finally:
        sys.setswitchinterval(interval)
    assert set(revisions) == {newest.revision}
