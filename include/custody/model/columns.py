"""Events as columns: the one Arrow schema of journals, staging files and event logs, its versions, and the ways to it.

Columns are found by name. A change of the schema is a new SCHEMA_VERSION, which adds its columns to SCHEMAS and keeps
the older ones. If it only adds nullable columns, READER_VERSION stays as it is; after any other change it becomes the
new version, and older readers refuse the data.

An older version has fewer columns; a missing value is absent, or the default of its field. A version newer than all
known ones is read if it says that readers of a known version can (`reader_version`), else refused.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.errors import CorruptionError, FormatVersionError
from custody.model.event import Event
from custody.model.plain_arrays import array_of, offsets_of

SCHEMA_VERSION = 2
READER_VERSION = 1
"""The least schema version whose readers may read what is written now: they pass over columns that were added since."""

_TEXT = pa.string()
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
        pa.field("delivered_by", pa.string()),
    ]
)

NO_EVENTS = pa.Table.from_arrays([pa.nulls(0, field.type) for field in EVENT_SCHEMA], schema=EVENT_SCHEMA)
"""A table without rows. Not `empty_table`: Arrow makes its columns of lists, and so imports pandas where it is
installed, which takes longer than the first questions of a process."""
# Asked of each log that is opened: the schema would make a list of texts each time it is asked for its names.
_NAMES = frozenset(EVENT_SCHEMA.names)
_PLACES = [Event.__struct_fields__.index(name) for name in EVENT_SCHEMA.names]
"""Of the columns among the fields of an event."""


def int64_column(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Return numbers, such as ids of events, as a column that shares their memory.

    Not `pa.array`: see `custody.model.plain_arrays`.
    """
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def to_batch(events: Sequence[Event], first_event_id: int) -> pa.RecordBatch:
    """Return events as one record batch of EVENT_SCHEMA, numbered one-up from `first_event_id`.

    Raises:
        OverflowError, pa.ArrowInvalid: a number does not fit its column (validation rejects such events before).
    """
    # Events carry no ids before they are appended.
    ids = int64_column(np.arange(first_event_id, first_event_id + len(events), dtype=np.int64))
    columns = [column_of(field, values) for field, values in _values_of_columns(events)[1:]]
    return pa.RecordBatch.from_arrays([ids, *columns], schema=EVENT_SCHEMA)


def _values_of_columns(events: Sequence[Event]) -> list[tuple[pa.Field, Sequence[Any]]]:
    """Return the values of events, a column behind the other, in the order of EVENT_SCHEMA."""
    count = len(_PLACES)
    values: list[Any] = []
    # One list, of which a column is every 38th value: that takes half as long as to turn the rows by `zip`.
    for event in events:
        values += msgspec.structs.astuple(event)
    if len(values) != len(events) * count:  # a subclass may have more fields
        values = list(chain.from_iterable(msgspec.structs.astuple(event)[:count] for event in events))
    return [(field, values[place::count]) for field, place in zip(EVENT_SCHEMA, _PLACES, strict=True)]


def are_none(values: Sequence[Any]) -> bool:
    """Whether a column says nothing."""
    return not values or (values[0] is None and values.count(None) == len(values))


def column_of(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    """Return one column; what is nested is built from flat arrays, which is twice as fast as value by value."""
    if pa.types.is_map(field.type):
        names = array_of(list(chain.from_iterable(values)), pa.string())
        items = array_of(list(chain.from_iterable(attributes.values() for attributes in values)), pa.string())
        return _nested(field, _offsets(values), names, items)
    if pa.types.is_list(field.type):
        elements = array_of(list(chain.from_iterable(values)), pa.string())
        return _nested(field, _offsets(values), elements)
    # Most columns of most producers say nothing.
    if field.nullable and are_none(values):
        return pa.nulls(len(values), field.type)
    if pa.types.is_struct(field.type):
        absent = [None] * len(field.type)
        rows = zip(*(absent if claim is None else msgspec.structs.astuple(claim) for claim in values), strict=True)
        parts = [array_of(part, one.type) for one, part in zip(field.type, rows, strict=True)]
        is_absent = array_of([claim is None for claim in values], pa.bool_())
        return pa.StructArray.from_arrays(parts, fields=list(field.type), mask=is_absent)
    if pa.types.is_timestamp(field.type):
        return array_of(values, pa.int64()).view(field.type)  # of the same bits, and quicker by far
    return array_of(values, field.type)


def _nested(field: pa.Field, offsets: npt.NDArray[np.int32], *texts: pa.StringArray) -> pa.Array:
    """Return a column of lists, or of maps by their names and values, which begin at these offsets."""
    begins = pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)])
    if pa.types.is_map(field.type):
        return pa.MapArray.from_arrays(begins, *texts)
    return pa.ListArray.from_arrays(begins, *texts, type=field.type)


def _offsets(values: Sequence[Sized]) -> npt.NDArray[np.int32]:
    rows = len(values)
    # Most lists of most producers are empty.
    return offsets_of(np.fromiter(map(len, values), np.int64, rows)) if any(values) else np.zeros(rows + 1, np.int32)


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


def view_batch(message: memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch of a message where it lies, at any address: its columns are to be copied before they are used.

    Raises as `read_batch`.
    """
    return pa.ipc.read_record_batch(pa.py_buffer(message), schema)


def copied_columns(batches: Sequence[pa.RecordBatch], name: str) -> pa.Array:
    """Return one column of batches that `view_batch` gave, as one array, a copy of it alone."""
    columns = [batch.column(name) for batch in batches]
    # Joined with nothing: of one array alone no copy is made, and it would stay where it lies, at any address.
    return pa.concat_arrays([*columns, columns[0].slice(0, 0)])


SCHEMAS: dict[int, pa.Schema] = {1: pa.schema(list(EVENT_SCHEMA)[:-1]), SCHEMA_VERSION: EVENT_SCHEMA}
"""The columns of each version that was ever written, in their order; part of the format: add, never change."""

_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Event)}


def schema_of(version: int, where: object, reader_version: int = SCHEMA_VERSION) -> pa.Schema:
    """Return the columns that are known of a schema version; `where` is the file that names it.

    Of a newer version whose `reader_version` is known, these are the columns of the present one: what it added is
    passed over by reading, and `require_keeping` refuses to write it anew.

    Raises:
        FormatVersionError: a version that this code cannot read.
    """
    # A newer version that only added columns; `reader_version` is its writer's promise of that.
    if is_newer(version) and reader_version <= SCHEMA_VERSION:
        return EVENT_SCHEMA
    schema = SCHEMAS.get(version)
    if schema is None:
        known = " or ".join(map(str, sorted(SCHEMAS)))
        raise FormatVersionError(
            f"{where}: expected events of schema version {known}, got {version}. Use a newer custody."
        )
    return schema


def is_newer(version: int) -> bool:
    """Whether a schema version came after those that this code knows."""
    return version > max(SCHEMAS)


def check_columns(schema: pa.Schema, version: int, where: object) -> None:
    """Refuse columns that a file of this version does not have; a newer one has the present ones and others.

    Raises:
        CorruptionError: they are not those of the version.
    """
    if not is_newer(version):
        if not schema.equals(SCHEMAS[version]):
            raise CorruptionError(f"{where}: expected the columns of schema version {version}, got others.")
        return
    for field in EVENT_SCHEMA:
        place = schema.get_field_index(field.name)
        if place < 0 or not _is_same(schema.field(place), field):
            raise CorruptionError(
                f"{where}: expected the column {field.name} ({field.type}), as schema version {version} says that "
                f"readers of version {SCHEMA_VERSION} can read it, got {schema.field(place) if place >= 0 else 'none'}."
            )


def unknown_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that a newer custody added."""
    return tuple(name for name in schema.names if name not in _NAMES)


def newer_notice(version: int, columns: Sequence[str]) -> str:
    """Return what is said of events that a newer custody stored."""
    return (
        f"some events were stored by a newer custody, with schema version {version}: "
        f"their columns {', '.join(columns)} are not shown. Use that one."
    )


def require_keeping(version: int, where: object) -> None:
    """Refuse to write events anew that have columns which this code does not know.

    Raises:
        FormatVersionError: they have; the message says what to do.
    """
    if is_newer(version):
        raise FormatVersionError(
            f"{where}: expected events of schema version {SCHEMA_VERSION} to write anew, got {version}: columns that "
            "this custody does not know would be lost. Nothing was changed. Run it with the newer custody."
        )


def to_present(table: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the events of any known version with the columns of the present one, or with some of them."""
    fields = [field for field in EVENT_SCHEMA if columns is None or field.name in columns]
    held = table.schema.names
    # The usual case: nothing is copied.
    if held == [field.name for field in fields] and all(map(_is_same, table.schema, fields)):
        return table if table.schema.metadata is None else table.replace_schema_metadata()
    arrays = [
        table.column(field.name).cast(field.type) if field.name in held else lacking_column(field, table.num_rows)
        for field in fields
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def in_one_piece(pieces: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return a copy of events in pieces as one piece, or the pieces where a column would be too large for one."""
    try:
        return [pa.concat_batches(pieces)] if pieces else []
    except pa.ArrowInvalid:
        return pieces


def _is_same(field: pa.Field, other: pa.Field) -> bool:
    same: bool = field.equals(other)
    return same


def lacking_column(field: pa.Field, rows: int) -> pa.Array:
    """Return a column of what events say that have none."""
    if field.nullable:
        return pa.nulls(rows, field.type)
    # Arrow repeats what is nested value by value, a microsecond each.
    if pa.types.is_list(field.type) or pa.types.is_map(field.type):
        nothing = pa.nulls(0, pa.string())
        return _nested(field, np.zeros(rows + 1, np.int32), *[nothing] * (1 + pa.types.is_map(field.type)))
    return pa.repeat(lacking(field), rows)


def lacking(field: pa.Field) -> pa.Scalar:
    """Return what an event says in a column that it has not: null where that is allowed, else what Event has."""
    if field.nullable:
        return pa.scalar(None, field.type)
    if pa.types.is_list(field.type) or pa.types.is_map(field.type):
        return pa.scalar([], field.type)
    default = _DEFAULTS[field.name]
    if default is msgspec.NODEFAULT:
        default = "" if pa.types.is_string(field.type) else 0
    return pa.scalar(default, field.type)
