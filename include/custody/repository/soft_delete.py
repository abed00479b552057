"""Soft delete: a tombstone in each writer's catalog, after which no answer gives the selected events out.

The events lie on disk until a compaction erases them. Only events that exist now are selected, never later ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow.compute as pc

from custody import iceberg
from custody.catalog import Action, AddTombstone, Attribute, Condition, visible
from custody.eventlog import OnDamage
from custody.model import require_text
from custody.read import reader
from custody.workspace import Workspace


class ForgetResult(msgspec.Struct, frozen=True, kw_only=True):
    """One tombstone: the writer whose events it hides, and the revision of the catalog that added it."""

    writer: str
    tombstone: str
    revision: int


class EventSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The events that fulfil every condition that is given. Times in ms since the epoch."""

    event_ids: Sequence[int] = ()
    flowfile_uuids: Sequence[str] = ()
    from_ms: int = 0
    to_ms: int = 0
    """Events before this time; 0 for any time."""
    attributes: Mapping[str, str] = {}
    """Values that a FlowFile's attributes had before or after the event."""

    def require_text(self) -> None:
        """Raise InvalidInputError when a text is no valid Unicode: neither the catalog nor an event holds it."""
        for number, flowfile in enumerate(self.flowfile_uuids):
            require_text(**{f"FlowFile {number}": flowfile})
        for name, value in self.attributes.items():
            require_text(**{"an attribute's name": name, f"attribute {name!a}": value})

    def tombstone(self, reason: str, now_ms: int, before_event_id: int) -> AddTombstone:
        """Return the tombstone for the catalog; events from `before_event_id` on are not selected.

        Raises:
            InvalidInputError: a text is no valid Unicode.
        """
        self.require_text()
        require_text(reason=reason)
        return AddTombstone(
            id=uuid.uuid4().bytes,
            event_ids=sorted(set(self.event_ids)),
            flowfile_uuids=sorted(set(self.flowfile_uuids)),
            from_time_ms=self.from_ms,
            to_time_ms=self.to_ms,
            attributes=[Attribute(name=name, value=value) for name, value in sorted(self.attributes.items())],
            before_event_id=before_event_id,
            reason=reason,
            created_ms=now_ms,
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
            to_time_ms=self.to_ms,
            attributes=[Attribute(name=name, value=value) for name, value in sorted(self.attributes.items())],
            event_types=sorted(set(event_types)),
        )


def forget(workspace: Workspace, selection: EventSelection, reason: str) -> ForgetResult:
    """Hide events of one writer, also those that are not live yet; a published Iceberg table follows.

    Durability: on return the tombstone survives power loss.

    Raises:
        InvalidInputError: no condition is given, so that it would hide every event; or a text is no valid Unicode.
        StorageError: a container is missing: events on it may have greater ids than all that are known, which a
            tombstone would not hide.
    """
    # A tombstone ends at the greatest id that is known, so that it never hides events of the future.
    workspace.require_containers()
    iceberg.check_ready(workspace)
    stone = selection.tombstone(reason, workspace.clock.now_ms(), reader.next_event_id(workspace))
    state = workspace.catalog.commit([Action(add_tombstone=stone)])
    # At once, so that other engines show them no longer than custody does.
    iceberg.republish(workspace)
    return ForgetResult(writer=workspace.writer, tombstone=stone.id.hex(), revision=state.revision)


def count_selected(workspace: Workspace, selection: EventSelection, on_damage: OnDamage) -> int:
    """Return how many events would be hidden; all logs are read for it."""
    # A tombstone that is never committed: it only says which events `visible` would leave out.
    stone = selection.tombstone("", 1, 0)
    tables = reader.tables_from(workspace, on_damage=on_damage)
    return sum(table.num_rows - pc.sum(visible([stone], table)).as_py() for table in tables if table.num_rows)
