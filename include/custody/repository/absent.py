"""What an answer may lack although nothing is damaged: events on a container that is away, or of another incarnation.

Nobody can say what a container holds that is not there. What is known: which ids nothing else holds, and from which id
on nothing is known at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from custody.catalog import CatalogState
from custody.errors import CustodyError, StorageError
from custody.eventlog import Damage, OnDamage
from custody.journal import Group, Missing, count_waiting
from custody.maintenance.verification.ids import missing_ids
from custody.rollover import Workspace, strays

_RANGES_TOLD = 5


@dataclass(frozen=True, slots=True)
class Absence(Damage):
    """Events that an answer may lack: not damaged, but out of reach; `last_event_id` None knows no end."""

    def __str__(self) -> str:
        return self.problem

    def may_hold(self, event_id: int) -> bool:
        """Whether an event of this id may be among them."""
        return event_id >= (self.first_event_id or 0) and (self.last_event_id is None or event_id <= self.last_event_id)


def tell_absent(workspace: Workspace, state: CatalogState, on_damage: OnDamage) -> None:
    """Tell what an answer of a writer lacks, or may lack; the journals were looked at before, and the catalog too."""
    for missing in workspace.missing():
        on_damage(_of_container(workspace, state, missing))
    for absence in foreign_journals(workspace, state):
        on_damage(absence)


def foreign_journals(workspace: Workspace, state: CatalogState) -> Iterator[Absence]:
    """Yield the journals whose events are not the writer's, though they lie among its own."""
    foreign = workspace.foreign_groups()
    if foreign:
        paths = [path for group in foreign for path in (*group.sealed, *group.open)]
        yield _of_journals(workspace, paths, "of another incarnation of the name")
    stray = list(strays(workspace, state, workspace.groups()))
    if stray:
        yield _of_journals(workspace, stray, "with ids that the live logs give to other events")


def _of_container(workspace: Workspace, state: CatalogState, missing: Missing) -> Absence:
    last = None if missing.reserved is None else missing.reserved - 1
    if missing.host:
        text = (
            f"writer {missing.writer!r}: its container {missing.place} is on the machine {missing.host!r}: events that "
            "are acknowledged there and not live yet are not part of this answer."
        )
        return Absence(missing.place, None, 0, last, text)
    text = (
        f"{missing}. Acknowledged events that are not live yet may lie on it; of the ids, nothing here holds "
        f"{_unheld(workspace, state)}."
    )
    return Absence(missing.place, None, 0, last, text)


def _unheld(workspace: Workspace, state: CatalogState) -> str:
    try:
        ranges = list(missing_ids(workspace, state))
        waiting = [group for group in workspace.groups() if not workspace.is_committed(state, group.first_event_id)]
        behind = max(state.next_event_id, count_waiting(workspace.fs, waiting).next_event_id)
    except (CustodyError, OSError):
        return "what nobody can tell, as other files cannot be read"
    told = ", ".join(f"{first} to {last}" for first, last in ranges[:_RANGES_TOLD])
    more = f", {len(ranges) - _RANGES_TOLD} more stretches" if len(ranges) > _RANGES_TOLD else ""
    count = sum(last - first + 1 for first, last in ranges)
    gaps = f"{told}{more} ({count} events at most), and " if ranges else ""
    return f"{gaps}any from {behind} on"


def _of_journals(workspace: Workspace, paths: Sequence[Path], what: str) -> Absence:
    folders = ", ".join(dict.fromkeys(str(path.parent) for path in paths))
    try:
        held = count_waiting(workspace.fs, _as_groups(workspace, paths))
    except StorageError:
        count, last = "events", None
    else:
        count, last = f"{held.events} events up to id {held.next_event_id - 1}", held.next_event_id - 1
    text = (
        f"{folders}: {len(paths)} journals {what} {workspace.writer!r}: {count} are not part of this answer. "
        "Bring them in under another writer name: custody recover --adopt"
    )
    return Absence(paths[0], None, 0, last, text)


def _as_groups(workspace: Workspace, paths: Iterable[Path]) -> list[Group]:
    return [Group(workspace.writer, 0, tuple(paths), ())]
