"""Retention and holds, as the repository offers them: the steps in one process, and holds in every writer's catalog."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from custody.catalog import Attribute, Condition
from custody.clock import Clock
from custody.config import Settings
from custody.model import require_text
from custody.repository.soft_delete import Meant
from custody.retention import RETENTION_STEPS, RetentionPlan, choose_expired, mark_expired
from custody.vfs import FileSystem
from custody.workspace import UnitReport, Workspace

_AFTER_THE_MARK = (
    "retention_expire",
    "retention_drop_shards",
    "retention_prune",
    "retention_collect_garbage",
)


class Retained(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass of retention did: the plan that it carried out, and what each later step did."""

    plan: RetentionPlan
    steps: dict[str, tuple[UnitReport, ...]]


def plan_retention(settings: Settings, fs: FileSystem, clock: Clock, workspaces: Sequence[Workspace]) -> RetentionPlan:
    """Return what a pass would do now; nothing is changed."""
    return choose_expired(settings, fs, clock, workspaces).plan


def apply_retention(settings: Settings, fs: FileSystem, clock: Clock) -> Retained:
    """Do one pass, as the DAG does.

    That the limit cannot be kept is no error here: the plan says so.

    Raises:
        ConflictError: a log was compacted, or a hold was made, in the meantime. Try again.
    """
    writers = [found.writer for found in Workspace.all(settings, fs)]
    choice = choose_expired(settings, fs, clock, [Workspace(settings, writer, fs, clock) for writer in writers])
    mark_expired(choice)
    done: dict[str, tuple[UnitReport, ...]] = {}
    for name in _AFTER_THE_MARK:
        step, workspaces = RETENTION_STEPS[name], [Workspace(settings, writer, fs, clock) for writer in writers]
        done[name] = tuple(step.run(item, unit) for item in workspaces for unit in list(step.waiting(item)))
    return Retained(plan=choice.plan, steps=done)


def condition_of(meant: Meant, event_types: Sequence[str] = ()) -> Condition:
    """Return the catalog's word for the events that are meant, without a time or an id before which they must lie.

    Raises:
        InvalidInputError: a text is no valid Unicode.
    """
    meant.require_text()
    for number, name in enumerate(event_types):
        require_text(**{f"event type {number}": name})
    return Condition(
        event_ids=sorted(set(meant.event_ids)),
        flowfile_uuids=sorted(set(meant.flowfile_uuids)),
        from_time_ms=meant.from_ms,
        to_time_ms=meant.to_ms,
        attributes=[Attribute(name=name, value=value) for name, value in sorted(meant.attributes.items())],
        event_types=sorted(set(event_types)),
    )
