"""Many events become one message of Arrow, if each value has the type that its field says.

What an append of many objects takes is nearly all here, and most of that is waiting for memory: so each object is
looked at as rarely as can be. One loop takes the values of the events, of their maps and of their lists; what follows
are calls that take a whole column each, and buffers are made without Arrow (`custody.model.joined_texts`,
`custody.model.arrow_message`). Where a column is not a usual one, Arrow makes it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import chain
from types import NoneType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from custody.model.arrow_message import Buffer, ColumnBuffers, MessageTemplate, column_buffers, null_buffers
from custody.model.columns import EVENT_SCHEMA, are_none, column_of
from custody.model.event import ContentClaim, Event
from custody.model.joined_texts import TextBuffers, joined_texts
from custody.model.plain_arrays import exact_texts, offsets_of

_SCHEMA = EVENT_SCHEMA.remove(0)
_TEXT = pa.string()
_VALUES = len(Event.__struct_fields__)
_PARENTS, _CHILDREN, _BEFORE, _AFTER = map(
    Event.__struct_fields__.index, ("parent_uuids", "child_uuids", "previous_attributes", "updated_attributes")
)
_NESTED = slice(_PARENTS, _AFTER + 1)
"""The four of them, which follow each other."""
_NO_BUFFER: Buffer = b""
_OFFSET_BYTES = 4
_NOTHING: tuple[str, ...] = ()


class _Field(NamedTuple):
    """A column, and what is asked of it for each batch: Arrow takes a microsecond for each answer."""

    field: pa.Field
    place: int
    """Among the fields of an event."""
    is_nullable: bool
    is_text: bool
    is_claim: bool

    @classmethod
    def of(cls, field: pa.Field) -> _Field:
        place, kind = Event.__struct_fields__.index(field.name), field.type
        return cls(field, place, field.nullable, kind == _TEXT, pa.types.is_struct(kind))


_FIELDS = [_Field.of(field) for field in _SCHEMA]


class _OtherTypeError(Exception):
    """A value may have another type than its field says."""


class _Nested(NamedTuple):
    """Where the lists, or maps, of a column begin, and all that they hold."""

    offsets: Buffer
    texts: tuple[list[Any], ...]
    """The elements of lists, or the names and the values of maps."""


class _Walked(NamedTuple):
    """What events hold."""

    rows: int
    values: list[Any]
    """All fields of the first event, all of the second one, and so on."""
    nested: dict[int, _Nested]
    """Of each field with lists or maps by its place."""


class _Column(NamedTuple):
    """A column that may wait for its texts."""

    made: ColumnBuffers | None
    texts: tuple[list[Any], ...] = ()
    offsets: Buffer | None = None


def exact_message(events: Sequence[Event]) -> memoryview | None:
    """Return events as a message with the columns of EVENT_SCHEMA but `event_id`.

    The checks are those of `require_types`, asked of whole columns. None where a value may be another one than its
    field says: to ask each event finds out which.

    Args:
        events: the events, at least one.

    Raises:
        UnicodeEncodeError: a text is no valid Unicode.
    """
    if set(map(type, events)) != {Event}:
        return None
    return _message(map(msgspec.structs.astuple, events))


def exact_batch(rows: Iterable[Sequence[Any]]) -> pa.RecordBatch | None:
    """Return events, each as the values of its fields and at least one, as a batch of the columns of `exact_message`.

    Refuses and raises as `exact_message` does.
    """
    message = _message(rows)
    return None if message is None else pa.ipc.read_record_batch(pa.py_buffer(message), _SCHEMA)


def _message(rows: Iterable[Sequence[Any]]) -> memoryview | None:
    try:
        walked = _walk(rows)
        waiting = [_column(field, walked) for field in _FIELDS]
        joined = iter(joined_texts([texts for column in waiting for texts in column.texts]))
        # What could not be joined is made in the order of columns: so the first one with something wrong is told.
        columns = [
            column.made or _of_texts(field, column, [_exact(texts, next(joined)) for texts in column.texts])
            for field, column in zip(_FIELDS, waiting, strict=True)
        ]
    except (_OtherTypeError, OverflowError, struct.error, pa.ArrowException, TypeError, AttributeError):
        return None
    return _template().message(walked.rows, columns)


@cache
def _template() -> MessageTemplate:
    return MessageTemplate(_SCHEMA)


def _walk(rows: Iterable[Sequence[Any]]) -> _Walked:
    """Return what events hold, each of which is the values of its fields."""
    values: list[Any] = []
    parents: list[tuple[int, Sequence[str]]] = []
    children: list[tuple[int, Sequence[str]]] = []
    names_before: list[Any] = []
    texts_before: list[Any] = []
    names_after: list[Any] = []
    texts_after: list[Any] = []
    ends_before, ends_after = [0], [0]
    nothing = _NOTHING
    for row in rows:
        some_parents, some_children, before, after = row[_NESTED]
        # Most lists of most producers are empty.
        if some_parents is not nothing:
            parents.append((len(values), some_parents))
        if some_children is not nothing:
            children.append((len(values), some_children))
        # One list, of which a column is every 37th value: that takes half as long as to turn the rows by `zip`.
        values += row
        # A subclass of what the column holds may be as good, and is left to the slower check.
        if type(before) is not dict or type(after) is not dict:
            raise _OtherTypeError
        # Names, values and their number at once: what lies around a map in memory is fetched once.
        if before:
            names_before += before
            texts_before += before.values()
        if after:
            names_after += after
            texts_after += after.values()
        ends_before.append(len(names_before))
        ends_after.append(len(names_after))
    ends = struct.Struct(f"{len(ends_after)}i")
    count = len(ends_after) - 1
    nested = {
        _PARENTS: _lists(parents, count),
        _CHILDREN: _lists(children, count),
        _BEFORE: _Nested(ends.pack(*ends_before), (names_before, texts_before)),
        _AFTER: _Nested(ends.pack(*ends_after), (names_after, texts_after)),
    }
    return _Walked(count, values, nested)


def _lists(held: Sequence[tuple[int, Sequence[Any]]], rows: int) -> _Nested:
    """Return a column of lists of which some may not be empty, each with the place where its event begins."""
    if not _kinds(some for _, some in held) <= {tuple, list}:
        raise _OtherTypeError
    lengths = np.zeros(rows, np.int64)
    for place, some in held:
        lengths[place // _VALUES] = len(some)
    return _Nested(offsets_of(lengths).data, (list(chain.from_iterable(some for _, some in held)),))


def _column(field: _Field, walked: _Walked) -> _Column:
    nested = walked.nested.get(field.place)
    if nested is not None:
        return _Column(None, nested.texts, nested.offsets)
    values = walked.values[field.place :: _VALUES]
    # First: it takes eight times as long to find out that nothing is said.
    if field.is_nullable and are_none(values):
        return _Column(_nulls(field.place, len(values)))
    if field.is_text:
        return _Column(None, (values,))
    return _Column(_claims(field.field, values) if field.is_claim else _numbers(values, is_nullable=field.is_nullable))


@lru_cache(maxsize=256)
def _nulls(place: int, rows: int) -> ColumnBuffers:
    """Return the column of the field at a place with nothing but nulls."""
    return null_buffers(next(field.field.type for field in _FIELDS if field.place == place), rows)


@cache
def _no_texts() -> ColumnBuffers:
    return null_buffers(_TEXT, 0)


def _claims(field: pa.Field, values: list[Any]) -> ColumnBuffers:
    if not _kinds(values) <= {ContentClaim, NoneType}:
        raise _OtherTypeError
    claims = (msgspec.structs.astuple(claim) for claim in values if claim is not None)
    members = zip(field.type, zip(*claims, strict=True), strict=True)
    if not all(_kinds(member) <= {str if one.type == _TEXT else int, NoneType} for one, member in members):
        raise _OtherTypeError
    return column_buffers(column_of(field, values))


def _numbers(values: list[Any], *, is_nullable: bool) -> ColumnBuffers:
    """Return a column of numbers or times."""
    rows, null_count, there = len(values), 0, _NO_BUFFER
    try:
        msgspec.convert(values, list[int])
    except msgspec.ValidationError:
        if not (is_nullable and _kinds(values) <= {int, NoneType}):
            raise _OtherTypeError from None
        flags = np.frombuffer(bytes([value is not None for value in values]), np.bool_)
        null_count, there = rows - int(np.count_nonzero(flags)), np.packbits(flags, bitorder="little").data
        values = [value or 0 for value in values]
    return ColumnBuffers([(rows, null_count)], [there, struct.pack(f"{rows}q", *values)])


def _exact(texts: list[Any], joined: TextBuffers | None) -> ColumnBuffers:
    if joined is not None:
        return ColumnBuffers([(len(texts), joined.null_count)], joined[1:])
    if not texts:
        return _no_texts()
    array = exact_texts(texts)
    if array is None:
        raise _OtherTypeError
    return column_buffers(array)


def _of_texts(field: _Field, column: _Column, parts: Sequence[ColumnBuffers]) -> ColumnBuffers:
    """Return a column of texts, or of lists or maps of them."""
    elements, null_count = parts[0].nodes[0]
    # In a list or a map the first texts are uuids, or names of attributes.
    if null_count and not (field.is_nullable and column.offsets is None):
        raise _OtherTypeError
    if column.offsets is None:
        return parts[0]
    rows = memoryview(column.offsets).nbytes // _OFFSET_BYTES - 1
    nodes: list[tuple[int, int]] = [(rows, 0)]
    buffers = [_NO_BUFFER, column.offsets]
    if len(parts) > 1:
        # A map is a list of pairs, which are a column by themselves.
        nodes.append((elements, 0))
        buffers.append(_NO_BUFFER)
    for part in parts:
        nodes += part.nodes
        buffers += part.buffers
    return ColumnBuffers(nodes, buffers)


def _kinds(values: Iterable[object]) -> set[type]:
    return set(map(type, values))
