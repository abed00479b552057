"""Events as columns: the one Arrow schema of journals, staging files and event logs, and both ways to get there.

Columns are found by name. A change of the schema is a new SCHEMA_VERSION. If it only adds nullable columns,
READER_VERSION stays as it is; after any other change it becomes the new version, and older readers refuse the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import msgspec
import pyarrow as pa

from custody.model.event import Event

SCHEMA_VERSION = 1
READER_VERSION = 1
"""The least schema version whose readers may read what is written now: they pass over columns that were added since."""

_TIME = pa.timestamp("ms", tz="UTC")
# Names of inner fields are stored in files too, and encodings are chosen by them: part of the schema.
_UUIDS = pa.list_(pa.field("element", pa.string(), nullable=False))
_ATTRIBUTES = pa.map_(pa.string(), pa.string())
_CLAIM = pa.struct(
    [
        ("container", pa.string()),
        ("section", pa.string()),
        ("identifier", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
    ]
)

# Part of every format that holds events: any change of it is a new SCHEMA_VERSION.
EVENT_SCHEMA = pa.schema(
    [
        pa.field("event_id", pa.int64(), nullable=False),
        pa.field("event_type", pa.string(), nullable=False),
        pa.field("event_time", _TIME, nullable=False),
        pa.field("component_id", pa.string(), nullable=False),
        pa.field("component_type", pa.string(), nullable=False),
        pa.field("flowfile_uuid", pa.string(), nullable=False),
        pa.field("file_size", pa.int64(), nullable=False),
        pa.field("event_duration", pa.int64(), nullable=False),
        pa.field("flowfile_entry_date", _TIME),
        pa.field("lineage_start_date", _TIME),
        pa.field("previous_file_size", pa.int64()),
        pa.field("component_name", pa.string()),
        pa.field("process_group_id", pa.string()),
        pa.field("process_group_name", pa.string()),
        pa.field("transit_uri", pa.string()),
        pa.field("source_system_flowfile_identifier", pa.string()),
        pa.field("alternate_identifier_uri", pa.string()),
        pa.field("details", pa.string()),
        pa.field("relationship", pa.string()),
        pa.field("source_queue_identifier", pa.string()),
        pa.field("parent_uuids", _UUIDS, nullable=False),
        pa.field("child_uuids", _UUIDS, nullable=False),
        pa.field("previous_attributes", _ATTRIBUTES, nullable=False),
        pa.field("updated_attributes", _ATTRIBUTES, nullable=False),
        pa.field("content_claim", _CLAIM),
        pa.field("previous_content_claim", _CLAIM),
        pa.field("entity_type", pa.string()),
        pa.field("content_uri", pa.string()),
        pa.field("previous_content_uri", pa.string()),
        pa.field("platform", pa.string()),
        pa.field("application", pa.string()),
        pa.field("source_format", pa.string()),
        pa.field("source_node", pa.string()),
        pa.field("source_host", pa.string()),
        pa.field("source_ordinal", pa.int64()),
        pa.field("source_event_id", pa.string()),
        pa.field("extra", pa.string()),
    ]
)

_MAPS = {"previous_attributes", "updated_attributes"}
_TIMES = {field.name for field in EVENT_SCHEMA if field.type == _TIME}


def to_batch(events: Sequence[Event], first_event_id: int) -> pa.RecordBatch:
    """Return events as one record batch of EVENT_SCHEMA, numbered one-up from `first_event_id`.

    Raises:
        OverflowError, pa.ArrowInvalid: a number does not fit its column (validation rejects such events before).
    """
    # Field by field: Event declares its fields in the order of the schema, a test holds the two together.
    rows = zip(*map(msgspec.structs.astuple, events), strict=True) if events else [()] * len(EVENT_SCHEMA)
    columns = [_array(field, values) for field, values in zip(EVENT_SCHEMA, rows, strict=True)]
    # Events carry no ids before they are appended.
    columns[0] = pa.array(range(first_event_id, first_event_id + len(events)), pa.int64())
    return pa.RecordBatch.from_arrays(columns, schema=EVENT_SCHEMA)


def _array(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    """Return one column; lists and maps are built from flat arrays, which is twice as fast as value by value."""
    if pa.types.is_map(field.type):
        offsets = pa.array([0, *accumulate(map(len, values))], pa.int32())
        names = pa.array(list(chain.from_iterable(values)), pa.string())
        items = pa.array(list(chain.from_iterable(attributes.values() for attributes in values)), pa.string())
        return pa.MapArray.from_arrays(offsets, names, items)
    if pa.types.is_list(field.type):
        offsets = pa.array([0, *accumulate(map(len, values))], pa.int32())
        elements = pa.array(list(chain.from_iterable(values)), pa.string())
        return pa.ListArray.from_arrays(offsets, elements, type=field.type)
    if pa.types.is_struct(field.type):
        return pa.array([None if claim is None else msgspec.structs.asdict(claim) for claim in values], field.type)
    return pa.array(values, field.type)


def to_events(data: pa.Table | pa.RecordBatch) -> list[Event]:
    """Return the rows of a table or batch as events, in their order; columns it lacks are absent values."""
    held = (name for name in EVENT_SCHEMA.names if name in data.schema.names)
    # A column of nothing but nulls says nothing: in many blocks a third of all columns.
    names = [name for name in held if data.column(name).null_count < data.num_rows]
    columns = {name: _values(data, name) for name in names}
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return msgspec.convert(rows, list[Event])


def _values(data: pa.Table | pa.RecordBatch, name: str) -> list[object]:
    column = data.column(name)
    if name in _TIMES:
        column = column.cast(pa.int64())
    values: list[object] = column.to_pylist()
    if name in _MAPS:
        return [dict(pairs) for pairs in values]  # type: ignore[call-overload]
    return values


_ALIGNED = 8
"""Within a message columns begin at multiples of this; no column of an event needs more."""


def read_batch(message: memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch of a message; its columns stay where they lie if the message begins at a multiple of 8 bytes.

    At any other place, such as behind the head of a record, the columns would lie at odd addresses. Arrow's scans warn
    of these, copy them anew each time, and need not support them: so the message is copied, once.

    Raises:
        pyarrow.ArrowException, OSError: it is none, or not of this schema.
    """
    data = pa.py_buffer(message)
    if data.address % _ALIGNED:
        data = pa.py_buffer(bytes(message))
    return pa.ipc.read_record_batch(data, schema)
