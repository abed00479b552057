"""Identity of events: the comparison of two copies of an event.

The key of an event is (source_node, source_ordinal). Where a format has no ordinal, it is a digest of what identifies
the event there, so that the same event read again has the same one (`custody.format.identifiers`).

A key alone is no identity: a source whose counter begins anew numbers other events with the same ordinals, and two
names may have one digest. Events of one key that differ in their time and in their FlowFile are different events
(`is_other_event`). Those that agree in either are copies, or they contradict each other: then the second one is
rejected and waits in the quarantine.
"""

from __future__ import annotations

import msgspec

from custody.capture.canonical_json import canonical_json
from custody.model import UNASSIGNED, Event, blinded

_NIFI = frozenset(["nifi-s2s", "nifi-avro", "nifi-rest"])
# Fields that NiFi looks up when it sends an event or answers a query, not when the event happened: names that a user
# may have changed since, and NiFi's own settings.
_LOOKED_UP = (
    "component_name",
    "process_group_id",
    "process_group_name",
    "application",
    "platform",
    "source_host",
    "content_uri",
    "previous_content_uri",
)
_WITHOUT_LOOKED_UP: dict[str, object] = dict.fromkeys(_LOOKED_UP)
# Fields that the receiver adds: the sender of a notification, and the bytes around its body. The digest of the body is
# part of the identity.
_WITHOUT_RECEIVER: dict[str, object] = {"source_host": None, "content_claim": None, "file_size": 0}
_RECEIVER_ATTRIBUTES = frozenset(["mime.type", "content.sha256", "ngsi.received_ms"])
_DIGEST = "content.sha256"
_FIELDS = tuple(field.name for field in msgspec.structs.fields(Event))
_AIRFLOW = "airflow"
# Fields by which a run of Airflow's is known. All else is as whoever tells of it knows it: the listener in the process
# of the task, or Airflow's database, which has other times.
_OF_RUN = ("component_id", "component_type", "flowfile_uuid", "transit_uri")
# Fields in which copies of an event in two formats must agree.
_CORE = ("event_type", "event_time", "component_id", "flowfile_uuid", "file_size", "parent_uuids", "child_uuids")


def is_other_event(one: Event, other: Event) -> bool:
    """Whether two events of one key are different events: both their times and their FlowFiles differ."""
    return one.event_time != other.event_time and one.flowfile_uuid != other.flowfile_uuid


def shared_time(event: Event) -> int | None:
    """Return the time, ms, that all copies of an event have; None where a copy may have another one."""
    if event.source_format == _AIRFLOW or event.updated_attributes.get("ngsi.time") == "arrival":
        return None
    return event.event_time


def is_same(one: Event, other: Event) -> bool:
    """Whether two events of one key are copies.

    Not compared are: the eventId, which NiFi makes anew for each copy that it sends; fields that NiFi looks up when it
    sends, and keys that are null in one copy and missing in the other; the order of parents and of children; the time
    of an event that has only that of its arrival; what the receiver of notifications adds; the order of keys in an
    OpenLineage event; values of attributes that were masked in one of them; and of a run of Airflow's all but which
    run, try and file it is about. Copies in two formats need only agree in what both formats can express, and so do
    keys that custody has no field for.
    """
    return not contradictions(one, other)


def contradictions(one: Event, other: Event) -> list[str]:
    """Return the fields in which two events of one key contradict each other; none when they are copies."""
    # Formats differ in what they can express; only fields that both can express may contradict each other.
    if one.source_format != other.source_format:
        return [name for name in _CORE if _comparable(one, name) != _comparable(other, name)]
    one, other = blinded(one, other)
    if one.source_format == "openlineage":
        # The whole event is in `extra`, and all other fields are made from it.
        return [] if one.extra == other.extra or _canonical_extra(one) == _canonical_extra(other) else ["extra"]
    if one.source_format == _AIRFLOW:
        return [name for name in _OF_RUN if getattr(one, name) != getattr(other, name)]
    first, second = _content(one), _content(other)
    differ = [] if first == second else [name for name in _FIELDS if getattr(first, name) != getattr(second, name)]
    return differ if _agree(one, other) else [*differ, "extra"]


def harmless_differences(stored: Event, again: Event) -> list[str]:
    """Return the fields in which a copy differs from the stored event without contradicting it.

    Copies in two formats are not compared: one can express what the other cannot.
    """
    if stored.source_format != again.source_format:
        return []
    return [name for name in _LOOKED_UP if getattr(stored, name) != getattr(again, name)]


def _canonical_extra(event: Event) -> bytes:
    return canonical_json(event.extra or "null")


def _agree(one: Event, other: Event) -> bool:
    """Whether both copies agree in the keys that custody has no field for; null counts as absent."""
    if one.extra == other.extra or one.source_format not in _NIFI:
        return True
    first, second = (msgspec.json.decode(event.extra or "{}") for event in (one, other))
    both = {name for name in first if first[name] is not None and second.get(name) is not None}
    return all(first[name] == second[name] for name in both)


def _content(event: Event) -> Event:
    """Return an event with only what a copy of it must share."""
    changes: dict[str, object] = {
        "event_id": UNASSIGNED,
        "source_event_id": None,
        "delivered_by": None,
        "parent_uuids": tuple(sorted(event.parent_uuids)),
        "child_uuids": tuple(sorted(event.child_uuids)),
    }
    if event.source_format in _NIFI:
        changes |= _WITHOUT_LOOKED_UP
        # `_agree` compares it, since a key may be null in one copy and missing in the other.
        changes["extra"] = None
        changes["updated_attributes"] = _without_nulls(event.updated_attributes)
        changes["previous_attributes"] = _without_nulls(event.previous_attributes)
    elif event.source_format == "custody" and _DIGEST in event.updated_attributes:
        # Where this repository put the content; the digest says which one it is.
        changes["content_claim"] = None
    elif event.source_format == "ngsi":
        attributes = event.updated_attributes
        changes |= _WITHOUT_RECEIVER
        changes["updated_attributes"] = {
            name: value for name, value in attributes.items() if name not in _RECEIVER_ATTRIBUTES
        }
        # Another copy arrived at another time.
        if attributes.get("ngsi.time") == "arrival":
            changes["event_time"] = 0
    return msgspec.structs.replace(event, **changes)


def _without_nulls(attributes: dict[str, str | None]) -> dict[str, str | None]:
    return {name: value for name, value in attributes.items() if value is not None}


def _comparable(event: Event, name: str) -> object:
    value = getattr(event, name)
    return sorted(value) if isinstance(value, tuple) else value
