"""The files that are read, in each format: what senders send, with names and numbers that never repeat."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import fastavro

from custody.sample import SampleOptions, sample_files

Document = dict[str, Any]
_PRODUCER = "https://github.com/OpenLineage/OpenLineage/tree/1.54.0/integration/airflow"
_SPEC = "https://openlineage.io/spec"
_START_MS = 1_772_409_600_000


def inputs(format: str, files: int, events: int) -> Iterator[tuple[str, bytes]]:
    """Yield the names and bytes of files with so many events each."""
    if format == "nifi":
        yield from sample_files(SampleOptions(events=files * events, batch_size=events, nodes=1))
    elif format == "avro":
        # The same events, as NiFi's reporting task writes them with the Avro writer.
        for name, data in sample_files(SampleOptions(events=files * events, batch_size=events, nodes=1)):
            yield f"{name.removesuffix('.json')}.avro", _avro(json.loads(data))
    else:
        make = _LINES[format]
        for number in range(files):
            documents = (make(number * events + place) for place in range(events))
            lines = "".join(f"{json.dumps(document, separators=(',', ':'))}\n" for document in documents)
            yield f"{number:06d}.ndjson", lines.encode()


def _time(number: int) -> str:
    moment = datetime.fromtimestamp((_START_MS + 7 * number) / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{7 * number % 1000:03d}Z"


def _run_event(number: int) -> Document:
    """An event of a run of Airflow with Spark: two inputs, an output, the facets that the integrations send."""
    return {
        "eventType": "COMPLETE" if number % 2 else "START",
        "eventTime": _time(number),
        "producer": _PRODUCER,
        "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {
            "runId": str(uuid.UUID(int=(1 << 100) + number // 2)),
            "facets": {
                "nominalTime": _facet("NominalTimeRunFacet", nominalStartTime=_time(number // 2)),
                "parent": _facet(
                    "ParentRunFacet",
                    job={"namespace": "airflow", "name": "orders_daily"},
                    run={"runId": str(uuid.UUID(int=(2 << 100) + number // 20))},
                ),
                "processing_engine": _facet("ProcessingEngineRunFacet", name="spark", version="4.0.1"),
            },
        },
        "job": {
            "namespace": "airflow",
            "name": f"orders_daily.load_{number % 20}",
            "facets": {
                "jobType": _facet("JobTypeJobFacet", processingType="BATCH", integration="SPARK", jobType="JOB"),
                "sql": _facet(
                    "SQLJobFacet", query="insert into orders select * from raw_orders join customers using (id)"
                ),
            },
        },
        "inputs": [_dataset(f"raw_orders/day={number // 40}"), _dataset("customers")],
        "outputs": [_dataset(f"orders/day={number // 40}")] if number % 2 else [],
    }


def _facet(name: str, /, **values: object) -> Document:
    return {"_producer": _PRODUCER, "_schemaURL": f"{_SPEC}/facets/1-0-1/{name}.json#/$defs/{name}", **values}


def _dataset(name: str) -> Document:
    columns = [{"name": column, "type": "string"} for column in ("id", "customer", "amount", "day")]
    return {
        "namespace": "s3://lake",
        "name": name,
        "facets": {"schema": _facet("SchemaDatasetFacet", fields=columns)},
    }


def _notification(number: int) -> Document:
    """A notification of a context broker, with its headers: one entity with five attributes."""
    attributes = {
        name: {"type": "Number", "value": (number * 7 + place) % 1000 / 10, "metadata": _OBSERVED}
        for place, name in enumerate(("temperature", "humidity", "pressure", "no2"))
    }
    return {
        "headers": {"Fiware-Service": "city", "Fiware-ServicePath": "/air", "Fiware-Correlator": f"c-{number}"},
        "receivedAt": _START_MS + number * 7,
        "url": "http://sink.example.org/notify",
        "body": {
            "subscriptionId": "60b0cccc0000000000000001",
            "data": [
                {
                    "id": f"urn:ngsi-ld:AirQualityObserved:{number % 500}",
                    "type": "AirQualityObserved",
                    "dateObserved": {"type": "DateTime", "value": _time(number), "metadata": {}},
                    **attributes,
                }
            ],
        },
    }


_OBSERVED = {"unit": {"type": "Text", "value": "si"}}
_LINES: dict[str, Callable[[int], Document]] = {"openlineage": _run_event, "ngsi": _notification}

_LONGS = ("eventOrdinal", "timestampMillis", "durationMillis", "lineageStart", "entitySize", "previousEntitySize")
_TEXT = ["null", "string"]
_TYPES: dict[str, object] = {
    **{name: ["null", "long"] for name in _LONGS},
    **{name: {"type": "map", "values": _TEXT} for name in ("updatedAttributes", "previousAttributes")},
    **{name: {"type": "array", "items": "string"} for name in ("parentIds", "childIds")},
}


def _avro(events: list[Document]) -> bytes:
    names = dict.fromkeys(name for event in events for name in event if name != "timestamp")
    fields = [{"name": name, "type": _TYPES.get(name, _TEXT)} for name in names]
    schema = {"type": "record", "name": "provenance", "namespace": "provenance", "fields": fields}
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), events, codec="deflate")
    return out.getvalue()
