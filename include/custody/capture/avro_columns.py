"""Records of Avro as columns: many records that lie one behind the other are decoded at once, field by field.

Nothing in Avro says where a record begins but the end of the one before it, so decoders go from value to value. Here
a record is read from every place at which one may begin, because the bytes there are like those at which others begin,
and from all of them at the same time, with arrays; places at which there is none drop out. Then the records are
followed from the first: each has to begin exactly where the one before it ended. So it does not matter what places
were tried, and what is returned is what a decoder finds that goes from value to value.

Only what is usual is decoded: texts, whole numbers, arrays and maps of texts, each perhaps null, and none of the forms
that hardly any writer uses (a number of more than eight bytes, an array in several pieces or of very many elements). A
record with anything else is left to the decoder of single records.

What is claimed is bounded before memory is taken for it: places are as many as a few for each record that is asked for,
elements of an array a few for each place, and texts lie within the content.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.capture.avro import DAMAGE, ReadRecord, read_long
from custody.format.number_sets import distinct
from custody.model.plain_arrays import offsets_of

Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Head = tuple[tuple[int, int], ...]
"""What records have in common that begin alike: places behind the first byte, and the byte at each."""

_PADDING = 16
"""Zeros behind the content: a number that begins at its end, or before, is looked at without leaving them."""
_NUMBER_BYTES_MAX = 8
_MORE, _BITS = np.uint8(0x80), np.uint8(0x7F)
"""The bit of a byte that says that its number goes on, and the others."""
_BRANCHES = np.uint8(2)
"""The two branches of a union are written as 0 and 2."""
_ELEMENTS_MAX = 128
"""Of a map or an array: each takes a step, however few records have as many."""
_HEADS_MAX = 8
_HEAD_BYTES_MAX = 256
_PLACES_A_RECORD = 16
_PLACES_MAX = 1 << 18
"""Places that are tried, for each record and in all: where the heads tell so little, nothing is won."""
_BY_ITSELF_SHARE = 8
"""At most one of so many records may be left to the decoder of single records."""
_LOOK_BYTES = 1 << 16
"""So much is compared at once: what that takes stays in the processor's caches."""
_TEXTS = pa.list_(pa.field("element", pa.string(), nullable=False))


class UnusualRecordsError(Exception):
    """Records that are not decoded here: too few of them are usual, or the content is damaged."""


class ShortContentError(Exception):
    """A content that ends within a record, or before as many as were asked for."""


@dataclass(frozen=True, slots=True)
class FieldForm:
    """How a field is written."""

    name: str
    kind: str
    """long, text, texts (an array of them) or attributes (a map of them)."""
    null: int | None
    """The branch of a union that is null; None if the field is no union."""
    null_value: int | None = None
    """The same of the values of a map."""


def field_forms(fields: Sequence[dict[str, Any]]) -> tuple[FieldForm, ...] | None:
    """Return the forms of the fields of a `RecordSchema`; None if one of them is not decoded here."""
    forms = [form for field in fields if (form := _form(field["name"], field["type"])) is not None]
    # Of two fields of one name a record holds the last alone.
    return tuple(forms) if len({form.name for form in forms}) == len(fields) else None


def _form(name: str, kind: Any) -> FieldForm | None:  # noqa: ANN401 - a schema is any JSON
    kind, null = _without_null(kind)
    if kind in ("long", "int"):
        return FieldForm(name, "long", null)
    if kind == "string":
        return FieldForm(name, "text", null)
    if not isinstance(kind, dict):
        return None
    if kind["type"] == "array" and kind["items"] == "string":
        return FieldForm(name, "texts", null)
    if kind["type"] == "map":
        values, null_value = _without_null(kind["values"])
        return FieldForm(name, "attributes", null, null_value) if values == "string" else None
    return None


def _without_null(kind: Any) -> tuple[Any, int | None]:  # noqa: ANN401 - a schema is any JSON
    """Return the type of a value that is there, and the branch that says that none is."""
    if isinstance(kind, list) and len(kind) == 2 and kind.count("null") == 1:
        null = kind.index("null")
        return kind[1 - null], null
    return kind, None


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records that lie one behind the other, and the values of those that are usual."""

    ends: Places
    """Of each record in the content, shape (records,): there begins the next one, and the first with the content."""
    usual: Places
    """The numbers of the records in the columns, which go up, shape (rows,)."""
    columns: dict[str, pa.Array]
    """By the names of the fields, shape (rows,); an array or a map that is null is an empty one."""
    content: bytes

    def record(self, number: int) -> bytes:
        """Return the bytes of one record."""
        start = int(self.ends[number - 1]) if number else 0
        return self.content[start : int(self.ends[number])]


class ColumnDecoder:
    """Decodes records of one schema; what it learns of how they begin is kept for the next ones.

    Args:
        forms: of the fields, in their order.
        read_record: the decoder of single records.
    """

    def __init__(self, forms: Sequence[FieldForm], read_record: ReadRecord) -> None:
        self._forms = forms
        self._read_record = read_record
        self._heads: list[Head] = []

    def decode(
        self, parts: Sequence[bytes | memoryview], records: int, bytes_max: int, begins: Sequence[int]
    ) -> RecordColumns:
        """Return the first records of a content, fewer than `records` where those before have `bytes_max` bytes.

        Args:
            parts: the content, cut anywhere.
            records: how many are asked for.
            bytes_max: of all of them; the last may exceed it.
            begins: places at which one of the records begins, the first among them.

        Raises:
            ShortContentError: it does not hold as many.
            UnusualRecordsError: they are none, or too many are of other forms than those that are decoded here.
        """
        content = b"".join([*parts, bytes(_PADDING)])
        for place in begins:
            self._learn(content, place)
        while True:
            heads = self._heads
            lanes = _Lanes(content, self._places(content, records))
            for form in self._forms:
                lanes.read(form)
            try:
                chain, ends = self._followed(lanes, content, records, bytes_max)
                break
            except UnusualRecordsError:
                # What was learned meanwhile may be enough.
                if self._heads is heads:
                    raise
        usual = np.flatnonzero(chain >= 0)
        try:
            columns, is_odd = lanes.columns(chain[usual])
        except pa.ArrowInvalid as error:
            raise UnusualRecordsError("a text that is no UTF-8") from error
        if is_odd.any():
            columns = {name: column.filter(pa.array(~is_odd)) for name, column in columns.items()}
            usual = usual[~is_odd]
        return RecordColumns(ends, usual, columns, content)

    def _learn(self, content: bytes, place: int) -> None:
        """Know how the record begins that is at a place; of many ways to begin, what they have in common."""
        head = self._head(content, place)
        if any(set(known) <= set(head) for known in self._heads):
            return
        heads = [*self._heads, head]
        if len(heads) > _HEADS_MAX:
            heads = [tuple(sorted(set(head).intersection(*self._heads)))]
        if not heads[-1]:
            raise UnusualRecordsError("records that begin like anything")
        self._heads = heads

    def _head(self, content: bytes, place: int) -> Head:
        """Return what stands before the first number or array: branches of unions, and lengths of texts."""
        head: list[tuple[int, int]] = []
        at = place
        try:
            for form in self._forms:
                if form.null is not None:
                    head.append((at - place, content[at]))
                    at += 1
                    if content[at - 1] == 2 * form.null:
                        continue
                if form.kind != "text":
                    break
                length, behind = read_long(content, at)
                head += [(byte - place, content[byte]) for byte in range(at, behind)]
                at = behind + length
                if not place <= at <= place + _HEAD_BYTES_MAX:
                    break
        except DAMAGE:
            pass  # it ends here: no more is known of it
        return tuple(head)

    def _places(self, content: bytes, records: int) -> Places:
        """Return the places at which a record may begin, which go up."""
        data = np.frombuffer(content, np.uint8, len(content) - _PADDING)
        found: list[Places] = []
        left = min(_PLACES_A_RECORD * records, _PLACES_MAX)
        for (_, byte), *others in self._heads:
            for start in range(0, len(data), _LOOK_BYTES):
                places = np.flatnonzero(data[start : start + _LOOK_BYTES] == byte) + start
                for behind, other in others:
                    at = places + behind
                    at = at[: np.searchsorted(at, len(data))]
                    places = places[: len(at)][data[at] == other]
                found.append(places)
                left -= len(places)
                if left < 0:
                    raise UnusualRecordsError("records that begin like anything")
        return distinct(np.concatenate([np.empty(0, np.int64), *found]))

    def _followed(self, lanes: _Lanes, content: bytes, records: int, bytes_max: int) -> tuple[Places, Places]:
        """Return the lane of each record, -1 of one that is read by itself, and the ends, each of shape (records,)."""
        size = len(content) - _PADDING
        following, ends_of = lanes.following().tolist(), lanes.ends.tolist()
        chain: list[int] = []
        ends: list[int] = []
        stream = io.BytesIO(content)
        place, lane, by_itself = 0, lanes.at(0), 0
        while len(ends) < records and place < bytes_max:
            if lane >= 0:
                place = ends_of[lane]
                chain.append(lane)
                ends.append(place)
                lane = following[lane]
                continue
            if place >= size:
                raise ShortContentError
            self._learn(content, place)
            by_itself += 1
            if by_itself > records // _BY_ITSELF_SHARE:
                raise UnusualRecordsError("records that are not decoded at once")
            stream.seek(place)
            try:
                self._read_record(stream)
            except DAMAGE as error:
                raise ShortContentError from error
            place = stream.tell()
            if place > size:
                raise ShortContentError
            chain.append(-1)
            ends.append(place)
            lane = lanes.at(place)
        return np.array(chain, np.int64), np.array(ends, np.int64)


@dataclass(frozen=True, slots=True)
class _Texts:
    """Where texts lie in a content; null ones have no bytes."""

    begins: Places
    lengths: Places
    is_null: Flags | None
    """None if none is."""

    def chosen(self, rows: Places | Flags) -> _Texts:
        """Return some of them."""
        return _Texts(self.begins[rows], self.lengths[rows], None if self.is_null is None else self.is_null[rows])

    def put(self, places: Places) -> _Texts:
        """Return them in the order of the places that they go to."""
        order = np.empty(len(places), np.int64)
        order[places] = np.arange(len(places))
        return self.chosen(order)


@dataclass(frozen=True, slots=True)
class _Elements:
    """Elements of the arrays or maps of some lanes, in any order."""

    counts: Places
    """How many each of the field's lanes has, shape (lanes,)."""
    lanes: Places
    """The lane of each element among those of the field, shape (elements,) as all that follow."""
    numbers: Places
    """Of each element in its lane."""
    names: _Texts
    values: _Texts | None
    """Of maps; elements of an array have a name alone."""


@dataclass(frozen=True, slots=True)
class _Field:
    """What was read of a field."""

    form: FieldForm
    lanes: Places
    """The numbers of the lanes from which it was read."""
    is_null: Flags | None
    """Shape (lanes,); None if it is null nowhere."""
    values: Places | _Texts | _Elements
    """Numbers are an array, shape (lanes,)."""


_Step = tuple[Places, Places, _Texts, _Texts | None]
"""Elements of the same number in some lanes, as `_Elements` has them."""


class _Lanes:
    """Places in a content from each of which a record is read."""

    def __init__(self, content: bytes, begins: Places) -> None:
        self._data = np.frombuffer(content, np.uint8)
        self._size = len(content) - _PADDING
        self._begins = begins
        self._lanes = np.arange(len(begins))
        """The numbers of those that are left."""
        self._at = begins
        """Where the next field of each of these begins, within the content or at its end."""
        self._fields: list[_Field] = []

    @property
    def ends(self) -> Places:
        """Where each record ends, of the lanes that are left."""
        return self._at

    def at(self, place: int) -> int:
        """Return which of the lanes that are left begins at a place, -1 if none does."""
        begins = self._begins[self._lanes]
        lane = int(np.searchsorted(begins, place))
        return lane if lane < len(begins) and begins[lane] == place else -1

    def following(self) -> Places:
        """Return of each lane that is left the one that begins at its end, -1 if none does."""
        begins = self._begins[self._lanes]
        if not len(begins):
            return begins
        following = np.searchsorted(begins, self._at)
        following[following == len(begins)] = 0
        return np.where(begins[following] == self._at, following, -1)

    def read(self, form: FieldForm) -> None:
        """Read a field from all lanes; those at which there is none drop out."""
        if not len(self._lanes):
            return
        at, is_null, good = self._branch(self._at, form.null)
        values: Places | _Texts | _Elements
        if form.kind == "text":
            values, at, is_good = self._texts(at, is_null)
        else:
            values, at, is_good = self._numbers(at, is_null)
        good = _both(good, is_good)
        if form.kind in ("texts", "attributes"):
            values, at, good = self._elements(cast("Places", values), at, good, form)
        self._fields.append(_Field(form, self._lanes, is_null, values))
        good = self._within(at, good)
        self._at = at
        if good is not None:
            self._lanes, self._at = self._lanes[good], at[good]

    def columns(self, chosen: Places) -> tuple[dict[str, pa.Array], Flags]:
        """Return the fields of some of the lanes that are left, and which of these are not usual."""
        lanes = self._lanes[chosen]
        is_odd = np.zeros(len(lanes), np.bool_)
        columns: dict[str, pa.Array] = {}
        read_from, rows = self._lanes, chosen
        for field in self._fields:
            if field.lanes is not read_from:
                read_from, rows = field.lanes, np.searchsorted(field.lanes, lanes)
            columns[field.form.name] = self._column(field, rows, is_odd)
        return columns, is_odd

    # What is read at places that are none may be anything. Each of these takes places within the content, or at its
    # end, and returns what was read, the places behind it, and which of them are good, None if all are.

    def _branch(self, at: Places, null: int | None) -> tuple[Places, Flags | None, Flags | None]:
        """Return where a union's value begins, and where it is null, None if nowhere."""
        if null is None:
            return at, None, None
        branches = self._data[at]
        good = (branches & ~_BRANCHES) == 0 if np.bitwise_or.reduce(branches) & ~_BRANCHES else None
        is_null = branches == 2 * null
        return at + 1, is_null if np.count_nonzero(is_null) else None, good

    def _numbers(self, at: Places, is_null: Flags | None) -> tuple[Places, Places, Flags | None]:
        """Read numbers; a null one has no bytes."""
        if is_null is None:
            return self._numbers_there(at)
        numbers, behind, good = np.zeros(len(at), np.int64), at.copy(), None
        there = np.flatnonzero(~is_null)
        numbers[there], behind[there], is_number = self._numbers_there(at[there])
        if is_number is not None:
            good = is_null.copy()
            good[there] = is_number
        return numbers, behind, good

    def _numbers_there(self, at: Places) -> tuple[Places, Places, Flags | None]:
        """Read numbers."""
        first = self._data[at]
        numbers = (first & _BITS).astype(np.int64)
        behind = at + 1
        good: Flags | None = None
        if np.bitwise_or.reduce(first) & _MORE:
            # Those that go on, and of each what is known of it.
            longer = np.flatnonzero(first & _MORE)
            at, known = at[longer], numbers[longer]
            for shift in range(7, 7 * _NUMBER_BYTES_MAX, 7):
                at += 1
                byte = self._data[at]
                known |= (byte & _BITS).astype(np.int64) << shift
                is_last = byte < _MORE
                ended = np.count_nonzero(is_last)
                if not ended:
                    continue
                numbers[longer[is_last]], behind[longer[is_last]] = known[is_last], at[is_last] + 1
                if ended == len(longer):
                    longer = longer[:0]
                    break
                longer, at, known = longer[~is_last], at[~is_last], known[~is_last]
            if len(longer):
                good = np.ones(len(numbers), np.bool_)
                good[longer] = False
        return (numbers >> 1) ^ -(numbers & 1), behind, good

    def _texts(self, at: Places, is_null: Flags | None) -> tuple[_Texts, Places, Flags | None]:
        """Read texts; a null one has no bytes."""
        lengths, begins, good = self._numbers(at, is_null)
        if np.bitwise_or.reduce(lengths) < 0:
            good = _both(good, lengths >= 0)
        return _Texts(begins, lengths, is_null), begins + lengths, good

    def _within(self, at: Places, good: Flags | None) -> Flags | None:
        """Return which places are good, and not behind the content."""
        return _both(good, at <= self._size) if len(at) and at.max() > self._size else good

    def _elements(
        self, counts: Places, at: Places, good: Flags | None, form: FieldForm
    ) -> tuple[_Elements, Places, Flags | None]:
        """Read arrays or maps, whose counts stand before the places."""
        is_right = (counts >= 0) & (counts <= _ELEMENTS_MAX)
        if good is not None:
            is_right &= good
        # Those of most elements first: so those that have one more are the first ones in each step.
        lanes = np.argsort(-counts, kind="stable")
        lanes = lanes[is_right[lanes]]
        at, place = at.copy(), at[lanes]
        steps: list[_Step] = []
        number = seen = 0
        while have := int(np.searchsorted(-counts[lanes], -number)):
            names, values, behind, fits = self._step(place[:have], form)
            if fits is not None:
                is_right[lanes[:have][~fits]] = False
                names, values = names.chosen(fits), None if values is None else values.chosen(fits)
                kept = np.append(fits, np.ones(len(lanes) - have, np.bool_))
                lanes, place, behind = lanes[kept], place[kept], behind[fits]
                have = len(behind)
            place[:have] = behind
            steps.append((lanes[:have], np.full(have, number), names, values))
            number += 1
            seen += have
            if seen > self._size:
                raise UnusualRecordsError("more elements than bytes, of places that are no records")
        # Behind the last element stands a zero; where there is none, that was the count.
        has_some = counts[lanes] > 0
        is_right[lanes] &= ~has_some | (self._data[place] == 0)
        at[lanes] = place + has_some
        elements = _joined(counts, steps, is_map=form.kind == "attributes")
        return elements, at, None if np.count_nonzero(is_right) == len(is_right) else is_right

    def _step(self, at: Places, form: FieldForm) -> tuple[_Texts, _Texts | None, Places, Flags | None]:
        """Read an element of each of some arrays or maps."""
        names, at, good = self._texts(at, None)
        good = self._within(at, good)
        if form.kind == "texts":
            return names, None, at, good
        if good is not None:
            at = np.where(good, at, self._size)
        at, is_null, is_branch = self._branch(at, form.null_value)
        values, at, is_text = self._texts(at, is_null)
        return names, values, at, self._within(at, _both(good, _both(is_branch, is_text)))

    def _column(self, field: _Field, rows: Places, is_odd: Flags) -> pa.Array:
        """Return the column of a field; rows that are not usual are noted."""
        if isinstance(field.values, _Texts):
            return self._text_column(field.values.chosen(rows))
        if isinstance(field.values, _Elements):
            return self._nested_column(field.values, rows, is_odd)
        validity = None if field.is_null is None else _bits(~field.is_null[rows])
        return pa.Array.from_buffers(pa.int64(), len(rows), [validity, pa.py_buffer(field.values[rows])])

    def _text_column(self, texts: _Texts) -> pa.StringArray:
        """Return texts, each behind the one before it in the content, as a column of their own."""
        if not len(texts.begins):
            return pa.nulls(0, pa.string())
        bounds = np.empty(2 * len(texts.begins), np.int32)
        bounds[0::2] = texts.begins
        bounds[1::2] = texts.begins + texts.lengths
        # For Arrow the content is the values of an array, every second of which is what lies between two texts.
        values = [None, pa.py_buffer(bounds), pa.py_buffer(self._data)]
        with_gaps = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, values)
        alone = with_gaps.take(_as_array(np.arange(0, len(bounds), 2, dtype=np.int32)))
        validity = None if texts.is_null is None else _bits(~texts.is_null)
        column = pa.Array.from_buffers(pa.string(), len(alone), [validity, *alone.buffers()[1:]])
        column.validate(full=True)
        return column

    def _nested_column(self, elements: _Elements, rows: Places, is_odd: Flags) -> pa.ListArray | pa.MapArray:
        """Return arrays or maps; a map with a name twice, of which a record holds the last alone, is not usual."""
        counts = elements.counts[rows]
        offsets = offsets_of(counts)
        # Where the elements of each lane go to: those of no row nowhere.
        goes_to = np.full(len(elements.counts), -1)
        goes_to[rows] = offsets[:-1]
        places = goes_to[elements.lanes]
        names, values, numbers = elements.names, elements.values, elements.numbers
        if len(places) > offsets[-1]:
            is_held = places >= 0
            places, numbers, names = places[is_held], numbers[is_held], names.chosen(is_held)
            values = None if values is None else values.chosen(is_held)
        places += numbers
        starts = _as_array(offsets)
        name_column = self._text_column(names.put(places))
        if values is None:
            return pa.ListArray.from_arrays(starts, name_column, type=_TEXTS)
        if len(name_column):
            coded = name_column.dictionary_encode()
            kinds = len(coded.dictionary)
            codes = np.frombuffer(coded.indices.buffers()[1], np.int32, len(coded))
            pairs = np.sort(np.repeat(np.arange(len(rows)) * kinds, counts) + codes)
            is_odd[pairs[1:][pairs[1:] == pairs[:-1]] // kinds] = True
        return pa.MapArray.from_arrays(starts, name_column, self._text_column(values.put(places)))


def _both(one: Flags | None, other: Flags | None) -> Flags | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _as_array(numbers: npt.NDArray[np.int32]) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])


def _bits(flags: Flags) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _joined(counts: Places, steps: Sequence[_Step], *, is_map: bool) -> _Elements:
    """Return the elements of all steps."""
    nowhere = np.empty(0, np.int64)
    lanes = np.concatenate([nowhere, *(step[0] for step in steps)])
    numbers = np.concatenate([nowhere, *(step[1] for step in steps)])
    names = _joined_texts([step[2] for step in steps])
    values = _joined_texts([step[3] for step in steps if step[3] is not None]) if is_map else None
    return _Elements(counts, lanes, numbers, names, values)


def _joined_texts(parts: Sequence[_Texts]) -> _Texts:
    nowhere = np.empty(0, np.int64)
    is_null: Flags | None = None
    if any(part.is_null is not None for part in parts):
        flags = [np.zeros(len(part.begins), np.bool_) if part.is_null is None else part.is_null for part in parts]
        is_null = np.concatenate(flags)
    begins = np.concatenate([nowhere, *(part.begins for part in parts)])
    return _Texts(begins, np.concatenate([nowhere, *(part.lengths for part in parts)]), is_null)
