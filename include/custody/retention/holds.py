"""Legal holds: events that a hold means are neither expired nor erased.

A hold is an entry of each writer's catalog, so that it is respected by every process that reads the catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from custody.catalog import Action, AddHold, Condition, RemoveHold
from custody.errors import ConflictError, NotFoundError
from custody.model import require_text
from custody.workspace import Workspace, not_absorbed


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A hold with the writers that have it; times in ms since the epoch."""

    name: str
    reason: str
    who: str
    created_ms: int
    writers: tuple[str, ...]
    event_ids: tuple[int, ...] = ()
    flowfile_uuids: tuple[str, ...] = ()
    from_ms: int = 0
    to_ms: int = 0
    attributes: dict[str, str] = {}
    event_types: tuple[str, ...] = ()


def add_hold(workspaces: Sequence[Workspace], name: str, condition: Condition, reason: str, who: str) -> None:
    """Add a hold to some catalogs; one that has it already is not changed.

    Durability: on return it survives power loss in all of them. On raise some may have it: repeat the call.

    Raises:
        InvalidInputError: it has no name, would mean every event, or a text is no valid Unicode.
        ConflictError: another hold has this name.
    """
    require_text(name=name, reason=reason, who=who)
    for workspace in workspaces:
        state = workspace.catalog.load()
        standing = state.holds.get(name)
        if state.seal is not None:
            continue  # nothing of a retired writer expires
        if standing is not None:
            # The same hold again is no error: so an interrupted call can be repeated for the catalogs that lack it.
            if standing.condition != condition:
                raise ConflictError(
                    f"writer {workspace.writer!r}: another hold is called {name!r}. Choose another name."
                )
            continue
        now_ms = workspace.clock.now_ms()
        hold = AddHold(name=name, condition=condition, reason=reason, who=who, created_ms=now_ms)
        workspace.catalog.commit([Action(add_hold=hold)])


def release_hold(workspaces: Sequence[Workspace], name: str, reason: str, who: str) -> list[str]:
    """Remove a hold from some catalogs; return their writers. The next pass takes what expired meanwhile.

    Durability: on return this survives power loss. On raise some may still have it: repeat the call.

    Raises:
        NotFoundError: no catalog has a hold of this name.
        InvalidInputError: a text is no valid Unicode.
    """
    require_text(name=name, reason=reason, who=who)
    released = []
    for workspace in workspaces:
        state = workspace.catalog.load()
        if name in state.holds and state.seal is None:
            release = RemoveHold(name=name, reason=reason, who=who, created_ms=workspace.clock.now_ms())
            workspace.catalog.commit([Action(remove_hold=release)])
            released.append(workspace.writer)
    if not released:
        raise NotFoundError(f"no hold is called {name!r}.")
    return released


def standing_holds(workspaces: Iterable[Workspace]) -> list[Hold]:
    """Return the holds of some catalogs, by name; equal holds of several catalogs are one."""
    by_meaning: dict[tuple[str, bytes], tuple[AddHold, list[str]]] = {}
    for workspace in not_absorbed(workspaces):
        for name, hold in workspace.catalog.load().holds.items():
            # By bytes, as messages are not hashable; deterministic, so that equal conditions have equal bytes.
            key = name, hold.condition.SerializeToString(deterministic=True)
            by_meaning.setdefault(key, (hold, []))[1].append(workspace.writer)
    return [_hold(hold, writers) for _, (hold, writers) in sorted(by_meaning.items())]


def _hold(hold: AddHold, writers: Sequence[str]) -> Hold:
    condition = hold.condition
    return Hold(
        name=hold.name,
        reason=hold.reason,
        who=hold.who,
        created_ms=hold.created_ms,
        writers=tuple(sorted(writers)),
        event_ids=tuple(condition.event_ids),
        flowfile_uuids=tuple(condition.flowfile_uuids),
        from_ms=condition.from_time_ms,
        to_ms=condition.to_time_ms,
        attributes={attribute.name: attribute.value for attribute in condition.attributes},
        event_types=tuple(condition.event_types),
    )
