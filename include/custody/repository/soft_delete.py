"""Forgetting events: a tombstone in each writer's catalog, after which no answer gives them out.

They lie on disk until a compaction erases them. Only events that exist now are meant, never later ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow.compute as pc

from custody.catalog import Action, AddTombstone, Attribute, visible
from custody.eventlog import OnDamage
from custody.model import require_text
from custody.read import reader
from custody.workspace import Workspace


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """One tombstone: whose events it means, and in which revision of the catalog it stands."""

    writer: str
    tombstone: str
    revision: int


class Meant(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are meant: those that fulfil every condition that is given. Times in ms since the epoch."""

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
        """Return the catalog's word for it; events from `before_event_id` on are not meant.

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


def forget(workspace: Workspace, meant: Meant, reason: str) -> Forgotten:
    """Bury events of one writer, also those that are not live yet.

    Durability: on return the tombstone survives power loss.

    Raises:
        InvalidInputError: no condition is given, it would mean every event; or a text is no valid Unicode.
        StorageError: a container is missing: events on it may have ids behind all that are known, which a tombstone
            would not mean.
    """
    workspace.require_containers()
    stone = meant.tombstone(reason, workspace.clock.now_ms(), reader.next_event_id(workspace))
    state = workspace.catalog.commit([Action(add_tombstone=stone)])
    return Forgotten(writer=workspace.writer, tombstone=stone.id.hex(), revision=state.revision)


def count_meant(workspace: Workspace, meant: Meant, on_damage: OnDamage) -> int:
    """Return how many events would be buried; all logs are read for it."""
    stone = meant.tombstone("", 1, 0)
    tables = reader.tables(workspace, on_damage=on_damage)
    return sum(table.num_rows - pc.sum(visible([stone], table)).as_py() for table in tables if table.num_rows)
