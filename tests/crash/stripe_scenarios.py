"""Scenarios of event logs on two stripes: they are taken into use, filled, compacted and cleaned, and go away in turn.

After each crash one disk and then the other is taken out while all steps are tried. What lies on it is neither given
up nor written anew, and all of it is there when the disk is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from custody.catalog import collect_garbage
from custody.clock import ManualClock
from custody.config import Settings
from custody.config.sections import RetentionSection
from custody.errors import CustodyError
from custody.format.names import split_stripe
from custody.maintenance import compact_unit, waiting_compactions
from custody.maintenance.findings import Level
from custody.maintenance.repair import plan_repairs
from custody.maintenance.verification import verify_repository
from custody.repository import EventSelection
from custody.repository.retention_api import apply_retention
from custody.vfs import FileSystem
from custody.vfs.memory import MemoryFileSystem
from custody.workspace import Workspace
from tests.crash.memory_repository import (
    NOW_MS,
    SETTINGS,
    WRITER,
    Promises,
    check_catalog,
    check_events,
    check_final_names,
    repository,
    run_pass,
)
from tests.crash.rollover_scenarios import Prepared, StoreScenario
from tests.support import event

FOLDERS = {"a": "disk-a", "b": "disk-b"}
STRIPED = SETTINGS.model_copy(
    update={
        "repository": SETTINGS.repository.model_copy(
            update={"stripes": tuple(f"{name}={folder}" for name, folder in FOLDERS.items())}
        )
    }
)
RETENTION = STRIPED.model_copy(update={"retention": RetentionSection(age_max="10 seconds", grace="0 seconds")})
AWAY = SETTINGS.root / "away"
_FORGOTTEN = 1


def stripes_of(fs: FileSystem, settings: Settings = STRIPED) -> set[str]:
    """The stripes on which live logs lie."""
    return {split_stripe(path)[0] for path in repository(fs, settings).workspace().catalog.load().files}


@contextmanager
def without(fs: FileSystem, name: str) -> Iterator[None]:
    """Take the disk of a stripe out for a while; an empty folder is left where it was mounted."""
    folder = STRIPED.stripes[name]
    fs.rename(folder, AWAY)
    fs.make_directory(folder)
    try:
        yield
        assert fs.list(folder) == [], f"something was written below the place of the disk: {fs.list(folder)}"
    finally:
        fs.remove_tree(folder)
        fs.rename(AWAY, folder)
        fs.sync_directory(folder.parent)


class OnStripes(StoreScenario):
    """What must hold of a store on two stripes."""

    def start(self) -> MemoryFileSystem:
        fs = MemoryFileSystem()
        for folder in STRIPED.stripes.values():
            fs.make_directory(folder)
        return fs

    def check(self, fs: FileSystem, record: Promises) -> None:
        check_final_names(fs)
        check_catalog(fs, STRIPED)
        check_events(fs, record, STRIPED)
        assert not [item for item in _verified(fs) if item in ("stripe-missing", "log-missing", "log-damaged")]

    def use(self, fs: FileSystem, record: Promises) -> None:
        data_files = repository(fs, STRIPED).workspace().catalog.objects.files
        # Before a stripe is in use nobody can tell its disk from the place where it will be mounted.
        for name in data_files.stripes.in_use() if data_files.stripes is not None else ():
            with without(fs, name):
                self._lose(fs, record, name)
            check_catalog(fs, STRIPED)
            check_events(fs, record, STRIPED)
        run_pass(fs, settings=STRIPED)
        with repository(fs, STRIPED).writer() as writer:
            record.append(writer, 2)
        run_pass(fs, settings=STRIPED)
        assert not repository(fs, STRIPED).workspace().groups(), "journals are left"

    def _lose(self, fs: FileSystem, record: Promises, name: str) -> None:
        """Try all steps without the disk of a stripe."""
        live = set(repository(fs, STRIPED).workspace().catalog.load().files)
        given = {item.event_id for item in repository(fs, STRIPED).events(0, 1000)}
        assert given <= set(range(record.tried))
        # Errors that name the disk are right; nothing may be lost by what was done before them.
        with suppress(CustodyError):
            run_pass(fs, settings=STRIPED)
        with suppress(CustodyError):
            compact(fs)
        with suppress(CustodyError):
            collect_garbage(
                Workspace(STRIPED, WRITER, fs, ManualClock(NOW_MS)).catalog, ManualClock(NOW_MS), older_than_ms=0
            )
        planned = plan_repairs(STRIPED, fs, ManualClock(NOW_MS), Level.QUICK)
        assert [item.name for item in planned.before if item.kind == "stripe-missing"] == [name]
        for action in planned.actions:
            assert action.what not in ("give-up-log", "rewrite-log", "restore-log"), action
        after = set(repository(fs, STRIPED).workspace().catalog.load().files)
        on_it = {path for path in live if split_stripe(path)[0] == name}
        assert on_it <= after, "a log on the disk was given up"


class Striping(OnStripes):
    """Groups become logs on both stripes, which are taken into use by that."""

    def run(self, fs: FileSystem, record: Promises) -> None:
        with repository(fs, STRIPED).writer() as writer:
            for _ in range(2):
                record.append(writer, 40)
        run_pass(fs, settings=STRIPED, is_segment_copied=True)


class StripedUpkeep(Prepared, OnStripes):
    """Logs on both stripes are compacted; retention marks and deletes one."""

    def __init__(self) -> None:
        disk = OnStripes.start(self)
        promises = Promises()
        for _ in range(3):
            with repository(disk, STRIPED).writer() as writer:
                promises.append(writer, 2)
            run_pass(disk, settings=STRIPED)
        repository(disk, STRIPED).forget(EventSelection(event_ids=[_FORGOTTEN]), "asked for")
        del promises.acknowledged[_FORGOTTEN]
        super().__init__(disk, promises)

    def run(self, fs: FileSystem, record: Promises) -> None:
        compact(fs)
        run_pass(fs, "checkpoint", settings=STRIPED)

    def use(self, fs: FileSystem, record: Promises) -> None:
        compact(fs)
        super().use(fs, record)


class StripedRetention(Prepared, OnStripes):
    """Logs on both stripes expire: what lies on a disk that is away is deleted when it is back."""

    def __init__(self) -> None:
        disk = OnStripes.start(self)
        promises = Promises()
        for count in (2, 2, 1):
            with repository(disk, STRIPED).writer() as writer:
                promises.append(writer, count)
            run_pass(disk, settings=STRIPED)
        assert stripes_of(disk) == set(FOLDERS)
        with repository(disk, STRIPED).writer() as writer:
            promises.append(writer, 1)
        # All but the last event, which waits in its journal, are too old.
        self.expired = range(5)
        for event_id in self.expired:
            del promises.acknowledged[event_id]
        super().__init__(disk, promises)

    def run(self, fs: FileSystem, record: Promises) -> None:
        apply_retention(RETENTION, fs, ManualClock(_EXPIRED_MS))

    def use(self, fs: FileSystem, record: Promises) -> None:
        for name in FOLDERS:
            with without(fs, name), suppress(CustodyError):
                apply_retention(RETENTION, fs, ManualClock(_EXPIRED_MS))
        self.run(fs, record)
        left = [
            info.key
            for folder in ("data/", "trash/")
            for info in repository(fs, STRIPED).workspace().catalog.objects.files.list(folder)
        ]
        assert not left, f"expired, and still there: {left}"
        check_events(fs, record, STRIPED)
        super().use(fs, record)


_EXPIRED_MS = event(5).event_time + 9_999


def compact(fs: FileSystem) -> None:
    """Do all compactions, each with a workspace of its own."""
    clock = ManualClock(NOW_MS)
    for _ in range(2):
        for unit in list(waiting_compactions(Workspace(STRIPED, WRITER, fs, clock))):
            compact_unit(Workspace(STRIPED, WRITER, fs, clock), unit)


def _verified(fs: FileSystem) -> list[str]:
    report = verify_repository(Workspace.all(STRIPED, fs), STRIPED, fs, Level.QUICK)
    return [finding.kind for finding in report.findings if finding.severity == "damage"]
