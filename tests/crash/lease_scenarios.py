"""Scenarios of passes under leases: one that crashes anywhere, and two attempts side by side.

The processes of a crash test are one process in truth, so that each test says itself which of them is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import CustodyError
from custody.index import builder
from custody.lease import Attempt
from custody.lease import lease as holders
from custody.recovery import STEPS, find_leftovers, leftovers, peek_leftovers
from custody.vfs import TEMPORARY_SUFFIX, FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from custody.workspace import Workspace, take_rollover
from tests.crash.commit_scenarios import Interleaving
from tests.crash.enumeration import counted_names, operations_of, run_to
from tests.crash.memory_repository import (
    EVERYTHING,
    NOW_MS,
    SETTINGS,
    WRITER,
    Promises,
    check_catalog,
    check_events,
    check_final_names,
    copied_segment,
    repository,
    workspace,
)
from tests.crash.rollover_scenarios import Prepared, StoreScenario
from tests.parts import WHOLE, Part

SEEN = frozenset({"rename", "link", "remove", "remove_directory", "cut", "add_directory"})
OTHER_SETTINGS = SETTINGS.model_copy(
    update={"eventlog": SETTINGS.eventlog.model_copy(update={"compression": "gzip", "log_bytes_target": 5000})}
)
"""The same events give other bytes, and other logs."""


def task(name: str = "rollover", number: int = 1) -> Attempt:
    return Attempt(f"provenance_rollover/scheduled/{name}", number)


def run_attempt(
    fs: FileSystem, attempt: Attempt | None = None, names: Iterable[str] = tuple(STEPS), settings: Settings = SETTINGS
) -> None:
    """Do steps as a job does: the lease first, then the units, then the word that it ended."""
    clock = ManualClock(NOW_MS)
    with patch.object(builder, "write_segment", copied_segment):
        for name in names:
            if not STEPS[name].units(settings, fs):
                continue
            lease = take_rollover(settings, WRITER, attempt or task(name), fs=fs, clock=clock, wait_seconds=0)
            try:
                for unit in STEPS[name].units(settings, fs):
                    STEPS[name].run(Workspace(settings, unit.writer, fs, clock, lease), unit)
            except Exception:
                lease.release(failed=True)
                raise
            lease.release(recovered=name == "recover")


@contextmanager
def processes(*, gone: bool) -> Iterator[None]:
    """Every holder of a lease but the one that asks is gone, or lives."""
    with patch.object(holders, "is_gone", lambda *_: gone):
        yield


def check_searches(fs: FileSystem) -> None:
    """Each search finds what the events say, and nothing twice."""
    opened = repository(fs)
    events = list(opened.events(0, EVERYTHING))
    for query, meant in {
        "": [item.event_id for item in events],
        "event_type:CREATE": [item.event_id for item in events if item.event_type == "CREATE"],
        "file_size:[0 TO 101]": [item.event_id for item in events if item.file_size and item.file_size <= 101],
    }.items():
        result = opened.search(query, limit=EVERYTHING)
        assert sorted(item.event.event_id for item in result.events) == meant, f"search {query!r} differs"
        assert result.total == len(meant)


def check_undisturbed(fs: FileSystem, promises: Promises) -> None:
    """After a whole pass: the state of a run that nothing disturbed. All is live and whole, and nothing lies about."""
    check_final_names(fs)
    check_catalog(fs)
    check_events(fs, promises)
    check_searches(fs)
    at = workspace(fs)
    assert not at.groups(), "journals are left"
    assert not fs.list(at.paths.staging), "units are left"
    assert [item for known in Workspace.all(SETTINGS, fs) for item in find_leftovers(known)] == []
    assert list(peek_leftovers(SETTINGS, fs).paths) == []
    live = {at.paths.home / path for file in at.catalog.load().files.values() for path in (file.path, file.toc_path)}
    there = {path for path, data in fs_files(fs).items() if data is not None and "/data/" in str(path)}
    assert there == live, f"not live, and there: {there - live}"


def fs_files(fs: FileSystem) -> dict[Path, bytes | None]:
    inner = fs
    while not isinstance(inner, MemoryFileSystem):
        inner = inner.inner  # type: ignore[attr-defined]
    return dict(inner.files())


class Pausing(Interleaving):
    """Pauses before what others see alone: a name that is given, moved or taken away. Temporary files go unseen."""

    def _step(self, kind: str) -> None:
        """Count nothing here: the kind does not tell the path."""

    def meet(self, kind: str, path: Path) -> None:
        if kind in SEEN and not (kind == "remove" and path.suffix == TEMPORARY_SUFFIX):
            super()._step(kind)


class Passing(StoreScenario):
    """A group becomes live in one pass under leases; the next run finds whatever a crash left."""

    def run(self, fs: FileSystem, record: Promises) -> None:
        with repository(fs).writer() as writer:
            record.append(writer, 2)
            record.append(writer, 1)
        with processes(gone=True):
            run_attempt(fs)

    def use(self, fs: FileSystem, record: Promises) -> None:
        with processes(gone=True):
            run_attempt(fs)
            check_undisturbed(fs, record)
        super().use(fs, record)


class PassingAgain(Prepared, Passing):
    """The recovery after a crash of a pass, crashed again."""

    def run(self, fs: FileSystem, record: Promises) -> None:
        with processes(gone=True):
            run_attempt(fs, names=["recover"])


INTERRUPTED = {
    "a unit is merged": ("rename", "staging", 0),
    "a log is written": ("link", ".parquet", 0),
    "a shard is built": ("rename", "index", 0),
    "a shard is there": ("link", ".txn", -1),
    "the group is live": ("remove", ".sealed", 0),
}
"""Operations of a pass to end before: kind, a part of the path, and which of them."""


def interrupted(what: str) -> tuple[MemoryFileSystem, Promises]:
    """A disk on which a process was killed in a pass, and what had been promised."""
    kind, part, which = INTERRUPTED[what]
    operations = operations_of(Passing())
    places = [n for n, done in enumerate(operations, 1) if done.kind == kind and part in str(done.path)]
    fs, promises, _ = run_to(Passing(), places[which])
    return fs.crashed(CrashMode.ALL_KEPT), promises


def side_by_side(
    start: Callable[[], tuple[MemoryFileSystem, Promises]],
    *,
    other: Settings = SETTINGS,
    names: Iterable[str] = tuple(STEPS),
    part: Part = WHOLE,
) -> int:
    """Pause an attempt before each effect that others see, after it has checked its lease, while a later try works.

    The later try does the steps `names`; the older one then goes on until it ends; the later one does the rest.
    Return the number of places at which the attempt can be paused; it is paused at those of a part.
    """
    steps = tuple(names)
    fs, _ = start()
    with counted_names(), processes(gone=False):
        undisturbed = Pausing(fs, 0, lambda: None)
        run_attempt(undisturbed, task("any", 1))
    places = undisturbed.done
    division = f"{start.__name__}, {other.eventlog.compression}, {steps}"
    for place in part.of(division, places, always=(0, places - 1)):
        _overtake(start, place + 1, steps, other)
    return places


def _overtake(
    start: Callable[[], tuple[MemoryFileSystem, Promises]], before: int, steps: Sequence[str], other: Settings
) -> None:
    """Pause an attempt before one of its effects, let a later try work, and look at what both of them leave."""
    fs, promises = start()
    with counted_names(), processes(gone=False):
        reached = []

        def take_over() -> None:
            reached.append(before)
            with patch.object(leftovers, "LEFTOVER_AGE_MS", NOW_MS * 2):  # what the older one has just written is young
                run_attempt(fs, task("any", 2), steps, other)

        with suppress(CustodyError):  # it is superseded, or its files are taken away
            run_attempt(Pausing(fs, before, take_over), task("any", 1))
        assert reached, f"there is no operation {before}"
        try:
            run_attempt(fs, task("any", 2), tuple(STEPS), other)
            check_undisturbed(fs, promises)
        except Exception as error:
            raise AssertionError(f"paused before operation {before}: {error}") from error
