"""Erasing events to the last copy: the plan, the request, and going on with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from custody.catalog.tombstones import check_tombstone
from custody.clock import Clock
from custody.config import Settings
from custody.format.names import RETENTION_LEASE
from custody.lease import Attempt
from custody.model import require_text
from custody.read import reader
from custody.repository.soft_delete import EventSelection, ForgetPlan
from custody.retention import ErasedSelection, Erasure, ErasureStore, new_erasure, pursue, traces_of
from custody.vfs import FileSystem
from custody.workspace import Workspace, leased


class ErasePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an erasure would hide, and remove beside the events, by kind."""

    forget: ForgetPlan
    traces: dict[str, list[str]]
    """Places of files that name the values, and FlowFiles in queues, by kind."""
    kept: tuple[str, ...] = ()
    """What names the values and would stay, and why."""


def plan_erase(
    settings: Settings, fs: FileSystem, clock: Clock, forget: ForgetPlan, selection: EventSelection
) -> ErasePlan:
    """Return what an erasure would remove now; nothing is changed."""
    chosen = _erased_selection(selection)
    if _is_limited(chosen):
        return ErasePlan(forget=forget, traces={})
    traces = traces_of(settings, fs, clock, chosen)
    found: dict[str, list[str]] = {}
    for trace in traces.removable():
        found.setdefault(trace.kind, []).append(trace.place)
    for queue, flowfiles in traces.flowfiles().items():
        found.setdefault("FlowFile", []).extend(f"queue {queue}, FlowFile {item.uuid}" for item in flowfiles)
    traces.note_needed()
    return ErasePlan(forget=forget, traces=found, kept=(*traces.waiting, *traces.kept))


def request_erasure(
    settings: Settings,
    fs: FileSystem,
    clock: Clock,
    workspaces: Sequence[Workspace],
    selection: EventSelection,
    reason: str,
    who: str,
    before: Mapping[str, int] | None,
    *,
    is_of_all_writers: bool,
) -> Erasure:
    """Write a request; nothing else is changed.

    Durability: on return the request survives power loss.

    Raises:
        InvalidInputError: no condition is given, so that it would erase every event; or a text is no valid Unicode.
        StorageError: a container is missing: events on it may have greater ids than all that are known.
    """
    require_text(reason=reason, who=who)
    check_tombstone(selection.tombstone(reason, clock.now_ms(), 1, who))
    ends: dict[str, int] = {}
    for workspace in workspaces:
        workspace.require_containers()
        # It ends at the greatest id that is known, so that it never means events of the future.
        end = reader.next_event_id(workspace) if before is None else before.get(workspace.writer, 0)
        if end:
            ends[workspace.writer] = end
    erasure = new_erasure(
        _erased_selection(selection), ends, reason, who, clock.now_ms(), is_of_all_writers=is_of_all_writers
    )
    ErasureStore.of(settings, fs).save(erasure)
    return erasure


def continue_erasure(settings: Settings, fs: FileSystem, clock: Clock, erasure_id: str) -> Erasure:
    """Do all that can be done of a request now, under the lease that the step `retention_erase` has."""
    attempt = Attempt.new("custody-erase")
    workspace = Workspace(settings, settings.repository.writer, fs, clock)
    with leased(workspace, attempt, RETENTION_LEASE):
        return pursue(settings, fs, clock, erasure_id, attempt)


def _erased_selection(selection: EventSelection) -> ErasedSelection:
    return ErasedSelection(
        event_ids=tuple(sorted(set(selection.event_ids))),
        flowfile_uuids=tuple(sorted(set(selection.flowfile_uuids))),
        from_ms=selection.from_ms,
        to_ms=selection.to_ms,
        attributes=dict(sorted(selection.attributes.items())),
    )


def _is_limited(selection: ErasedSelection) -> bool:
    return bool(selection.event_ids or selection.from_ms or selection.to_ms)
