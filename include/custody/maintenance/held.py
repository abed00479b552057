"""What holds mean for a writer: its events are neither expired nor erased while a hold stands."""

from __future__ import annotations

from collections.abc import Iterable

from custody.catalog import Condition
from custody.rollover import Workspace


def conditions_for(workspace: Workspace, others: Iterable[Workspace] | None = None) -> dict[str, Condition]:
    """Return by name what a writer's events are held by: its own holds, and others' that name no event ids.

    So a hold that was made before a writer had a catalog counts for that writer too. `others` are all writers of the
    repository when they are at hand.
    """
    found: dict[str, Condition] = {}
    for other in Workspace.all(workspace.settings, workspace.fs) if others is None else others:
        for name, hold in other.catalog.load().holds.items():
            if other.writer != workspace.writer and not hold.condition.event_ids:
                found.setdefault(name, hold.condition)
    found.update((name, hold.condition) for name, hold in workspace.catalog.load().holds.items())
    return dict(sorted(found.items()))
