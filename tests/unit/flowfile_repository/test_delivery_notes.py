"""The log learns which events were delivered; logs without a beginning and snapshots without room are no end."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import CorruptionError, StorageError
from custody.flow import Component
from custody.repository import Repository
from custody.repository.flow import Flow
from custody.vfs.faults import Fault, FaultyFileSystem
from custody.vfs.memory import MemoryFileSystem

WORKER = Component(id="worker", type="Worker")
SETTINGS = Settings.model_validate({"root": Path("/repository"), "repository": {"containers": ["disk1"]}})


def opened(fs: MemoryFileSystem) -> Repository:
    return Repository(SETTINGS, fs, ManualClock(1_772_409_600_000))


def create(flow: Flow) -> None:
    with flow.session(WORKER) as session:
        session.transfer(session.create(), "queue")


def undelivered(flow: Flow) -> int:
    return flow.queues._read(lambda state: len(state.undelivered))


def test_a_delivery_is_noted_also_after_a_request_that_changes_nothing() -> None:
    with opened(MemoryFileSystem()).flowfiles(is_ticking=False) as flow:
        flow.connect("queue")
        create(flow)
        assert undelivered(flow) == 1
        with flow.session(WORKER) as session:
            assert session.get_many("queue", 1, lambda _: False) == []
        create(flow)
        assert undelivered(flow) == 1, "that of the first commit is noted with the second one"


def test_a_log_behind_transactions_that_are_missing_is_refused() -> None:
    fs = MemoryFileSystem()
    with opened(fs).flowfiles(is_ticking=False) as flow:
        flow.connect("queue")
        create(flow)
        create(flow)
    logs = SETTINGS.flowfiles_home / "log"
    [first] = fs.list(logs)
    fs.write_durably(logs / f"{99:020d}.log", fs.read(logs / first))
    with pytest.raises(CorruptionError, match="which is missing"), opened(fs).flowfiles(is_ticking=False):
        pass


def test_an_empty_log_behind_transactions_that_are_missing_goes() -> None:
    fs = MemoryFileSystem()
    with opened(fs).flowfiles(is_ticking=False) as flow:
        flow.queues.checkpoint()
        logs = SETTINGS.flowfiles_home / "log"
        [first] = fs.list(logs)
        fs.write_durably(logs / f"{99:020d}.log", fs.read(logs / first))
    with opened(fs).flowfiles(is_ticking=False) as flow:
        flow.connect("queue")
        create(flow)
    assert fs.list(logs) == [first]


def test_a_snapshot_that_does_not_fit_leaves_its_room_to_others() -> None:
    fs = MemoryFileSystem()
    full = Fault(frozenset({"write"}), "flowfiles/snapshot.partial", first=2, errno=errno.ENOSPC, taken_bytes=20)
    with Repository(SETTINGS, FaultyFileSystem(fs, full), ManualClock(0)).flowfiles(is_ticking=False) as flow:
        flow.connect("queue")
        create(flow)
        with pytest.raises(StorageError, match="No space left"):
            flow.queues.checkpoint()
        assert fs.list(SETTINGS.flowfiles_home) == ["lock", "log", "members", "swap"]
        create(flow)
        assert flow.queues.size("queue").count == 2
