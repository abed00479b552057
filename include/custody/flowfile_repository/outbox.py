"""The provenance side of a commit: events that the FlowFile log holds are brought into the provenance journal once.

Events get a key of their own in the log, `flowfiles:<repository>` and a number, by which the provenance repository
knows what it has. So the events of a process that died between log and journal can be delivered by any other one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from custody.flow import Appender
from custody.ingest.dedup import StoredKeys, key_of
from custody.model import Event
from custody.workspace import Workspace


class Provenance(Protocol):
    """Where events go to, and what is there already."""

    @property
    def name(self) -> str:
        """The writer's name, to which the event ids belong."""
        ...

    def append(self, events: Sequence[Event]) -> range:
        """Append events in one piece and return their ids once they are acknowledged."""
        ...

    def missing(self, events: Sequence[Event]) -> list[Event]:
        """Return the events that are not stored, by their keys."""
        ...


class JournalProvenance:
    """The provenance repository whose writer the process holds.

    Args:
        writer: the writer slot.
        workspaces: returns all writers of the repository, looked up anew each time.
    """

    def __init__(self, writer: Appender, workspaces: Callable[[], Sequence[Workspace]]) -> None:
        self._writer = writer
        self._workspaces = workspaces

    @property
    def name(self) -> str:
        """The writer's name."""
        return self._writer.name

    def append(self, events: Sequence[Event]) -> range:
        """Append events; raises as `JournalWriter.append`."""
        return self._writer.append(events)

    def missing(self, events: Sequence[Event]) -> list[Event]:
        """Return the events that no writer has; those that were forgotten since do not come back.

        Raises:
            StorageError: a container is missing, which may hold them.
        """
        # Read anew each time: it is asked after a crash, or a failure, and what is there may have grown since.
        keys = StoredKeys(self._workspaces, "")
        keys.refresh()
        stored = keys.find(events).keys() | keys.erased(events)
        return [event for event in events if key_of(event) not in stored]


def with_keys(events: Sequence[Event], repository: str, first_ordinal: int) -> list[Event]:
    """Return events with their keys; numbers follow one another from `first_ordinal` on."""
    node = f"flowfiles:{repository}"
    return [
        msgspec.structs.replace(event, source_node=node, source_ordinal=first_ordinal + number)
        for number, event in enumerate(events)
    ]
