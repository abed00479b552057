"""A long sample as values, and what its event types mean, for the tests of the generator."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import msgspec

from custody.sample import SampleOptions, sample_events

BORN_ALONE = {"CREATE", "RECEIVE", "JOIN"}
BEAR_CHILDREN = {"FORK", "CLONE", "REPLAY"}
ENDS = {"DROP", "EXPIRE"}
# An operator's acts show a FlowFile, but are not part of what happens to it.
LOOKS = {"DOWNLOAD", "REPLAY"}


class Event(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON types of an event; conversion to it is strict."""

    eventId: str
    eventOrdinal: int
    eventType: str
    timestampMillis: int
    timestamp: str
    durationMillis: int
    lineageStart: int
    componentId: str
    componentType: str
    entityId: str
    entityType: str
    entitySize: int
    updatedAttributes: dict[str, str | None]
    previousAttributes: dict[str, str]
    actorHostname: str
    contentURI: str
    previousContentURI: str
    parentIds: list[str]
    childIds: list[str]
    platform: str
    application: str
    details: str | None = None
    componentName: str | None = None
    processGroupId: str | None = None
    processGroupName: str | None = None
    previousEntitySize: int | None = None
    transitUri: str | None = None
    remoteIdentifier: str | None = None
    alternateIdentifier: str | None = None

    @property
    def session(self) -> tuple[str, int]:
        return self.componentId, self.timestampMillis

    def applied(self) -> dict[str, str]:
        merged = {**self.previousAttributes, **self.updatedAttributes}
        return {name: value for name, value in merged.items() if value is not None}


@cache
def story() -> list[Event]:
    """20,000 events of two nodes; with nulls, so that removed attributes can be seen."""
    options = SampleOptions(events=20_000, seed=11, include_nulls=True)
    return msgspec.convert(list(sample_events(options)), list[Event])


def births(event: Event) -> list[str]:
    if event.eventType in BORN_ALONE:
        return [event.entityId]
    return event.childIds if event.eventType in BEAR_CHILDREN else []


def by_flowfile(events: list[Event]) -> dict[str, list[Event]]:
    histories: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        histories[event.entityId].append(event)
    return histories
