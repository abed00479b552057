"""One catalog, three kinds of store: the same commits, conflicts, time travel and upkeep on each."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from custody.catalog import (
    Action,
    AddTombstone,
    Catalog,
    CommitConflictError,
    Federation,
    FencedError,
    PrunedError,
    SealedError,
    absorb,
    collect_garbage,
    prune,
    seal,
    wipe,
)
from custody.catalog.statistics import read_statistics, table_key
from custody.clock import ManualClock
from custody.errors import ConflictError, CorruptionError, InvalidInputError, NotFoundError, StorageError
from custody.store import ObjectData, ObjectInfo, ObjectStore
from tests.behaviour.places import START_MS, Place, UnluckyStore, WrappedStore, add, build, place, remove, s3_url

__all__ = ["place", "s3_url"]
THREADS = {"local": (6, 20), "memory": (6, 20), "s3": (4, 10), "az": (4, 10), "gs": (4, 10)}


def test_commits_are_read_back_by_another_process(place: Place) -> None:
    state = build(place.catalog()).load()
    loaded = place.catalog().load()
    assert loaded == state
    assert (loaded.revision, sorted(loaded.files), loaded.next_event_id) == (3, [f"file-{n}" for n in range(4)], 40)


class _Counting(WrappedStore):
    """Counts what is read and what is listed."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.reads = self.listings = 0

    def get_many(self, keys: Sequence[str]) -> list[bytes]:
        found = super().get_many(keys)
        self.reads += len(found)
        return found

    def keys(self, prefix: str, *, after: str = "", ending: str = "") -> Iterator[str]:
        self.listings += 1
        return super().keys(prefix, after=after, ending=ending)


def test_an_open_reader_refreshes_by_what_is_new_without_any_listing(place: Place) -> None:
    writer = build(place.catalog())
    store = _Counting(place.open())
    reader = place.catalog(store=store)
    reader.load()
    assert store.listings > 0  # opening looks for what lies behind the end
    store.reads = store.listings = 0
    assert reader.load().revision == 3
    assert store.reads == 0
    for number in range(5):
        writer.commit([add(f"later-{number}")])
    assert reader.load().revision == 8
    assert store.reads == 5
    reader.commit([add("own")])
    assert store.listings == 0


def test_writers_that_race_all_land_in_one_line(place: Place) -> None:
    count, commits = THREADS[place.kind]
    errors: list[BaseException] = []
    lost: list[str] = []
    together = threading.Barrier(count)

    class Watched(WrappedStore):
        def put_if_absent(self, key: str, data: ObjectData) -> bool:
            time.sleep(0.0005)  # threads of one process take turns otherwise
            won = super().put_if_absent(key, data)
            if not won:
                lost.append(key)
            return won

    def work(name: int) -> None:
        try:
            catalog = place.catalog(store=Watched(place.open()))
            catalog.load()
            together.wait()
            for number in range(commits):
                catalog.commit([add(f"{name}/{number}")])
        except BaseException as error:  # noqa: BLE001 - shown by the assertion
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    timeline = list(place.catalog().timeline())
    assert [transaction.revision for transaction in timeline] == list(range(count * commits))
    paths = [transaction.actions[0].add_file.path for transaction in timeline]
    assert sorted(paths) == sorted(f"{name}/{number}" for name in range(count) for number in range(commits))
    times = [transaction.commit_time_ms for transaction in timeline]
    assert times == sorted(set(times))
    assert len(lost) >= count - 1, "they did not race"


def test_of_two_that_remove_one_file_one_is_told_what_conflicts(place: Place) -> None:
    one, other = build(place.catalog()), place.catalog()
    other.load()
    one.commit([remove("file-1"), add("merged")])
    with pytest.raises(CommitConflictError, match="cannot remove file file-1") as caught:
        other.commit([remove("file-1"), add("also-merged")])
    assert caught.value.revision == 4
    assert caught.value.conflict is not None
    assert (caught.value.conflict.action, caught.value.conflict.name) == ("remove file", "file-1")
    assert "also-merged" not in place.catalog().load().files


@pytest.mark.parametrize(
    "endings",
    [("lost",), ("refused",), ("conflict",), ("refused", "lost"), ("conflict", "lost"), ("conflict", "refused")],
    ids=" then ".join,
)
def test_an_unknown_outcome_is_read_back_and_lands_once(place: Place, endings: tuple[str, ...]) -> None:
    build(place.catalog(), 1)
    state = place.catalog(store=UnluckyStore(place.open(), *endings)).commit([add("new")])
    assert (state.revision, sorted(state.files)) == (1, ["file-0", "new"])
    assert place.catalog().load() == state


def test_a_lost_answer_and_another_writer_in_between_land_both(place: Place) -> None:
    build(place.catalog(), 1)
    unlucky, lucky = UnluckyStore(place.open(), "refused"), place.catalog()

    class Meanwhile(UnluckyStore):
        def get(self, key: str) -> bytes:
            if key.endswith(".txn") and lucky.load().revision == 0:
                lucky.commit([add("meanwhile")])
            return super().get(key)

    unlucky = Meanwhile(place.open(), "refused")
    state = place.catalog(store=unlucky).commit([add("new")])
    assert (state.revision, sorted(state.files)) == (2, ["file-0", "meanwhile", "new"])


def test_a_store_that_stays_away_is_an_error_and_nothing_is_claimed(place: Place) -> None:
    build(place.catalog(), 1)
    catalog = place.catalog(store=UnluckyStore(place.open(), *["refused"] * 3))
    with pytest.raises(StorageError, match="the connection ended"):
        catalog.commit([add("new")])
    assert place.catalog().load().revision == 0
    assert catalog.commit([add("new")]).revision == 1


def test_the_clock_may_go_back(place: Place) -> None:
    clock = ManualClock(START_MS)
    catalog = place.catalog(clock)
    for number, step in enumerate((0, -3_600_000, 0, 7_200_000)):
        clock.advance(step)
        catalog.commit([add(str(number))])
    times = [transaction.commit_time_ms for transaction in place.catalog().timeline()]
    assert times == [START_MS, START_MS + 1, START_MS + 2, START_MS + 3_600_000]


def test_time_travel_by_revision_and_by_time(place: Place) -> None:
    clock = ManualClock(START_MS)
    catalog = place.catalog(clock)
    for number in range(12):
        catalog.commit([add(f"file-{number}"), *([remove(f"file-{number - 2}")] if number > 1 else [])])
        clock.advance(1000)
        if number in (3, 7):
            catalog.checkpoint()
    reader = place.catalog()
    for number in range(2, 12):
        assert sorted(reader.at(number).files) == sorted([f"file-{number - 1}", f"file-{number}"])
        assert reader.revision_at(START_MS + 1000 * number) == number
        assert reader.revision_at(START_MS + 1000 * number + 999) == number
    with pytest.raises(NotFoundError, match="nothing was committed at that time"):
        reader.revision_at(START_MS - 1)
    with pytest.raises(NotFoundError, match="there is no revision 12"):
        reader.at(12)
    changed = reader.difference(4, 6)
    assert (sorted(changed.added), sorted(changed.removed)) == (["file-5", "file-6"], ["file-3", "file-4"])
    back = reader.difference(6, 4)
    assert (sorted(back.added), sorted(back.removed)) == (["file-3", "file-4"], ["file-5", "file-6"])
    with pytest.raises(CorruptionError, match="expected a file of revision 11, found none"):
        reader.at(11, check_files=True)
    for name in ("file-10", "file-11"):
        place.open().put(f"main/provenance/{name}", b"data")
    assert reader.at(11, check_files=True).revision == 11


def test_a_checkpoint_carries_everything_over(place: Place) -> None:
    catalog = build(place.catalog())
    stone = AddTombstone(id=b"t" * 16, event_ids=[3], reason="asked for")
    catalog.commit([Action(add_tombstone=stone)])
    assert catalog.begin_epoch() == 1
    expected = catalog.load()
    catalog.checkpoint()
    for key in place.objects(ends=".txn"):
        place.open().delete(key)
    state = place.catalog().load()
    assert state == expected
    assert (state.epoch, list(state.tombstones.values())) == (1, [stone])


def test_a_lost_or_damaged_table_of_statistics_costs_nothing_but_time(place: Place) -> None:
    catalog = build(place.catalog())
    catalog.checkpoint()
    state = catalog.load()
    table = read_statistics(catalog.objects, state)
    assert table is not None
    assert sorted(table.column("path").to_pylist()) == sorted(state.files)
    key = table_key(catalog.objects, state)
    good = place.open().get(key)
    place.open().put(key, good[: len(good) // 2])
    assert read_statistics(catalog.objects, state) is None
    catalog.commit([add("more")])
    catalog.checkpoint()
    table = read_statistics(catalog.objects, catalog.load())
    assert table is not None
    assert sorted(table.column("path").to_pylist()) == sorted(catalog.load().files)


def test_pruning_cuts_the_front_and_says_so(place: Place) -> None:
    catalog = place.catalog()
    for number in range(10):
        catalog.commit([add(f"file-{number}")])
        if number in (2, 4, 6, 8):
            catalog.checkpoint()
    before = {revision: catalog.at(revision) for revision in range(10)}
    plan = prune(catalog, 7)
    assert (plan.floor, bool(plan.reason)) == (4, True)  # two later checkpoints are kept
    reader = place.catalog()
    for revision in range(4, 10):
        assert reader.at(revision) == before[revision]
    with pytest.raises(PrunedError, match="revision 3 was pruned, the earliest is 4") as caught:
        reader.at(3)
    assert caught.value.earliest == 4
    with pytest.raises(PrunedError):
        reader.revision_at(START_MS)
    assert [transaction.revision for transaction in reader.timeline()] == list(range(4, 11))
    assert min(key.split("/")[3] for key in place.objects() if "/0" in key) == f"{4:020d}"
    assert prune(place.catalog(), 4).keys == ()
    assert place.catalog().commit([add("after")]).revision == 11


def test_a_reader_that_is_open_while_the_front_is_cut_goes_on(place: Place) -> None:
    catalog = place.catalog()
    for number in range(8):
        catalog.commit([add(f"file-{number}")])
        catalog.checkpoint()
    reader = place.catalog()
    reader.load()
    prune(catalog, 5)
    with pytest.raises(PrunedError):
        reader.at(1)
    assert reader.load().floor == 5


def _log(number: int) -> str:
    return f"data/2026-03-01/events/{number:020d}.parquet"


class _Aged(WrappedStore):
    """A store whose objects were written as long ago as a test says."""

    def __init__(self, inner: ObjectStore, ages: dict[str, int]) -> None:
        super().__init__(inner)
        self._ages = ages

    def head(self, key: str) -> ObjectInfo | None:
        info = super().head(key)
        return None if info is None else self._aged(info)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        return (self._aged(info) for info in super().list(prefix, after=after))

    def _aged(self, info: ObjectInfo) -> ObjectInfo:
        age = self._ages.get(info.key.removeprefix("main/provenance/"), 48 * 3_600_000)
        return ObjectInfo(info.key, info.size_bytes, START_MS - age)


def test_garbage_goes_to_the_trash_then_for_good_and_what_is_needed_stays(place: Place) -> None:
    clock = ManualClock(START_MS)
    store = place.open()
    for number in range(5):
        store.put(f"main/provenance/{_log(number)}", b"data")
    store.put("main/provenance/data/notes.txt", b"mine")
    catalog = place.catalog(clock, _Aged(store, {_log(3): 1000}))
    catalog.commit([add(_log(0), 0)])
    catalog.commit([add(_log(1), 1)])
    catalog.commit([remove(_log(1))], next_event_id=5)  # still needed by revision 1
    assert collect_garbage(catalog, clock, dry_run=True).moved == [_log(2), _log(4)]
    assert store.head(f"main/provenance/{_log(2)}") is not None
    garbage = collect_garbage(catalog, clock)
    assert (garbage.moved, garbage.young, garbage.unknown) == ([_log(2), _log(4)], [_log(3)], ["data/notes.txt"])
    assert store.head(f"main/provenance/{_log(2)}") is None
    assert catalog.at(1).files.keys() == {_log(0), _log(1)}
    catalog.commit([add(_log(4), 4)])  # a writer that was slower than the threshold
    assert collect_garbage(catalog, clock).restored == [_log(4)]
    assert store.get(f"main/provenance/{_log(4)}") == b"data"
    clock.advance(8 * 24 * 3_600_000)
    assert collect_garbage(catalog, clock).deleted == [_log(2)]
    assert [key.partition("/data/")[2] for key in store.keys("main/provenance/trash/")] == [_log(3)[5:]]


def test_a_damaged_catalog_stops_the_collection_before_anything_is_touched(place: Place) -> None:
    store = place.open()
    store.put(f"main/provenance/{_log(0)}", b"data")
    build(place.catalog())
    store.put(place.objects(ends=".txn")[1], b"broken")
    with pytest.raises(CorruptionError):
        collect_garbage(place.catalog(), ManualClock(START_MS * 2), older_than_ms=0)
    assert store.get(f"main/provenance/{_log(0)}") == b"data"


def test_a_catalog_is_wiped_only_by_its_name_and_foreign_files_stay(place: Place) -> None:
    catalog = build(place.catalog())
    catalog.checkpoint()
    store = place.open()
    store.put("main/provenance/transactions/readme", b"mine")
    store.put(f"main/provenance/{_log(0)}", b"data")
    with pytest.raises(InvalidInputError, match="to delete this catalog name it: main/provenance"):
        wipe(catalog.objects, "other/provenance")
    assert place.catalog().load().revision == 3
    assert wipe(catalog.objects, "main/provenance") == 6
    assert place.objects() == ["main/provenance/transactions/readme"]
    assert store.get(f"main/provenance/{_log(0)}") == b"data"
    assert place.catalog().commit([add("first")]).revision == 0


def test_a_sealed_writer_commits_nothing_more_and_its_files_are_absorbed_at_once(place: Place) -> None:
    def named(writer: str) -> Catalog:
        return Catalog(place.open(), writer, "provenance", ManualClock(START_MS))

    build(named("old"), 2)
    build(named("new"), 1)
    late = named("old")
    late.load()
    federation = Federation(place.open(), "provenance", ManualClock(START_MS))
    seen = {(writer, file.path) for writer, file in federation.load().files()}
    assert seen == {("old", "file-0"), ("old", "file-1"), ("new", "file-0")}
    with pytest.raises(ConflictError, match="is not sealed"):
        absorb(named("new"), named("old"), [add("merged")])
    seal(named("old"), "its machine was given back")
    with pytest.raises(SealedError, match="its machine was given back"):
        late.commit([add("late")])
    absorb(named("new"), named("old"), [add("merged")])
    seen = {(writer, file.path) for writer, file in federation.load().files()}
    assert seen == {("new", "file-0"), ("new", "merged")}
    with pytest.raises(CommitConflictError, match="absorb old/provenance"):
        absorb(named("new"), named("old"), [add("again")])


def test_a_writer_that_was_taken_over_stops(place: Place) -> None:
    older, younger = place.catalog(), place.catalog()
    assert older.begin_epoch() == 1
    older.commit([add("one")])
    assert younger.begin_epoch() == 2
    with pytest.raises(FencedError, match="epoch 2 was started by another process"):
        older.commit([add("two")])
    assert younger.commit([add("three")]).files.keys() == {"one", "three"}


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a//b", "a/./b", "a\\b", "a\nb", "a%2fb", ""])
def test_a_path_from_outside_never_becomes_a_key(place: Place, path: str) -> None:
    with pytest.raises(InvalidInputError, match="key"):
        place.catalog().commit([add(path)])
    assert place.objects() == []
