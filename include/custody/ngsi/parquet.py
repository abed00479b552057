"""Records as columns: one stable schema for every destination, a folder a day, whatever attributes come.

A row is an attribute of an entity, as in json-row, with what rows of text cannot say: the kind of the value, the time
that the sensor gave, the notification, and the order within the file.

What records add to which files, in bytes: lines of text, or a file of Parquet for each day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from custody.capture.ngsi_attributes import Attribute
from custody.capture.raw_json import JsonKind
from custody.capture.values import parse_iso
from custody.errors import InvalidInputError
from custody.ngsi import parquet
from custody.ngsi.parameters import Parameters
from custody.ngsi.records import Record, Unplaced
from custody.ngsi.rendering import Known, file_text, render

_TEXT = pa.string()
_TIME = pa.timestamp("ms", tz="UTC")
_METADATUM = pa.struct([("name", _TEXT), ("type", _TEXT), ("value", _TEXT)])
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


def table(found: Iterable[Record], parameters: Parameters) -> pa.Table:
    """Return the rows of some records of one destination and day, in their order."""
    rows = [row for record in found for row in _rows(record, parameters)]
    columns = list(zip(*rows, strict=True)) or [()] * (len(SCHEMA) - 1)
    return pa.table([*map(list, columns), list(range(len(rows)))], schema=SCHEMA)


def file_bytes(rows: pa.Table) -> bytes:
    """Return a Parquet file; the same rows are the same bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue())


def _rows(record: Record, parameters: Parameters) -> Iterator[tuple[object, ...]]:
    entity, arrival = record.entity, record.arrival
    told = _event_time(record.attributes)
    for attribute in record.attributes:
        value = attribute.value
        yield (
            *(int(arrival.timestamp), arrival.received_ms, _observed(attribute) or told),
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
    """Return the time of an entity that says it in an attribute TimeInstant, as IoT agents do."""
    return next((_ms(item.value.plain) for item in attributes if item.name == "TimeInstant"), None)


def _observed(attribute: Attribute) -> int | None:
    return next((_ms(item.value.plain) for item in attribute.metadata if item.name in _TIME_NAMES), None)


def _ms(text: str) -> int | None:
    try:
        return parse_iso("time", text)
    except InvalidInputError:
        return None


@dataclass(frozen=True, slots=True)
class Contents:
    """What some records add: bytes by path, in the order in which they were met first."""

    files: Mapping[str, bytes]
    columns: Known
    """All columns of the destinations in column modes that these records are for."""
    unplaced: Mapping[int, Unplaced]
    """Records that could not be written, by their place among the records."""
    sources: Mapping[str, Sequence[int]]
    """Which records each file has rows of, by their place among the records."""


def contents(records: Sequence[Record], parameters: Parameters, known: Known, *, part: str) -> Contents:
    """Return what records add to files; `part` names files of Parquet, of which each batch makes new ones."""
    if parameters.format != "parquet":
        rendered = render(records, parameters, known)
        files = {path: file_text(lines).encode() for path, lines in rendered.files.items()}
        return Contents(files, rendered.columns, rendered.unplaced, rendered.sources)
    folders: dict[str, list[int]] = {}
    for number, record in enumerate(records):
        path = f"{record.placed.destination.location}/dt={parquet.day(record)}/{part}.parquet"
        folders.setdefault(path, []).append(number)
    made = {
        path: parquet.file_bytes(parquet.table((records[number] for number in its), parameters))
        for path, its in folders.items()
    }
    return Contents(made, {}, {}, folders)
