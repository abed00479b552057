"""The actors that meet on one catalog when processes are stopped and go on later, and the check of what they leave.

Of every commit that was answered its changes are remembered. Whoever is stopped in a commit may or may not have landed
it, which its own error says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from custody.catalog import (
    Action,
    AddFile,
    AddTombstone,
    Catalog,
    CatalogState,
    PrunedError,
    RemoveFile,
    collect_garbage,
    prune,
    repair,
    verify,
)
from custody.clock import ManualClock
from custody.errors import ConflictError, CorruptionError, CustodyError, LockedError, StorageError
from custody.store import LocalStore
from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.crash.interleaving import Played, Times, Work, as_a_whole

NOW_MS = 1_772_409_600_000
HOUR_MS = 3_600_000
HOME = "main/provenance/"
STORE = Path("/store")


def log(number: int) -> str:
    return f"data/2026-03-01/events/{number:020d}.parquet"


ORPHAN = log(900)
"""Lies in the store, is old, and no transaction lists it at first."""


@dataclass
class Model:
    """What was answered as committed, and what was tried."""

    files: set[str] = field(default_factory=set)
    maybe: set[str] = field(default_factory=set)
    """Tried by commits that ended with an error which leaves it open."""
    stones: set[str] = field(default_factory=set)
    maybe_stones: set[str] = field(default_factory=set)


@dataclass
class World:
    """One disk, its clock, and the model beside it."""

    disk: MemoryFileSystem
    times: Times
    model: Model
    is_damaged: bool = False

    def catalog(self, fs: FileSystem) -> Catalog:
        """The catalog, opened by a process that just started."""
        return Catalog(LocalStore(fs, STORE), "main", "provenance", ManualClock(NOW_MS))

    def actors(self) -> dict[str, Work]:
        """All that processes do with a catalog, each by itself."""
        return {name: self._bound(work) for name, work in WORKS.items()}

    def _bound(self, work: Callable[[World, FileSystem], None]) -> Work:
        return lambda fs: work(self, fs)


def _add(world: World, fs: FileSystem, path: str) -> None:
    """Write a file and list it, as the rollover does."""
    number = int(path[-28:-8])
    catalog = world.catalog(fs)
    catalog.load()
    world.model.maybe.add(path)
    LocalStore(fs, STORE).put(HOME + path, b"data %d" % number)
    catalog.commit([Action(add_file=AddFile(path=path, rows=1, first_event_id=number, last_event_id=number))])
    world.model.files.add(path)


def _commit(world: World, fs: FileSystem) -> None:
    _add(world, fs, log(100))


def _commit_orphan(world: World, fs: FileSystem) -> None:
    """What an earlier attempt left is written anew, under its name, and listed."""
    _add(world, fs, ORPHAN)


def _forget(world: World, fs: FileSystem) -> None:
    stone = AddTombstone(id=b"f" * 16, event_ids=[3], reason="asked for")
    world.model.maybe_stones.add(stone.id.hex())
    world.catalog(fs).commit([Action(add_tombstone=stone)])
    world.model.stones.add(stone.id.hex())


def _checkpoint(world: World, fs: FileSystem) -> None:
    world.catalog(fs).checkpoint()


def _forget_and_checkpoint(world: World, fs: FileSystem) -> None:
    catalog = world.catalog(fs)
    _forget(world, fs)
    catalog.checkpoint()


def _prune(world: World, fs: FileSystem) -> None:
    catalog = world.catalog(fs)
    prune(catalog, catalog.load().revision)


def _gc(world: World, fs: FileSystem) -> None:
    collect_garbage(world.catalog(fs), ManualClock(NOW_MS), older_than_ms=HOUR_MS)


def _repair(world: World, fs: FileSystem) -> None:
    repair(world.catalog(fs), ManualClock(NOW_MS))


def _read(world: World, fs: FileSystem) -> None:
    """Ask about the past, as an auditor does: each answer is right, or says that it was pruned."""
    catalog = world.catalog(fs)
    state = catalog.load()
    revisions = [transaction.revision for transaction in catalog.timeline()]
    assert revisions == list(range(revisions[0], revisions[-1] + 1))
    catalog.at(state.floor)
    catalog.revision_at(catalog.load().commit_time_ms)


WORKS: dict[str, Callable[[World, FileSystem], None]] = {
    "checkpoint": _checkpoint,
    "prune": _prune,
    "gc": _gc,
    "commit": _commit,
    "commit orphan": _commit_orphan,
    "forget": _forget,
    "forget and checkpoint": _forget_and_checkpoint,
    "repair": _repair,
    "read": _read,
}


def busy(world: World, fs: FileSystem, first: int = 200) -> None:
    """What others do in a long time: commits, checkpoints, a pruning of all before."""
    for number in range(first, first + 4):
        _add(world, fs, log(number))
        world.catalog(fs).checkpoint()
    _prune(world, fs)


def _busy_and_forget(world: World, fs: FileSystem) -> None:
    _forget(world, fs)
    busy(world, fs)


def _repair_and_commit(world: World, fs: FileSystem) -> None:
    _repair(world, fs)
    _add(world, fs, log(300))
    world.catalog(fs).checkpoint()


MEANWHILE: dict[str, Callable[[World, FileSystem], None]] = {
    "busy": busy,
    "busy and forget": _busy_and_forget,
    "commit": lambda world, fs: _add(world, fs, log(300)),
    "commit orphan": _commit_orphan,
    "gc": _gc,
    "repair": _repair_and_commit,
}


@lru_cache(maxsize=2)
def _made(damaged: bool) -> tuple[MemoryFileSystem, tuple[tuple[Path, int], ...]]:
    world = World(MemoryFileSystem(), Times(NOW_MS - 48 * HOUR_MS), Model())
    with as_a_whole(world.disk, world.times) as fs:
        LocalStore(fs, STORE).put(HOME + ORPHAN, b"data 900")
        for number in range(4):
            _add(world, fs, log(number))
            if number != 1:
                world.catalog(fs).checkpoint()
        # The id of the orphan is in use, as where a group waits longer than those behind it: else it would stay.
        removed = RemoveFile(path=log(1))
        world.catalog(fs).commit([Action(remove_file=removed)], next_event_id=1000)
        if damaged:
            _add(world, fs, log(5))
            _add(world, fs, log(6))
            catalog = world.catalog(fs)
            [item] = [item for item in catalog.objects.at(5) if not item.is_checkpoint]
            catalog.objects.store.put(item.key, b"damaged")
    return world.disk, tuple(world.times.written.items())


def new_world(*, damaged: bool = False) -> World:
    """A catalog of five revisions with checkpoints and an orphan; with damage, of seven, the sixth unreadable."""
    disk, written = _made(damaged)
    files = {log(0), log(2), log(3)}
    maybe = {log(5), log(6)} if damaged else set()
    return World(disk.crashed(CrashMode.ALL_KEPT), Times(NOW_MS, dict(written)), Model(files, maybe), damaged)


def check(world: World, played: Played) -> None:
    """Raise unless the catalog is the one that was committed, whoever was stopped and when."""
    for name, error in played.errors.items():
        assert _is_honest(error, world), f"{name}: {error!r}"
    with as_a_whole(world.disk, world.times) as fs:
        catalog = world.catalog(fs)
        try:
            state = catalog.load()
        except CorruptionError:
            assert world.is_damaged, "the catalog cannot be opened"
            repair(catalog, ManualClock(NOW_MS))
            catalog = world.catalog(fs)
            state = catalog.load()
        _check_state(world, state)
        _check_past(catalog, state)
        for path in state.files:
            assert world.disk.exists(STORE / HOME / path), f"a live file is not in its place: {path}"
        report = verify(catalog, files=False)
        assert not report.defects, str(report.defects[0])
        hint = catalog.chain.hinted()
        newest = catalog.objects.checkpoints()[0].revision
        assert hint is not None
        assert hint.revision == newest, f"the hint says {hint.revision}, the newest checkpoint is that of {newest}"
        # Life goes on: what is committed now is there, and seen by who was there before.
        _add(world, fs, log(999))
        assert log(999) in world.catalog(fs).load().files
        assert log(999) in catalog.load().files


def _check_state(world: World, state: CatalogState) -> None:
    model = world.model
    files = set(state.files)
    assert model.files <= files, f"committed and lost: {sorted(model.files - files)}"
    assert files <= model.files | model.maybe, f"never committed: {sorted(files - model.files - model.maybe)}"
    assert model.stones <= set(state.tombstones), "what was forgotten is given out again"
    assert set(state.tombstones) <= model.stones | model.maybe_stones


def _check_past(catalog: Catalog, state: CatalogState) -> None:
    """The chain is whole, and each state follows from the one before."""
    timeline = list(catalog.timeline())
    assert [transaction.revision for transaction in timeline] == list(range(state.floor, state.revision + 1))
    followed = catalog.at(state.floor)
    for transaction in timeline[1:]:
        at = catalog.at(transaction.revision)
        followed = followed.advanced(transaction, at.digest)
        assert set(followed.files) == set(at.files)
        assert set(followed.tombstones) == set(at.tombstones)
    assert set(followed.files) == set(state.files)


def _is_honest(error: Exception, world: World) -> bool:
    """Whether an actor may end so: it says what others did, and nothing is claimed that is not so."""
    if isinstance(error, PrunedError | LockedError):
        return True
    if isinstance(error, StorageError):
        return "others pruned" in str(error)
    if world.is_damaged:
        return isinstance(error, CustodyError)
    # Somebody else committed the very same meanwhile.
    done = {*world.model.files, *world.model.stones}
    return isinstance(error, ConflictError) and any(name in str(error) for name in done)
