"""Scenarios of the content repository: contents, small and large, are stored with their events, and expire."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from custody.clock import ManualClock
from custody.config.sections import RetentionSection
from custody.flow.content import with_content
from custody.flow.content.claim_file import ContentRecord, read_header, scan
from custody.format.names import is_claim, is_section
from custody.repository import EventSelection, SlotWriter
from custody.repository.retention_api import apply_retention
from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.crash.machine_with_bucket import new_disk, settings_on
from tests.crash.memory_repository import SETTINGS, Promises, check_catalog, repository, run_pass
from tests.crash.rollover_scenarios import StoreScenario
from tests.support import event

LIMITED = SETTINGS.model_copy(
    update={"content": SETTINGS.content.model_copy(update={"claim_bytes": 4096, "containers": ("c1", "c2")})}
)


@dataclass
class Contents(Promises):
    """Besides the events: what each acknowledged one speaks of, and everything that was tried."""

    contents: dict[int, bytes] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)

    def copy(self) -> Contents:
        return Contents(self.tried, dict(self.acknowledged), dict(self.contents), list(self.bodies))

    def store(self, writer: SlotWriter, size: int) -> None:
        """Store an event with a content of so many bytes, and write down the acknowledgement."""
        number = self.tried
        self.tried += 1
        body = f"{number:04d}".encode() * (size // 4)
        self.bodies.append(body)
        ids = writer.append_with_content([event(number)], body)
        self.contents[ids.start] = body


class Storing(StoreScenario):
    """Contents over two containers: some share a file, a file is full, one is large; in the lives of two processes."""

    def new_record(self) -> Contents:
        return Contents()

    def run(self, fs: FileSystem, record: Promises) -> None:
        assert isinstance(record, Contents)
        with repository(fs, LIMITED).writer() as writer:
            for size in (40, 400, 3900, 800, 8000, 40):
                record.store(writer, size)
        with repository(fs, LIMITED).writer() as writer:
            record.store(writer, 40)

    def check(self, fs: FileSystem, record: Promises) -> None:
        assert isinstance(record, Contents)
        check_catalog(fs)
        at = repository(fs, LIMITED)
        by_id = {item.event_id: item for item in at.events(0, 100)}
        for event_id, body in record.contents.items():
            assert event_id in by_id, f"acknowledged event {event_id} is lost"
            assert at.content(by_id[event_id]).read() == body
        for item in by_id.values():
            assert at.content(item).read() in record.bodies, "an event lies there without its content"
        check_claims(fs, record)

    def use(self, fs: FileSystem, record: Promises) -> None:
        assert isinstance(record, Contents)
        with repository(fs, LIMITED).writer() as writer:
            record.store(writer, 40)


OLD, HELD = 0, 1
"""The events of the two logs, both old; each has a file of contents, and they share a third one."""
KEPT_MS = 9_900
EXPIRING = LIMITED.model_copy(
    update={
        "retention": RetentionSection(age_max="5 seconds", grace="0 seconds"),
        "content": LIMITED.content.model_copy(update={"unused_minutes": 0.0}),
    }
)


class Dropping(StoreScenario):
    """A log expires and the file of contents that only its event speaks of goes; what a held event speaks of stays."""

    always_at = frozenset({"remove"})

    def __init__(self) -> None:
        disk = new_disk()
        self._contents = Contents()
        with repository(disk, LIMITED).writer() as writer:
            shared = writer.content.put(b"both")
            for number in (OLD, HELD):
                body = bytes([number]) * 5000
                told = with_content(event(number), writer.content.put(body))
                [event_id] = writer.append([msgspec.structs.replace(told, previous_content_claim=shared.claim)])
                self._contents.contents[event_id] = body
                self._contents.bodies.append(body)
                writer.seal()
                run_pass(disk, settings=LIMITED)
        self._contents.tried = 2
        repository(disk).hold("case", EventSelection(flowfile_uuids=[event(HELD).flowfile_uuid]), "asked for", "legal")
        self._disk = disk

    def start(self) -> MemoryFileSystem:
        return self._disk.crashed(CrashMode.ALL_KEPT)

    def new_record(self) -> Contents:
        return self._contents.copy()

    def run(self, fs: FileSystem, record: Promises) -> None:
        assert isinstance(record, Contents)
        apply_retention(settings_on(fs, EXPIRING), fs, ManualClock(event(HELD).event_time + KEPT_MS))
        record.contents.pop(OLD, None)

    def check(self, fs: FileSystem, record: Promises) -> None:
        assert isinstance(record, Contents)
        at = repository(fs, LIMITED)
        by_id = {item.event_id: item for item in at.events(0, 100)}
        assert HELD in by_id, "a held event is gone"
        for number, item in by_id.items():
            assert at.content(item).read() == record.bodies[number], "an event is there without its content"
            assert at.content(item, previous=True).read() == b"both"
        is_done = OLD not in record.contents
        assert len(list(at.contents())) == (2 if is_done else len(list(at.contents()))), "contents are left"
        if is_done:
            assert list(by_id) == [HELD]

    def use(self, fs: FileSystem, record: Promises) -> None:
        self.run(fs, record)


def check_claims(fs: FileSystem, record: Contents) -> None:
    """Whatever has the name of a resource claim has a head, and holds nothing that was never stored."""
    home = settings_on(fs, SETTINGS).store / "main/content"
    for container in fs.list(home):
        for section in filter(is_section, fs.list(home / container)):
            for name in fs.list(home / container / section):
                path = home / container / section / name
                if is_claim(name):
                    _check_claim(fs, path, record)
                else:
                    assert name.endswith(".partial"), path


def _check_claim(fs: FileSystem, path: Path, record: Contents) -> None:
    data = memoryview(fs.read(path))
    header, start = read_header(data, path)
    for item in scan(data, header.key, start):
        # A record may be whole while the content before it is not: its power failed before it was synced.
        if isinstance(item, ContentRecord):
            assert item.length in {len(body) for body in record.bodies}
