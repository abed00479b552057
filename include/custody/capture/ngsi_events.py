"""NGSI notifications of context brokers: NGSIv2, NGSI-LD and the legacy NGSIv1; one RECEIVE event for each entity.

An element is the body of a notification, or an object `{"headers": {…}, "body": {…}}` that keeps the HTTP headers
beside it, and may say when and where it arrived (`receivedAt`, `url`). The event says what arrived from where, how
many bytes and with which SHA-256; the values of the entity's attributes are the payload, not the event.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from custody.capture.identity import digest_ordinal, uuid_of_name
from custody.capture.ngsi_notification import Entity, Notification, read_notification
from custody.capture.raw_json import object_members
from custody.capture.validate import Context
from custody.capture.values import parse_iso
from custody.errors import InvalidInputError
from custody.model import Event, EventProblem, EventType, Severity

SOURCE_FORMAT = "ngsi"
KEYS = frozenset(["subscriptionId", "data", "contextResponses", "originator", "notifiedAt", "headers", "body"])
"""Keys that tell this format from others; a bare entity has `id` and `type`."""
VERSION, SHAPE = "ngsi.version", "ngsi.format"
SERVICE, SERVICE_PATH = "ngsi.service", "ngsi.service_path"
ENTITY_INDEX, CORRELATOR = "ngsi.entity.index", "ngsi.correlator"
UNNAMED = "ngsi.unnamed"
"""Attributes of an event from which, with the body, the entity can be read again. `ngsi.unnamed` says which of service
and path no header named, so that they are defaults."""
_DEFAULT_SERVICE = "default"
_DEFAULT_PATH = "/"


class _Envelope(msgspec.Struct):
    body: msgspec.Raw
    headers: dict[str, str] = {}
    received_at: str | int | None = msgspec.field(default=None, name="receivedAt")
    url: str | None = None


@dataclass(frozen=True, slots=True)
class ArrivedNotification:
    """A notification, with what is known of its arrival."""

    body: bytes
    """The body as it was sent, without blanks around it."""
    notification: Notification
    received: int | None = None
    """Time of arrival in ms since the epoch, if the envelope has it."""
    url: str | None = None
    """The URL that it was posted to."""


def read_element(raw: bytes, context: Context) -> Sequence[Event | EventProblem]:
    """Return an event for each entity of a notification, and a problem for each entity that cannot be read.

    Raises:
        InvalidInputError: it is no notification, or its headers do not fit its entities.
    """
    return arrived_events(_arrived(raw), context)


def arrived_events(arrived: ArrivedNotification, context: Context) -> Sequence[Event | EventProblem]:
    """Return an event for each entity of a notification, and a problem for each entity that cannot be read."""
    notification = arrived.notification
    outcomes: dict[int, Event | EventProblem] = {
        broken.index: EventProblem(Severity.ERROR, "bad-value", f"entity {broken.index}: {broken.reason}")
        for broken in notification.broken
    }
    digest = hashlib.sha256(arrived.body).hexdigest()
    outcomes |= {entity.index: _event(arrived, entity, digest, context) for entity in notification.entities}
    return [outcomes[index] for index in sorted(outcomes)]


def split_envelope(raw: bytes) -> tuple[bytes, dict[str, str]]:
    """Return the body of an element, and the headers of its envelope; raises as `read_element`."""
    envelope = _open_envelope(raw)
    return bytes(envelope.body), {name.lower(): value for name, value in envelope.headers.items()}


def _open_envelope(raw: bytes) -> _Envelope:
    # Only checks the UTF-8: parts that stay raw are checked nowhere else.
    raw.decode()
    envelope = _Envelope(msgspec.Raw(raw))
    document = object_members("body", envelope.body)
    if "body" in document and bytes(document.get("headers", b"")).startswith(b"{"):
        try:
            envelope = msgspec.json.decode(raw, type=_Envelope)
        except msgspec.ValidationError as error:
            raise InvalidInputError(f"envelope: expected headers and body ({error})") from error
    return envelope


def _arrived(raw: bytes) -> ArrivedNotification:
    envelope = _open_envelope(raw)
    received = envelope.received_at
    return ArrivedNotification(
        body=bytes(envelope.body),
        notification=read_notification(bytes(envelope.body), envelope.headers),
        received=parse_iso("receivedAt", received) if isinstance(received, str) else received,
        url=envelope.url,
    )


def _event(arrived: ArrivedNotification, entity: Entity, digest: str, context: Context) -> Event:
    notification = arrived.notification
    service, path = notification.service or _DEFAULT_SERVICE, entity.path or _DEFAULT_PATH
    time, time_source = _time(arrived)
    subscription = notification.subscription
    # Part of the ordinals and uuids that are stored: with another list, a notification read again would count as new. A
    # copy arrives at another time, so that time is left out.
    identity = [
        *(service, path, subscription, notification.id, notification.correlator),
        *(str(entity.index), entity.id, entity.type, digest, None if time_source == "arrival" else str(time)),
    ]
    attributes: dict[str, str | None] = {
        VERSION: notification.version.value,
        SHAPE: entity.shape.value,
        SERVICE: service,
        SERVICE_PATH: path,
        "ngsi.entity.id": entity.id,
        "ngsi.entity.type": entity.type,
        ENTITY_INDEX: str(entity.index),
        "ngsi.payload.sha256": digest,
        "ngsi.time": time_source,
    }
    unnamed = [name for name, value in ((SERVICE, notification.service), (SERVICE_PATH, entity.path)) if not value]
    if unnamed:
        attributes[UNNAMED] = ",".join(unnamed)
    if subscription is not None:
        attributes["ngsi.subscription_id"] = subscription
    if notification.correlator is not None:
        attributes[CORRELATOR] = notification.correlator
    return Event(
        event_type=EventType.RECEIVE,
        event_time=context.received_ms if time is None else time,
        component_id=subscription or "ngsi",
        component_type=notification.version.value,
        flowfile_uuid=uuid_of_name("ngsi", *identity),
        file_size=len(arrived.body),
        transit_uri=arrived.url or _source_uri(subscription),
        source_system_flowfile_identifier=notification.id,
        updated_attributes=attributes,
        platform="ngsi",
        source_format=SOURCE_FORMAT,
        source_node=context.node or f"ngsi:{service}",
        source_ordinal=digest_ordinal(["ngsi", *identity], time),
    )


def _time(arrived: ArrivedNotification) -> tuple[int | None, str]:
    """Return the time of a notification and where it comes from; NGSIv2 and NGSIv1 bodies carry none."""
    if arrived.received is not None:
        return arrived.received, "envelope"
    if arrived.notification.notified_ms is not None:
        return arrived.notification.notified_ms, "notifiedAt"
    return None, "arrival"


def _source_uri(subscription: str | None) -> str:
    if subscription is not None and ":" in subscription:
        return subscription  # NGSI-LD's are URIs
    return f"ngsi:subscription/{subscription}" if subscription else "ngsi:notification"
