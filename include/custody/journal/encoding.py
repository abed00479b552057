"""How events lie in a journal's records: many as one Arrow record batch, few as rows of JSON.

A record batch costs some hundred microseconds and a kilobyte however few events it holds, a row a few microseconds.
Rows are read as columns too, by Arrow's own JSON reader: attributes are spelled as two lists, which it knows how to
read.
docs/design/008 has the measurements.

Events are prepared before they get their ids: what no column holds is refused while it costs nothing, and what is
acknowledged can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.json as pj

from custody.format.framing import frame
from custody.model import EVENT_SCHEMA, ContentClaim, Event, to_batch

KIND_BATCH = 3
KIND_ROWS = 4
ROWS_MAX = 32  # at most so many events are written as rows

_INT64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_SPELLED = pa.struct([("k", pa.list_(pa.string())), ("v", pa.list_(pa.string()))])
_MAPS = tuple(field.name for field in EVENT_SCHEMA if pa.types.is_map(field.type))
_FIELDS = tuple(field.name for field in msgspec.structs.fields(Event) if field.name != "event_id")


class _Claim(msgspec.Struct):
    container: str | None = None
    section: str | None = None
    identifier: str | None = None
    offset: _INT64 | None = None
    size: _INT64 | None = None


def _checked_type(kind: Any) -> Any:  # noqa: ANN401 - a type annotation, whatever it is
    named = {
        int: _INT64,
        int | None: _INT64 | None,
        ContentClaim | None: _Claim | None,
    }
    return named.get(kind, kind)


_CHECKED = msgspec.defstruct(
    "_Checked", [(field.name, _checked_type(field.type)) for field in msgspec.structs.fields(Event)]
)
_ENCODER = msgspec.json.Encoder()


def _row_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return _SPELLED
    return pa.int64() if pa.types.is_timestamp(kind) else kind


_PARSE = pj.ParseOptions(
    explicit_schema=pa.schema([pa.field(field.name, _row_type(field.type)) for field in EVENT_SCHEMA]),
    unexpected_field_behavior="error",
)


class Prepared:
    """Events ready to be numbered and appended.

    Raises:
        ValueError, OverflowError, TypeError: a value fits no column.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.count = len(events)
        for event in events:
            # Neither way of writing refuses by itself all that cannot be read back as it was: Arrow takes 1.5 for 1 and
            # None for a number, JSON takes bytes for a text.
            msgspec.convert(event, _CHECKED, from_attributes=True)
        self._rows = [_row(event) for event in events] if len(events) <= ROWS_MAX else None
        self._batch: pa.RecordBatch = to_batch(events, 0) if self._rows is None else None

    def record(self, first_event_id: int) -> bytes:
        """Return the events as one record, numbered one-up."""
        if self._rows is not None:
            lines = [b'{"event_id":%d,%s' % (number, row) for number, row in enumerate(self._rows, first_event_id)]
            return frame(KIND_ROWS, b"\n".join(lines))
        ids = pa.array(range(first_event_id, first_event_id + self.count), pa.int64())
        batch = self._batch.set_column(0, EVENT_SCHEMA.field(0), ids)
        return frame(KIND_BATCH, batch.serialize().to_pybytes())


def _row(event: Event) -> bytes:
    """Return an event as the rest of a JSON object whose first key is its id."""
    row: dict[str, object] = {
        name: value
        for name, value in zip(_FIELDS, msgspec.structs.astuple(event)[1:], strict=True)
        if value is not None and value != ()
    }
    for name in _MAPS:
        attributes = getattr(event, name)
        row[name] = {"k": list(attributes), "v": list(attributes.values())}
    return _ENCODER.encode(row)[1:]


def decode_rows(payloads: Sequence[bytes | memoryview]) -> pa.Table:
    """Return the events of many records of rows, in their order, with EVENT_SCHEMA."""
    data = b"\n".join(payloads)
    # One block: a row that spans two blocks would have to be joined, and many rows in one are quicker.
    options = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
    table = pj.read_json(pa.BufferReader(data), read_options=options, parse_options=_PARSE).combine_chunks()
    columns = [_column(table.column(field.name), field) for field in EVENT_SCHEMA]
    return pa.Table.from_arrays(columns, schema=EVENT_SCHEMA)


def _column(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    array = column.chunk(0)
    if pa.types.is_map(field.type):
        names, values = array.field("k"), array.field("v")
        return pa.MapArray.from_arrays(names.offsets, names.values, values.values).cast(field.type)
    if pa.types.is_list(field.type) and array.null_count:
        # An absent list is an empty one.
        return pa.ListArray.from_arrays(array.offsets, array.values, type=field.type)
    return array.cast(field.type)
