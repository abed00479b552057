"""Scenarios of contents in the store: they are handed over, their disks are lost, and what expired goes from both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from custody.clock import ManualClock
from custody.config import Settings
from custody.flow.content import with_content
from custody.flow.content.handed_claims import HandedClaims
from custody.repository import EventSelection, Repository
from custody.repository.retention_api import apply_retention
from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.crash.content_scenarios import EXPIRING, HELD, KEPT_MS, LIMITED, OLD, Contents
from tests.crash.enumeration import Scenario
from tests.crash.machine_with_bucket import new_disk as empty_disk
from tests.crash.machine_with_bucket import settings_on
from tests.crash.memory_repository import NOW_MS, check_catalog, require_done, run_pass
from tests.support import event

DISKS = ("d1", "d2")


def _handing_over(settings: Settings) -> Settings:
    content = {"handoff": "store", "containers": tuple(f"c{disk[1]}={disk}" for disk in DISKS)}
    return settings.model_copy(update={"content": settings.content.model_copy(update=content)})


HANDED, EXPIRING_HANDED = _handing_over(LIMITED), _handing_over(EXPIRING)
AWAY = HANDED.root / "away"


@dataclass
class HandedContents(Contents):
    """What was acknowledged, and of which events the contents were handed over as well."""

    safe: set[int] = field(default_factory=set)

    def copy(self) -> HandedContents:
        return HandedContents(
            self.tried, dict(self.acknowledged), dict(self.contents), list(self.bodies), set(self.safe)
        )


def at(fs: FileSystem, settings: Settings = HANDED) -> Repository:
    return Repository(settings_on(fs, settings), fs, ManualClock(NOW_MS))


def new_disk() -> MemoryFileSystem:
    """The folders of the disks are there: custody makes none."""
    disk = empty_disk()
    for name in DISKS:
        disk.make_directory(HANDED.root / name)
    disk.sync_directory(HANDED.root)
    disk.sync_directory(HANDED.root.parent)
    return disk


def hand_over(fs: FileSystem, record: HandedContents) -> None:
    """Hand over all contents; nobody writes, so that all that was acknowledged so far is safe.

    A file is named whose last content a power loss took before it was acknowledged, and left its record.
    """
    problems = [problem for item in at(fs).hand_over_contents() for problem in item.problems]
    torn = [problem for problem in problems if "of content with the CRC-32" in problem]
    waiting = at(fs).contents_not_handed_over()
    is_done = problems == torn and sum(item.claims for item in waiting.values()) == len(torn)
    require_done(problems or waiting, is_done=is_done)
    record.safe.update(record.contents)


@contextmanager
def without_disks(fs: FileSystem) -> Iterator[None]:
    """Take the disks of contents out."""
    fs.make_directory(AWAY)
    for name in DISKS:
        fs.rename(HANDED.root / name, AWAY / name)
    fs.sync_directory(AWAY)
    fs.sync_directory(HANDED.root)
    try:
        yield
    finally:
        for name in DISKS:
            fs.rename(AWAY / name, HANDED.root / name)
        fs.remove_tree(AWAY)
        fs.sync_directory(HANDED.root)


def objects(fs: FileSystem) -> list[str]:
    """The keys of all that was handed over."""
    handed = HandedClaims.of(fs, settings_on(fs, HANDED).content_store)
    assert handed is not None
    return [resource.text for resource in handed.listed("main")]


class HandingContentsOver(Scenario[HandedContents]):
    """Small and large contents of two processes are handed over; `use` adds one."""

    def new_record(self) -> HandedContents:
        return HandedContents()

    def copy(self, record: HandedContents) -> HandedContents:
        return record.copy()

    def start(self) -> MemoryFileSystem:
        return new_disk().crashed(CrashMode.ALL_KEPT)

    def run(self, fs: FileSystem, record: HandedContents) -> None:
        for sizes in ((40, 3900, 8000), (400,)):
            with at(fs).writer() as writer:
                for size in sizes:
                    record.store(writer, size)
            hand_over(fs, record)

    def check(self, fs: FileSystem, record: HandedContents) -> None:
        check_catalog(fs, HANDED)
        by_id = {item.event_id: item for item in at(fs).events(0, 100)}
        for event_id, body in record.contents.items():
            assert at(fs).content(by_id[event_id]).read() == body
        with without_disks(fs):
            for event_id in record.safe:
                assert at(fs).content(by_id[event_id]).read() == record.contents[event_id], "a content is lost"

    def use(self, fs: FileSystem, record: HandedContents) -> None:
        with at(fs).writer() as writer:
            record.store(writer, 40)
        hand_over(fs, record)
        self.check(fs, record)


class DroppingHandedContents(Scenario[HandedContents]):
    """A log expires: the contents that only its event speaks of go from disks and store, those of a held event stay."""

    always_at = frozenset({"remove"})

    def __init__(self) -> None:
        disk, self._contents = new_disk(), HandedContents()
        with at(disk).writer() as writer:
            shared = writer.content.put(b"both")
            for number in (OLD, HELD):
                body = bytes([number]) * 5000
                told = with_content(event(number), writer.content.put(body))
                [event_id] = writer.append([msgspec.structs.replace(told, previous_content_claim=shared.claim)])
                self._contents.contents[event_id] = body
                self._contents.bodies.append(body)
                writer.seal()
                run_pass(disk, settings=HANDED)
        self._contents.tried = 2
        hand_over(disk, self._contents)
        at(disk).hold("case", EventSelection(flowfile_uuids=[event(HELD).flowfile_uuid]), "asked for", "legal")
        assert len(objects(disk)) == 3
        self._disk = disk

    def start(self) -> MemoryFileSystem:
        return self._disk.crashed(CrashMode.ALL_KEPT)

    def new_record(self) -> HandedContents:
        return self._contents.copy()

    def copy(self, record: HandedContents) -> HandedContents:
        return record.copy()

    def run(self, fs: FileSystem, record: HandedContents) -> None:
        apply_retention(settings_on(fs, EXPIRING_HANDED), fs, ManualClock(event(HELD).event_time + KEPT_MS))
        record.contents.pop(OLD, None)

    def check(self, fs: FileSystem, record: HandedContents) -> None:
        by_id = {item.event_id: item for item in at(fs).events(0, 100)}
        assert HELD in by_id, "a held event is gone"
        _check_readable(fs, record, list(by_id))
        with without_disks(fs):
            _check_readable(fs, record, list(by_id))
        if OLD not in record.contents:
            assert list(by_id) == [HELD]
            assert len(objects(fs)) == 2, "a content that expired is left in the store"
            assert len(list(at(fs).contents())) == 2, "a content that expired is left"

    def use(self, fs: FileSystem, record: HandedContents) -> None:
        # What a crash brought back on a disk may be handed over once more, and goes all the same.
        at(fs).hand_over_contents()
        self.run(fs, record)


def _check_readable(fs: FileSystem, record: HandedContents, event_ids: list[int]) -> None:
    for event_id in event_ids:
        item = at(fs).get(event_id)
        assert at(fs).content(item).read() == record.bodies[event_id], "an event is there without its content"
        assert at(fs).content(item, previous=True).read() == b"both"
