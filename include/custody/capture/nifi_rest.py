"""NiFi's REST interface: provenance events as ProvenanceEventDTO, alone, in a list or in their wrappers.

A DTO has what the Site-to-Site payload leaves out: the relationship of a ROUTE, the source queue, the content claims
and which attributes were removed. Attributes that did not change cannot be told from those that were set to the value
they had. What was true only at the moment of the query (whether content can be seen or replayed) is not kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from custody.capture.nifi_json import UNKNOWN_NODE, numbered
from custody.capture.validate import Context
from custody.capture.values import Document, integer, mapping, mappings, parse_iso, parse_shown, require, text, texts
from custody.errors import InvalidInputError
from custody.model import ContentClaim, Event

SOURCE_FORMAT = "nifi-rest"
# With a bounded number of blanks, so that a match fits into the window of `split_within`.
LIST_KEY = re.compile(rb'"provenanceEvents"\s{0,1000}:\s{0,1000}(?=\[)')
"""Stands before the events in the answer to a query."""

# DTO key → (field of Event, reader of its value)
_KEYS: dict[str, tuple[str, Callable[[str, object], object]]] = {
    "eventId": ("source_ordinal", integer),
    "id": ("source_event_id", text),
    "eventType": ("event_type", text),
    "eventDuration": ("event_duration", integer),
    "flowFileUuid": ("flowfile_uuid", text),
    "fileSizeBytes": ("file_size", integer),
    "clusterNodeId": ("source_node", text),
    "clusterNodeAddress": ("source_host", text),
    "groupId": ("process_group_id", text),
    "componentId": ("component_id", text),
    "componentType": ("component_type", text),
    "componentName": ("component_name", text),
    "sourceSystemFlowFileId": ("source_system_flowfile_identifier", text),
    "alternateIdentifierUri": ("alternate_identifier_uri", text),
    "parentUuids": ("parent_uuids", texts),
    "childUuids": ("child_uuids", texts),
    "transitUri": ("transit_uri", text),
    "relationship": ("relationship", text),
    "details": ("details", text),
    "inputContentClaimFileSizeBytes": ("previous_file_size", integer),
    "sourceConnectionIdentifier": ("source_queue_identifier", text),
}
_REQUIRED = ("eventType", "componentId", "componentType", "flowFileUuid", "fileSizeBytes")
# Said in another key, or true of the moment of asking only.
_LEFT_OUT = {
    *("eventTime", "eventTimestamp", "lineageDuration", "attributes", "fileSize"),
    *(f"{side}ContentClaim{part}" for side in ("input", "output") for part in ("FileSize", "FileSizeBytes")),
    *(f"{side}ContentClaim{part}" for side in ("input", "output") for part in ("Container", "Section")),
    *(f"{side}ContentClaim{part}" for side in ("input", "output") for part in ("Identifier", "Offset")),
    *("inputContentAvailable", "outputContentAvailable", "replayAvailable", "replayExplanation"),
}

KEYS = frozenset({"provenance", "provenanceEvent", "provenanceEvents", *_KEYS, *_LEFT_OUT})
"""Keys that tell this format from others."""


def read_element(raw: bytes, context: Context) -> Sequence[Event]:
    """Return the events of a DTO, or of an object that wraps one or several."""
    return [event_from_dto(dto, context.node, context.zone) for dto in _unwrapped(msgspec.json.decode(raw))]


def event_from_dto(dto: Document, node: str | None = None, zone: str | None = None) -> Event:
    """Return the event of one DTO; `node` names the NiFi node where the DTO does not, `zone` is that of its clock.

    Raises:
        InvalidInputError: a key is missing or has a wrong value, or the DTO is a summary.
    """
    require(dto, *_REQUIRED)
    if dto.get("attributes") is None and dto.get("parentUuids") is None:
        raise InvalidInputError("attributes: expected a whole event, got a summary. Query with summarize=false")
    fields: dict[str, object] = {}
    extra: dict[str, object] = {}
    for key, value in dto.items():
        if value is not None and key in _KEYS:
            name, read = _KEYS[key]
            fields[name] = read(key, value)
        elif value is not None and key not in _LEFT_OUT:
            extra[key] = value
    time = fields["event_time"] = _event_time(dto, zone)
    if dto.get("lineageDuration") is not None:
        fields["lineage_start_date"] = time - integer("lineageDuration", dto["lineageDuration"])
    fields["previous_attributes"], fields["updated_attributes"] = _attributes(dto)
    fields["content_claim"] = _claim(dto, "outputContentClaim")
    fields["previous_content_claim"] = _claim(dto, "inputContentClaim")
    fields["source_format"] = SOURCE_FORMAT
    fields.setdefault("source_node", node or UNKNOWN_NODE)
    if extra:
        fields["extra"] = msgspec.json.encode(extra).decode()
    return numbered(Event(**fields))  # type: ignore[arg-type]


def _unwrapped(document: Document) -> list[Document]:
    for key in ("provenance", "results"):
        if isinstance(inner := document.get(key), dict):
            document = inner
    if "provenanceEvents" in document:
        return mappings("provenanceEvents", document["provenanceEvents"])
    if "provenanceEvent" in document:
        return [mapping("provenanceEvent", document["provenanceEvent"])]
    return [document]


def _event_time(dto: Document, zone: str | None) -> int:
    if dto.get("eventTimestamp") is not None:
        return parse_iso("eventTimestamp", text("eventTimestamp", dto["eventTimestamp"]))
    require(dto, "eventTime")
    shown = text("eventTime", dto["eventTime"])
    return parse_iso("eventTime", shown) if shown[4:5] == "-" else parse_shown("eventTime", shown, zone)


def _attributes(dto: Document) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Return the attributes before the event, and those that it set or, with None, removed."""
    before: dict[str, str | None] = {}
    updated: dict[str, str | None] = {}
    if dto.get("attributes") is None:
        return before, updated
    for attribute in mappings("attributes", dto["attributes"]):
        name = text("attributes.name", attribute.get("name"))
        previous, value = _value(attribute, "previousValue"), _value(attribute, "value")
        if previous is not None:
            before[name] = previous
        if value != previous:
            updated[name] = value
    return before, updated


def _value(attribute: Mapping[str, object], key: str) -> str | None:
    value = attribute.get(key)
    if value is not None and not isinstance(value, str):
        # Without the value: it may be one that is kept from whoever reads messages.
        raise InvalidInputError(f"attributes.{key}: expected text or null, got another value")
    return value


def _claim(dto: Document, prefix: str) -> ContentClaim | None:
    """Return a content claim; a FlowFile without content has none."""
    fields: dict[str, object] = {}
    for part, name, read in (
        ("Container", "container", text),
        ("Section", "section", text),
        ("Identifier", "identifier", text),
        ("Offset", "offset", integer),
    ):
        if (value := dto.get(prefix + part)) is not None:
            fields[name] = read(prefix + part, value)
    if not fields:
        return None
    if (size := dto.get(prefix + "FileSizeBytes")) is not None:
        fields["size"] = integer(prefix + "FileSizeBytes", size)
    return ContentClaim(**fields)  # type: ignore[arg-type]
