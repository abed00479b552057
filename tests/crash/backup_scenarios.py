"""The scenarios of backups: what counts is whole, whatever crashed; what was restored is whole, or no repository."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from unittest.mock import patch

from custody.backup import BackupManifest, BackupTarget, back_up, restore, verify_backup
from custody.clock import ManualClock
from custody.config import SETTINGS_FILE, Settings
from custody.errors import NotFoundError
from custody.lease import Attempt
from custody.maintenance.findings import damages
from custody.maintenance.verification import verify_repository
from custody.repository import Repository
from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.crash.enumeration import Scenario
from tests.crash.memory_repository import NOW_MS, SETTINGS, repository, run_pass
from tests.support import append, event, unnumbered

TARGET, RESTORED = Path("/target"), Path("/restored")
EVENTS, LATER = 9, 3
_TRIES = count(1)
RESTORED_SETTINGS = Settings.model_validate({**SETTINGS.model_dump(), "root": RESTORED})


@contextmanager
def _later_try() -> Iterator[None]:
    """A later try of the same task does not wait for an earlier one, which this very process seems to hold."""
    with patch.object(Attempt, "new", lambda kind: Attempt(kind, next(_TRIES))):
        yield


def _backup(fs: FileSystem, keep: int | None = None) -> BackupManifest:
    with _later_try():
        clock = ManualClock(NOW_MS)
        return back_up(SETTINGS, str(TARGET), fs=fs, clock=clock, keep=keep).manifest


def _restore(fs: FileSystem) -> None:
    restore(str(TARGET), RESTORED, fs=fs, clock=ManualClock(NOW_MS))


@cache
def filled() -> MemoryFileSystem:
    """A disk with live events and events in a journal."""
    fs = MemoryFileSystem()
    at = repository(fs)
    append(at, [event(number) for number in range(6)])
    run_pass(fs)
    append(at, [event(number) for number in range(6, EVENTS)])
    return fs


@cache
def backed_up() -> MemoryFileSystem:
    """The same disk with a backup."""
    fs = filled().crashed(CrashMode.ALL_KEPT)
    _backup(fs)
    return fs


@dataclass
class Backups:
    """How many events each backup has that counts, by its number."""

    events: dict[int, int] = field(default_factory=dict)
    removed: bool = False
    """Whether older ones were, or may have been, removed."""


class BackingUp(Scenario[Backups]):
    """Two backups, of which the second removes the first; a pass between them."""

    def new_record(self) -> Backups:
        return Backups()

    def copy(self, record: Backups) -> Backups:
        return Backups(dict(record.events), record.removed)

    def start(self) -> MemoryFileSystem:
        return filled().crashed(CrashMode.ALL_KEPT)

    def run(self, fs: FileSystem, record: Backups) -> None:
        record.events[_backup(fs).number] = EVENTS
        append(repository(fs), [event(number) for number in range(EVENTS, EVENTS + LATER)])
        run_pass(fs)
        record.removed = True
        record.events[_backup(fs, keep=1).number] = EVENTS + LATER

    def check(self, fs: FileSystem, record: Backups) -> None:
        found = _manifests(fs)
        numbers = [item.number for item in found]
        # A newer one that counts may be all that is left.
        newest = max(record.events, default=0)
        assert max(numbers, default=0) >= newest, f"backup {newest} was made, and {numbers} are there"
        if not record.removed:
            assert set(numbers) >= record.events.keys()
        target = BackupTarget(str(TARGET), fs, Path("/"))
        for item in found:
            assert verify_backup(target, item) == []
            end = item.ends[0]
            events = end.live_events + end.waiting_events
            assert events == record.events.get(item.number, events)
            assert events in (EVENTS, EVENTS + LATER)

    def use(self, fs: FileSystem, record: Backups) -> None:
        made = _backup(fs)
        record.events[made.number] = made.ends[0].live_events + made.ends[0].waiting_events
        folder = Path(f"/restored-{made.number}")
        restore(str(TARGET), folder, fs=fs, clock=ManualClock(NOW_MS))
        restored = Repository(
            Settings.model_validate({**SETTINGS.model_dump(), "root": folder}), fs, ManualClock(NOW_MS)
        )
        events = unnumbered(restored.events(count=100))
        assert events == [event(number) for number in range(len(events))]
        assert len(events) == record.events[made.number] >= EVENTS


@dataclass
class Restored:
    """Whether the restore was told to be done, and which ids were given out since."""

    is_done: bool = False
    ids: list[int] = field(default_factory=list)


class Restoring(Scenario[Restored]):
    """The folder is no repository before the restore is done; the next try ends what an earlier one began."""

    def new_record(self) -> Restored:
        return Restored()

    def copy(self, record: Restored) -> Restored:
        return Restored(record.is_done, list(record.ids))

    def start(self) -> MemoryFileSystem:
        return backed_up().crashed(CrashMode.ALL_KEPT)

    def run(self, fs: FileSystem, record: Restored) -> None:
        _restore(fs)
        record.is_done = True

    def check(self, fs: FileSystem, record: Restored) -> None:
        if not fs.exists(RESTORED / SETTINGS_FILE):
            assert not record.is_done
            return
        restored = Repository(RESTORED_SETTINGS, fs, ManualClock(NOW_MS))
        events = unnumbered(restored.events(count=100))
        assert events[:EVENTS] == [event(number) for number in range(EVENTS)]
        assert len(events) >= EVENTS + len(record.ids)
        found = verify_repository(restored.workspaces(), RESTORED_SETTINGS, fs).findings
        assert not damages(found), damages(found)
        assert len(restored.workspace().incarnations.claims()) == 2

    def use(self, fs: FileSystem, record: Restored) -> None:
        if not fs.exists(RESTORED / SETTINGS_FILE):
            self.run(fs, record)
            self.check(fs, record)
        restored = Repository(RESTORED_SETTINGS, fs, ManualClock(NOW_MS))
        ids = append(restored, [event(100 + len(record.ids))])
        # Above all that the original may have given out since, and never twice.
        assert ids.start > 1 << 30
        assert ids.start not in record.ids
        record.ids += ids


def _manifests(fs: FileSystem) -> list[BackupManifest]:
    target = BackupTarget(str(TARGET), fs, Path("/"))
    try:
        target.open()
    except NotFoundError:
        return []
    found = target.manifests()
    assert all(isinstance(item, BackupManifest) for item in found), found
    return [item for item in found if isinstance(item, BackupManifest)]
