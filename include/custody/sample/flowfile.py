"""A FlowFile of the simulation and the changes of the session that holds it.

All events of one session show the same state before and the same changes. So changes are collected
in `updates` and `size` while events are emitted, and become the new state at `commit`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class FlowFile:
    """One FlowFile; a brand-new one has no committed attributes and no previous size."""

    uuid: str
    lineage_start_ms: int
    size: int
    previous_size: int | None
    attributes: dict[str, str] = field(default_factory=dict)
    updates: dict[str, str | None] = field(default_factory=dict)
    last_ordinal: int = -1

    def update(self, changes: Mapping[str, str | None]) -> None:
        """Set attributes in the current session; None removes one, an equal value is no change."""
        for name, value in changes.items():
            if self.attributes.get(name) != value:
                self.updates[name] = value

    def commit(self) -> None:
        """End the session: its changes become the state before the next event."""
        self.attributes = self.current_attributes()
        self.updates = {}
        self.previous_size = self.size

    def current_attributes(self) -> dict[str, str]:
        """Return the attributes with the current session's changes applied."""
        merged: dict[str, str | None] = {**self.attributes, **self.updates}
        return {name: value for name, value in merged.items() if value is not None}

    def child(self, uuid: str, size: int, changes: Mapping[str, str]) -> "FlowFile":
        """Return a committed descendant: same lineage start, inherited attributes, its own uuid."""
        return FlowFile(
            uuid=uuid,
            lineage_start_ms=self.lineage_start_ms,
            size=size,
            previous_size=size,
            attributes={**self.current_attributes(), "uuid": uuid, **changes},
        )
