"""The journal writer: what it acknowledged is read back, ids are given once, a failure poisons it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from pathlib import Path

import pytest

from custody.clock import ManualClock
from custody.errors import ClosedError, CustodyError, LockedError, StorageError
from custody.journal import JournalFile, JournalWriter, groups, writers
from custody.model import Event, to_events
from custody.repository import Repository
from custody.vfs import FileSystem, PosixFileSystem
from tests.support import FailingFileSystem, append, event, numbered, python, unnumbered

HOLD = """
import sys
from pathlib import Path
from custody.repository import Repository
with Repository.open(Path(sys.argv[1])).writer():
    print("open", flush=True)
    sys.stdin.readline()
"""


def open_writer(containers: Sequence[Path], fs: FileSystem | None = None) -> JournalWriter:
    return JournalWriter(fs or PosixFileSystem(), containers, "main", "provenance", ManualClock())


def stored(containers: Sequence[Path]) -> list[Event]:
    """Every event on disk, by id."""
    fs = PosixFileSystem()
    events = [
        item
        for group in groups(fs, containers, "main")
        for path in (*group.sealed, *group.open)
        for item in to_events(JournalFile.read(fs, path).table())
    ]
    return sorted(events, key=lambda item: item.event_id)


def test_acknowledged_events_are_read_back_before_the_journal_is_sealed(tmp_path: Path) -> None:
    with open_writer([tmp_path]) as writer:
        assert writer.append([event(0), event(1)]) == range(2)
        assert writer.append([]) == range(2, 2)
        assert writer.append([event(2)]) == range(2, 3)
        assert stored([tmp_path]) == numbered([event(0), event(1), event(2)])


def test_an_empty_append_makes_no_file(tmp_path: Path) -> None:
    with open_writer([tmp_path]) as writer:
        writer.append([])
        assert writer.seal() == []
    assert groups(PosixFileSystem(), [tmp_path], "main") == []


def test_ids_go_up_by_one_over_seals_and_reopening(repository: Repository) -> None:
    given: list[int] = []
    for start in range(0, 30, 10):
        with repository.writer() as writer:
            given += writer.append([event(start + n) for n in range(4)])
            writer.seal()
            given += writer.append([event(start + 4 + n) for n in range(6)])
    assert given == list(range(30))
    events = list(repository.events())
    assert [item.event_id for item in events] == given
    assert unnumbered(events) == [event(n) for n in range(30)]


def test_ids_never_go_down(tmp_path: Path) -> None:
    with open_writer([tmp_path]) as writer:
        writer.begin(10)
        assert writer.append([event()]) == range(10, 11)
        writer.begin(10)
        assert writer.append([event()]) == range(11, 12)


def test_a_new_group_begins_after_each_seal(tmp_path: Path) -> None:
    with open_writer([tmp_path]) as writer:
        writer.append([event(0)])
        [first] = writer.seal()
        writer.append([event(1), event(2)])
        [second] = writer.seal()
    assert (first.name, second.name) == ("00000000000000000000.0.sealed", "00000000000000000001.0.sealed")


def test_groups_go_round_the_containers_and_none_is_missed(tmp_path: Path) -> None:
    containers = [tmp_path / "disk1", tmp_path / "disk2"]
    with open_writer(containers) as writer:
        for number in range(5):
            writer.append([event(number)])
            writer.seal()
    pending = groups(PosixFileSystem(), containers, "main")
    assert [group.first_event_id for group in pending] == [0, 1, 2, 3, 4]
    assert {path.parents[2].name for group in pending for path in group.sealed} == {"disk1", "disk2"}
    assert writers(PosixFileSystem(), containers) == ["main"]
    assert stored(containers) == numbered([event(n) for n in range(5)])


def test_events_of_a_repository_with_several_containers_are_read_in_order(repository: Repository) -> None:
    root = repository.settings.root
    (root / "custody.toml").write_text('[repository]\ncontainers = ["disk1", "disk2", "disk3"]\n')
    opened = Repository.open(root)
    for number in range(7):
        append(opened, [event(number)])
    assert unnumbered(opened.events()) == [event(number) for number in range(7)]
    assert len(list(root.glob("disk*/main/journals/*.sealed"))) == 7


def test_a_second_live_writer_is_refused_with_the_pid_of_the_first(repository: Repository) -> None:
    with python(HOLD, repository.settings.root) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(LockedError, match=f"live process {other.pid}"), repository.writer():
            pytest.fail("two live writers of one name")
        other.stdin.close()
        other.wait(10)
    assert append(repository, [event()]) == range(1)


def test_a_closed_writer_refuses(tmp_path: Path) -> None:
    writer = open_writer([tmp_path])
    writer.close()
    with pytest.raises(ClosedError, match="is closed"):
        writer.append([event()])


def test_events_that_no_column_holds_are_refused_without_harm(tmp_path: Path) -> None:
    with open_writer([tmp_path]) as writer:
        with pytest.raises((ValueError, OverflowError)):
            writer.append([event(file_size=1 << 63)])
        assert writer.append([event(1)]) == range(1)


def life(fs: FileSystem, folder: Path) -> tuple[list[Event], list[Event]]:
    """Two appends, a seal, one append; return what was acknowledged and what was tried."""
    acknowledged: list[Event] = []
    tried: list[Event] = []
    writer = open_writer([folder], fs)
    broken = False
    try:
        for step in ([event(0), event(1)], [event(2)], None, [event(3)]):
            try:
                if step is None:
                    writer.seal()
                else:
                    tried += step
                    writer.append(step)
                    assert not broken, "a writer that failed once went on"
                    acknowledged += step
            except StorageError:
                assert not broken
                broken = True
            except ClosedError:
                assert broken
    finally:
        try:
            writer.close()
        except StorageError:
            broken = True
    return acknowledged, tried


def test_a_writer_that_failed_at_any_operation_is_poisoned_and_loses_nothing(tmp_path: Path) -> None:
    """Refuse each durable operation of a writer's life in turn, then open again and look."""
    counting = FailingFileSystem()
    assert life(counting, tmp_path / "whole")[0] == [event(n) for n in range(4)]
    assert set(counting.operations) >= {"create", "write", "sync", "rename", "sync_directory"}
    failures = 0
    for fail_at in range(1, len(counting.operations) + 1):
        folder = tmp_path / str(fail_at)
        fs = FailingFileSystem(fail_at)
        try:
            acknowledged, tried = life(fs, folder)
        except CustodyError:
            acknowledged, tried = [], []  # the writer could not even be opened
        failures += 1
        with open_writer([folder]) as writer:
            events = stored([folder])
            ids = [item.event_id for item in events]
            assert ids == list(range(len(events)))
            assert unnumbered(events)[: len(acknowledged)] == acknowledged, fs.operations
            assert unnumbered(events) == tried[: len(events)], fs.operations
            writer.begin(len(events))
            writer.append([event(99)])
        assert unnumbered(stored([folder]))[-1] == event(99)
    assert failures > 8


def test_a_writer_that_is_forgotten_is_gone_at_once_and_its_thread_with_it(tmp_path: Path) -> None:
    writer = JournalWriter(PosixFileSystem(), [tmp_path], "main", "provenance", ManualClock())
    writer.append([event(1)])
    living, thread = weakref.ref(writer), writer._background
    gc.disable()
    try:
        del writer
        assert living() is None
    finally:
        gc.enable()
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive()
