"""The columns of the published table: Iceberg's types and field ids, and the names by which event logs are read.

Event logs carry no field ids, so the table maps names to ids. An id is the number of the column in the page of event
logs; within a column it is a hundred times that number, and more. The writer is the partition: no log has a column for
it, and engines take it from the partition.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from custody.model import EVENT_SCHEMA

# Part of the format: field ids are for ever. Add, never change.
WRITER_ID = 99
_INNER = 100
_PARTITION_ID = 1000
FIELD_IDS = {name: number for number, name in enumerate(EVENT_SCHEMA.names, start=1)}
"""The ids of the columns of events."""


def table_schema() -> Schema:
    """Return the columns of the table."""
    writer = NestedField(WRITER_ID, "writer", StringType(), required=False)
    fields = [
        NestedField(FIELD_IDS[each.name], each.name, _type(each.type, FIELD_IDS[each.name]), required=not each.nullable)
        for each in EVENT_SCHEMA
    ]
    return Schema(writer, *fields, schema_id=0)


def partition_spec() -> PartitionSpec:
    """Return that the table is partitioned by its writer."""
    return PartitionSpec(PartitionField(WRITER_ID, _PARTITION_ID, IdentityTransform(), "writer"), spec_id=0)


def name_mapping() -> str:
    """Return which names in event logs mean which field ids, as JSON."""
    text: str = create_mapping_from_schema(table_schema()).model_dump_json()
    return text


def stored_bound(column: str, value: int | str) -> bytes | None:
    """Return a bound of the catalog, times in ms, as Iceberg stores it; None for one that it cannot hold."""
    if isinstance(value, str):
        return value.encode()
    number = value * 1000 if pa.types.is_timestamp(EVENT_SCHEMA.field(column).type) else value
    return number.to_bytes(8, "little", signed=True) if -(1 << 63) <= number < 1 << 63 else None


def _type(kind: pa.DataType, number: int) -> IcebergType:
    inner = number * _INNER
    if pa.types.is_list(kind):
        return ListType(inner + 1, _type(kind.value_type, inner), element_required=not kind.value_field.nullable)
    if pa.types.is_map(kind):
        return MapType(inner + 1, StringType(), inner + 2, StringType(), value_required=False)
    if pa.types.is_struct(kind):
        fields: list[Any] = [
            NestedField(inner + place, kind.field(place - 1).name, _type(kind.field(place - 1).type, 0), required=False)
            for place in range(1, kind.num_fields + 1)
        ]
        return StructType(*fields)
    if pa.types.is_timestamp(kind):
        return TimestamptzType()
    return LongType() if pa.types.is_integer(kind) else StringType()
