"""NiFi's payloads as columns: the events of many elements at once, without an object for each.

What is usual is decoded into structs and turned into columns; `column_batch` checks them and says what becomes of the
others (an unknown key, a value of a wrong type, a timestamp of another time). Elements of a JSON array are read here;
other encodings of the payload bring theirs (`columns_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from custody.capture.column_batch import ColumnBatch, EventTable, column_batch
from custody.capture.json_splitter import JsonElement, too_large
from custody.capture.nifi_json import PAYLOAD_FIELDS, SOURCE_FORMAT, Payload, decode_payload, read_element, source_node
from custody.capture.validate import NOT_JSON, Context, InputPlace, Outcome, validate_element
from custody.model import EVENT_SCHEMA, column_of

_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_TIMESTAMP = "%Y-%m-%dT%H:%M:%SZ"
_UNSET_DURATION = -1

Raws = Sequence[bytes | msgspec.Raw]


class ElementList:
    """Elements of one text, in their order.

    Args:
        raws: the bytes of each.
        place: returns the place of one, by its number in the list.
    """

    def __init__(self, raws: Raws, place: Callable[[int], InputPlace]) -> None:
        self.raws = raws
        self._place = place

    def __len__(self) -> int:
        return len(self.raws)

    def __getitem__(self, number: int) -> JsonElement:
        return JsonElement(self._place(number), bytes(self.raws[number]))

    def batches(self, size: int, bytes_max: int) -> Iterator[ElementList]:
        """Yield the elements in lists of at most `size`; where they are large, the lists are shorter."""
        start = nbytes = 0
        for number, raw in enumerate(self.raws):
            nbytes += len(raw)
            if number + 1 - start >= size or nbytes >= bytes_max:
                yield self._part(start, number + 1)
                start, nbytes = number + 1, 0
        if start < len(self.raws):
            yield self._part(start, len(self.raws))

    def _part(self, start: int, stop: int) -> ElementList:
        return ElementList(self.raws[start:stop], lambda number: self._place(start + number))


def array_elements(text: bytes) -> ElementList | None:
    """Return the elements of a text that is one JSON array and nothing else; None for any other."""
    try:
        raws = _ARRAY.decode(text)
    except NOT_JSON:
        return None
    begin = pa.py_buffer(text).address
    # Each is a view of its bytes in the text.
    return ElementList(raws, lambda number: InputPlace(number, pa.py_buffer(raws[number]).address - begin))


def read_columns(elements: ElementList, context: Context, event_bytes_max: int) -> ColumnBatch:
    """Return the outcomes of some elements; one of more than `event_bytes_max` bytes is rejected."""
    payloads: list[Payload] = []
    numbers: list[int] = []
    for number, raw in enumerate(elements.raws):
        if len(raw) > event_bytes_max:
            continue
        try:
            payloads.append(decode_payload(raw))
        except NOT_JSON:
            continue
        numbers.append(number)
    return columns_of(
        payloads,
        numbers,
        len(elements),
        lambda number: _of_any_size(elements[number], context, event_bytes_max),
        context.node,
        SOURCE_FORMAT,
    )


def columns_of(
    payloads: Sequence[Payload],
    numbers: Sequence[int],
    elements: int,
    carefully: Callable[[int], Outcome],
    node: str | None,
    source_format: str,
) -> ColumnBatch:
    """Return the outcomes of some elements, most of which are payloads as nearly all are.

    Args:
        payloads: of the elements that are.
        numbers: of the element of each payload, which go up.
        elements: how many there are.
        carefully: returns the outcome of any of them by itself.
        node: names the source of events that do not name it themselves.
        source_format: what the events say of where they come from.
    """
    return column_batch(
        lambda: _table(payloads, node, source_format),
        numbers,
        elements,
        lambda number: (carefully(number),),
        # The payload has no relationship: a ROUTE without one is no mistake of the event's.
        relationship_exported=False,
    )


def _table(payloads: Sequence[Payload], node: str | None, source_format: str) -> EventTable:
    """Return events in columns, and which of them have a timestamp that says something else than their time."""
    rows = zip(*map(msgspec.structs.astuple, payloads), strict=True) if payloads else [()] * len(PAYLOAD_FIELDS)
    values = dict(zip(PAYLOAD_FIELDS, rows, strict=True))
    timestamps = pa.array(values.pop("timestamp"), pa.string())
    columns = {name: _column(name, of_events) for name, of_events in values.items()}
    texts = pc.strftime(columns["event_time"].cast(EVENT_SCHEMA.field("event_time").type), _TIMESTAMP)
    has_own_timestamp = pc.fill_null(pc.not_equal(texts, timestamps), fill_value=False)
    sources = zip(values["content_uri"], values["previous_content_uri"], values["source_host"], strict=True)
    columns["source_node"] = pa.array([source_node(*of_event, node) for of_event in sources], pa.string())
    columns["source_format"] = pa.array([source_format] * len(payloads), pa.string())
    return pa.table(columns), has_own_timestamp.to_numpy(zero_copy_only=False)


def _column(name: str, values: Sequence[Any]) -> pa.Array:
    field = EVENT_SCHEMA.field(name)
    if pa.types.is_map(field.type):
        return column_of(field, [value or {} for value in values])
    if pa.types.is_list(field.type):
        return column_of(field, [value or () for value in values])
    # Numbers, as long as nobody has looked whether they are times.
    column = pa.array(values, pa.int64() if pa.types.is_timestamp(field.type) else field.type)
    return column.fill_null(_UNSET_DURATION) if name == "event_duration" else column


def _of_any_size(element: JsonElement, context: Context, event_bytes_max: int) -> Outcome:
    if len(element.raw) > event_bytes_max:
        return too_large(element.place, len(element.raw), event_bytes_max, element.raw)
    # The payload has no relationship: a ROUTE without one is no mistake of the event's.
    [outcome] = validate_element(element.raw, element.place, read_element, context, relationship_exported=False)
    return outcome
