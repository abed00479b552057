"""Notifications of NGSIv2 as columns: the events of many of them at once, without an object for each.

Usual is a notification in an envelope with headers or by itself, with nothing but a subscription and entities whose
attributes are normalized and in order. Its events are those of `ngsi_notification`; `column_batch` says what becomes of
the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from custody.capture.column_batch import ColumnBatch, EventTable, batch_of_pieces
from custody.capture.json_splitter import JsonElement
from custody.capture.ngsi_notification import (
    COMPONENT,
    CORRELATOR,
    DEFAULT_PATH,
    DEFAULT_SERVICE,
    DIGEST,
    ENTITY_ID,
    ENTITY_INDEX,
    ENTITY_TYPE,
    FROM_ARRIVAL,
    FROM_ENVELOPE,
    IDENTITY,
    PLATFORM,
    SERVICE,
    SERVICE_PATH,
    SHAPE,
    SHARED_CHARACTERS_MAX,
    SOURCE_FORMAT,
    SUBSCRIPTION,
    TIME_SOURCE,
    UNNAMED,
    VERSION,
    CheckedEntity,
    NgsiVersion,
    Shape,
    identity_of,
    read_element,
    service_paths,
    source_node,
    source_uri,
    whole_entity,
)
from custody.capture.raw_json import check_depth
from custody.capture.validate import NOT_JSON, Context, Rejected
from custody.capture.values import parse_iso
from custody.errors import InvalidInputError
from custody.format.identifier_columns import ordinals_of_names, uuids_of_names
from custody.model import EventType
from custody.model.attribute_columns import attribute_column, constant_column


class _UsualBody(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    data: list[CheckedEntity]
    subscription: str | None = msgspec.field(default=None, name="subscriptionId")


class _UsualEnvelope(msgspec.Struct, gc=False):
    body: msgspec.Raw
    headers: dict[str, str]
    received_at: str | int | None = msgspec.field(default=None, name="receivedAt")
    url: str | None = None


_BODY = msgspec.json.Decoder(_UsualBody)
_ENVELOPE = msgspec.json.Decoder(_UsualEnvelope)
_NAME = msgspec.json.Encoder()


_Row = tuple[bytes, int | None, str | None, str | None, str | None, str | None, str, str, int, str, int, str | None]


class _Columns(NamedTuple):
    """What the events of usual notifications say and others may not, a value for each event."""

    names: Sequence[bytes]
    """Of their identities, as JSON."""
    times: Sequence[int | None]
    services: Sequence[str | None]
    paths: Sequence[str | None]
    subscriptions: Sequence[str | None]
    correlators: Sequence[str | None]
    ids: Sequence[str]
    types: Sequence[str]
    indexes: Sequence[int]
    """Of the entities in their notifications."""
    digests: Sequence[str]
    sizes: Sequence[int]
    urls: Sequence[str | None]


def read_ngsi_columns(pieces: Sequence[JsonElement | Rejected], context: Context) -> ColumnBatch:
    """Return the outcomes of some elements of a text, those that the splitter rejected among them."""
    return batch_of_pieces(pieces, context, _rows, lambda rows: _table(rows, context), read_element)


def _rows(raw: bytes) -> list[_Row]:
    """Return what differs between the events of an element; nothing of one that is not usual."""
    try:
        raw.decode()  # parts that stay raw are checked nowhere else
        check_depth(raw)
        body, headers, time, url = _opened(raw)
        notification = _BODY.decode(body)
        path_of = service_paths(headers.get("fiware-servicepath"), len(notification.data))
    except (*NOT_JSON, InvalidInputError):
        return []
    subscription = notification.subscription
    if subscription is not None and len(subscription) > SHARED_CHARACTERS_MAX:
        return []
    digest = hashlib.sha256(body).hexdigest()
    service = headers.get("fiware-service") or headers.get("ngsild-tenant") or None
    correlator = headers.get("fiware-correlator") or None
    rows: list[_Row] = []
    for index, document in enumerate(notification.data):
        named = whole_entity(document)
        if named is None:
            return []
        path = path_of(index) or None
        shared = (service or DEFAULT_SERVICE, path or DEFAULT_PATH, subscription, None, correlator)
        name = _NAME.encode([IDENTITY, *identity_of(*shared, index, *named, digest, time)])
        rows.append((name, time, service, path, subscription, correlator, *named, index, digest, len(body), url))
    return rows


def _table(rows: Sequence[_Row], context: Context) -> EventTable:
    """Return the events as columns; raises as Arrow does."""
    count = len(rows)
    said = _Columns(*(zip(*rows, strict=True) if rows else [()] * len(_Columns._fields)))
    services, paths, subscriptions = (
        pa.array(texts, pa.string()) for texts in (said.services, said.paths, said.subscriptions)
    )
    times = pa.array(said.times, pa.int64())
    # As an event has them that is made by itself, in the same order.
    attributes = attribute_column(
        {
            VERSION: constant_column(NgsiVersion.V2.value, count),
            SHAPE: constant_column(Shape.NORMALIZED.value, count),
            SERVICE: services.fill_null(DEFAULT_SERVICE),
            SERVICE_PATH: paths.fill_null(DEFAULT_PATH),
            ENTITY_ID: pa.array(said.ids, pa.string()),
            ENTITY_TYPE: pa.array(said.types, pa.string()),
            ENTITY_INDEX: pa.array(said.indexes, pa.int64()).cast(pa.string()),
            DIGEST: pa.array(said.digests, pa.string()),
            TIME_SOURCE: pc.if_else(times.is_null(), FROM_ARRIVAL, FROM_ENVELOPE),
            UNNAMED: _unnamed(services.is_null(), paths.is_null()),
            SUBSCRIPTION: subscriptions,
            CORRELATOR: pa.array(said.correlators, pa.string()),
        }
    )
    # Many events share a few of each.
    origins = {text: source_uri(text) for text in set(said.subscriptions)}
    sources = {text: context.node or source_node(text or DEFAULT_SERVICE) for text in set(said.services)}
    urls = [url or origins[text] for url, text in zip(said.urls, said.subscriptions, strict=True)]
    columns = {
        "event_type": constant_column(EventType.RECEIVE.value, count),
        "event_time": times.fill_null(context.received_ms),
        "component_id": pa.array([text or COMPONENT for text in said.subscriptions], pa.string()),
        "component_type": constant_column(NgsiVersion.V2.value, count),
        "flowfile_uuid": uuids_of_names(said.names),
        "file_size": pa.array(said.sizes, pa.int64()),
        "transit_uri": pa.array(urls, pa.string()),
        "updated_attributes": attributes,
        "platform": constant_column(PLATFORM, count),
        "source_format": constant_column(SOURCE_FORMAT, count),
        "source_node": pa.array([sources[text] for text in said.services], pa.string()),
        "source_ordinal": pa.array(ordinals_of_names(said.names, said.times)),
    }
    return pa.table(columns), None


def _opened(raw: bytes) -> tuple[bytes, Mapping[str, str], int | None, str | None]:
    """Return the body of an element, the headers that count, in lower case, the time of arrival and the URL.

    Raises:
        msgspec.DecodeError: the element is neither an envelope nor an object by itself.
        InvalidInputError: the time is none.
    """
    try:
        envelope = _ENVELOPE.decode(raw)
    except msgspec.ValidationError:
        return raw, {}, None, None  # what has the members of an envelope is no body
    received = envelope.received_at
    time = parse_iso("receivedAt", received) if isinstance(received, str) else received
    headers = {name.lower(): value for name, value in envelope.headers.items()}
    return bytes(envelope.body), headers, time, envelope.url


def _unnamed(service: pa.BooleanArray, path: pa.BooleanArray) -> pa.StringArray:
    """Return which of service and path no header named; null where both are named."""
    texts = pa.array([None, SERVICE, SERVICE_PATH, f"{SERVICE},{SERVICE_PATH}"], pa.string())
    codes = service.to_numpy(zero_copy_only=False) + 2 * path.to_numpy(zero_copy_only=False).astype(np.int64)
    return texts.take(pa.array(codes))
