"""Outcomes of many elements at once: events as columns, and the pieces that are no events.

A format that is read in columns makes a table of the events of elements that are usual for it. What `check_event` asks
of an event is asked of the columns here. Every other element (one of an unusual form, a broken rule, a warning) goes
the careful way of its format, as a whole, and its events take their places between the others. So outcomes are the
same either way, whichever elements are usual.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.capture.json_splitter import JsonElement
from custody.capture.own_claims import without_refused_rows
from custody.capture.validate import Accepted, Context, ElementReader, Outcome, Rejected, validate_element
from custody.format.number_sets import is_among
from custody.model import EVENT_SCHEMA, to_batch, warned_rows

_SCHEMA = EVENT_SCHEMA.remove(0)
Numbers = npt.NDArray[np.int64]
Carefully = Callable[[int], Sequence[Outcome]]
"""Returns the outcomes of one element by itself, by its number among those that were read."""
_Row = TypeVar("_Row")
EventTable = tuple[pa.Table | pa.RecordBatch, npt.NDArray[np.bool_] | None]
"""Events in columns, and which of them are not usual, shape (events,); None where nothing but the rules tells."""


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """The outcomes of some elements: events as columns, in the order of the text, and the pieces that are none."""

    events: pa.RecordBatch
    """As `require_valid_columns` returns them."""
    rejected: Sequence[Rejected]
    of_rejected: Sequence[int]
    """The number of the element of each of them."""
    warned: Mapping[int, Accepted]
    """The events with warnings, by their rows."""
    numbers: Numbers
    """Of the element of each row, among those that were read; they go up."""
    carefully: Carefully

    def accepted(self, rows: Sequence[int]) -> list[Accepted]:
        """Return the events of some rows, which go up, each with its bytes and its place."""
        found: list[Accepted] = []
        number, of_element, first = -1, [], 0
        for row in rows:
            # An element of many events is read once for all of them.
            if number != self.numbers[row]:
                number = int(self.numbers[row])
                of_element = [item for item in self.carefully(number) if isinstance(item, Accepted)]
                first = int(np.searchsorted(self.numbers, number))
            found.append(of_element[row - first])
        return found

    def of_elements(self, are_kept: npt.NDArray[np.bool_]) -> ColumnBatch:
        """Return the events of some elements alone, by their rows; what was rejected stays with this one."""
        rows = np.flatnonzero(are_kept)
        warned = {place: self.warned[row] for place, row in enumerate(rows.tolist()) if row in self.warned}
        return ColumnBatch(self.events.filter(pa.array(are_kept)), (), (), warned, self.numbers[rows], self.carefully)


def batch_of_pieces(
    pieces: Sequence[JsonElement | Rejected],
    context: Context,
    rows_of: Callable[[bytes], Sequence[_Row]],
    table: Callable[[Sequence[_Row]], EventTable],
    read_element: ElementReader,
) -> ColumnBatch:
    """Return the outcomes of some elements of a text, those that the splitter rejected among them.

    Args:
        pieces: in their order.
        context: of the text.
        rows_of: returns what differs between the events of an element; nothing of one that is not usual.
        table: makes the events of these rows, as `column_batch` says.
        read_element: reads an element that is not usual.
    """
    rows: list[_Row] = []
    numbers: list[int] = []
    for number, piece in enumerate(pieces):
        if isinstance(piece, JsonElement):
            of_element = rows_of(piece.raw)
            rows += of_element
            numbers += [number] * len(of_element)
    return column_batch(lambda: table(rows), numbers, len(pieces), reader_of_pieces(pieces, context, read_element))


def reader_of_pieces(
    pieces: Sequence[JsonElement | Rejected], context: Context, read_element: ElementReader
) -> Carefully:
    """Return what reads one of some elements of a text by itself; a rejected one is its own outcome."""

    def carefully(number: int) -> Sequence[Outcome]:
        piece = pieces[number]
        if isinstance(piece, Rejected):
            return (piece,)
        return list(validate_element(piece.raw, piece.place, read_element, context))

    return carefully


def column_batch(
    table: Callable[[], EventTable],
    numbers: Sequence[int] | Numbers,
    elements: int,
    carefully: Carefully,
    *,
    relationship_exported: bool = True,
) -> ColumnBatch:
    """Return the outcomes of some elements, most of which are usual.

    Args:
        table: makes the events of the usual elements. It may raise what Arrow raises for a text or a number that no
            column takes.
        numbers: of the element of each of these events, which go up; all events of an element are there.
        elements: how many there are.
        carefully: returns the outcomes of any of them by itself.
        relationship_exported: as of `check_event`.
    """
    usual, events = _usual(table, np.array(numbers, np.int64), relationship_exported)
    is_odd = np.ones(elements, np.bool_)
    is_odd[usual] = False
    odd = np.flatnonzero(is_odd).tolist()
    if not odd:
        return ColumnBatch(events, (), (), {}, usual, carefully)
    accepted: list[Accepted] = []
    of_accepted: list[int] = []
    rejected: list[Rejected] = []
    of_rejected: list[int] = []
    for number in odd:
        for outcome in carefully(number):
            if isinstance(outcome, Accepted):
                accepted.append(outcome)
                of_accepted.append(number)
            else:
                rejected.append(outcome)
                of_rejected.append(number)
    others = to_batch([item.event for item in accepted], 0).drop_columns(["event_id"])
    merged = np.append(usual, np.array(of_accepted, np.int64))
    # Stable: the events of one element stay in their order.
    order = np.argsort(merged, kind="stable")
    events = pa.concat_batches([events, others]).take(pa.array(order))
    rows = np.flatnonzero(order >= len(usual)).tolist()
    warned = {row: item for row, item in zip(rows, accepted, strict=True) if item.warnings}
    return ColumnBatch(events, rejected, of_rejected, warned, merged[order], carefully)


def _usual(
    table: Callable[[], EventTable], numbers: Numbers, relationship_exported: bool
) -> tuple[Numbers, pa.RecordBatch]:
    """Return the numbers of the elements that are usual, an element's once for each of its events, and the events."""
    try:
        events, is_unusual = table()
        batch, bad = without_refused_rows(events)
    except (UnicodeError, OverflowError, pa.ArrowException):
        # A text or a number that no column takes: the careful way finds out which one it is.
        return np.empty(0, np.int64), pa.RecordBatch.from_pylist([], schema=_SCHEMA)
    is_odd = np.zeros(len(numbers), np.bool_) if is_unusual is None else is_unusual.copy()
    is_odd[list(bad)] = True
    rows = np.delete(np.arange(len(numbers)), list(bad))
    is_odd[rows] |= warned_rows(batch, relationship_exported=relationship_exported)
    if not is_odd.any():
        return numbers, batch
    # An element goes one way as a whole.
    is_usual = ~is_among(numbers, numbers[is_odd])
    return numbers[is_usual], batch.filter(pa.array(is_usual[rows]))
