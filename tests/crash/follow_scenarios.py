"""Scenario of a follower: notifications are written from open journals, and published by a rollover afterwards.

A writer appends while the sink runs; one append is overtaken by another one, and the sink runs between the two.
Whatever a crash leaves, the files hold the rows of the stored events in the end, each once, and no row of an event that
is gone.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from custody.clock import ManualClock
from custody.config import Settings
from custody.ingest.slots import SlotWriter
from custody.journal.open_group import GroupCommitFile
from custody.lease import Attempt
from custody.ngsi_sink.batch_file import WRITER
from custody.ngsi_sink.follow import Follower
from custody.ngsi_sink.opening import OpenSink, open_sink
from custody.recovery import STEPS
from custody.repository import Repository
from custody.vfs import FileSystem
from custody.workspace import Workspace
from tests.crash.enumeration import Scenario
from tests.unit.ngsi_sink.sink_repository import NOW_MS, append

ROOT = Path("/repository")
FILE = ROOT / "hdfs/user/warden/parks/north/Bench1_Bench/Bench1_Bench.txt"


@dataclass
class Sent:
    """Numbers of notifications: those that a writer was given, and those that it acknowledged."""

    tried: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)


class Following(Scenario[Sent]):
    """A follower beside a writer, and a rollover; `sync` is the promise of the writer's acknowledgements."""

    def __init__(self, sync: str) -> None:
        self._sync = sync
        self._settings = Settings.model_validate(
            {
                "root": ROOT,
                "repository": {"containers": ["disk1"]},
                "journal": {"sync": sync},
                "ngsi": {"hdfs_username": "warden", "hive": False, "batch_ttl": 0, "backend_files_at_once": 1},
            }
        )

    def new_record(self) -> Sent:
        return Sent()

    def copy(self, record: Sent) -> Sent:
        return Sent(list(record.tried), list(record.acknowledged))

    def run(self, fs: FileSystem, record: Sent) -> None:
        with self._repository(fs).writer() as writer, self._sink(fs) as opened:
            follower = Follower(opened)
            for number in (0, 1):
                self._append(writer, number, record)
                list(follower.step())

            def overtake() -> None:
                self._append(writer, 3, record)
                list(follower.step())

            with overtaken(overtake):
                self._append(writer, 2, record)
            list(follower.step())
        self._roll_over(fs)
        with self._sink(fs) as opened:
            list(Follower(opened).step())
            with self._repository(fs).writer() as writer:
                self._append(writer, 4, record)
                list(Follower(opened).step())

    def check(self, fs: FileSystem, record: Sent) -> None:
        # Of a torn end nothing is said: the next run mends it. Lines before it stay.
        lines = [line for line in self._lines(fs)[:-1] if b"\0" not in line]
        numbers = [number_of(line) for line in lines]
        assert max(Counter(numbers).values(), default=1) == 1, f"written twice: {numbers}"
        assert set(numbers) <= set(record.tried), f"nobody sent it: {numbers}"

    def use(self, fs: FileSystem, record: Sent) -> None:
        with self._repository(fs).writer() as writer:  # seals what the crash left
            self._append(writer, 100 + len(record.tried), record)
        with self._sink(fs) as opened:
            list(Follower(opened).step())
        self._roll_over(fs)
        with self._sink(fs) as opened:
            list(Follower(opened).step())
        repository = self._repository(fs)
        stored = [event for event in repository.events(0, 1000, "main") if event.event_type == "RECEIVE"]
        sent = list(repository.events(0, 1000, WRITER))
        written = sorted(number_of(line) for line in self._lines(fs) if line)
        assert max(Counter(written).values()) == 1, f"written twice: {written}"
        received = sorted(int(event.updated_attributes["ngsi.correlator"] or "") for event in stored)
        # A row whose event was lost proves nothing.
        assert set(written) <= set(received), f"rows {written}, events {received}"
        if self._sync != "always":
            return  # a power loss may cost contents and SEND events: nothing more was promised
        assert written == received, f"rows {written}, events {received}"
        assert set(record.acknowledged) <= set(written), f"lost: {record.acknowledged}, {written}"
        parents = Counter(parent for event in sent for parent in event.parent_uuids)
        assert parents == Counter(event.flowfile_uuid for event in stored), "told of twice, or not at all"

    def _append(self, writer: SlotWriter, number: int, record: Sent) -> None:
        record.tried.append(number)
        append(writer, self._repository(writer._fs), number)
        record.acknowledged.append(number)

    def _sink(self, fs: FileSystem) -> AbstractContextManager[OpenSink]:
        # Whoever crashed is this process, which lives: nobody would take its lease without being told to.
        return open_sink(
            self._repository(fs), Attempt("test", 1), take_over=True, with_journals=True, sleep=lambda _: None
        )

    def _roll_over(self, fs: FileSystem) -> None:
        for step in STEPS.values():
            for unit in step.units(self._settings, fs):
                step.run(Workspace(self._settings, unit.writer, fs, ManualClock(NOW_MS)), unit)

    def _repository(self, fs: FileSystem) -> Repository:
        return Repository(self._settings, fs, ManualClock(NOW_MS))

    def _lines(self, fs: FileSystem) -> list[bytes]:
        return (fs.read(FILE) if fs.exists(FILE) else b"").split(b"\n")


def number_of(line: bytes) -> int:
    return int(json.loads(line)["attrValue"]) - 1000


class overtaken(AbstractContextManager[None]):
    """Lets something happen when the next append has its ids, and has not written anything."""

    def __init__(self, happens: Any) -> None:
        self._happens = happens
        right = GroupCommitFile.append

        def late(file: GroupCommitFile, appended: Any) -> None:
            happens, self._happens = self._happens, None
            if happens is not None:
                happens()
            right(file, appended)

        self._patch = patch.object(GroupCommitFile, "append", late)

    def __enter__(self) -> None:
        self._patch.start()

    def __exit__(self, *error: object) -> None:
        self._patch.stop()
