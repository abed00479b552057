"""Custody's own events as columns: many of them at once, without a Python object for each value.

Usual is an event that names no content. Its event is that of `custody_json`; `column_batch` says what becomes of the
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from custody.capture.column_batch import Carefully, ColumnBatch, EventTable, column_batch, reader_of_pieces
from custody.capture.custody_json import (
    SOURCE_FORMAT,
    UNNAMED_NODE,
    ordinal_name,
    read_element,
    with_ordinal,
)
from custody.capture.json_splitter import JsonElement
from custody.capture.validate import NOT_JSON, Context, Outcome, Rejected
from custody.format.identifier_columns import ordinals_of_names
from custody.model import UNASSIGNED, Event
from custody.model.event_message import exact_batch


class _Usual(Event, frozen=True, forbid_unknown_fields=True):
    """An event as nearly all are delivered: it names no content."""


_USUAL = msgspec.json.Decoder(_Usual)
_NAME = msgspec.json.Encoder()
_FORMAT, _NODE, _ORDINAL = map(Event.__struct_fields__.index, ("source_format", "source_node", "source_ordinal"))


def read_custody_columns(
    pieces: Sequence[JsonElement | Rejected], context: Context, ordinals: Sequence[int] | None = None
) -> ColumnBatch:
    """Return the outcomes of some elements of a text, those that the splitter rejected among them.

    Args:
        pieces: in their order.
        context: of the text.
        ordinals: of the event of each of them, if it has none, where the context leaves it to the caller.
    """
    usual: list[_Usual] = []
    numbers: list[int] = []
    for number, piece in enumerate(pieces):
        if isinstance(piece, JsonElement):
            try:
                # What it takes is nested no deeper than its types are.
                usual.append(_USUAL.decode(piece.raw))
            except NOT_JSON:
                continue
            numbers.append(number)
    given = None if ordinals is None else [ordinals[number] for number in numbers]
    carefully = reader_of_pieces(pieces, context, read_element)
    if ordinals is not None:
        carefully = _numbered(carefully, ordinals)
    return column_batch(lambda: _table(usual, context, given), numbers, len(pieces), carefully)


def _numbered(carefully: Carefully, ordinals: Sequence[int]) -> Carefully:
    def numbered(number: int) -> Sequence[Outcome]:
        return [with_ordinal(outcome, ordinals[number]) for outcome in carefully(number)]

    return numbered


def _table(events: Sequence[_Usual], context: Context, given: Sequence[int] | None) -> EventTable:
    """Return the events as columns; raises as Arrow does."""
    formats = [event.source_format or SOURCE_FORMAT for event in events]
    nodes = [event.source_node or context.node or UNNAMED_NODE for event in events]
    ordinals: Sequence[int | None] = [event.source_ordinal for event in events]
    if None in ordinals:
        if given is None and context.is_numbered:
            given = _ordinals_by_content(events, formats, nodes)
        if given is not None:
            ordinals = [own if mine is None else mine for mine, own in zip(ordinals, given, strict=True)]
    batch = exact_batch(map(_row, events, formats, nodes, ordinals))
    if batch is None:
        raise pa.ArrowInvalid("a value that no column takes")
    return batch, None


def _row(event: _Usual, format: str, node: str, ordinal: int | None) -> list[Any]:
    """Return the values of an event's fields, with what its text left open."""
    row = list(msgspec.structs.astuple(event))
    row[_FORMAT], row[_NODE], row[_ORDINAL] = format, node, ordinal
    return row


def _ordinals_by_content(events: Sequence[_Usual], formats: Sequence[str], nodes: Sequence[str]) -> list[int]:
    """Return the ordinal of each event that has none, by all that it says; of the others any number."""
    ordinals = np.zeros(len(events), np.int64)
    rows = [row for row, event in enumerate(events) if event.source_ordinal is None]
    named = [
        msgspec.structs.replace(events[row], event_id=UNASSIGNED, source_format=formats[row], source_node=nodes[row])
        for row in rows
    ]
    names = [_NAME.encode(ordinal_name(event, None)) for event in named]
    ordinals[rows] = ordinals_of_names(names, [event.event_time for event in named])
    of_events: list[int] = ordinals.tolist()
    return of_events
