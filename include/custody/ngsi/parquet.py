"""Records as Parquet: one schema for every destination, whatever attributes come, and one folder a day.

A row is an attribute of an entity, as in json-row, with fields that rows of text do not have: the kind of the value,
the time that the sensor gave, the notification, and the order within the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from custody.capture.ngsi_notification import Attribute
from custody.capture.raw_json import JsonKind
from custody.capture.values import parse_iso
from custody.errors import InvalidInputError
from custody.ngsi.parameters import Parameters
from custody.ngsi.records import Record

_TEXT = pa.string()
_TIME = pa.timestamp("ms", tz="UTC")
_METADATUM = pa.struct([("name", _TEXT), ("type", _TEXT), ("value", _TEXT)])
# Files that exist have it, and Hive's columns follow it: add fields at the end, never change one.
SCHEMA = pa.schema(
    [
        pa.field("recvTimeTs", pa.int64(), nullable=False),
        pa.field("recvTime", _TIME, nullable=False),
        pa.field("eventTime", _TIME),
        pa.field("fiwareService", _TEXT, nullable=False),
        pa.field("fiwareServicePath", _TEXT, nullable=False),
        pa.field("entityId", _TEXT, nullable=False),
        pa.field("entityType", _TEXT, nullable=False),
        pa.field("attrName", _TEXT, nullable=False),
        pa.field("attrType", _TEXT, nullable=False),
        pa.field("attrValue", _TEXT),
        pa.field("attrValueKind", _TEXT, nullable=False),
        pa.field("attrMd", pa.list_(_METADATUM)),
        pa.field("subscriptionId", _TEXT, nullable=False),
        pa.field("notificationId", _TEXT, nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
    ]
)
_TIME_NAMES = ("observedAt", "TimeInstant")


def day(record: Record) -> str:
    """Return the partition of a record: the day it was received, UTC."""
    return record.arrival.iso[:10]


def arrow_table(records: Iterable[Record], parameters: Parameters) -> pa.Table:
    """Return the rows of some records of one destination and day, in their order."""
    rows = [row for record in records for row in _rows(record, parameters)]
    # Without `sequence`, the last field: it is a row's position in the file, which no record knows.
    columns = list(zip(*rows, strict=True)) or [()] * (len(SCHEMA) - 1)
    return pa.table([*map(list, columns), list(range(len(rows)))], schema=SCHEMA)


def file_bytes(rows: pa.Table) -> bytes:
    """Return a Parquet file; the same rows are the same bytes."""
    sink = pa.BufferOutputStream()
    # Page checksums are off by default, and without them a flipped bit is read as data.
    pq.write_table(rows, sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue())


def _rows(record: Record, parameters: Parameters) -> Iterator[tuple[object, ...]]:
    entity, arrival = record.entity, record.arrival
    event_ms = _event_time(record.attributes)
    for attribute in record.attributes:
        value = attribute.value
        yield (
            # An attribute's own time goes before that of its entity.
            *(int(arrival.timestamp), arrival.received_ms, _observed(attribute) or event_ms),
            *(record.service, record.path, entity.id, entity.type, attribute.name, attribute.type),
            *(None if value.kind is JsonKind.NULL else value.plain, value.kind.value),
            _metadata(attribute) if parameters.values.attr_metadata_store else None,
            *(record.subscription, record.notification),
        )


def _metadata(attribute: Attribute) -> list[dict[str, str | None]]:
    return [
        {
            "name": item.name,
            "type": item.type,
            "value": None if item.value.kind is JsonKind.NULL else item.value.plain,
        }
        for item in attribute.metadata
    ]


def _event_time(attributes: Iterable[Attribute]) -> int | None:
    """Return the time of an entity that has an attribute TimeInstant, as IoT agents send it."""
    return next((_ms(item.value.plain) for item in attributes if item.name == "TimeInstant"), None)


def _observed(attribute: Attribute) -> int | None:
    return next((_ms(item.value.plain) for item in attribute.metadata if item.name in _TIME_NAMES), None)


def _ms(text: str) -> int | None:
    try:
        return parse_iso("time", text)
    except InvalidInputError:
        return None
