"""One event of NiFi's Site-to-Site provenance JSON, to and from the event model.

Format: the payload of NiFi's SiteToSiteProvenanceReportingTask (2.x; 1.x files lack some keys). Keys may be missing
or null; keys that custody has no field for are kept in `Event.extra`. The relationship of a ROUTE, the source queue
and the content claims are not in this format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import msgspec

from custody.errors import InvalidInputError
from custody.model import Event

SOURCE_FORMAT = "nifi-s2s"
FLOWFILE_ENTITY = "org.apache.nifi.flowfile.FlowFile"
UNKNOWN_NODE = "unknown"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(key, "text", value)
    return value


def _integer(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(key, "a whole number", value)
    return value


def _texts(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(key, "an array of texts", value)
    return tuple(value)


def _attributes(key: str, value: object) -> dict[str, str | None]:
    if not isinstance(value, dict) or not all(item is None or isinstance(item, str) for item in value.values()):
        raise _wrong(key, "an object whose values are texts or null", value)
    return value


def _wrong(key: str, expected: str, value: object) -> InvalidInputError:
    shown = msgspec.json.encode(value)[:80].decode("utf-8", "replace")
    return InvalidInputError(f"{key}: expected {expected}, got {shown}")


# JSON key → (field of Event, reader of its value), in the order of NiFi's payload.
_KEYS: dict[str, tuple[str, Callable[[str, object], object]]] = {
    "eventId": ("source_event_id", _text),
    "eventOrdinal": ("source_ordinal", _integer),
    "eventType": ("event_type", _text),
    "timestampMillis": ("event_time", _integer),
    "durationMillis": ("event_duration", _integer),
    "lineageStart": ("lineage_start_date", _integer),
    "details": ("details", _text),
    "componentId": ("component_id", _text),
    "componentType": ("component_type", _text),
    "componentName": ("component_name", _text),
    "processGroupId": ("process_group_id", _text),
    "processGroupName": ("process_group_name", _text),
    "entityId": ("flowfile_uuid", _text),
    "entityType": ("entity_type", _text),
    "entitySize": ("file_size", _integer),
    "previousEntitySize": ("previous_file_size", _integer),
    "updatedAttributes": ("updated_attributes", _attributes),
    "previousAttributes": ("previous_attributes", _attributes),
    "actorHostname": ("source_host", _text),
    "contentURI": ("content_uri", _text),
    "previousContentURI": ("previous_content_uri", _text),
    "parentIds": ("parent_uuids", _texts),
    "childIds": ("child_uuids", _texts),
    "transitUri": ("transit_uri", _text),
    "remoteIdentifier": ("source_system_flowfile_identifier", _text),
    "alternateIdentifier": ("alternate_identifier_uri", _text),
    "platform": ("platform", _text),
    "application": ("application", _text),
}
_REQUIRED = (
    "eventOrdinal",
    "eventType",
    "timestampMillis",
    "componentId",
    "componentType",
    "entityId",
    "entitySize",
)


def event_from_json(document: Mapping[str, object], node: str | None = None) -> Event:
    """Return the event of one JSON object.

    `node` names the NiFi node for events whose content URI does not; it and `eventOrdinal` are the event's identity.

    Raises:
        InvalidInputError: a required key is missing or null, or a value has the wrong type; the message names the key.
    """
    missing = [key for key in _REQUIRED if document.get(key) is None]
    if missing:
        raise InvalidInputError(f"{missing[0]}: expected a value, got {'null' if missing[0] in document else 'no key'}")
    fields: dict[str, object] = {}
    extra: dict[str, object] = {}
    for key, value in document.items():
        if key not in _KEYS:
            extra[key] = value
        elif value is not None:
            name, read = _KEYS[key]
            fields[name] = read(key, value)
    fields["source_format"] = SOURCE_FORMAT
    fields["source_node"] = _node(document) or node or fields.get("source_host") or UNKNOWN_NODE
    if extra.get("timestamp", "") in (None, format_time(document["timestampMillis"])):
        extra.pop("timestamp")  # says nothing new
    if extra:
        fields["extra"] = msgspec.json.encode(extra).decode()
    return Event(**fields)  # type: ignore[arg-type]


def event_to_json(event: Event) -> dict[str, object]:
    """Return an event as NiFi would export it: absent values are left out, keys are in NiFi's order.

    For an event that came in this format this is its input, apart from null-valued keys; lists and maps that a 1.x file
    lacks come out empty.
    """
    document: dict[str, object] = {}
    for key, (name, _) in _KEYS.items():
        value = getattr(event, name)
        if value is not None:
            document[key] = list(value) if isinstance(value, tuple) else value
        if key == "timestampMillis":
            document["timestamp"] = format_time(event.event_time)
    if event.extra is not None:
        document.update(msgspec.json.decode(event.extra))
    return document


def format_time(milliseconds: object) -> str | None:
    """Return NiFi's text form of a time, `2026-01-31T09:30:00.000Z`; None for what is no time."""
    if not isinstance(milliseconds, int):
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def _node(document: Mapping[str, object]) -> str | None:
    """Return the cluster node of an event, or host and port of a NiFi that is not clustered."""
    for key in ("contentURI", "previousContentURI"):
        uri = document.get(key)
        if isinstance(uri, str) and uri:
            try:
                parts = urlsplit(uri)
            except ValueError:
                continue
            nodes = parse_qs(parts.query).get("clusterNodeId")
            if nodes:
                return nodes[0]
            if parts.netloc:
                return parts.netloc
    return None
