"""Damaged bytes of a log, a snapshot or a swap file are refused with an error of custody's, or cost nothing whole."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from custody.errors import CustodyError
from custody.flowfile_repository import Connection
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.unit.flowfile_repository.queue_fixtures import HOME, Machine, flowfile, put

NAMES = [f"f{number}" for number in range(12)]
KINDS = st.sampled_from(["log", "snapshot", "swap"])


@cache
def _good() -> MemoryFileSystem:
    """A repository of a dead process: some FlowFiles in a swap file, some in the snapshot, some in the log."""
    machine = Machine(threshold=3)
    flowfiles = machine.open()
    flowfiles.connect(Connection(name="q"))
    put(flowfiles, "q", [flowfile(name) for name in NAMES[:8]], events=2)
    flowfiles.checkpoint()
    for name in NAMES[8:]:
        put(flowfiles, "q", [flowfile(name, note="x" * 100)], events=1)
    return machine.fs


def _path(fs: MemoryFileSystem, kind: str) -> Path:
    if kind == "snapshot":
        return HOME / "snapshot"
    return sorted(HOME / kind / name for name in fs.list(HOME / kind))[-1]


def _found(kind: str, data: bytes) -> list[str] | None:
    """What waits when a file holds these bytes, None where that is refused."""
    machine = Machine(threshold=3)
    machine.fs = _good().crashed(CrashMode.ALL_KEPT)
    machine.overwrite(_path(machine.fs, kind), data)
    try:
        with machine.open() as flowfiles:
            return [item.uuid for item in flowfiles.take("q", "s", count=99).items]
    except CustodyError as error:
        assert str(HOME) in str(error) or "FlowFile log" in str(error), error
        return None


def _good_bytes(kind: str) -> bytes:
    return _good().read(_path(_good(), kind))


@given(KINDS, st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_changes_nothing(kind: str, place: float, change: int) -> None:
    data = bytearray(_good_bytes(kind))
    data[int(place * len(data))] ^= change
    found = _found(kind, bytes(data))
    # The last record of a log, when a byte of it is changed so that it looks broken off, was never acknowledged.
    assert found is None or found == NAMES or (kind == "log" and found == NAMES[: len(found)] and len(found) >= 11)


@given(KINDS, st.floats(0, 1, exclude_max=True))
def test_a_file_that_ends_early_is_refused_or_costs_the_end_of_the_log(kind: str, place: float) -> None:
    data = _good_bytes(kind)
    found = _found(kind, data[: int(place * len(data))])
    assert found is None or found == NAMES or (kind == "log" and found == NAMES[: len(found)] and len(found) >= 8)


@given(KINDS, st.binary(max_size=200))
@example("snapshot", b"")
@example("log", b"CUSTFFL\x01")
@example("swap", b"CUSTSWP\x01")
def test_foreign_bytes_are_refused(kind: str, data: bytes) -> None:
    assert _found(kind, data) is None


@given(st.binary(min_size=1, max_size=60))
def test_foreign_bytes_behind_a_log_cost_nothing(data: bytes) -> None:
    found = _found("log", _good_bytes("log") + data)
    assert found in (None, NAMES)


@given(KINDS, st.floats(0, 1, exclude_max=True), st.integers(1, 700))
def test_zeros_are_refused_or_cost_the_end_of_the_log(kind: str, place: float, length: int) -> None:
    data = bytearray(_good_bytes(kind))
    at = int(place * len(data))
    data[at : at + length] = bytes(len(data[at : at + length]))
    found = _found(kind, bytes(data))
    assert found is None or found == NAMES or (kind == "log" and found == NAMES[: len(found)] and len(found) >= 8)
