"""The log: members follow one another, a recovery decides by what a crash left, damage is refused where it lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from custody.errors import CorruptionError, FormatVersionError, StorageError
from custody.flowfile_repository import Connection, FlowFileRepository
from custody.flowfile_repository.records import KIND_END_OF_LOG
from custody.format.framing import HEAD_BYTES, Frame, frame, frames
from custody.vfs.faults import FaultyFileSystem
from tests.support import flipped
from tests.unit.flowfile_repository.queue_fixtures import HOME, Machine, drain, flowfile, put, uuids

SNAPSHOT, PARTIAL = HOME / "snapshot", HOME / "snapshot.partial"


@pytest.fixture
def machine() -> Machine:
    """A machine whose processes have died: in the queue wait a, b of a snapshot and c, d of the log."""
    made = Machine()
    flowfiles = made.open()
    flowfiles.connect(Connection(name="q"))
    put(flowfiles, "q", [flowfile("a"), flowfile("b")], events=1)
    flowfiles.checkpoint()
    put(flowfiles, "q", [flowfile("c")])
    put(flowfiles, "q", [flowfile("d")], events=1)
    made.die()
    return made


def _found(machine: Machine) -> list[str]:
    with machine.open() as flowfiles:
        return uuids(flowfiles.waiting("q"))


def _records(machine: Machine, path: Path) -> list[Frame]:
    items = list(frames(machine.fs.read(path), 8))
    assert all(isinstance(item, Frame) for item in items)
    return [item for item in items if isinstance(item, Frame)]


def test_a_second_member_sees_what_the_first_one_did_and_the_other_way_round(machine: Machine) -> None:
    with machine.open() as first, machine.open() as second:
        put(first, "q", [flowfile("e")])
        assert uuids(second.waiting("q")) == ["a", "b", "c", "d", "e"]
        [taken] = second.take("q", "s").items
        assert taken.uuid == "a"
        assert first.size("q").taken == 1
        assert uuids(first.waiting("q")) == ["b", "c", "d", "e"]
        put(second, "q", [flowfile("f")])
        assert uuids(first.waiting("q"))[-1] == "f"


def test_a_member_follows_through_the_end_of_a_log(machine: Machine) -> None:
    with machine.open() as first, machine.open() as second:
        first.checkpoint()
        put(first, "q", [flowfile("e")])
        assert uuids(second.waiting("q"))[-1] == "e"


def test_a_member_that_missed_several_snapshots_begins_anew(machine: Machine) -> None:
    with machine.open() as first, machine.open() as second:
        for name in "efg":
            put(first, "q", [flowfile(name)])
            first.checkpoint()
        assert uuids(second.waiting("q")) == list("abcdefg")
        put(second, "q", [flowfile("h")])
        assert uuids(first.waiting("q")) == list("abcdefgh")


def test_a_snapshot_takes_the_place_of_the_logs_before_it(machine: Machine) -> None:
    with machine.open() as flowfiles:
        for _ in range(3):
            flowfiles.checkpoint()
        assert len(machine.fs.list(HOME / "log")) == 1
        assert not machine.fs.exists(PARTIAL)


# What a crash may leave of a snapshot, and what a recovery makes of it.


def test_with_both_files_the_snapshot_counts_and_the_partial_one_goes(machine: Machine) -> None:
    machine.overwrite(PARTIAL, machine.fs.read(SNAPSHOT))
    assert _found(machine) == list("abcd")
    assert not machine.fs.exists(PARTIAL)
    machine.overwrite(PARTIAL, b"torn")
    assert _found(machine) == list("abcd")
    assert not machine.fs.exists(PARTIAL)


def test_a_whole_partial_file_alone_becomes_the_snapshot(machine: Machine) -> None:
    data = machine.fs.read(SNAPSHOT)
    machine.fs.rename(SNAPSHOT, PARTIAL)
    assert _found(machine) == list("abcd")
    assert machine.fs.read(SNAPSHOT) == data
    assert not machine.fs.exists(PARTIAL)


@pytest.mark.parametrize("length", [0, 4, 50, -1])
def test_a_torn_partial_file_alone_goes_and_the_logs_count(length: int) -> None:
    machine = Machine()
    flowfiles = machine.open()
    flowfiles.connect(Connection(name="q"))
    put(flowfiles, "q", [flowfile("a")])
    log = machine.fs.read(machine.log), machine.log
    flowfiles.checkpoint()
    machine.die()
    data = machine.fs.read(SNAPSHOT)
    machine.fs.remove(SNAPSHOT)
    machine.overwrite(PARTIAL, data[:length])
    machine.overwrite(log[1], log[0])
    assert _found(machine) == ["a"]
    assert not machine.fs.exists(PARTIAL)


def test_a_torn_partial_file_without_the_logs_that_it_replaced_is_refused(machine: Machine) -> None:
    data = machine.fs.read(SNAPSHOT)
    machine.fs.remove(SNAPSHOT)
    machine.overwrite(PARTIAL, data[:-1])
    with pytest.raises(CorruptionError, match="expected the log with transaction 0, got none"):
        machine.open()


def test_a_snapshot_of_zero_bytes_is_none(machine: Machine) -> None:
    data = machine.fs.read(SNAPSHOT)
    machine.overwrite(SNAPSHOT, b"")
    with pytest.raises(CorruptionError, match="expected the log with transaction 0, got none"):
        machine.open()
    machine.overwrite(PARTIAL, data)
    assert _found(machine) == list("abcd")
    assert machine.fs.read(SNAPSHOT) == data


@pytest.mark.parametrize("is_begun", [False, True], ids=["no new log", "new log"])
def test_a_crash_between_the_end_of_a_log_and_the_snapshot_loses_nothing(machine: Machine, is_begun: bool) -> None:
    former, log = machine.fs.read(SNAPSHOT), machine.log
    data = machine.fs.read(log)
    if is_begun:
        with machine.open() as flowfiles:
            put(flowfiles, "q", [flowfile("e")])
            data = machine.fs.read(log)
            flowfiles.checkpoint()
    machine.overwrite(SNAPSHOT, former)
    machine.overwrite(log, data + frame(KIND_END_OF_LOG))
    assert _found(machine) == list("abcde" if is_begun else "abcd")
    assert len(machine.fs.list(HOME / "log")) == (2 if is_begun else 1)
    with machine.open() as flowfiles:
        flowfiles.checkpoint()
    assert len(machine.fs.list(HOME / "log")) == 1


# Damage.


@pytest.mark.parametrize("cut", [1, 5, HEAD_BYTES + 1])
def test_a_torn_tail_goes_to_the_quarantine_and_is_cut(machine: Machine, cut: int) -> None:
    data, last = machine.fs.read(machine.log), _records(machine, machine.log)[-1]
    log = machine.log
    machine.overwrite(log, data[: last.end - cut])
    assert _found(machine) == list("abc")
    assert machine.cut == [(log, last.offset, data[last.offset : last.end - cut], machine.cut[0][3])]
    assert machine.cut[0][3] == "a transaction that was broken off"
    with machine.open() as flowfiles:
        put(flowfiles, "q", [flowfile("e")])
    assert _found(machine) == list("abce")


def test_a_lost_sector_in_the_last_write_is_a_torn_tail(machine: Machine) -> None:
    with machine.open() as flowfiles:
        put(flowfiles, "q", [flowfile("e", text="x" * 5000)])
        log, data = machine.log, machine.fs.read(machine.log)
    machine.die()
    begin = data.index(b"x" * 5000)
    lost = -(-begin // 512) * 512 + 1024
    machine.overwrite(log, data[:lost] + bytes(512) + data[lost + 512 :].split(b"\xc5\x7e\xa1\x1d")[0])
    assert _found(machine) == list("abcd")
    assert len(machine.cut) == 1


def test_zeros_over_what_was_synced_are_damage_and_nothing_is_cut(machine: Machine) -> None:
    with machine.open() as flowfiles:
        put(flowfiles, "q", [flowfile("e", text="x" * 5000)])
        put(flowfiles, "q", [flowfile("f")])
        put(flowfiles, "q", [flowfile("g")])
    begin = machine.fs.read(machine.log).index(b"x" * 5000)
    lost = -(-begin // 512) * 512 + 1024
    data = machine.fs.read(machine.log)
    broken = data[:lost] + bytes(512) + data[lost + 512 :]
    machine.overwrite(machine.log, broken)
    with pytest.raises(CorruptionError, match="may have been acknowledged"):
        machine.open()
    assert (machine.fs.read(machine.log), machine.cut) == (broken, [])


@pytest.mark.parametrize("at", [0, 4, 8, 12, HEAD_BYTES, HEAD_BYTES + 20])
def test_damage_in_the_middle_is_refused_with_file_and_offset(machine: Machine, at: int) -> None:
    data, log = machine.fs.read(machine.log), machine.log
    middle = _records(machine, log)[-2]
    broken = flipped(data, 8 * (middle.offset + at) + 1)
    machine.overwrite(log, broken)
    with pytest.raises(CorruptionError, match=f"{log} @{middle.offset}: expected a transaction"):
        machine.open()
    assert (machine.fs.read(log), machine.cut) == (broken, [])


@pytest.mark.parametrize(("path", "name"), [("log", "FlowFile log"), ("snapshot", "FlowFile snapshot")])
@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda data: data[:7] + b"\x02" + data[8:], FormatVersionError, "@7: expected {name} version 1, got 2"),
        (lambda data: b"NOTOURS\x01" + data[8:], CorruptionError, "@0: expected the beginning of a {name}"),
        (lambda data: data[:5], CorruptionError, "@0: expected the beginning of a {name}"),
        (lambda data: data[:30], CorruptionError, "@8: expected the header of a {name}"),
        (lambda data: flipped(data, 8 * 30), CorruptionError, "@8: expected the header of a {name}"),
    ],
)
def test_another_head_is_refused(
    machine: Machine, path: str, name: str, damage: Callable[[bytes], bytes], error: type[Exception], message: str
) -> None:
    chosen = machine.log if path == "log" else SNAPSHOT
    machine.overwrite(chosen, damage(machine.fs.read(chosen)))
    with pytest.raises(error, match=f"{chosen} {message.format(name=name)}"):
        machine.open()


@pytest.mark.parametrize("at", [0.3, 0.6, 0.99])
def test_a_damaged_snapshot_is_refused(machine: Machine, at: float) -> None:
    data = machine.fs.read(SNAPSHOT)
    for broken in (flipped(data, int(8 * len(data) * at)), data[: int(len(data) * at)]):
        machine.overwrite(SNAPSHOT, broken)
        with pytest.raises(CorruptionError, match=f"{SNAPSHOT} @"):
            machine.open()


def test_a_log_of_another_repository_is_refused(machine: Machine) -> None:
    other = Machine()
    flowfiles = other.open()
    flowfiles.connect(Connection(name="q"))
    machine.overwrite(machine.log, other.fs.read(other.log))
    with pytest.raises(CorruptionError, match=f"{machine.log} @8: expected a log of the repository .*, got one of"):
        machine.open()


def test_a_log_that_was_removed_is_missed(machine: Machine) -> None:
    machine.fs.remove(machine.log)
    with pytest.raises(CorruptionError, match="expected the log with transaction"):
        machine.open()


# Failures of the disk.


class Failing(FaultyFileSystem):
    """A disk on which each operation of some kinds fails while it is told to."""

    failing: frozenset[str] = frozenset()

    def meet(self, kind: str, path: Path) -> None:
        if kind in self.failing and HOME in path.parents:
            raise StorageError(f"cannot {kind} {path}: injected")

    def admit(self, path: Path, length: int) -> tuple[int, None]:
        self.meet("write", path)
        return length, None


def _failing(machine: Machine) -> tuple[Failing, FlowFileRepository]:
    disk = Failing(machine.fs)
    machine.fs = disk  # type: ignore[assignment]
    return disk, machine.open()


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_commit_that_the_disk_refused_is_not_there_and_the_next_one_begins_a_new_log(
    machine: Machine, kind: str
) -> None:
    disk, flowfiles = _failing(machine)
    with flowfiles:
        log = machine.log
        disk.failing = frozenset({kind})
        with pytest.raises(StorageError, match="injected"):
            put(flowfiles, "q", [flowfile("e")], events=1)
        disk.failing = frozenset()
        assert uuids(flowfiles.waiting("q")) == list("abcd")
        put(flowfiles, "q", [flowfile("f")], events=1)
        assert machine.log != log
        assert drain(flowfiles, "q") == list("abcdf")


@pytest.mark.parametrize("kind", ["write", "sync", "create", "rename", "sync_directory"])
def test_a_checkpoint_that_the_disk_refused_changes_nothing(machine: Machine, kind: str) -> None:
    disk, flowfiles = _failing(machine)
    with flowfiles:
        disk.failing = frozenset({kind})
        with pytest.raises(StorageError, match="injected"):
            flowfiles.checkpoint()
        disk.failing = frozenset()
        put(flowfiles, "q", [flowfile("e")])
        flowfiles.checkpoint()
        assert drain(flowfiles, "q") == list("abcde")
