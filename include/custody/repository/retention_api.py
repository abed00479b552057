"""A pass of retention in one process: the steps that the DAG runs, one after the other, for all writers."""

from __future__ import annotations

import msgspec

from custody.clock import Clock
from custody.config import Settings
from custody.errors import ConflictError
from custody.retention import RETENTION_STEPS, RetentionPlan, choose_expired, mark_expired
from custody.vfs import FileSystem
from custody.workspace import UnitReport, Workspace

_AFTER_THE_MARK = (
    "retention_expire",
    "retention_drop_shards",
    "retention_history",
    "retention_prune",
    "retention_collect_garbage",
    "retention_erase",
)


class RetentionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The plan that a pass of retention carried out, and the reports of the later steps, by step."""

    plan: RetentionPlan
    steps: dict[str, tuple[UnitReport, ...]]


def apply_retention(settings: Settings, fs: FileSystem, clock: Clock, events: int | None = None) -> RetentionResult:
    """Do one pass, as the DAG does; with `events` only where the logs that go have so many.

    A limit that cannot be kept is no error here: the plan says so.

    Raises:
        ConflictError: a log was compacted, or a hold was made, in the meantime; or the logs that go have other events.
            Look at the plan, and try again.
    """
    writers = [item.writer for item in Workspace.all(settings, fs)]
    choice = choose_expired(settings, fs, clock, [Workspace(settings, writer, fs, clock) for writer in writers])
    going = sum(log.events for log in choice.plan.expiring)
    if events is not None and events != going:
        raise ConflictError(
            f"expected the number of events that go now, {going}, got {events}. Look at the plan again."
        )
    mark_expired(choice)
    reports: dict[str, tuple[UnitReport, ...]] = {}
    for name in _AFTER_THE_MARK:
        step, workspaces = RETENTION_STEPS[name], [Workspace(settings, writer, fs, clock) for writer in writers]
        # A writer's units are listed before the first of them runs, since each run changes what waits.
        reports[name] = tuple(step.run(item, unit) for item in workspaces for unit in list(step.waiting(item)))
    return RetentionResult(plan=choice.plan, steps=reports)
