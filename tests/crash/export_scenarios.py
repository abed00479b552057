"""The scenario of an export: events are delivered batch by batch to a receiver outside, the cursor follows."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import count, pairwise

from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import BackpressureError
from custody.export.cursors import read_cursors
from custody.export.export_run import Export, refused_entries
from custody.export.receiver import EventBatch, RefusedError
from custody.lease import Attempt
from custody.quarantine import Quarantine
from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.crash.enumeration import Scenario
from tests.crash.memory_repository import NOW_MS, SETTINGS, WRITER, repository, run_pass
from tests.support import append, event

EVENTS, REFUSED = 12, 7
_TRIES = count(1)
"""A later try of the same task does not wait for an earlier one, which this very process seems to hold."""
NAME = "box"
WITH_EXPORT = Settings.model_validate(
    {
        "root": SETTINGS.root,
        **SETTINGS.model_dump(),
        "exports": {NAME: {"kind": "files", "url": "unused", "batch_events": 4}},
    }
)


@dataclass
class Deliveries:
    """What the receiver took, in its order; it is on another machine and loses nothing."""

    ids: list[int] = field(default_factory=list)


class Outside:
    """A receiver that refuses one event for good."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries

    def deliver(self, batch: EventBatch) -> None:
        ids = batch.table.column("event_id").to_pylist()
        if REFUSED in ids:
            raise RefusedError(f"event {REFUSED} is not liked")
        self._deliveries.ids += ids

    def close(self) -> None:
        pass


@cache
def filled() -> MemoryFileSystem:
    """A disk with live events and events in a journal."""
    fs = MemoryFileSystem()
    at = repository(fs, WITH_EXPORT)
    append(at, [event(number) for number in range(8)])
    run_pass(fs, settings=WITH_EXPORT)
    append(at, [event(number) for number in range(8, EVENTS)])
    return fs


class Exporting(Scenario[Deliveries]):
    """Everything is delivered; whoever comes next goes on."""

    def new_record(self) -> Deliveries:
        return Deliveries()

    def copy(self, record: Deliveries) -> Deliveries:
        return Deliveries(list(record.ids))

    def start(self) -> MemoryFileSystem:
        return filled().crashed(CrashMode.ALL_KEPT)

    def run(self, fs: FileSystem, record: Deliveries) -> None:
        with _export(fs).started(Attempt("export", next(_TRIES)), Outside(record)) as run:
            run.deliver_waiting()

    def check(self, fs: FileSystem, record: Deliveries) -> None:
        cursors = read_cursors(fs, _export(fs).folder, NAME)
        position = 0 if cursors is None else cursors.next_event_ids.get(WRITER, 0)
        missing = set(range(position)) - set(record.ids) - _quarantined(fs)
        assert not missing, f"the cursor is at {position}, and {sorted(missing)} were neither delivered nor kept"

    def use(self, fs: FileSystem, record: Deliveries) -> None:
        before = len(record.ids)
        self.run(fs, record)
        assert {*record.ids, REFUSED} == set(range(EVENTS))
        assert _quarantined(fs) == {REFUSED}
        # What is told again is told in order, and goes on without a gap from what was told before.
        again = record.ids[before:]
        assert all(later > earlier for earlier, later in pairwise(again))
        assert len(again) <= EVENTS


def _export(fs: FileSystem) -> Export:
    return Export(WITH_EXPORT, NAME, fs, ManualClock(NOW_MS))


def _quarantined(fs: FileSystem) -> set[int]:
    room = Quarantine(fs, WITH_EXPORT.quarantine)
    try:
        return {entry.index for entry in refused_entries(room, NAME) if entry.index is not None}
    except BackpressureError:
        return set()
