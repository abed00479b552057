"""Many threads, one writer: nothing lost, nothing twice, one sequence of ids, few syncs, seals that stop nobody."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread

import pytest

from custody.clock import ManualClock
from custody.errors import BackpressureError, ClosedError
from custody.journal import JournalOptions, JournalWriter, SyncPolicy, groups, open_group
from custody.journal.open_group import GroupCommitFile, OpenGroup
from custody.model import Event
from custody.vfs import PosixFileSystem
from tests.support import event, unnumbered
from tests.unit.journal.watched_disk import WatchedFileSystem, in_threads, stored, stored_by_group


class Acknowledged:
    """What each append was told, over all threads."""

    def __init__(self) -> None:
        self._guard = Lock()
        self.events: dict[int, Event] = {}

    def add(self, ids: range, events: list[Event]) -> None:
        with self._guard:
            assert not self.events.keys() & set(ids), "an id was given twice"
            self.events.update(zip(ids, events, strict=True))

    def expect_stored(self, folder: Path) -> None:
        """All that was acknowledged is there once, under its id, and nothing else."""
        events = stored([folder])
        assert [item.event_id for item in events] == list(range(len(self.events)))
        assert unnumbered(events) == [self.events[number] for number in range(len(events))]


def open_writer(
    folder: Path, fs: PosixFileSystem | None = None, clock: ManualClock | None = None, **options: object
) -> JournalWriter:
    chosen = JournalOptions(**options)  # type: ignore[arg-type]
    return JournalWriter(fs or PosixFileSystem(), [folder], "main", "provenance", clock or ManualClock(), chosen)


def appending(writer: JournalWriter, told: Acknowledged, times: int, size: int = 1) -> Callable[[int], None]:
    """Work for a thread: so many appends of so many events each, all of them different."""

    def work(thread: int) -> None:
        for number in range(times):
            first = thread * 100_000 + number * size
            events = [event(first + item) for item in range(size)]
            ids = writer.append(events)
            assert len(ids) == size
            told.add(ids, events)

    return work


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Whether it comes true in that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


@pytest.mark.parametrize(("threads", "journals"), [(16, 1), (16, 4), (4, 16)])
def test_threads_share_syncs_and_every_event_is_there_once_in_the_order_of_ids(
    tmp_path: Path, threads: int, journals: int
) -> None:
    fs = WatchedFileSystem(sync_seconds=0.005)
    told = Acknowledged()
    times = 25
    with open_writer(tmp_path, fs, journals=journals) as writer:
        in_threads(threads, appending(writer, told, times))
        syncs = fs.count("sync")
    if threads > journals:
        assert syncs < threads * times * 0.6, "several appends share a sync"
    else:
        assert syncs <= threads * times
    assert len(told.events) == threads * times
    told.expect_stored(tmp_path)
    with open_writer(tmp_path) as writer:
        assert writer.recovered == []
    told.expect_stored(tmp_path)


def test_batches_of_any_size_keep_their_events_together(tmp_path: Path) -> None:
    told = Acknowledged()
    with open_writer(tmp_path) as writer:
        in_threads(8, lambda thread: appending(writer, told, 6, [1, 2, 31, 32, 33, 100, 5, 1][thread])(thread))
    told.expect_stored(tmp_path)


def test_one_thread_fills_one_journal(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        for number in range(50):
            writer.append([event(number)])
        assert len(writer.seal()) == 1


def test_small_appends_of_all_threads_share_one_journal_and_its_syncs(tmp_path: Path) -> None:
    told = Acknowledged()
    fs = WatchedFileSystem(sync_seconds=0.002)
    with open_writer(tmp_path, fs) as writer:
        in_threads(16, appending(writer, told, 10))
        assert len(writer.seal()) == 1
    told.expect_stored(tmp_path)


@pytest.mark.parametrize("journals", [1, 3, 16])
def test_sixteen_threads_fill_at_most_the_journals_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journals: int
) -> None:
    monkeypatch.setattr(open_group, "SMALL_BYTES_MAX", 0)
    told = Acknowledged()
    fs = WatchedFileSystem(sync_seconds=0.002)
    with open_writer(tmp_path, fs, journals=journals) as writer:
        in_threads(16, appending(writer, told, 10))
        sealed = writer.seal()
    assert 1 <= len(sealed) <= journals
    assert len({path.name.split(".")[0] for path in sealed}) == 1
    if journals == 3:
        assert len(sealed) == 3, "as many as run at once"
    told.expect_stored(tmp_path)


def expect_groups_in_order(folder: Path, at_least: int) -> None:
    by_group = stored_by_group([folder])
    assert len(by_group) >= at_least
    names = [group.first_event_id for group in groups(PosixFileSystem(), [folder], "main")]
    for first, events, following in zip(names, by_group, [*names[1:], 1 << 62], strict=True):
        assert first <= events[0].event_id
        assert events[-1].event_id < following


def test_sealing_by_age_stops_nobody_and_loses_nothing(tmp_path: Path) -> None:
    clock = ManualClock(1000)
    told = Acknowledged()
    with open_writer(tmp_path, clock=clock, seal_ms=1000, journals=4) as writer:

        def grow_old() -> None:
            for _ in range(4):
                time.sleep(0.3)
                clock.advance(1000)

        ages = Thread(target=grow_old)
        ages.start()

        def work(thread: int) -> None:
            number = 0
            while ages.is_alive():
                events = [event(thread * 100_000 + number)]
                told.add(writer.append(events), events)
                number += 1

        in_threads(8, work)
        ages.join()
    expect_groups_in_order(tmp_path, at_least=3)
    told.expect_stored(tmp_path)


def test_an_old_group_is_sealed_though_nobody_appends(tmp_path: Path) -> None:
    clock = ManualClock(1000)
    with open_writer(tmp_path, clock=clock, seal_ms=1000) as writer:
        writer.append([event()])
        clock.advance(999)
        assert not within(0.6, lambda: bool(list(tmp_path.rglob("*.sealed"))))
        clock.advance(1)
        assert within(5, lambda: bool(list(tmp_path.rglob("*.sealed"))))
        assert writer.seal() == []


def test_sealing_by_size_stops_nobody_and_loses_nothing(tmp_path: Path) -> None:
    told = Acknowledged()
    with open_writer(tmp_path, seal_bytes=8192, journals=4) as writer:
        in_threads(8, appending(writer, told, 40))
    expect_groups_in_order(tmp_path, at_least=8)
    told.expect_stored(tmp_path)


def test_seals_on_demand_during_appends_lose_nothing(tmp_path: Path) -> None:
    told = Acknowledged()
    sealed: list[Path] = []
    with open_writer(tmp_path, journals=4) as writer:
        append = appending(writer, told, 40)

        def work(thread: int) -> None:
            if thread == 0:
                for _ in range(15):
                    sealed.extend(writer.seal())
                    time.sleep(0.01)
            else:
                append(thread)

        in_threads(8, work)
    assert len(sealed) == len(set(sealed))
    expect_groups_in_order(tmp_path, at_least=2)
    told.expect_stored(tmp_path)


def test_no_append_enters_a_group_that_is_being_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes between choosing the group and using it; the seal would not wait for such an append."""
    enter = OpenGroup.enter

    def slowly(group: OpenGroup, append_bytes: int) -> GroupCommitFile:
        time.sleep(0.005)
        return enter(group, append_bytes)

    monkeypatch.setattr(OpenGroup, "enter", slowly)
    told = Acknowledged()
    with open_writer(tmp_path) as writer:
        append = appending(writer, told, 15)
        in_threads(5, lambda thread: append(thread) if thread else [writer.seal() for _ in range(400)])
    assert not list(tmp_path.rglob("*.journal"))
    told.expect_stored(tmp_path)


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("seal_bytes", [4096, 100 << 20], ids=["many groups", "one group"])
def test_closing_while_others_append_keeps_what_they_were_told(tmp_path: Path, delay: float, seal_bytes: int) -> None:
    """On return of `close` nothing of the writer is at work any more: the next one may begin."""
    told = Acknowledged()
    writer = open_writer(tmp_path, WatchedFileSystem(sync_seconds=0.003), journals=2, seal_bytes=seal_bytes)
    writer.append([event(1)])
    told.add(range(1), [event(1)])

    def work(thread: int) -> None:
        if thread == 0:
            time.sleep(delay)
            writer.close()
            assert not list(tmp_path.rglob("*.journal"))
            with open_writer(tmp_path) as following:
                assert following.recovered == []
            return
        number = 0
        with pytest.raises(ClosedError, match="is closed"):
            while True:
                events = [event(thread * 100_000 + number)]
                told.add(writer.append(events), events)
                number += 1

    in_threads(8, work)
    told.expect_stored(tmp_path)


def fill(writer: JournalWriter) -> None:
    """Leave a sealed journal behind that is larger than the limit of the tests below."""
    writer.append([event(0, details="x" * 10_000)])
    writer.seal()


def sweep(folder: Path) -> None:
    """Remove the sealed journals, as the rollover does in the end."""
    for path in folder.rglob("*.sealed"):
        path.unlink()


def test_appends_wait_while_too_much_waits_and_go_on_after_the_rollover(tmp_path: Path) -> None:
    with open_writer(tmp_path, waiting_bytes_max=8192, backpressure_seconds=20) as writer:
        fill(writer)
        ids: list[range] = []
        waiting = [Thread(target=lambda n=n: ids.append(writer.append([event(n)]))) for n in range(1, 4)]
        for thread in waiting:
            thread.start()
        time.sleep(0.6)
        assert ids == [], "held back"
        sweep(tmp_path)
        started = time.monotonic()
        for thread in waiting:
            thread.join(10)
        assert time.monotonic() - started < 5
        assert sorted(ids_of_one.start for ids_of_one in ids) == [1, 2, 3]
    assert [item.event_id for item in stored([tmp_path])] == [1, 2, 3]


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_an_append_that_waited_too_long_says_what_to_run_and_takes_no_id(tmp_path: Path, seconds: float) -> None:
    with open_writer(tmp_path, waiting_bytes_max=8192, backpressure_seconds=seconds) as writer:
        fill(writer)
        started = time.monotonic()
        with pytest.raises(BackpressureError, match=r"limit is 8192 .journal.waiting_bytes_max.*custody run all"):
            writer.append([event(1)])
        assert seconds <= time.monotonic() - started < seconds + 3
        sweep(tmp_path)
        assert writer.append([event(2)]) == range(1, 2)


def test_a_new_writer_counts_what_waits_already(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        fill(writer)
    with (
        open_writer(tmp_path, waiting_bytes_max=8192, backpressure_seconds=0) as writer,
        pytest.raises(BackpressureError),
    ):
        writer.append([event(1)])


def test_closing_ends_the_wait_of_those_held_back(tmp_path: Path) -> None:
    writer = open_writer(tmp_path, waiting_bytes_max=8192, backpressure_seconds=60)
    fill(writer)

    def work(thread: int) -> None:
        if thread == 0:
            time.sleep(0.3)
            writer.close()
        else:
            with pytest.raises(ClosedError, match="is closed"):
                writer.append([event(thread)])

    in_threads(3, work)


def test_the_policy_always_syncs_before_it_acknowledges(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    with open_writer(tmp_path, fs) as writer:
        for number in range(5):
            writer.append([event(number)])
            assert fs.count("sync") == number + 2, "the header, then one for each append"
            assert fs.done[-1][0] == "sync"


@pytest.mark.parametrize("interval_ms", [50, 1000])
def test_the_policy_interval_syncs_within_the_interval(tmp_path: Path, interval_ms: int) -> None:
    fs = WatchedFileSystem()
    with open_writer(tmp_path, fs, sync=SyncPolicy.INTERVAL, sync_interval_ms=interval_ms) as writer:
        for number in range(1, 4):
            before = fs.count("sync") + (1 if number == 1 else 0)  # the header's
            writer.append([event(number)])
            assert within(interval_ms / 1000 + 0.5, lambda: fs.count("sync") > before)  # noqa: B023 - used at once
        idle = fs.count("sync")
        time.sleep(0.3)
        assert fs.count("sync") == idle, "nothing new, no sync"


def test_the_policy_interval_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    fs = WatchedFileSystem(sync_seconds=0.2)
    with open_writer(tmp_path, fs, sync=SyncPolicy.INTERVAL, sync_interval_ms=60_000) as writer:
        for number in range(50):
            writer.append([event(number)])
        assert fs.count("sync") == 1, "the header"


def test_the_policy_never_syncs_at_the_seal_only(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    with open_writer(tmp_path, fs, sync=SyncPolicy.NEVER, sync_interval_ms=10) as writer:
        for number in range(20):
            writer.append([event(number)])
        time.sleep(0.6)
        assert fs.count("sync") == 1, "the header"
        writer.seal()
        assert [name for name, _ in fs.done if name in ("sync", "rename")] == ["sync", "rename"] * 2
    assert len(stored([tmp_path])) == 20
