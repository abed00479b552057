"""Scenario of a disk that is full for a while: the writer seals the journal that it left open and goes on."""

from __future__ import annotations

import errno
from pathlib import Path
from unittest.mock import patch

import pytest

from custody.errors import StorageError
from custody.journal import journal_writer as journal_writer
from custody.journal.container_health import ContainerHealth
from custody.vfs import FileSystem
from custody.vfs.faults import Fault, FaultyFileSystem
from tests.crash.memory_repository import Promises, repository
from tests.crash.rollover_scenarios import StoreScenario


class Healing(StoreScenario):
    """A write takes a part and is refused; the container comes back, and what it held is sealed while the writer lives.

    The writer's own thread would do this at any time. It does nothing here, so that every run is the same.
    """

    def run(self, fs: FileSystem, record: Promises) -> None:
        full = Fault(frozenset({"write"}), "*/journals/*", first=3, errno=errno.ENOSPC, taken_bytes=20)
        with (
            patch.object(journal_writer, "tick_in_background", lambda *_: None),
            patch.object(ContainerHealth, "due", _all),
            repository(FaultyFileSystem(fs, full)).writer() as writer,
        ):
            record.append(writer, 2)
            with pytest.raises(StorageError, match="No space left"):
                record.append(writer, 1)
            record.append(writer, 1)
            writer.tick()
            assert writer.failed_containers == {}
            record.append(writer, 2)


def _all(self: ContainerHealth) -> list[Path]:
    return list(self._failed)
