"""Scenarios of a catalog's upkeep: pruning its front, collecting garbage, repairing it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from custody.catalog import Action, AddFile, Catalog, RemoveFile, collect_garbage, prune, repair, verify
from custody.clock import ManualClock
from custody.vfs import FileSystem
from custody.vfs.memory import MemoryFileSystem
from tests.crash.enumeration import Scenario
from tests.crash.machine_with_bucket import new_disk, store_on

NOW_MS = 1_772_409_600_000
HOME = Path("/store/main/provenance")


def open_catalog(fs: FileSystem) -> Catalog:
    """The catalog, opened by a process that just started."""
    return Catalog(store_on(fs, Path("/store")), "main", "provenance", ManualClock(NOW_MS))


def log(number: int) -> str:
    return f"data/2026-03-01/events/{number:020d}.parquet"


@dataclass
class Kept:
    """What every disk must hold: the newest files, and how many commits were tried after the start."""

    files: set[str] = field(default_factory=set)
    tried: int = 0
    damaged: bool = False


class _Care(Scenario[Kept]):
    """A catalog with history, made before the first crash."""

    def start(self) -> MemoryFileSystem:
        fs = new_disk()
        self.prepare(fs)
        fs.operations.clear()
        return fs

    def prepare(self, fs: FileSystem) -> None:
        catalog = open_catalog(fs)
        store = store_on(fs, Path("/store"))
        for number in range(7):
            store.put(f"main/provenance/{log(number)}", b"data %d" % number)
        for number in range(5):
            gone = [Action(remove_file=RemoveFile(path=log(number - 1)))] if number else []
            # Ids that the leftovers have are in use, as where a group waits longer than those behind it.
            catalog.commit([Action(add_file=AddFile(path=log(number))), *gone], next_event_id=7)
            if number != 1:
                catalog.checkpoint()

    def new_record(self) -> Kept:
        return Kept({log(4)})

    def copy(self, record: Kept) -> Kept:
        return Kept(set(record.files), record.tried, record.damaged)

    def check(self, fs: FileSystem, record: Kept) -> None:
        catalog = open_catalog(fs)
        state = catalog.load()
        assert record.files <= set(state.files)
        for path in state.files:
            assert catalog.objects.store.get(catalog.objects.home + path), path
        report = verify(catalog, files=False)
        assert not report.defects, str(report.defects[0])
        for revision in range(state.floor, state.revision + 1):
            for path in catalog.at(revision).files:
                assert catalog.objects.store.get(catalog.objects.home + path) == b"data %d" % int(path[-28:-8]), path

    def use(self, fs: FileSystem, record: Kept) -> None:
        self.run(fs, record)
        catalog = open_catalog(fs)
        path = log(100 + record.tried)
        record.tried += 1
        store_on(fs, Path("/store")).put(f"main/provenance/{path}", b"data %d" % int(path[-28:-8]))
        catalog.commit([Action(add_file=AddFile(path=path))])
        record.files.add(path)


class Pruning(_Care):
    """The front is cut behind the third checkpoint from the end."""

    def run(self, fs: FileSystem, record: Kept) -> None:
        catalog = open_catalog(fs)
        prune(catalog, min(catalog.load().revision, 3))


class Collecting(_Care):
    """Files that no revision lists go to the trash and are deleted from there; one was committed late."""

    def run(self, fs: FileSystem, record: Kept) -> None:
        catalog = open_catalog(fs)
        for later in (0, 1000):
            clock = ManualClock(NOW_MS + later)
            collect_garbage(catalog, clock, older_than_ms=0, trash_kept_ms=500)


class Repairing(_Care):
    """A transaction without a later checkpoint is damaged; the repair moves it aside and goes on."""

    always_at = frozenset({"rename", "link", "remove"})

    def prepare(self, fs: FileSystem) -> None:
        super().prepare(fs)
        catalog = open_catalog(fs)
        for number in (5, 6):
            catalog.commit([Action(add_file=AddFile(path=log(number)))])
        item = [listed for listed in catalog.objects.at(5) if not listed.is_checkpoint]
        catalog.objects.store.put(item[0].key, b"damaged")

    def new_record(self) -> Kept:
        return Kept({log(4)}, damaged=True)

    def run(self, fs: FileSystem, record: Kept) -> None:
        repair(open_catalog(fs), ManualClock(NOW_MS))
        record.damaged = False

    def check(self, fs: FileSystem, record: Kept) -> None:
        if not record.damaged:
            super().check(fs, record)
