"""Made-up input in every format that custody reads."""

from __future__ import annotations

import io
import json
import random
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import fastavro

from custody.capture import CaptureLimits, Context, Format, Outcome, read_stream
from custody.capture.avro import write_long
from custody.sample import SampleOptions, sample_events

Json = dict[str, Any]
LIMITS = CaptureLimits(1 << 20, 1 << 30)
ARRIVED_MS = 1_790_000_000_000


def read(
    data: bytes,
    format: Format | None = None,
    *,
    limits: CaptureLimits = LIMITS,
    node: str | None = None,
    zone: str | None = None,
    chunk_bytes: int = 1 << 16,
) -> list[Outcome]:
    context = Context(node, ARRIVED_MS, zone)
    return list(read_stream(io.BytesIO(data), limits, format=format, context=context, chunk_bytes=chunk_bytes))


def array(events: Iterable[object]) -> bytes:
    return json.dumps(list(events)).encode()


def lines(events: Iterable[object]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def payloads(count: int = 20) -> list[Json]:
    """Events as the Site-to-Site reporter sends them."""
    return [dict(event) for event in sample_events(SampleOptions(events=count, nodes=1))]


def dto(number: int = 41, /, **values: object) -> Json:
    """An event as NiFi's REST interface gives it; a value of None leaves the key out."""
    document: Json = {
        "id": str(number),
        "eventId": number,
        "eventTime": "03/04/2026 05:06:07.089 UTC",
        "eventTimestamp": "2026-03-04T05:06:07.089Z",
        "eventDuration": 12,
        "lineageDuration": 1089,
        "eventType": "ROUTE",
        "flowFileUuid": "5f0c8a10-0000-4000-8000-00000000002a",
        "fileSize": "2.93 KB",
        "fileSizeBytes": 3000,
        "clusterNodeId": "node-a",
        "clusterNodeAddress": "nifi-a.example.org:8443",
        "groupId": "group-1",
        "componentId": "route-1",
        "componentType": "RouteOnAttribute",
        "componentName": "by colour",
        "attributes": [
            {"name": "colour", "value": "green", "previousValue": "blue"},
            {"name": "filename", "value": "leaf.csv", "previousValue": "leaf.csv"},
            {"name": "shade", "value": None, "previousValue": "dark"},
            {"name": "size", "value": "small"},
        ],
        "parentUuids": [],
        "childUuids": [],
        "relationship": "green",
        "details": "",
        "contentEqual": True,
        "inputContentAvailable": True,
        "inputContentClaimSection": "7",
        "inputContentClaimContainer": "default",
        "inputContentClaimIdentifier": "1772600000000-7",
        "inputContentClaimOffset": 512,
        "inputContentClaimFileSize": "2.93 KB",
        "inputContentClaimFileSizeBytes": 3000,
        "outputContentAvailable": True,
        "outputContentClaimSection": "8",
        "outputContentClaimContainer": "default",
        "outputContentClaimIdentifier": "1772600000001-8",
        "outputContentClaimOffset": 0,
        "outputContentClaimFileSize": "2.93 KB",
        "outputContentClaimFileSizeBytes": 3000,
        "replayAvailable": True,
        "sourceConnectionIdentifier": "queue-1",
    }
    return {key: value for key, value in {**document, **values}.items() if value is not None}


def dataset(name: str, version: str | None = None, **facets: object) -> Json:
    if version is not None:
        facets["version"] = {"datasetVersion": version}
    return {"namespace": "lake://east", "name": name, "facets": facets}


def run_event(kind: str = "COMPLETE", number: int = 1, **values: object) -> Json:
    """An OpenLineage run event of the job `trees.grow`."""
    return {
        "eventType": kind,
        "eventTime": f"2026-03-04T05:06:{number % 60:02d}.089123+00:00",
        "producer": "https://example.org/producer/1.2",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "job": {
            "namespace": "garden",
            "name": "trees.grow",
            "facets": {"jobType": {"integration": "AIRFLOW", "jobType": "TASK", "processingType": "BATCH"}},
        },
        "run": {
            "runId": f"0195aaaa-0000-7000-8000-{number:012d}",
            "facets": {
                "parent": {"job": {"namespace": "garden", "name": "trees"}, "run": {"runId": "0195bbbb-parent"}},
            },
        },
        "inputs": [],
        "outputs": [],
        **values,
    }


def entity(number: int = 1) -> Json:
    return {
        "id": f"Bench{number}",
        "type": "Bench",
        "seats": {"type": "Number", "value": 3 + number, "metadata": {}},
        "wood": {"type": "Text", "value": "oak", "metadata": {}},
    }


def notification(*entities: Json) -> Json:
    return {"subscriptionId": "60b0cccc0000000000000001", "data": list(entities or [entity()])}


def envelope(body: Json, **headers: str) -> Json:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return {
        "headers": names,
        "receivedAt": "2026-03-04T05:06:07Z",
        "url": "http://sink.example.org/notify",
        "body": body,
    }


_NULLABLE_LONGS = ("entitySize", "previousEntitySize")
_TEXTS_NEEDED = ("eventId", "eventType", "platform", "application")
_LONGS_NEEDED = ("eventOrdinal", "timestampMillis", "durationMillis", "lineageStart")
_MAPS = ("updatedAttributes", "previousAttributes")
_LISTS = ("parentIds", "childIds")
AVRO_NAMES = [
    *("eventId", "eventOrdinal", "eventType", "timestampMillis"),
    *("durationMillis", "lineageStart", "details", "componentId"),
    *("componentType", "componentName", "processGroupId", "processGroupName"),
    *("entityId", "entityType", "entitySize", "previousEntitySize"),
    *("updatedAttributes", "previousAttributes", "actorHostname", "contentURI"),
    *("previousContentURI", "parentIds", "childIds", "platform"),
    *("application", "remoteIdentifier", "alternateIdentifier", "transitUri"),
]


def _avro_type(name: str) -> object:
    if name == "lineageStart":
        return {"type": "long", "logicalType": "timestamp-millis"}
    if name in _LONGS_NEEDED:
        return "long"
    if name in _TEXTS_NEEDED:
        return "string"
    if name in _MAPS:
        return {"type": "map", "values": ["null", "string"]}
    if name in _LISTS:
        return {"type": "array", "items": "string"}
    return ["null", "long" if name in _NULLABLE_LONGS else "string"]


AVRO_SCHEMA = {
    "type": "record",
    "name": "provenance",
    "namespace": "provenance",
    "fields": [{"name": name, "type": _avro_type(name)} for name in AVRO_NAMES],
}


def _text(value: str) -> bytes:
    data = value.encode()
    return write_long(len(data)) + data


def _avro_value(name: str, value: Any) -> bytes:
    if name in _MAPS:
        items = b"".join(
            _text(key) + (b"\0" if item is None else write_long(1) + _text(item)) for key, item in value.items()
        )
        return (write_long(len(value)) + items if value else b"") + b"\0"
    if name in _LISTS:
        return (write_long(len(value)) + b"".join(map(_text, value)) if value else b"") + b"\0"
    encoded = b"" if value is None else write_long(value) if isinstance(value, int) else _text(value)
    if name in _LONGS_NEEDED or name in _TEXTS_NEEDED:
        return encoded
    return b"\0" if value is None else write_long(1) + encoded


def avro_record(event: Json) -> bytes:
    return b"".join(_avro_value(name, event.get(name)) for name in AVRO_NAMES)


def avro_file(events: Sequence[Json], *, codec: str = "null", block: int = 7, sync: bytes = b"s" * 16) -> bytes:
    """An object container file of events, `block` of them in each block."""
    metadata = {"avro.schema": json.dumps(AVRO_SCHEMA), "avro.codec": codec}
    header = b"".join(_text(key) + _text(value) for key, value in metadata.items())
    parts = [b"Obj\x01", write_long(len(metadata)), header, b"\0", sync]
    for start in range(0, len(events), block):
        records = [avro_record(event) for event in events[start : start + block]]
        content = b"".join(records)
        if codec == "deflate":
            compressor = zlib.compressobj(wbits=-15)
            content = compressor.compress(content) + compressor.flush()
        parts += [write_long(len(records)), write_long(len(content)), content, sync]
    return b"".join(parts)


_NUMBERS = (*_LONGS_NEEDED, *_NULLABLE_LONGS)


def written_avro(documents: Sequence[Json], *, sync_interval: int = 16_000, codec: str = "null") -> bytes:
    """Events as an Avro file of a writer whose fields have the types of the payload, each of them or null."""
    fields: list[Json] = []
    for name in dict.fromkeys(["timestamp", *AVRO_NAMES]):
        kind = _avro_type(name) if name in (*_MAPS, *_LISTS) else "long" if name in _NUMBERS else "string"
        # Writers differ in which branch is null.
        fields.append({"name": name, "type": [kind, "null"] if len(name) % 2 else ["null", kind]})
    schema = {"type": "record", "name": "provenance", "fields": fields}
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), documents, codec=codec, sync_interval=sync_interval)
    return out.getvalue()


def own_event(number: int = 1, **changes: object) -> dict[str, object]:
    """An event in custody's own form; None takes a key out."""
    document: dict[str, object] = {
        "event_type": "SEND",
        "event_time": 1_772_409_600_000 + number,
        "component_id": "job.orders",
        "component_type": "Orders",
        "flowfile_uuid": f"00000000-0000-4000-8000-{number:012d}",
        "file_size": 10 + number,
        "transit_uri": "sftp://shop.example/orders.csv",
        "updated_attributes": {"filename": "orders.csv"},
        **changes,
    }
    return {key: value for key, value in document.items() if value is not None}


def one_of_each(seed: int = 0) -> dict[Format, bytes]:
    """A small good file of each format."""
    chosen = random.Random(seed)  # noqa: S311 - no secret
    numbers = [chosen.randrange(1000) for _ in range(3)]
    return {
        Format.NIFI: array(payloads(4)),
        Format.NIFI_REST: json.dumps({"provenanceEvents": [dto(number) for number in numbers]}).encode(),
        Format.NIFI_AVRO: avro_file(payloads(4), block=2),
        Format.OPENLINEAGE: lines(run_event("START", number, inputs=[dataset("seed")]) for number in numbers),
        Format.NGSI: lines([notification(entity(number)) for number in numbers]),
        Format.CUSTODY: lines(own_event(number) for number in range(3)),
    }


_ANY_TEXTS = {"type": "array", "items": ["null", "string"]}
_ANY_VALUE = ["null", "long", "double", "string", {"type": "map", "values": ["null", "long", "string"]}, _ANY_TEXTS]


def any_avro(documents: Sequence[Json], sync_interval: int = 16_000) -> bytes:
    """Documents as an Avro file whose schema takes whatever stands in a field; all have the same keys."""
    names = dict.fromkeys(name for one in documents for name in one)
    schema = {"type": "record", "name": "any", "fields": [{"name": name, "type": _ANY_VALUE} for name in names]}
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), documents, codec="deflate", sync_interval=sync_interval)
    return out.getvalue()
