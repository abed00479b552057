"""A unit on an executor that shares no disk with anybody: it works in a folder of its own, which goes when it ends.

What the unit reads comes from the object store, and what it leaves is there when it reports. Nothing else of the
driver's machine is needed: the settings come with the task, credentials from the executor's environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from custody.config import Settings
from custody.errors import CustodyError, LastingDiskError
from custody.repository.local_pass import ALL_STEPS, LocalUnits
from custody.spark.own_disk import own_disk
from custody.workspace import UnitReport, Workspace, run_unit
from custody.workspace.question import one_question
from custody.workspace.step import Step, Unit

Collect = Callable[[Sequence[Unit]], Sequence[bytes]]
"""Gives units to executors and returns their reports as JSON, in the order of the units."""


def run_on_executors(
    step: Step, settings: Settings, units: Sequence[Unit], epochs: Mapping[str, int], collect: Collect
) -> list[UnitReport]:
    """Do units on executors, each under the epoch of its writer's lease; return a report for each, in their order.

    What an executor leaves because it needs a disk that lasts, such as damaged records that are kept, is done here.
    """
    refused = _refused(step, settings, {unit.writer for unit in units})
    # By identity: two units may be equal.
    away = {id(unit) for unit in units_away(step, settings, units) if unit.writer not in refused}
    sent = [unit for unit in units if id(unit) in away]
    encoded = collect(sent) if sent else []
    reports = iter([step.report_decoder.decode(report) for report in encoded])
    done: list[UnitReport] = []
    for unit in units:
        if unit.writer in refused:
            error = refused[unit.writer]
            text = f"{type(error).__name__}: {error}"
            done.append(UnitReport(unit=str(unit), error=text, error_kind=error.kind))
            continue
        if id(unit) not in away:
            done += LocalUnits().run(step, settings, [unit], epochs)
            continue
        report = next(reports)
        is_left = report.error_kind == LastingDiskError.kind
        done += LocalUnits().run(step, settings, [unit], epochs) if is_left else [report]
    return done


def units_away(step: Step, settings: Settings, units: Sequence[Unit]) -> list[Unit]:
    """Return the units that executors can do: where they share no disk, those that need nothing but the store."""
    if not settings.is_staging_stored:
        return list(units)
    if not step.needs_store_only:
        return []
    workspaces: dict[str, Workspace] = {}

    def stays(unit: Unit) -> bool:
        writer = unit.writer or settings.repository.writer
        if writer not in workspaces:
            workspaces[writer] = Workspace(settings, writer)
        try:
            return step.stays(workspaces[writer], unit)
        except CustodyError:  # damaged or gone since it was listed: the unit itself says so, here
            return True

    # One look at each catalog for all units, and not one for each.
    with one_question():
        return [unit for unit in units if not stays(unit)]


def execute(name: str, settings_json: str, epochs: Mapping[str, int], unit_json: bytes) -> bytes:
    """Do one unit on an executor, under the epoch of its writer's lease; return its report as JSON."""
    step = ALL_STEPS[name]
    unit = step.unit_decoder.decode(unit_json)
    settings = Settings.from_json(settings_json)
    with own_disk(settings) as own:
        return msgspec.json.encode(run_unit(step, own, unit, epochs, disk_lasts=own is settings))


def _refused(step: Step, settings: Settings, writers: set[str]) -> dict[str, CustodyError]:
    """Return the writers whose units may not be done, and why: executors see nothing of this machine."""
    refused: dict[str, CustodyError] = {}
    for writer in sorted(writers) if settings.is_staging_stored else ():
        try:
            step.check_driver(Workspace(settings, writer or settings.repository.writer))
        except CustodyError as error:
            refused[writer] = error
    return refused
