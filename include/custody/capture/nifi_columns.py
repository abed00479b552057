"""NiFi's payloads as columns: the events of many elements at once, without an object for each.

What is usual is decoded into structs and turned into columns; `column_batch` checks them and says what becomes of the
others (an unknown key, a value of a wrong type, a timestamp of another time). Elements of a JSON array are read here;
other encodings of the payload bring theirs, as payloads (`columns_of`) or as columns (`event_table`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from custody.capture.column_batch import ColumnBatch, EventTable, column_batch
from custody.capture.json_splitter import JsonElement, too_large
from custody.capture.nifi_json import (
    PAYLOAD_FIELDS,
    SOURCE_FORMAT,
    UNKNOWN_NODE,
    Payload,
    decode_payload,
    read_element,
    uri_form,
    uri_node,
)
from custody.capture.time_columns import tells_another_time
from custody.capture.validate import NOT_JSON, Context, InputPlace, Outcome, validate_element
from custody.model import EVENT_SCHEMA, column_of
from custody.model.attribute_columns import constant_column

_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_PAYLOADS = msgspec.json.Decoder(list[Payload])
_UNSET_DURATION = -1
_FORMS_MAX = 8
"""Of URIs, which share host and query: a cluster has a few, and each is looked for in all of a batch."""


class ElementList:
    """Elements of one JSON array, in their order.

    Args:
        raws: views of the bytes of each.
        begin: the address of the array's text.
        first: the number of the first one.
        whole: the text, if these are all elements of it.
    """

    def __init__(self, raws: Sequence[msgspec.Raw], begin: int, first: int = 0, whole: bytes | None = None) -> None:
        self.raws = raws
        self.whole = whole
        self._begin = begin
        self._first = first

    def __len__(self) -> int:
        return len(self.raws)

    def __getitem__(self, number: int) -> JsonElement:
        raw = self.raws[number]
        offset = pa.py_buffer(raw).address - self._begin
        return JsonElement(InputPlace(self._first + number, offset), bytes(raw))

    def batches(self, size: int, bytes_max: int) -> Iterator[ElementList]:
        """Yield the elements in lists of at most `size`; where they are large, the lists are shorter."""
        if 0 < len(self.raws) <= size and self.whole is not None and len(self.whole) <= bytes_max:
            yield self
            return
        start = nbytes = 0
        for number, raw in enumerate(self.raws):
            nbytes += len(raw)
            if number + 1 - start >= size or nbytes >= bytes_max:
                yield self._part(start, number + 1)
                start, nbytes = number + 1, 0
        if start < len(self.raws):
            yield self._part(start, len(self.raws))

    def _part(self, start: int, stop: int) -> ElementList:
        return ElementList(self.raws[start:stop], self._begin, self._first + start)


def array_elements(text: bytes) -> ElementList | None:
    """Return the elements of a text that is one JSON array and nothing else; None for any other."""
    try:
        return ElementList(_ARRAY.decode(text), pa.py_buffer(text).address, whole=text)
    except NOT_JSON:
        return None


def read_columns(elements: ElementList, context: Context, event_bytes_max: int) -> ColumnBatch:
    """Return the outcomes of some elements; one of more than `event_bytes_max` bytes is rejected."""
    payloads, numbers = _payloads(elements, event_bytes_max)
    return columns_of(
        payloads,
        numbers,
        len(elements),
        lambda number: _of_any_size(elements[number], context, event_bytes_max),
        context.node,
        SOURCE_FORMAT,
    )


def _payloads(elements: ElementList, event_bytes_max: int) -> tuple[Sequence[Payload], Sequence[int]]:
    """Return the payloads of those elements that are, and the number of each among the elements."""
    if elements.whole is not None and max(map(len, elements.raws), default=0) <= event_bytes_max:
        try:
            # All in one call. Of parts of a text there is none without a copy, which takes as long as it spares.
            return _PAYLOADS.decode(elements.whole), range(len(elements))
        except NOT_JSON:
            pass  # one of them is none
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
    return payloads, numbers


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
    columns = {name: _column(name, of_events) for name, of_events in values.items()}
    return event_table(columns, len(payloads), node, source_format)


def event_table(columns: dict[str, pa.Array], rows: int, node: str | None, source_format: str) -> EventTable:
    """Return events in columns, and which of them have a timestamp that says something else than their time.

    Args:
        columns: by names out of PAYLOAD_FIELDS; what is missing is null in all events.
        rows: how many events there are.
        node: names the source of events that do not name it themselves.
        source_format: what the events say of where they come from.
    """
    held = {name: columns[name] if name in columns else _column(name, [None] * rows) for name in PAYLOAD_FIELDS}
    if held["event_duration"].null_count:
        held["event_duration"] = held["event_duration"].fill_null(_UNSET_DURATION)
    timestamps = held.pop("timestamp")
    held["source_node"] = _source_nodes(held, node)
    held["source_format"] = constant_column(source_format, rows)
    return pa.table(held), tells_another_time(timestamps, held["event_time"].to_numpy())


def _source_nodes(columns: dict[str, pa.Array], node: str | None) -> pa.StringArray:
    """Return `source_node` of each event."""
    nodes = _uri_nodes(columns["content_uri"])
    if nodes.null_count:
        nodes = pc.coalesce(nodes, _uri_nodes(columns["previous_content_uri"]))
    if nodes.null_count:
        hosts = columns["source_host"]
        named = pc.if_else(pc.equal(pc.binary_length(hosts), 0), None, hosts)
        nodes = pc.coalesce(nodes, pa.scalar(node or None, pa.string()), named, UNKNOWN_NODE)
    return nodes


def _uri_nodes(uris: pa.StringArray) -> pa.StringArray:
    """Return `uri_node` of each URI: those that differ in their paths alone, as most of a batch do, all at once."""
    nodes: list[str | None] = []
    places = np.full(len(uris), -1)
    left = np.flatnonzero(uris.is_valid())
    for _ in range(_FORMS_MAX):
        if not len(left):
            break
        uri = uris[int(left[0])].as_py()
        form = uri_form(uri)
        if form is None:
            places[left[0]] = len(nodes)
            nodes.append(uri_node(uri))
            left = left[1:]
            continue
        pattern, node = form
        of_left = uris if len(left) == len(uris) else uris.take(pa.array(left))
        is_like = pc.match_substring_regex(of_left, pattern).to_numpy(zero_copy_only=False)
        places[left[is_like]] = len(nodes)
        nodes.append(node)
        left = left[~is_like]
    places[left] = np.arange(len(nodes), len(nodes) + len(left))
    nodes += map(uri_node, uris.take(pa.array(left)).to_pylist())
    return pa.array(nodes, pa.string()).take(pa.array(places, mask=places < 0))


def _column(name: str, values: Sequence[Any]) -> pa.Array:
    if name == "timestamp":
        return pa.array(values, pa.string())  # no field of an event
    field = EVENT_SCHEMA.field(name)
    if pa.types.is_map(field.type):
        return column_of(field, [value or {} for value in values])
    if pa.types.is_list(field.type):
        return column_of(field, [value or () for value in values])
    # Numbers, as long as nobody has looked whether they are times.
    return pa.array(values, pa.int64()) if pa.types.is_timestamp(field.type) else column_of(field, values)


def _of_any_size(element: JsonElement, context: Context, event_bytes_max: int) -> Outcome:
    if len(element.raw) > event_bytes_max:
        return too_large(element.place, len(element.raw), event_bytes_max, element.raw)
    # The payload has no relationship: a ROUTE without one is no mistake of the event's.
    [outcome] = validate_element(element.raw, element.place, read_element, context, relationship_exported=False)
    return outcome
