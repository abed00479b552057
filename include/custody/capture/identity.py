"""Which event is which: numbers for sources that give none, and what two copies of an event share.

The identity of an event is (source_node, source_ordinal). A format without a number gets one from a digest of what
identifies the event there, so that the same event read again has the same number. The upper 20 bits are the hour of
the event since 1970 and the lower 43 the digest: events of one time get numbers near each other, and a look-up reads
the logs of that time only. Without a time that every copy shares, all 63 bits are digest.

Two different events of a source with one number are told apart by their content: the second one is rejected as a
contradiction, as everywhere, and waits in the quarantine. Among a million events of one source and hour that befalls
one pair with a probability of 6 %; among 100 million events without a time, of 0.05 %.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable

import msgspec

from custody.model import UNASSIGNED, Event

NAMESPACE = uuid.UUID("7d9ab0a7-9d1e-5b1c-9c43-6f6f1b3f7c50")
"""Of all uuids that custody makes by name. Part of what is stored: never change it."""
_HOUR_MS = 3_600_000
_HOUR_MAX = (1 << 20) - 1  # the year 2089; later hours share its numbers
_HOUR_SHIFT = 43

# What NiFi looks up when it is asked, not when the event happened.
_LOOKED_UP: dict[str, object] = {"component_name": None, "process_group_id": None, "process_group_name": None}
# What the receiver adds of who sent a notification, and of the bytes around the body, whose digest is in its identity.
_OF_THE_RECEIVER: dict[str, object] = {"source_host": None, "content_claim": None, "file_size": 0}
_SAID_BY_THE_RECEIVER = frozenset(["mime.type", "content.sha256", "ngsi.received_ms"])
# What every format of one event must agree in.
_CORE = ("event_type", "event_time", "component_id", "flowfile_uuid", "file_size", "parent_uuids", "child_uuids")


def digest_ordinal(parts: Iterable[str | None], time_ms: int | None) -> int:
    """Return the number of the event that these texts identify, from 0 to 2^63-1."""
    digest = int.from_bytes(_digest(parts)[:8])
    if time_ms is None:
        return digest >> 1
    hour = min(max(time_ms, 0) // _HOUR_MS, _HOUR_MAX)
    return hour << _HOUR_SHIFT | digest >> (64 - _HOUR_SHIFT)


def named_uuid(kind: str, *parts: str | None) -> str:
    """Return the uuid of a thing that has a name and no uuid; the same name is the same uuid everywhere."""
    return str(uuid.uuid5(NAMESPACE, msgspec.json.encode([kind, *parts]).decode()))


def is_same(one: Event, other: Event) -> bool:
    """Whether two events of one identity are copies; if not, they contradict each other.

    Not compared are: the eventId, which NiFi makes for each copy that it sends; the time of an event that has only
    that of its arrival; names that NiFi's REST interface looks up when asked; what the receiver of notifications adds,
    which another copy of one lacks. Copies in two formats need only agree
    in what both can say.
    """
    if one.source_format != other.source_format:
        return all(_comparable(one, name) == _comparable(other, name) for name in _CORE)
    return _content(one) == _content(other)


def _content(event: Event) -> Event:
    changes: dict[str, object] = {"event_id": UNASSIGNED, "source_event_id": None}
    if event.source_format == "nifi-rest":
        changes |= _LOOKED_UP
    elif event.source_format == "ngsi":
        said = event.updated_attributes
        changes |= _OF_THE_RECEIVER
        changes["updated_attributes"] = {name: said[name] for name in said if name not in _SAID_BY_THE_RECEIVER}
        if said.get("ngsi.time") == "arrival":
            changes["event_time"] = 0
    return msgspec.structs.replace(event, **changes)


def _comparable(event: Event, name: str) -> object:
    value = getattr(event, name)
    return sorted(value) if isinstance(value, tuple) else value


def _digest(parts: Iterable[str | None]) -> bytes:
    return hashlib.sha256(msgspec.json.encode(list(parts))).digest()
