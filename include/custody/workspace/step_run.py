"""The run of a step, whoever does its units: they are listed, leased by writer, done, finished, and reported.

A Spark driver hands units to its workers, a pass in one process does them in threads; both are an `UnitRunner`, and
all else is the same code. A unit that fails does not stop the others. A step that fails ends the pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

import msgspec

from custody.clock import Clock, SystemClock
from custody.config import Settings
from custody.errors import CustodyError, EarlierStateError, ExitCode, LockedError, SupersededError
from custody.lease import Attempt, Heartbeat, Lease, superseded_error
from custody.store import counted
from custody.vfs import FileSystem
from custody.workspace.run_reports import StepReport, UnitReport, report_place, write_report
from custody.workspace.step import Step, Unit
from custody.workspace.step_lease import lease_of_unit, take_step_lease
from custody.workspace.workspace import Workspace


class Start(NamedTuple):
    """How a runner got ready: the seconds that it took, and where the units are done and why, if there is a choice."""

    seconds: float = 0.0
    place: str | None = None


class UnitRunner(Protocol):
    """Does the units of steps."""

    def start(self, step: Step, settings: Settings, units: Sequence[Unit]) -> Start:
        """Get ready for units that `run` is then asked to do."""
        ...

    def run(self, step: Step, settings: Settings, units: Sequence[Unit], epochs: Mapping[str, int]) -> list[UnitReport]:
        """Do units, each under the epoch of its writer's lease; return a report for each, in their order."""
        ...


def run_pass(
    steps: Iterable[Step],
    settings: Settings,
    runner: UnitRunner,
    attempt: Attempt,
    *,
    take_over: bool = False,
    run_id: str | None = None,
    startup_seconds: float = 0.0,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    only: Collection[str] = (),
) -> Iterator[StepReport]:
    """Run steps in order and yield the report of each; the first one that fails is the last.

    Reports are kept under `run_id`, where there is one. `startup_seconds` is what it took to come here. With `only`,
    units of other names are left.
    """
    for step in steps:
        report = run_step(
            step,
            settings,
            runner,
            attempt,
            take_over=take_over,
            startup_seconds=startup_seconds,
            fs=fs,
            clock=clock,
            only=only,
        )
        startup_seconds = 0.0
        code = exit_code(report)
        # The report of a run's step is that of the attempt that won.
        if run_id is not None and code != SupersededError.exit_code:
            write_report(*report_place(settings, fs), run_id, report, str(attempt))
        yield report
        if code:
            return


def exit_code(report: StepReport) -> int:
    """Return the exit code of a step: 0, that of being superseded, locked out or of an earlier moment, or 1."""
    kinds = {unit.error_kind for unit in report.details if unit.error is not None}
    if SupersededError.kind in kinds:
        return SupersededError.exit_code
    for only in (LockedError, EarlierStateError):
        if kinds == {only.kind}:
            return only.exit_code
    return ExitCode.SOME_WORK_FAILED if report.failed else ExitCode.DONE


def run_step(
    step: Step,
    settings: Settings,
    runner: UnitRunner,
    attempt: Attempt,
    *,
    take_over: bool = False,
    startup_seconds: float = 0.0,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    only: Collection[str] = (),
) -> StepReport:
    """Do all units of a step, each writer's under its lease.

    The runner is started only when there are units. A writer whose lease cannot be had costs an error in the report;
    the others' units are done. `startup_seconds` is the time that it took to come here, to which the runner's is added.
    """
    clock = clock or SystemClock()
    started = time.monotonic()
    start = Start()
    details: list[UnitReport] = []
    leases: dict[str, Lease] = {}
    # A bucket that is away is no empty one, and who takes a lease compares an earlier one: no more is asked of it.
    details += [] if settings.is_store_remote else _refused(settings, fs, clock)
    refused = {report.unit for report in details}
    details += _prepare(step, settings, fs, clock, refused)
    units = [unit for unit in _chosen(step.units(settings, fs), only) if unit.writer not in refused]
    if step.lease is not None:
        for writer in sorted({unit.writer for unit in units}):
            try:
                leases[writer] = take_step_lease(
                    settings, writer, attempt, step.lease, take_over=take_over, fs=fs, clock=clock
                )
            except CustodyError as error:
                details.append(_failed(writer, error))
        # Listed again: what another attempt did until now is done.
        units = [unit for unit in _chosen(step.units(settings, fs), only) if unit.writer in leases] if leases else []
    done: list[UnitReport] = []
    with Heartbeat(leases.values(), clock, settings.lease.dead_seconds):
        try:
            if units:
                # Workers get the number only: the driver holds the lease and gives its signs of life.
                epochs = {writer: lease.epoch for writer, lease in leases.items()}
                divided = _divide(step, settings, units, epochs, fs, clock)
                parts = [part for each in divided for part in each.parts]
                start = runner.start(step, settings, parts)
                started, startup_seconds = started + start.seconds, startup_seconds + start.seconds
                reports = iter(runner.run(step, settings, parts, epochs))
                for each in divided:
                    of_parts = list(islice(reports, len(each.parts)))
                    done.append(_join(step, settings, each, of_parts, epochs, fs, clock))
                done = step.finish(settings, units, done, fs)
        # All count as failed: it is unknown which units were done.
        except BaseException:
            _release(step, leases, leases)
            raise
    _release(step, leases, [unit.writer for unit, report in zip(units, done, strict=True) if report.error is not None])
    seconds = time.monotonic() - started
    return StepReport.of(
        step.name,
        str(settings.root),
        seconds,
        [*details, *done],
        startup_seconds=startup_seconds,
        place=start.place,
    )


def _refused(settings: Settings, fs: FileSystem | None, clock: Clock) -> Iterator[UnitReport]:
    """Yield a report for each writer whose state is earlier than one that was seen: none of its files is touched."""
    for workspace in Workspace.all(settings, fs, clock):
        try:
            workspace.require_newest()
        except EarlierStateError as error:
            yield _failed(workspace.writer, error)
        # Whatever else cannot be read keeps those units from being done that need it.
        except CustodyError:
            continue


def _prepare(
    step: Step, settings: Settings, fs: FileSystem | None, clock: Clock, refused: Collection[str]
) -> Iterator[UnitReport]:
    """Let a step prepare each writer; yield a report for each that failed, which keeps no other from its units."""
    if type(step).prepare is Step.prepare:
        return  # most steps: nothing is looked at
    for workspace in Workspace.all(settings, fs, clock):
        if workspace.writer in refused:
            continue
        try:
            step.prepare(workspace)
        except CustodyError as error:
            yield _failed(workspace.writer, error)


class _Divided(NamedTuple):
    """A unit, and what workers do of it: parts, or the unit alone."""

    unit: Unit
    parts: Sequence[Unit]


def _divide(
    step: Step,
    settings: Settings,
    units: Sequence[Unit],
    epochs: Mapping[str, int],
    fs: FileSystem | None,
    clock: Clock | None,
) -> list[_Divided]:
    """Let a step divide units that are large."""
    if type(step).divide is Step.divide:
        return [_Divided(unit, (unit,)) for unit in units]  # most steps: nothing is looked at
    divided: list[_Divided] = []
    for unit in units:
        lease = (
            None if step.lease is None else lease_of_unit(settings, unit.writer, step.lease, epochs[unit.writer], fs)
        )
        parts: Sequence[Unit] = ()
        # What keeps a unit from being divided keeps it from being done, which then says so.
        with suppress(CustodyError):
            parts = step.divide(Workspace(settings, unit.writer, fs, clock, lease), unit)
        divided.append(_Divided(unit, parts or (unit,)))
    return divided


def _join(
    step: Step,
    settings: Settings,
    divided: _Divided,
    reports: Sequence[UnitReport],
    epochs: Mapping[str, int],
    fs: FileSystem | None,
    clock: Clock | None,
) -> UnitReport:
    """Return the report of a unit whose parts were tried; one that has parts is completed if all are done."""
    if divided.parts == (divided.unit,):
        return reports[0]
    unit = str(divided.unit)
    failed = next((report for report in reports if report.error is not None), None)
    if failed is not None:
        error = f"{failed.unit}: {failed.error}"
        report = UnitReport(unit=unit, error=error, error_kind=failed.error_kind)
    else:
        work = partial(step.join, unit=divided.unit, parts=divided.parts)
        report = _run(work, step, settings, divided.unit, epochs, fs, clock)
    asked = [each.store for each in (*reports, report) if each.store is not None]
    return msgspec.structs.replace(
        report,
        seconds=round(sum(each.seconds for each in (*reports, report)), 3),
        store=sum(asked[1:], asked[0]) if asked else None,
    )


def run_unit(
    step: Step,
    settings: Settings,
    unit: Unit,
    epochs: Mapping[str, int],
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    *,
    disk_lasts: bool = True,
) -> UnitReport:
    """Do one unit under the epoch of its writer's lease; an error of it is in the report.

    Without `disk_lasts` everything that stays has to be in the store when the unit ends.
    """
    work = partial(step.run, unit=unit)
    return _run(work, step, settings, unit, epochs, fs, clock, disk_lasts=disk_lasts)


def _run(
    work: Callable[[Workspace], UnitReport],
    step: Step,
    settings: Settings,
    unit: Unit,
    epochs: Mapping[str, int],
    fs: FileSystem | None,
    clock: Clock | None,
    *,
    disk_lasts: bool = True,
) -> UnitReport:
    lease = None
    if step.lease is not None:
        lease = lease_of_unit(settings, unit.writer, step.lease, epochs[unit.writer], fs)
    started = time.monotonic()
    with counted() as counter:
        report = _unit_report(work, settings, unit, lease, fs, clock, disk_lasts=disk_lasts)
    asked = counter.traffic if counter.traffic.count else None
    return msgspec.structs.replace(report, seconds=round(time.monotonic() - started, 3), store=asked)


def _unit_report(
    work: Callable[[Workspace], UnitReport],
    settings: Settings,
    unit: Unit,
    lease: Lease | None,
    fs: FileSystem | None,
    clock: Clock | None,
    *,
    disk_lasts: bool,
) -> UnitReport:
    try:
        # Time passed since the driver listed the units: a superseded attempt must not even begin one.
        if lease is not None:
            lease.check()
        writer = unit.writer or settings.repository.writer
        return work(Workspace(settings, writer, fs, clock, lease, disk_lasts=disk_lasts))
    except Exception as error:  # noqa: BLE001 - one bad unit must not stop the others; the report names it
        # Who is superseded meets errors of many kinds: the other attempt takes its files away.
        return _failed(str(unit), error if lease is None or lease.is_current() else superseded_error(lease, error))


def _chosen(units: Sequence[Unit], only: Collection[str]) -> list[Unit]:
    return [unit for unit in units if not only or str(unit) in only]


def _failed(unit: str, error: Exception) -> UnitReport:
    kind = error.kind if isinstance(error, CustodyError) else None
    return UnitReport(unit=unit, error=f"{type(error).__name__}: {error}", error_kind=kind)


def _release(step: Step, leases: Mapping[str, Lease], failed: Collection[str]) -> None:
    for writer, lease in leases.items():
        lease.release(failed=writer in failed, recovered=step.is_recovery)
