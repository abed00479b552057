"""Source locks: one ingest at a time stores events of a source, and knows whether it has to read again."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest

from custody.capture import Accepted, CaptureLimits, Context, Format, read_stream
from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import LockedError, StorageError
from custody.ingest import source_locks
from custody.ingest.source_locks import STRIPES, SourceLocks, stripe_of
from custody.journal import JournalOptions, JournalWriter, SyncPolicy
from custody.model import Event
from custody.repository import Repository, SlotWriter
from custody.vfs import PosixFileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.support import event, run_steps, unnumbered
from tests.unit.capture.json_documents import document
from tests.unit.ingest.test_ingest import write
from tests.unit.ingest.test_slots import slotted

ONE, TWO = "one", "two"
ALONE: dict[str, object] = {"contentURI": None, "previousContentURI": None, "actorHostname": None}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[SourceLocks, SourceLocks]:
    fs = PosixFileSystem()
    return SourceLocks(fs, tmp_path / "turns", 0), SourceLocks(fs, tmp_path / "turns", 0)


def test_stripes_never_change_and_take_any_text() -> None:
    """Ingests of an older version have to agree with those of a newer one."""
    assert [stripe_of(name) for name in ("", "node-1", "node-2", "\udc80")] == [2, 6, 15, 3]
    assert {stripe_of(str(number)) for number in range(200)} == set(range(STRIPES))


def test_a_source_is_held_by_one_and_others_are_free(pair: tuple[SourceLocks, SourceLocks]) -> None:
    first, second = pair
    assert stripe_of(ONE) != stripe_of(TWO)
    first.take([ONE])
    with pytest.raises(LockedError, match=r"same source.*capture\.source_wait_seconds"):
        second.take([TWO, ONE])
    second.take([TWO])
    first.end()
    assert second.take([ONE, TWO])


def test_a_look_is_needed_at_first_and_after_others(pair: tuple[SourceLocks, SourceLocks]) -> None:
    first, second = pair
    assert first.take([ONE])
    assert not first.take([ONE])
    first.end()
    assert not first.take([ONE])
    assert first.take([ONE, TWO])
    first.end()
    assert second.take([TWO])
    second.end()
    assert not first.take([ONE])
    assert first.take([TWO])
    first.forget()
    assert first.take([TWO])


def test_a_lost_mark_costs_a_look(pair: tuple[SourceLocks, SourceLocks], tmp_path: Path) -> None:
    first, _ = pair
    first.take([ONE])
    first.end()
    for path in (tmp_path / "turns").glob("*.last"):
        path.unlink()
    assert first.take([ONE])


def test_more_sources_are_taken_in_one_order_so_that_two_never_wait_for_each_other(tmp_path: Path) -> None:
    sources = sorted(("one", "two"), key=stripe_of)

    def work(order: list[str]) -> None:
        mine = SourceLocks(PosixFileSystem(), tmp_path / "turns", 20)
        for _ in range(30):
            for source in order:
                mine.take([source])
            mine.end()

    started = time.monotonic()
    threads = [Thread(target=work, args=(order,)) for order in (sources, sources[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
        assert not thread.is_alive()
    assert time.monotonic() - started < 20


def test_a_long_ingest_lets_others_have_their_turn(
    pair: tuple[SourceLocks, SourceLocks], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair
    monkeypatch.setattr(source_locks, "_HOLD_SECONDS", 0.0)
    monkeypatch.setattr(source_locks, "_GAP_SECONDS", 0.5)
    first.take([ONE])
    second._wait_seconds = 20

    def take_one() -> None:
        second.take([ONE])
        second.end()

    other = Thread(target=take_one)
    other.start()
    time.sleep(0.1)
    assert first.take([ONE]), "the other one had its turn in between"
    other.join()


def send(tmp_path: Path, name: str, **changes: object) -> Path:
    return write(tmp_path / name, document("SEND", **ALONE, **changes))


@pytest.mark.parametrize("live", [False, True])
def test_an_event_of_another_slot_is_a_repetition_or_a_contradiction(
    repository: Repository, tmp_path: Path, live: bool
) -> None:
    opened = slotted(repository, 2)
    same, other = send(tmp_path, "a.json"), send(tmp_path, "b.json", entitySize=999)
    with opened.ingest() as first, opened.ingest() as second:
        report = first.file(same, node=ONE)
        assert (report.writer, report.stored) == ("main", 1)
        if live:
            assert isinstance(first._writer, SlotWriter)
            first._writer.seal()
            run_steps(opened.settings)
        report = second.file(same, node=ONE)
        assert (report.writer, report.stored, report.repeated) == ("main-2", 0, 1)
        report = second.file(other, node=ONE)
        assert (report.stored, report.rejected) == (0, 1)
        assert "is stored as event 0 of writer 'main' with different content" in report.problems[0]
        assert second.file(same, node=TWO).stored == 1
        assert first.file(same, node=TWO).repeated == 1, "what was stored after the first look is seen"
    assert opened.search("").total == 2


def test_a_look_up_keeps_others_out_until_its_events_are_stored(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other ingest starts between the look and the append of the first."""
    opened = slotted(repository, 2, "[capture]\nsource_wait_seconds = 0\n")
    same = send(tmp_path, "a.json")
    with opened.ingest() as first, opened.ingest() as second:
        append = SlotWriter.append_checked
        refused: list[str] = []

        def interrupted(writer: SlotWriter, events: pa.RecordBatch) -> range:
            if writer.name == "main":
                with pytest.raises(LockedError) as caught:
                    second.file(same, node=ONE)
                refused.append(str(caught.value))
            return append(writer, events)

        monkeypatch.setattr(SlotWriter, "append_checked", interrupted)
        assert first.file(same, node=ONE).stored == 1
        assert len(refused) == 1
        assert second.file(same, node=ONE).repeated == 1


def test_after_a_failed_append_stored_events_are_looked_up_anew(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk took the events and said that it did not."""
    same = send(tmp_path, "a.json")
    append = SlotWriter.append_checked

    def failing(writer: SlotWriter, events: pa.RecordBatch) -> range:
        append(writer, events)
        raise StorageError("cannot sync: injected")

    with repository.ingest() as work:
        with monkeypatch.context() as patched:
            patched.setattr(SlotWriter, "append_checked", failing)
            with pytest.raises(StorageError):
                work.file(same, node=ONE)
        assert work.file(same, node=ONE).repeated == 1
    assert len(list(repository.events())) == 1


@pytest.mark.parametrize("mode", [CrashMode.SYNCED_ONLY, CrashMode.RANDOM_BLOCKS])
def test_events_that_another_process_stored_survive_power_loss(tmp_path: Path, mode: CrashMode) -> None:
    """That process wrote and died before its sync: its event was never acknowledged, the repetition is."""
    fs = MemoryFileSystem()
    settings = Settings.model_validate({"root": Path("/repository"), "repository": {"writer_slots": 2}})
    opened = Repository(settings, fs, ManualClock(1_772_409_600_000))
    same = send(tmp_path, "a.json")
    with opened.writer() as elsewhere, opened.ingest() as work:
        elsewhere.append([event()])  # the folders are there, as they are when a process has been at work
        unsynced = JournalWriter(
            fs, settings.containers, "dead", "provenance", ManualClock(), JournalOptions(sync=SyncPolicy.NEVER)
        )
        [stored] = _read(same)
        unsynced.append([stored])
        assert work.file(same, node=ONE).repeated == 1
        after = Repository(settings, fs.crashed(mode, 1), ManualClock(1_772_409_600_000))
    events = unnumbered(item.event for item in after.search("event_type:SEND").events)
    assert events == [stored]
    unsynced.close()


def _read(path: Path) -> list[Event]:
    """The events of a file, as an ingest reads them."""
    limits = CaptureLimits(event_bytes_max=1 << 20, file_bytes_max=1 << 30)
    context = Context(ONE, received_ms=int(path.stat().st_mtime * 1000))
    with path.open("rb", buffering=0) as stream:
        items = list(read_stream(stream, limits, format=Format.NIFI, context=context))
    return [item.event for item in items if isinstance(item, Accepted)]
