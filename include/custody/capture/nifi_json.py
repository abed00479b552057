"""NiFi's Site-to-Site provenance reports as JSON: events to and from the event model.

The format is the payload of NiFi's SiteToSiteProvenanceReportingTask (2.x; 1.x files lack some keys): arrays of events,
or one event a line. Keys may be missing or null; keys that custody has no field for are kept in `Event.extra`. The
relationship of a ROUTE, the source queue and the content claims are not in this format.

An event without `eventOrdinal`, as those of MiNiFi C++ are, gets a number of its `eventId`, or of its content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import parse_qs, urlsplit

import msgspec

from custody.capture.validate import Context
from custody.capture.values import attributes, format_time, integer, require, text, texts
from custody.format.identifiers import digest_ordinal, uuid_of_name
from custody.model import Event

SOURCE_FORMAT = "nifi-s2s"
FLOWFILE_ENTITY = "org.apache.nifi.flowfile.FlowFile"
UNKNOWN_NODE = "unknown"

# The form that NiFi sends; the general parser is left to all others.
_USUAL_URI = re.compile(r"https?://([\w.:-]+)(?:/[^?#]*)?(?:\?clusterNodeId=([\w.-]+))?")

# JSON key → (field of Event, reader of its value), in the order of NiFi's payload.
_KEYS: dict[str, tuple[str, Callable[[str, object], object]]] = {
    "eventId": ("source_event_id", text),
    "eventOrdinal": ("source_ordinal", integer),
    "eventType": ("event_type", text),
    "timestampMillis": ("event_time", integer),
    "durationMillis": ("event_duration", integer),
    "lineageStart": ("lineage_start_date", integer),
    "details": ("details", text),
    "componentId": ("component_id", text),
    "componentType": ("component_type", text),
    "componentName": ("component_name", text),
    "processGroupId": ("process_group_id", text),
    "processGroupName": ("process_group_name", text),
    "entityId": ("flowfile_uuid", text),
    "entityType": ("entity_type", text),
    "entitySize": ("file_size", integer),
    "previousEntitySize": ("previous_file_size", integer),
    "updatedAttributes": ("updated_attributes", attributes),
    "previousAttributes": ("previous_attributes", attributes),
    "actorHostname": ("source_host", text),
    "contentURI": ("content_uri", text),
    "previousContentURI": ("previous_content_uri", text),
    "parentIds": ("parent_uuids", texts),
    "childIds": ("child_uuids", texts),
    "transitUri": ("transit_uri", text),
    "remoteIdentifier": ("source_system_flowfile_identifier", text),
    "alternateIdentifier": ("alternate_identifier_uri", text),
    "platform": ("platform", text),
    "application": ("application", text),
}
KEYS = frozenset(_KEYS)
"""Keys that tell this format from others."""
REQUIRED_KEYS = (
    "eventType",
    "timestampMillis",
    "componentId",
    "componentType",
    "entityId",
    "entitySize",
)
_OF_A_COPY = frozenset(
    {
        *("source_event_id", "source_ordinal", "component_name", "process_group_id", "process_group_name"),
        *("source_host", "content_uri", "previous_content_uri", "platform", "application"),
    }
)
"""Fields that a node may tell anew."""
_NUMBERED = tuple(sorted({name for name, _ in _KEYS.values()} - _OF_A_COPY))
"""Fields that give an event without a number its number. Part of what is stored: never change them."""


# Unknown keys are refused here, which sends the event the slow way: that one keeps them in `extra`.
class Payload(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="camel", gc=False):
    """An event as nearly all are: numbered by its node, every key known, no value of a wrong type."""

    event_id: str | None = None
    event_ordinal: int
    event_type: str
    timestamp_millis: int
    timestamp: str | None = None
    duration_millis: int | None = None
    lineage_start: int | None = None
    details: str | None = None
    component_id: str
    component_type: str
    component_name: str | None = None
    process_group_id: str | None = None
    process_group_name: str | None = None
    entity_id: str
    entity_type: str | None = None
    entity_size: int
    previous_entity_size: int | None = None
    updated_attributes: dict[str, str | None] | None = None
    previous_attributes: dict[str, str | None] | None = None
    actor_hostname: str | None = None
    content_uri: str | None = msgspec.field(default=None, name="contentURI")
    previous_content_uri: str | None = msgspec.field(default=None, name="previousContentURI")
    parent_ids: tuple[str, ...] | None = None
    child_ids: tuple[str, ...] | None = None
    transit_uri: str | None = None
    remote_identifier: str | None = None
    alternate_identifier: str | None = None
    platform: str | None = None
    application: str | None = None


_PAYLOAD = msgspec.json.Decoder(Payload)
_ANY = msgspec.json.Decoder()
decode_payload = _PAYLOAD.decode
"""Returns the payload of one JSON object; raises msgspec.ValidationError for one that is not as nearly all are."""
PAYLOAD_KEYS = {
    field.encode_name: _KEYS[field.encode_name][0] if field.encode_name in _KEYS else field.name
    for field in msgspec.structs.fields(Payload)
}
"""The keys of the payload and the fields of events that they tell; `timestamp` is no field of an event."""
PAYLOAD_FIELDS = tuple(PAYLOAD_KEYS.values())
"""The fields of events, in the order of the payload's fields."""


def read_element(raw: bytes, context: Context) -> Sequence[Event]:
    """Return the one event of an element."""
    return (event_from_bytes(raw, context.node),)


def event_from_bytes(raw: bytes, node: str | None = None) -> Event:
    """Return the event of one JSON object's bytes, as `event_from_json` does, about twice as fast.

    Raises:
        InvalidInputError: as `event_from_json`.
        msgspec.DecodeError: the bytes are not JSON.
    """
    try:
        # Straight into the struct, about twice as quick as by a dictionary; what does not fit goes the slow way.
        payload = decode_payload(raw)
    except msgspec.ValidationError:  # to be said in the words of the format
        return event_from_json(_ANY.decode(raw), node)
    if payload.timestamp is not None and payload.timestamp != format_time(payload.timestamp_millis):
        # A timestamp that says something else than timestampMillis is kept in `extra`: the slow way does that.
        return event_from_json(_ANY.decode(raw), node)
    return _event(payload, node, SOURCE_FORMAT)


def event_from_record(record: Mapping[str, object], node: str | None, format: str) -> Event:
    """Return the event of one record of another encoding of the payload, as `event_from_json` does."""
    try:
        payload = msgspec.convert(record, Payload)
    except msgspec.ValidationError:
        return event_from_json(record, node, format=format)
    if payload.timestamp is not None:
        return event_from_json(record, node, format=format)
    return _event(payload, node, format)


def _event(payload: Payload, node: str | None, format: str) -> Event:
    return Event(
        source_event_id=payload.event_id,
        source_ordinal=payload.event_ordinal,
        event_type=payload.event_type,
        event_time=payload.timestamp_millis,
        event_duration=-1 if payload.duration_millis is None else payload.duration_millis,
        lineage_start_date=payload.lineage_start,
        details=payload.details,
        component_id=payload.component_id,
        component_type=payload.component_type,
        component_name=payload.component_name,
        process_group_id=payload.process_group_id,
        process_group_name=payload.process_group_name,
        flowfile_uuid=payload.entity_id,
        entity_type=payload.entity_type,
        file_size=payload.entity_size,
        previous_file_size=payload.previous_entity_size,
        updated_attributes=payload.updated_attributes or {},
        previous_attributes=payload.previous_attributes or {},
        source_host=payload.actor_hostname,
        content_uri=payload.content_uri,
        previous_content_uri=payload.previous_content_uri,
        parent_uuids=payload.parent_ids or (),
        child_uuids=payload.child_ids or (),
        transit_uri=payload.transit_uri,
        source_system_flowfile_identifier=payload.remote_identifier,
        alternate_identifier_uri=payload.alternate_identifier,
        platform=payload.platform,
        application=payload.application,
        source_format=format,
        source_node=source_node(payload.content_uri, payload.previous_content_uri, payload.actor_hostname, node),
    )


def event_from_json(document: Mapping[str, object], node: str | None = None, *, format: str = SOURCE_FORMAT) -> Event:
    """Return the event of one JSON object.

    `node` names the NiFi node for events whose content URI does not; it and `eventOrdinal` are the event's key.

    Raises:
        InvalidInputError: a required key is missing or null, or a value has the wrong type; the message names the key.
    """
    require(document, *REQUIRED_KEYS)
    fields: dict[str, object] = {}
    extra: dict[str, object] = {}
    for key, value in document.items():
        if key not in _KEYS:
            extra[key] = value
        elif value is not None:
            name, read = _KEYS[key]
            fields[name] = read(key, value)
    fields["source_format"] = format
    fields["source_node"] = _node(document) or node or fields.get("source_host") or UNKNOWN_NODE
    if extra.get("timestamp", "") in (None, format_time(fields["event_time"])):
        extra.pop("timestamp")  # says nothing new
    if extra:
        fields["extra"] = msgspec.json.encode(extra).decode()
    return numbered(Event(**fields))  # type: ignore[arg-type]


def numbered(event: Event) -> Event:
    """Return an event with a number: its own, else one of its id at the source, else one of its content.

    Copies of it have the same number, whatever of them a node may tell anew.
    """
    if event.source_ordinal is not None:
        return event
    if event.source_event_id is not None:
        name = ["nifi event id", event.source_event_id]
    else:
        values = [_shared(getattr(event, field)) for field in _NUMBERED]
        name = ["nifi event", msgspec.json.encode(values, order="sorted").decode()]
    return msgspec.structs.replace(event, source_ordinal=digest_ordinal(name, event.event_time))


def _shared(value: object) -> object:
    """Return what all copies of an event have of a value: no order of relatives, and no attributes that are null."""
    if isinstance(value, tuple):
        return sorted(value)
    return {name: text for name, text in value.items() if text is not None} if isinstance(value, dict) else value


def event_to_json(event: Event) -> dict[str, object]:
    """Return an event as NiFi would export it: absent values are left out, keys are in NiFi's order.

    For an event that came in this format this is its input, apart from null-valued keys; lists and maps that a 1.x file
    lacks come out empty. An event that has no number gets one, as all of NiFi's have, and an id.
    """
    if event.source_ordinal is None:
        event = numbered(event)
        if event.source_event_id is None:
            source_event_id = uuid_of_name("event", str(event.source_ordinal))
            event = msgspec.structs.replace(event, source_event_id=source_event_id)
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


def _node(document: Mapping[str, object]) -> str | None:
    """Return the cluster node of an event, or host and port of a NiFi that is not clustered."""
    for key in ("contentURI", "previousContentURI"):
        uri = document.get(key)
        if isinstance(uri, str) and (node := uri_node(uri)):
            return node
    return None


def source_node(content_uri: str | None, previous_content_uri: str | None, host: str | None, node: str | None) -> str:
    """Return the source of an event: the node that its content URIs name, else `node`, else its host."""
    return uri_node(content_uri) or uri_node(previous_content_uri) or node or host or UNKNOWN_NODE


def uri_node(uri: str | None) -> str | None:
    """Return the cluster node that a content URI names, or host and port of a NiFi that is not clustered."""
    if not uri:
        return None
    if usual := _USUAL_URI.fullmatch(uri):
        return usual[2] or usual[1]
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    nodes = parse_qs(parts.query).get("clusterNodeId")
    return nodes[0] if nodes else parts.netloc or None


def uri_form(uri: str) -> tuple[str, str] | None:
    """Return a regular expression of URIs that differ from this one in the path alone, and the node of all of them.

    None for a URI that is none as NiFi sends them.
    """
    usual = _USUAL_URI.fullmatch(uri)
    if usual is None:
        return None
    query = "" if usual[2] is None else f"?clusterNodeId={usual[2]}"
    return rf"\A{re.escape(uri[: usual.end(1)])}(?:/[^?#]*)?{re.escape(query)}\z", usual[2] or usual[1]
