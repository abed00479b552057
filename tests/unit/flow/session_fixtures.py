"""Fixtures of the tests of sessions: a session that is committed to a list, and FlowFiles that exist already."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from custody.clock import ManualClock
from custody.flow import Component, FlowFile, Session
from custody.model import ContentClaim, Event

COMPONENT = Component(id="task-1", type="LoadOrders", name="load orders", process_group_id="dag-1")
NOW = 1_772_409_600_000


class Kept:
    """A writer whose events are a list; the unit tests of a room that touches no disk need none."""

    name = "main"

    def __init__(self) -> None:
        self.appends: list[list[Event]] = []
        self.error: BaseException | None = None

    def append(self, events: Sequence[Event]) -> range:
        if self.error is not None:
            raise self.error
        first = len(self.events)
        self.appends.append(list(events))
        return range(first, first + len(events))

    @property
    def events(self) -> list[Event]:
        return [event for events in self.appends for event in events]


class Work(Session):
    """A session whose clock and uuids are known."""

    def __init__(self, writer: Kept | None = None) -> None:
        self.kept = writer or Kept()
        self.clock = ManualClock(NOW)
        numbers = count()
        super().__init__(COMPONENT, self.kept, self.clock, lambda: f"new-{next(numbers)}")

    def done(self) -> list[Event]:
        """Commit, and return all events that were stored."""
        self.commit()
        return self.kept.events


def existing(name: str = "old", **attributes: str) -> FlowFile:
    """A FlowFile that an earlier session left."""
    return FlowFile(
        uuid=name,
        attributes={"uuid": name, "filename": f"{name}.csv", **attributes},
        size=100,
        entry_date=NOW - 60_000,
        lineage_start_date=NOW - 90_000,
        content_claim=ContentClaim(container="default", section="1", identifier=f"claim-{name}", offset=10),
    )


def kinds(events: Sequence[Event]) -> list[str]:
    return [event.event_type for event in events]


def only(events: Sequence[Event], kind: str) -> Event:
    [found] = [event for event in events if event.event_type == kind]
    return found
