"""Soft delete: a tombstone in each writer's catalog, after which no answer gives the selected events out.

The events lie on disk until a compaction erases them. Only events that exist now are selected, never later ones.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow.compute as pc

from custody import iceberg
from custody.catalog import Action, AddTombstone, Attribute, Condition, matching_rows
from custody.catalog.tombstones import check_tombstone
from custody.eventlog import OnDamage
from custody.made_types import made_at_import
from custody.model import require_text
from custody.read import reader
from custody.read.results import Notices
from custody.workspace import Workspace

_TIME_END_MS = 1 << 62


class ForgetResult(msgspec.Struct, frozen=True, kw_only=True):
    """One tombstone: the writer whose events it hides, and the revision of the catalog that added it."""

    writer: str
    tombstone: str
    revision: int


class ForgetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What `forget` would hide, by writer; with its `before` it hides exactly these events, none that came since."""

    events: dict[str, int]
    before: dict[str, int]
    """Events of a writer from this id on are not meant."""
    held: dict[str, int]
    """How many of them each hold keeps on disk, hidden all the same."""
    notices: tuple[str, ...] = ()
    """What cannot be read and is not counted; it is hidden, too."""


class EventSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The events that fulfil every condition that is given. Times in ms since the epoch."""

    event_ids: Sequence[int] = ()
    flowfile_uuids: Sequence[str] = ()
    from_ms: int = 0
    to_ms: int = 0
    """Events before this time; 0 for any time."""
    attributes: Mapping[str, str] = {}
    """Values that a FlowFile's attributes had before or after the event."""

    @property
    def _end_ms(self) -> int:
        # In the catalog the end 0 means no condition on time, whatever the beginning is.
        return self.to_ms or (_TIME_END_MS if self.from_ms else 0)

    def require_text(self) -> None:
        """Raise InvalidInputError when a text is no valid Unicode: neither the catalog nor an event holds it."""
        for number, flowfile in enumerate(self.flowfile_uuids):
            require_text(**{f"FlowFile {number}": flowfile})
        for name, value in self.attributes.items():
            require_text(**{"an attribute's name": name, f"attribute {name!a}": value})

    def tombstone(self, reason: str, now_ms: int, before_event_id: int, who: str = "") -> AddTombstone:
        """Return the tombstone for the catalog; events from `before_event_id` on are not selected.

        Raises:
            InvalidInputError: a text is no valid Unicode.
        """
        self.require_text()
        require_text(reason=reason, who=who)
        return AddTombstone(
            id=uuid.uuid4().bytes,
            event_ids=sorted(set(self.event_ids)),
            flowfile_uuids=sorted(set(self.flowfile_uuids)),
            from_time_ms=self.from_ms,
            to_time_ms=self._end_ms,
            attributes=[Attribute(name=name, value=value) for name, value in sorted(self.attributes.items())],
            before_event_id=before_event_id,
            reason=reason,
            created_ms=now_ms,
            who=who,
        )

    def condition(self, event_types: Sequence[str] = ()) -> Condition:
        """Return the condition for the catalog, without a time or an id before which the events must lie.

        Raises:
            InvalidInputError: a text is no valid Unicode.
        """
        self.require_text()
        for number, name in enumerate(event_types):
            require_text(**{f"event type {number}": name})
        return Condition(
            event_ids=sorted(set(self.event_ids)),
            flowfile_uuids=sorted(set(self.flowfile_uuids)),
            from_time_ms=self.from_ms,
            to_time_ms=self._end_ms,
            attributes=[Attribute(name=name, value=value) for name, value in sorted(self.attributes.items())],
            event_types=sorted(set(event_types)),
        )


made_at_import(EventSelection)


def forget(
    workspace: Workspace, selection: EventSelection, reason: str, who: str = "", before: int | None = None
) -> ForgetResult:
    """Hide events of one writer, also those that are not live yet; a published Iceberg table follows.

    With `before` none from this id on is hidden, else none that comes later.

    Durability: on return the tombstone survives power loss.

    Raises:
        InvalidInputError: no condition is given, so that it would hide every event; or a text is no valid Unicode.
        StorageError: a container is missing: events on it may have greater ids than all that are known, which a
            tombstone would not hide.
    """
    # A tombstone ends at the greatest id that is known, so that it never hides events of the future.
    workspace.require_containers()
    iceberg.check_ready(workspace)
    last = reader.next_event_id(workspace) if before is None else before
    stone = selection.tombstone(reason, workspace.clock.now_ms(), last, who)
    state = workspace.catalog.commit([Action(add_tombstone=stone)])
    # At once, so that other engines show them no longer than custody does.
    iceberg.republish(workspace)
    return ForgetResult(writer=workspace.writer, tombstone=stone.id.hex(), revision=state.revision)


def count_selected(workspace: Workspace, selection: EventSelection, on_damage: OnDamage) -> int:
    """Return how many events would be hidden; all logs are read for it."""
    # A tombstone that is never committed: it only says which events `visible` would leave out.
    stone = selection.tombstone("", 1, 0)
    return count_meant(workspace, stone, {}, on_damage)[0]


def plan_forget(workspaces: Sequence[Workspace], selection: EventSelection, notices: Notices) -> ForgetPlan:
    """Return what would be hidden of some writers, and what holds keep of it; all logs are read for it.

    Raises:
        InvalidInputError, StorageError: as `forget`.
    """
    events: dict[str, int] = {}
    before: dict[str, int] = {}
    held: Counter[str] = Counter()
    for workspace in workspaces:
        workspace.require_containers()
        # Before they are counted: one that comes meanwhile is neither counted nor hidden.
        before[workspace.writer] = reader.next_event_id(workspace)
        stone = check_tombstone(selection.tombstone("", 1, before[workspace.writer]))
        holds = {name: hold.condition for name, hold in workspace.catalog.load().holds.items()}
        # Nothing has an id below the first one: such a tombstone would mean everything.
        if before[workspace.writer]:
            events[workspace.writer], kept = count_meant(workspace, stone, holds, notices)
            held.update(kept)
    return ForgetPlan(events=events, before=before, held=dict(held), notices=tuple(notices))


def count_meant(
    workspace: Workspace, meant: AddTombstone | Condition, holds: Mapping[str, Condition], on_damage: OnDamage
) -> tuple[int, Counter[str]]:
    """Return how many of the events that can be seen a tombstone or a condition means, and how many of those each hold.

    All logs are read for it.
    """
    events = 0
    held: Counter[str] = Counter()
    for table in reader.tables_from(workspace, on_damage=on_damage):
        chosen = table.filter(matching_rows([meant], table))
        events += chosen.num_rows
        if chosen.num_rows:
            held.update({name: pc.sum(matching_rows([one], chosen)).as_py() for name, one in holds.items()})
    return events, +held
