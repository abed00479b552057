"""A pass in this process: the steps that Spark jobs do, without Java, under the same leases and with the same reports.

Units of a step are done one after the other, or by several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from custody.clock import Clock
from custody.config import Settings
from custody.errors import InvalidInputError, NotFoundError
from custody.lease import Attempt
from custody.vfs import FileSystem
from custody.workspace import Start, StepReport, UnitReport, run_pass, run_unit
from custody.workspace.step import Step, Unit


def _of_a_pass() -> Mapping[str, Step]:
    from custody.recovery import STEPS

    return STEPS


def _of_retention() -> Mapping[str, Step]:
    from custody.retention import RETENTION_STEPS

    return RETENTION_STEPS


def _of_maintenance() -> Mapping[str, Step]:
    from custody.maintenance.maintenance_steps import MAINTENANCE_STEPS

    return MAINTENANCE_STEPS


def _of_exports() -> Mapping[str, Step]:
    from custody.export.export_steps import EXPORT_STEPS

    return EXPORT_STEPS


_PASS = ("recover", "rollover", "compress", "index", "commit", "checkpoint", "sweep")
_RETENTION = tuple(
    f"retention_{name}"
    for name in ("plan", "mark", "expire", "drop_shards", "history", "prune", "collect_garbage", "erase", "check")
)
_ROOMS: Mapping[Callable[[], Mapping[str, Step]], Sequence[str]] = {
    _of_a_pass: _PASS,
    _of_retention: _RETENTION,
    _of_maintenance: ("absorb", "compact", "rebuild", "scrub"),
    _of_exports: ("export_resend", "export_deliver"),
}


class _Steps(Mapping[str, Step]):
    """The steps by name; a room is imported when one of its steps is asked for, so that a job loads its own only."""

    def __getitem__(self, name: str) -> Step:
        for room, names in _ROOMS.items():
            if name in names:
                return room()[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        for names in _ROOMS.values():
            yield from names

    def __len__(self) -> int:
        return sum(map(len, _ROOMS.values()))

    def __contains__(self, name: object) -> bool:
        return any(name in names for names in _ROOMS.values())


ALL_STEPS: Mapping[str, Step] = _Steps()
"""Every step that has a job, by name."""
PASSES: Mapping[str, Sequence[str]] = {"all": _PASS, "retention_all": _RETENTION}
"""The steps of whole passes, in order: of a rollover, of the retention."""

UnitsDone = Callable[[str, int, int], None]
"""Is told the name of a step, how many of its units are done, and how many there are."""


def steps_of(name: str) -> Sequence[str]:
    """Return the names of the steps that `name` stands for: those of a pass, or the step itself.

    Raises:
        NotFoundError: there is neither.
    """
    if name not in PASSES and name not in ALL_STEPS:
        raise NotFoundError(f"no step is called {name!r}. Name one of {', '.join((*PASSES, *ALL_STEPS))}.")
    return PASSES.get(name, (name,))


class LocalUnits:
    """Does units in this process, in as many threads as `workers` says, or in the caller's if that is one."""

    def __init__(
        self,
        workers: int = 1,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        on_units: UnitsDone = lambda _step, _done, _total: None,
    ) -> None:
        self._workers = workers
        self._fs = fs
        self._clock = clock
        self._on_units = on_units

    def start(self, step: Step, settings: Settings, units: Sequence[Unit]) -> Start:
        """Do nothing: nothing has to be started."""
        return Start()

    def run(self, step: Step, settings: Settings, units: Sequence[Unit], epochs: Mapping[str, int]) -> list[UnitReport]:
        """Do units in their order; with several threads some of them at once."""

        def work(unit: Unit) -> UnitReport:
            return run_unit(step, settings, unit, epochs, self._fs, self._clock)

        reports: list[UnitReport] = []
        self._on_units(step.name, 0, len(units))
        if self._workers == 1 or len(units) == 1:
            for unit in units:
                reports.append(work(unit))
                self._on_units(step.name, len(reports), len(units))
            return reports
        pool = ThreadPoolExecutor(min(self._workers, len(units)), thread_name_prefix=f"custody-{step.name}")
        try:
            for report in pool.map(work, units):
                reports.append(report)
                self._on_units(step.name, len(reports), len(units))
        finally:
            # An interrupt ends the pass with the units under way, and begins no other.
            pool.shutdown(cancel_futures=True)
        return reports


def run_locally(
    names: Sequence[str],
    settings: Settings,
    *,
    workers: int = 1,
    take_over: bool = False,
    run_id: str | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    on_step: Callable[[StepReport], None] = lambda _: None,
    on_units: UnitsDone = lambda _step, _done, _total: None,
) -> list[StepReport]:
    """Run steps in order in this process and return their reports; the first one that fails is the last.

    Raises:
        InvalidInputError: `workers` is not at least 1.
    """
    if workers < 1:
        raise InvalidInputError(f"workers: expected at least 1, got {workers}.")
    reports = []
    for report in run_pass(
        [ALL_STEPS[name] for name in names],
        settings,
        LocalUnits(workers, fs, clock, on_units),
        Attempt.new("local"),
        take_over=take_over,
        run_id=run_id,
        fs=fs,
        clock=clock,
    ):
        reports.append(report)
        on_step(report)
    return reports
