"""Scenario of an erasure: events of one person go from logs, a journal, a file of contents and the quarantine.

Whatever a crash leaves: everybody else's events have their contents, a request that was acknowledged hides the person's
events, and whoever goes on with it ends it, after which no file names them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from custody.config.sections import RetentionSection
from custody.quarantine import Quarantine
from custody.quarantine.store import bad_piece
from custody.repository import EventSelection
from custody.retention import due_erasures
from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.crash.content_scenarios import Contents
from tests.crash.lease_scenarios import processes
from tests.crash.machine_with_bucket import new_disk, settings_on
from tests.crash.memory_repository import SETTINGS, Promises, check_catalog, repository, run_pass
from tests.crash.rollover_scenarios import StoreScenario
from tests.support import event

CHOSEN = (1, 4)
"""The person's events: one in a live log that a compaction made, one in a journal; they share a file of contents."""
UUIDS = [event(number).flowfile_uuid for number in CHOSEN]
ERASING = SETTINGS.model_copy(update={"retention": RetentionSection(grace="0 seconds")})


@dataclass
class Requested(Contents):
    """Besides events and contents: whether the request was acknowledged, and whether it said that it is done."""

    is_requested: bool = False
    is_done: bool = False

    def copy(self) -> Requested:
        plain = super().copy()
        values = {field: getattr(plain, field) for field in ("tried", "acknowledged", "contents", "bodies")}
        return Requested(**values, is_requested=self.is_requested, is_done=self.is_done)


class Erasing(StoreScenario):
    """A request, a pass that makes the journal live, and the rest of the erasure."""

    def __init__(self) -> None:
        disk = new_disk()
        self._contents = Requested()
        with repository(disk, ERASING).writer() as writer:
            for number in range(5):
                self._contents.store(writer, 400)
                if number in (0, 2):
                    writer.seal()
                    run_pass(disk, settings=ERASING)
        repository(disk, ERASING).compact()  # former logs, which earlier revisions list
        quarantined = bad_piece(
            msgspec.json.encode({"uuid": UUIDS[0]}), severity="error", code="bad-value", message="no type",
            file="in.json", index=None, offset=0, node=None, received_ms=1,
        )  # fmt: skip
        Quarantine(disk, SETTINGS.quarantine).add(quarantined)
        self._disk = disk

    def start(self) -> MemoryFileSystem:
        return self._disk.crashed(CrashMode.ALL_KEPT)

    def new_record(self) -> Requested:
        return self._contents.copy()

    def run(self, fs: FileSystem, record: Promises) -> None:
        assert isinstance(record, Requested)
        with processes(gone=True):
            erasure = repository(fs, ERASING).erase(EventSelection(flowfile_uuids=UUIDS), "asked for", who="officer")
            record.is_requested = True
            run_pass(fs, settings=ERASING)
            record.is_done = repository(fs, ERASING).continue_erasure(erasure.id).is_over

    def check(self, fs: FileSystem, record: Promises) -> None:
        assert isinstance(record, Requested)
        check_catalog(fs)
        at = repository(fs, ERASING)
        by_id = {item.event_id: item for item in at.events(0, 100)}
        for event_id, body in record.contents.items():
            if event_id in CHOSEN:
                assert event_id not in by_id or not record.is_requested, "an erased event is given out"
            else:
                assert event_id in by_id, f"acknowledged event {event_id} is lost"
                assert at.content(by_id[event_id]).read() == body, "another content"
        if record.is_done:
            named = naming(fs, record)
            assert not named, f"erased, and still there: {named}"

    def use(self, fs: FileSystem, record: Promises) -> None:
        assert isinstance(record, Requested)
        due = due_erasures(settings_on(fs, ERASING), fs)
        known = repository(fs, ERASING).erasures()
        assert known or not record.is_requested, "an acknowledged request is lost"
        for erasure in due:
            # Hidden before the journals are rolled over, as the request that was broken off would have done.
            with processes(gone=True):
                repository(fs, ERASING).continue_erasure(erasure.id)
                run_pass(fs, settings=ERASING)
                done = repository(fs, ERASING).continue_erasure(erasure.id)
            assert done.is_over, f"what a crash left keeps it from ending: {done.waiting}"
            # Once it was written it is done, whether or not that was acknowledged.
            record.is_requested = record.is_done = True
        with repository(fs, ERASING).writer() as writer:
            record.store(writer, 40)


def naming(fs: FileSystem, record: Requested) -> list[Path]:
    """The files that name an erased FlowFile, or have its content."""
    needles = [*(uuid.encode() for uuid in UUIDS), *(record.contents[number][:16] for number in CHOSEN)]
    return [path for path in _files(fs, SETTINGS.root) if any(needle in _text(fs, path) for needle in needles)]


def _files(fs: FileSystem, folder: Path) -> Iterator[Path]:
    for name in fs.list(folder):
        path = folder / name
        if fs.is_directory(path):
            yield from _files(fs, path)
        else:
            yield path


def _text(fs: FileSystem, path: Path) -> bytes:
    text = fs.read(path)
    if path.suffix == ".parquet":
        # Compressed: the values are not in its bytes.
        return text + str(pq.read_table(pa.BufferReader(text)).to_pylist()).encode()
    return text
