"""The provenance side of a commit: events that the FlowFile log holds are brought into the provenance journal once.

Events get a key of their own in the log, `flowfiles:<repository>` and a number, by which the provenance repository
knows what it has. So the events of a process that died between log and journal can be delivered by any other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from custody.model import Event


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


def with_keys(events: Sequence[Event], repository: str, first_ordinal: int) -> list[Event]:
    """Return events with their keys; numbers follow one another from `first_ordinal` on."""
    node = f"flowfiles:{repository}"
    return [
        msgspec.structs.replace(event, source_node=node, source_ordinal=first_ordinal + number)
        for number, event in enumerate(events)
    ]
