"""NGSI notifications of context brokers: NGSIv2, NGSI-LD and the legacy NGSIv1; one RECEIVE event for each entity.

An element is the body of a notification, or an object `{"headers": {…}, "body": {…}}` that keeps the HTTP headers
beside it, and may say when and where it arrived (`receivedAt`, `url`). The event says what arrived from where, how
many bytes and with which SHA-256; the values of the entity's attributes are the payload, not the event.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from custody.capture.identity import digest_ordinal, named_uuid
from custody.capture.judge import Context
from custody.capture.times import parse_iso
from custody.capture.values import Document, mapping, mappings, text
from custody.errors import InvalidInputError
from custody.model import Event, EventType, Problem, Severity

SOURCE_FORMAT = "ngsi"
KEYS = frozenset(["subscriptionId", "data", "contextResponses", "originator", "notifiedAt", "headers", "body"])
"""Keys that tell this format from others; a bare entity has `id` and `type`."""
_DEFAULT_SERVICE = "default"
_DEFAULT_PATH = "/"


class _Envelope(msgspec.Struct):
    body: msgspec.Raw
    headers: dict[str, str] = {}
    received_at: str | int | None = msgspec.field(default=None, name="receivedAt")
    url: str | None = None


class _Notification(NamedTuple):
    body: bytes
    version: str
    subscription: str | None
    notified: str | None
    identifier: str | None
    entities: list[Document]
    headers: dict[str, str]
    received: int | None
    url: str | None


def read_element(raw: bytes, context: Context) -> Sequence[Event | Problem]:
    """Return an event for each entity of a notification, and a problem for each that is none.

    Raises:
        InvalidInputError: it is no notification, or its headers do not fit its entities.
    """
    return list(_events(_notification(raw), context))


def _notification(raw: bytes) -> _Notification:
    envelope = _Envelope(msgspec.Raw(raw))
    document = msgspec.json.decode(raw)
    if isinstance(document.get("headers"), dict) and "body" in document:
        try:
            envelope = msgspec.json.decode(raw, type=_Envelope)
        except msgspec.ValidationError as error:
            raise InvalidInputError(f"envelope: expected headers and body ({error})") from error
        document = mapping("body", document["body"])
    version, entities = _entities(document)
    received = envelope.received_at
    return _Notification(
        body=bytes(envelope.body),
        version=version,
        subscription=_optional(document, "subscriptionId"),
        notified=_optional(document, "notifiedAt"),
        identifier=_optional(document, "id") if version == "ngsi-ld" else None,
        entities=entities,
        headers={name.lower(): value for name, value in envelope.headers.items()},
        received=parse_iso("receivedAt", received) if isinstance(received, str) else received,
        url=envelope.url,
    )


def _entities(document: Document) -> tuple[str, list[Document]]:
    if "contextResponses" in document:
        responses = mappings("contextResponses", document["contextResponses"])
        return "ngsi-v1", [mapping("contextElement", response.get("contextElement")) for response in responses]
    if "data" in document:
        is_linked = document.get("type") == "Notification" or "notifiedAt" in document
        return "ngsi-ld" if is_linked else "ngsi-v2", mappings("data", document["data"])
    if "id" in document:
        return "ngsi-v2", [document]  # simplifiedNormalized, simplifiedKeyValues
    raise InvalidInputError("data: expected a notification with data, contextResponses or an entity, got none of them")


def _events(notification: _Notification, context: Context) -> Iterator[Event | Problem]:
    paths = _paths(notification)
    digest = hashlib.sha256(notification.body).hexdigest()
    for index, entity in enumerate(notification.entities):
        try:
            yield _event(notification, index, entity, paths[index], digest, context)
        except InvalidInputError as error:
            yield Problem(Severity.ERROR, "bad-value", f"entity {index}: {error}")


def _event(
    notification: _Notification, index: int, entity: Document, path: str, digest: str, context: Context
) -> Event:
    headers = notification.headers
    service = headers.get("fiware-service") or headers.get("ngsild-tenant") or _DEFAULT_SERVICE
    identifier, kind = _required(entity, "id"), _optional(entity, "type") or ""
    time, said = _time(notification)
    subscription = notification.subscription
    identity = [
        *(service, path, subscription, notification.identifier, headers.get("fiware-correlator")),
        *(str(index), identifier, kind, digest, None if said == "arrival" else str(time)),
    ]
    attributes: dict[str, str | None] = {
        "ngsi.version": notification.version,
        "ngsi.format": _format(notification.version, entity),
        "ngsi.service": service,
        "ngsi.service_path": path,
        "ngsi.entity.id": identifier,
        "ngsi.entity.type": kind,
        "ngsi.entity.index": str(index),
        "ngsi.payload.sha256": digest,
        "ngsi.time": said,
    }
    if subscription is not None:
        attributes["ngsi.subscription_id"] = subscription
    if correlator := headers.get("fiware-correlator"):
        attributes["ngsi.correlator"] = correlator
    return Event(
        event_type=EventType.RECEIVE,
        event_time=context.received_ms if time is None else time,
        component_id=subscription or "ngsi",
        component_type=notification.version,
        flowfile_uuid=named_uuid("ngsi", *identity),
        file_size=len(notification.body),
        transit_uri=notification.url or _source_uri(subscription),
        source_system_flowfile_identifier=notification.identifier,
        updated_attributes=attributes,
        platform="ngsi",
        source_format=SOURCE_FORMAT,
        source_node=context.node or f"ngsi:{service}",
        source_ordinal=digest_ordinal(["ngsi", *identity], time),
    )


def _time(notification: _Notification) -> tuple[int | None, str]:
    """Return the time of a notification and who says so; NGSIv2 and NGSIv1 bodies carry none."""
    if notification.received is not None:
        return notification.received, "envelope"
    if notification.notified is not None:
        return parse_iso("notifiedAt", notification.notified), "notifiedAt"
    return None, "arrival"


def _paths(notification: _Notification) -> list[str]:
    """Return the service path of each entity: the header names one for all, or one for each."""
    count = len(notification.entities)
    paths = (notification.headers.get("fiware-servicepath") or _DEFAULT_PATH).split(",")
    if len(paths) == 1:
        return paths * count
    if len(paths) != count:
        raise InvalidInputError(f"Fiware-ServicePath: expected 1 or {count} paths, got {len(paths)}")
    return [path.strip() for path in paths]


def _format(version: str, entity: Document) -> str:
    """Return whether attributes come as objects with their types, or as values alone."""
    if version == "ngsi-v1":
        return "normalized"
    values = [value for name, value in entity.items() if name not in ("id", "type", "@context")]
    key = {"value", "object", "languageMap"}
    is_normalized = all(
        isinstance(value, dict | list) and (isinstance(value, list) or key & set(value)) for value in values
    )
    return "normalized" if is_normalized else "keyValues"


def _source_uri(subscription: str | None) -> str:
    if subscription is not None and ":" in subscription:
        return subscription  # NGSI-LD's are URIs
    return f"ngsi:subscription/{subscription}" if subscription else "ngsi:notification"


def _required(document: Document, key: str) -> str:
    found = _optional(document, key)
    if not found:
        raise InvalidInputError(f"{key}: expected a value, got none")
    return found


def _optional(document: Document, key: str) -> str | None:
    value = document.get(key)
    return None if value is None else text(key, value)
