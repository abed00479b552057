"""The enumeration of crashes: a scenario is crashed at each of its operations, in every mode.

A scenario does some work, and checks a disk that a crash of this work left. It runs once to count its operations; then
once for each of them, up to the crash there, and once to its end. Each disk that the crash may leave is opened,
checked, used again, crashed again and checked again. Runs are equal but for their end (names that are random in real
life are counted here), so that a disk that was seen before need not be opened again.

A run of the tests crashes at the operations of its part (tests.parts), in all modes. It crashes always at the first
and the last operation of each phase, and at operations of the kinds that have shown a bug in the scenario before: in
one mode each, if they do not belong to its part, and in another one with another part. In one mode alone, such an
operation is crashed at by every second part.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count, product
from typing import Any, Generic, TypeVar
from unittest.mock import patch

from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, InjectedCrash, MemoryFileSystem, Operation
from tests.crash.machine_with_bucket import new_disk
from tests.parts import SEED_VARIABLE, WHOLE, Part, seed_of_run

SEEDS = 10
AREAS = frozenset(
    {
        "ERASURES",
        "builds",
        "content",
        "data",
        "exports",
        "filters",
        "flowfiles",
        "forgotten",
        "handoff",
        "hdfs",
        "iceberg",
        "incarnations",
        "index",
        "journals",
        "leases",
        "quarantine",
        "staging",
        "transactions",
        "trash",
    }
)
"""Folders of a repository. Work goes from one of them to the next: an operation in another one begins a phase."""
Record = TypeVar("Record")
Wrap = Callable[[MemoryFileSystem], FileSystem]


class Scenario(ABC, Generic[Record]):
    """Work, and what must hold after it; `Record` is the model beside the store: what was tried, what was promised."""

    names_from = 1
    """Where names are counted from: a crash that follows another one must not meet the names of the first."""
    always_at: frozenset[str] = frozenset()
    """Kinds of operations at which each run crashes, whatever its part: a crash there once showed a bug."""

    @abstractmethod
    def new_record(self) -> Record:
        """Return the record of a store to which nothing was done."""

    @abstractmethod
    def copy(self, record: Record) -> Record:
        """Return a copy that can go on from here on its own."""

    @abstractmethod
    def run(self, fs: FileSystem, record: Record) -> None:
        """Do the work; write down each promise as soon as it was given."""

    @abstractmethod
    def check(self, fs: FileSystem, record: Record) -> None:
        """Raise unless the store can be read and holds what was promised, and nothing that was never tried."""

    @abstractmethod
    def use(self, fs: FileSystem, record: Record) -> None:
        """Open the store as after any start and do more; write down the promises."""

    def start(self) -> MemoryFileSystem:
        """Return the disk before the work."""
        return new_disk()


@dataclass(frozen=True)
class Alarm:
    """One disk on which something did not hold."""

    mode: CrashMode
    crash_at: int
    operation: str
    seed: int
    failure: str

    def __str__(self) -> str:
        return f"{self.mode.value}, seed {self.seed}, crash at {self.crash_at} ({self.operation}): {self.failure}"


@dataclass
class Outcome:
    """The findings of an enumeration."""

    operations: int = 0
    """Operations at which it can crash; those of its part were crashed at."""
    crashes: int = 0
    """Operations at which it did crash."""
    runs: int = 0
    """Crashes with a mode and a seed; equal disks were opened once."""
    disks: int = 0
    alarms: dict[CrashMode, list[Alarm]] = field(default_factory=lambda: defaultdict(list))

    def __str__(self) -> str:
        shown = [str(alarm) for alarms in self.alarms.values() for alarm in alarms[:3]]
        counts = f"{self.crashes} of {self.operations} operations, {self.runs} runs, {self.disks} disks"
        return "\n".join([f"{counts}; {SEED_VARIABLE}={seed_of_run()}", *shown])

    def add(self, other: Outcome) -> None:
        """Count another enumeration in."""
        self.operations += other.operations
        self.crashes += other.crashes
        self.runs += other.runs
        self.disks += other.disks
        for mode, alarms in other.alarms.items():
            self.alarms[mode] += alarms


def plain(fs: MemoryFileSystem) -> FileSystem:
    """The file system as it is."""
    return fs


def enumerate_crashes(
    scenario: Scenario[Any],
    *,
    modes: Iterable[CrashMode] = tuple(CrashMode),
    seeds: int = SEEDS,
    wrap: Wrap = plain,
    first_alarm_only: bool = False,
    part: Part = WHOLE,
    with_edges: bool = True,
) -> Outcome:
    """Crash a scenario at every operation of a part, and at those that belong to every part in one mode each.

    Args:
        wrap: puts a seeded bug between the code and the disk.
        first_alarm_only: end with the first alarm of each mode.
        with_edges: crash as well where each part does.
    """
    operations = operations_of(scenario, wrap)
    points = [*points_of_part(scenario, operations, part, with_edges=with_edges), 0]
    outcome = Outcome(operations=len(crash_points(operations)) + 1)
    crashes = _Crashes(scenario, wrap, outcome)
    wanted = list(modes)
    if not first_alarm_only:
        own = {*points_of_part(scenario, operations, part, with_edges=False), 0}
        # Where there is one mode only, every second part crashes there.
        modes_of_edges = [[mode] for mode in wanted] if len(wanted) > 1 else [wanted, []]
        for place, crash_at in enumerate(points):
            chosen = modes_of_edges[(place + (part.number or 0)) % len(modes_of_edges)]
            crashes.crash(crash_at, wanted if crash_at in own else chosen, range(1, seeds + 1))
        return outcome
    # What a bug loses is mostly missed only later, when nothing else holds it any more: the end shows it soonest. And
    # most bugs show in any of the ways in which a disk may be left, so that each point is tried in one of them first.
    for ways in (range(1, 2), range(2, seeds + 1)):
        for crash_at in reversed(points):
            wanted = [mode for mode in wanted if mode not in outcome.alarms]
            if wanted:
                crashes.crash(crash_at, wanted, ways)
    return outcome


def crash_at_the_end(
    scenario: Scenario[Any], *, modes: Iterable[CrashMode] = tuple(CrashMode), seeds: int = SEEDS, wrap: Wrap = plain
) -> Outcome:
    """Let a scenario do all its work, and crash it then."""
    outcome = Outcome(operations=1)
    _Crashes(scenario, wrap, outcome).crash(0, modes, range(1, seeds + 1))
    return outcome


class _Crashes:
    """The crashes of one scenario; a disk that was seen before is not opened again."""

    def __init__(self, scenario: Scenario[Any], wrap: Wrap, outcome: Outcome) -> None:
        self._scenario = scenario
        self._wrap = wrap
        self._outcome = outcome
        self._seen: dict[object, str | None] = {}

    def crash(self, crash_at: int, modes: Iterable[CrashMode], seeds: Iterable[int]) -> None:
        """Crash at one operation, 0 for none, and look at each disk that may be left."""
        if not (modes := list(modes)):
            return
        fs, record, error = run_to(self._scenario, crash_at, self._wrap)
        self._outcome.crashes += 1
        for mode, seed in product(modes, seeds):
            self._outcome.runs += 1
            failure = error or self._failure_once(fs.crashed(mode, seed), record, mode, crash_at)
            if failure is not None:
                alarm = Alarm(mode, crash_at, str(fs.operations[-1:]), seed, failure)
                self._outcome.alarms[mode].append(alarm)

    def _failure_once(self, disk: MemoryFileSystem, record: Any, mode: CrashMode, crash_at: int) -> str | None:
        """Return what fails on a disk, None when nothing does; equal disks are checked once."""
        # Of a killed process also what is not durable counts, which differs from point to point.
        key = (mode, _content(disk), repr(record), crash_at if mode is CrashMode.ALL_KEPT else None)
        if key not in self._seen:
            self._outcome.disks += 1
            self._seen[key] = failure_on(self._scenario, disk, self._scenario.copy(record), mode, self._wrap)
        return self._seen[key]


def crash_points(operations: Sequence[Operation]) -> list[int]:
    """Return the operations to crash at, counted from 1: all, but three of many writes to one file in a row.

    Arrow and Parquet write a file in hundreds of pieces. A crash inside leaves a beginning of the same bytes, all of
    them unsynced; the first, the middle and the last piece stand for the others.
    """
    points = []
    start = 0
    while start < len(operations):
        stop = start + 1
        if operations[start].kind == "write":
            while stop < len(operations) and operations[stop] == operations[start]:
                stop += 1
        points += sorted({start + 1, (start + stop + 1) // 2, stop})
        start = stop
    return points


def points_of_part(
    scenario: Scenario[Any], operations: Sequence[Operation], part: Part, *, with_edges: bool = True
) -> list[int]:
    """Return the operations of a part to crash at, counted from 1; with those that belong to every part, or without."""
    points = crash_points(operations)
    edges = phase_edges(operations) if with_edges else set()
    kinds = scenario.always_at if with_edges else frozenset[str]()
    always = [case for case, at in enumerate(points) if at in edges or operations[at - 1].kind in kinds]
    return [points[case] for case in part.of(type(scenario).__name__, len(points), always=frozenset(always))]


def phase_edges(operations: Sequence[Operation]) -> set[int]:
    """Return the first and the last operation of each phase, counted from 1.

    What is done outside of all areas belongs to the phase in which it is done.
    """
    edges = {1, len(operations)}
    area = ""
    for number, operation in enumerate(operations, 1):
        entered = next((name for name in operation.path.parts if name in AREAS), area)
        if entered != area:
            edges |= {max(number - 1, 1), number}
        area = entered
    return edges


def operations_of(scenario: Scenario[Any], wrap: Wrap = plain) -> list[Operation]:
    """Return the operations of a run without a crash."""
    return run_to(scenario, 0, wrap)[0].operations


def run_to(
    scenario: Scenario[Record], crash_at: int = 0, wrap: Wrap = plain
) -> tuple[MemoryFileSystem, Record, str | None]:
    """Return the file system, the record, and what went wrong, all as they were when the process ended."""
    fs = scenario.start()
    fs.crash_at = crash_at
    record = scenario.new_record()
    with counted_names(scenario.names_from):
        try:
            scenario.run(wrap(fs), record)
        except InjectedCrash:
            pass
        except Exception as error:  # noqa: BLE001 - whatever a seeded bug makes of it is an alarm
            return fs, record, f"without a crash: {error!r}"
    return fs, record, None


def counted_names(first: int = 1) -> AbstractContextManager[object]:
    """Let names that are random in real life be the same in every run."""
    numbers = count(first)
    return patch("uuid.uuid4", lambda: uuid.UUID(int=next(numbers)))


def failure_on(
    scenario: Scenario[Any], disk: MemoryFileSystem, record: object, mode: CrashMode, wrap: Wrap
) -> str | None:
    """Return what fails on a disk, None when nothing does."""
    # Power may fail at once after a killed process was started anew: nothing that it found was durable before.
    again = CrashMode.SYNCED_ONLY if mode is CrashMode.ALL_KEPT else mode
    try:
        scenario.check(wrap(disk), record)
        scenario.use(wrap(disk), record)
        scenario.check(wrap(disk.crashed(again)), record)
    except Exception as error:  # noqa: BLE001 - any error means that the store cannot be used
        return f"{type(error).__name__}: {error}"
    return None


def _content(disk: MemoryFileSystem) -> tuple[object, ...]:
    return tuple((str(path), data) for path, data in disk.files().items())


def disks_after(scenario: Scenario[Any], seeds: int) -> Iterator[MemoryFileSystem]:
    """Yield every disk that a crash of a scenario may leave, each once."""
    seen = set()
    for crash_at in (*crash_points(operations_of(scenario)), 0):
        fs, _, _ = run_to(scenario, crash_at)
        for mode, seed in [(mode, seed) for mode in CrashMode for seed in range(1, seeds + 1)]:
            disk = fs.crashed(mode, seed)
            key = (_content(disk), crash_at if mode is CrashMode.ALL_KEPT else None)
            if key not in seen:
                seen.add(key)
                yield disk
