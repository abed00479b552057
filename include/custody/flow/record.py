"""What a session knows of one FlowFile: how it was when it came, how it is now, and how an event tells of both."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from custody.flow.flowfile import Component, FlowFile
from custody.model import ContentClaim, Event


@dataclass(slots=True)
class Record:
    """One FlowFile in one session."""

    original: FlowFile | None
    """As it came into the session; None when it was made here."""
    current: FlowFile
    start_ms: int
    """When the session began to handle it."""
    queue: str | None = None
    """Where it was taken from."""
    has_new_content: bool = False
    has_ended: bool = False
    """Whether nothing more can be done with it here."""
    is_removed: bool = False
    """Whether it ended by being taken out of the flow, dropped or expired."""

    @property
    def is_new(self) -> bool:
        """Whether it was made in this session."""
        return self.original is None

    @property
    def uuid(self) -> str:
        """The FlowFile's uuid."""
        return self.current.uuid

    def updates(self) -> dict[str, str | None]:
        """Return the attributes that differ from those at the start; None for one that is gone."""
        before = self.original.attributes if self.original else {}
        after = self.current.attributes
        changed: dict[str, str | None] = {k: v for k, v in after.items() if before.get(k) != v}
        return {**changed, **{name: None for name in before if name not in after}}

    def draft(self, kind: str, component: Component, time_ms: int, **fields: object) -> Event:
        """Return an event that tells of the FlowFile, without its attributes and its content."""
        return Event(
            event_type=kind,
            event_time=time_ms,
            component_id=component.id,
            component_type=component.type,
            component_name=component.name,
            process_group_id=component.process_group_id,
            process_group_name=component.process_group_name,
            flowfile_uuid=self.uuid,
            file_size=self.current.size,
            flowfile_entry_date=self.current.entry_date,
            lineage_start_date=self.current.lineage_start_date,
            source_queue_identifier=self.queue,
            **fields,  # type: ignore[arg-type]
        )

    def completed(self, event: Event, time_ms: int) -> Event:
        """Return a draft with the FlowFile's attributes and content as they are now."""
        before = self.original
        return msgspec.structs.replace(
            event,
            file_size=self.current.size,
            content_claim=_claim(self.current),
            updated_attributes=self.updates(),
            previous_attributes=dict(before.attributes) if before else {},
            previous_file_size=before.size if before else None,
            previous_content_claim=_claim(before) if before else None,
            event_duration=max(time_ms - self.start_ms, 0) if event.event_duration < 0 else event.event_duration,
        )

    def expired(self, event: Event) -> Event:
        """Return a draft that tells of a FlowFile that nobody worked on: all is as it was before."""
        claim = _claim(self.current)
        return msgspec.structs.replace(
            event,
            previous_attributes=dict(self.current.attributes),
            previous_file_size=self.current.size,
            content_claim=claim,
            previous_content_claim=claim,
        )


def _claim(flowfile: FlowFile) -> ContentClaim | None:
    """Return where the content lies; the claim's size is the FlowFile's."""
    claim = flowfile.content_claim
    return None if claim is None else msgspec.structs.replace(claim, size=flowfile.size)
