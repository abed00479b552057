"""JSON texts that differ in their values alone: many are cut apart at once, and a parser is asked once for each shape.

The shape of a text is what is left without the characters of its text values and the digits of whole numbers that are
members. A producer sends few shapes again and again. What a parser makes of a text is the same for all texts of a
shape, but for the values, which it hands on as they are. So it is asked for one text of the shape, whose values are
marks that are found again in whatever it makes of them.

A value ends where the shape says, whatever its characters are. Characters that a parser refuses or changes within a
value make a text one without a shape: control characters, bytes that are no UTF-8, escapes that have another form. So
do blanks other than spaces between the parts. Who asks reads those texts one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.capture.json_splitter import behind_odd_runs
from custody.capture.text_columns import bounds_of_texts, texts_between

TEXT_BYTES_MAX = 1 << 16
"""A longer text has no shape, which would be kept."""
TEXTS_BYTES_MAX = 1 << 20
"""Of texts that are cut at once: what they take for a moment, ten times as much, stays in the processor's caches."""
ROWS_MIN = 8
"""Fewer texts of a shape are not worth asking what it is: that takes as long as parsing them."""
_PLACES_MAX = 1 << 11
_QUOTE, _BACKSLASH, _COLON, _SPACE = (ord(character) for character in '"\\: ')
_ZERO, _DIGITS = ord("0"), 10
_DIGITS_MAX = 15
"""Of numbers that are values; every parser takes them as they are."""
_ESCAPES = np.zeros(256, np.bool_)
_ESCAPES[list(b'"\\bfnrt')] = True  # these have no other form
_MAY_BEGIN = np.zeros(256, np.bool_)
_MAY_BEGIN[list(b"0123456789 ")] = True  # a number, or a space before it
_AFTER_NUMBER = np.zeros(256, np.bool_)
_AFTER_NUMBER[list(b",}] ")] = True
_PADDING = b"\n\n\n0"
"""Behind the last text, so that a few bytes behind each quote can be looked at; the last stands for any number."""
# A character that nobody uses, and numbers that are as long as they may be.
_MARK = "\ue0c7"
_NUMBER_MARK = 717_000_000_000_000
_MARKS = re.compile(f"{_MARK}([0-9]+){_MARK}|717000000([0-9]{{6}})".encode())
_IN_TEXT = re.compile(f"{_MARK}|717000000".encode())
_CHARACTERS = msgspec.json.Decoder(str)

TextNumbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Template:
    """A text of a shape: constant parts, and the places whose values stand between them."""

    is_value: npt.NDArray[np.int32]
    """Of each part 1 for a value and 0 for a constant."""
    numbers: npt.NDArray[np.int32]
    """Of each part the place of the value, or the number of the constant."""
    constants: pa.StringArray


@dataclass(frozen=True, slots=True)
class TextShape:
    """A shape that texts have in common."""

    marked: bytes
    """A text of it with a mark for each value; a parser may refuse it, as it would each other."""

    def template(self, text: bytes) -> Template:
        """Return what was made of the marked text, such as another form of it, with places for the marks."""
        parts = _MARKS.split(text)
        # Of each three: what is constant, and one of the two kinds of marks.
        places = [int(one if one is not None else other) for one, other in zip(parts[1::3], parts[2::3], strict=True)]
        numbers = np.arange(2 * len(places) + 1, dtype=np.int32)
        is_value = numbers % 2
        numbers //= 2
        numbers[1::2] = places
        return Template(is_value, numbers, pa.array([part.decode() for part in parts[0::3]], pa.string()))

    @staticmethod
    def place(value: str | int | None) -> int:
        """Return the place of a value that was decoded from the marked text; -1 where there is none.

        Raises:
            ValueError: it is a number that all texts of the shape have.
        """
        if value is None:
            return -1
        if isinstance(value, str):
            return int(value.strip(_MARK))
        place = value - _NUMBER_MARK
        if not 0 <= place < _PLACES_MAX:
            raise ValueError(f"expected a mark, got {value}, a number of the shape")
        return place


def text_shape_of(skeleton: bytes) -> TextShape | None:
    """Return the shape of texts by what `CutTexts` left of them; None for one that nobody can be asked about."""
    if _IN_TEXT.search(skeleton):
        return None
    cut = CutTexts([skeleton])
    pieces = cut.pieces.to_pylist()[: cut.first[-1]]
    if len(pieces) > 2 * _PLACES_MAX:
        return None
    for place, value in enumerate(pieces[1::2]):
        pieces[2 * place + 1] = f"{_NUMBER_MARK + place}" if value else f"{_MARK}{place}{_MARK}"
    # The last piece ends with what stands between texts that are cut together.
    return TextShape("".join(pieces).removesuffix("\n").encode())


class TextGroup(NamedTuple):
    """Texts of one shape."""

    skeleton: bytes
    """What all of them have: its text values have no character, and its numbers are zeros."""
    rows: TextNumbers
    """The numbers of the texts among all, which go up."""


def parts_to_cut(texts: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield where parts of some texts begin and end that are cut at once."""
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    begin = size = 0
    while begin < len(texts):
        end = max(int(np.searchsorted(ends, size + TEXTS_BYTES_MAX, "right")), begin + 1)
        yield begin, end
        begin, size = end, int(ends[end - 1])


class CutTexts:
    """Texts of at most `TEXTS_BYTES_MAX` bytes in all, cut apart at their values."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        is_left = np.fromiter(map(len, texts), np.int64, len(texts)) > TEXT_BYTES_MAX
        if is_left.any():
            texts = [text if len(text) <= TEXT_BYTES_MAX else b"" for text in texts]
        self._text = b"\n".join((*texts, _PADDING))
        self._bytes = np.frombuffer(self._text, np.uint8)
        self._starts = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1, out=self._starts[1:])
        self._has_escapes = b"\\" in self._text
        self.groups: Sequence[TextGroup] = ()
        """Texts without a shape are in none."""
        try:
            quotes = self._quotes(is_left)
        except UnicodeDecodeError:
            return
        opens, closes, is_number = self._values(quotes)
        self.first, self.pieces = self._cut(opens, closes)
        self.groups = self._grouped(is_number, is_left)

    def values(self, rows: TextNumbers, places: npt.NDArray[np.int64]) -> list[pa.StringArray]:
        """Return columns of values; of texts the characters that are meant.

        Args:
            rows: the numbers of the texts, shape (values,).
            places: of the values of each column, -1 for a null, shape (columns, values).
        """
        is_null = (places < 0).ravel()
        # All in one call, each of which costs as much as hundreds of values.
        taken = pa.array((self.first[rows] + 2 * places + 1).ravel(), mask=is_null if is_null.any() else None)
        values = self.pieces.take(taken)
        if self._has_escapes:
            is_escaped = pc.match_substring(values, "\\").fill_null(False)
            if is_escaped.true_count:
                meant = [_CHARACTERS.decode(f'"{text}"') for text in values.filter(is_escaped).to_pylist()]
                values = pc.replace_with_mask(values, is_escaped, pa.array(meant, pa.string()))
        return [values.slice(number * len(rows), len(rows)) for number in range(len(places))]

    def _quotes(self, is_left: npt.NDArray[np.bool_]) -> TextNumbers:
        """Return the places of quotes around keys and text values; note which texts have no shape, and leave theirs.

        Raises:
            UnicodeDecodeError: the texts are not UTF-8.
        """
        if not self._text.isascii():
            self._text.decode()
        data, ends = self._bytes, self._starts[1:]
        is_quote = data == _QUOTE
        if self._has_escapes:
            escaped = behind_odd_runs(np.flatnonzero(data == _BACKSLASH))
            is_quote[escaped] = False
            is_left[np.searchsorted(ends, escaped[~_ESCAPES[data[escaped]]], "right")] = True
        if np.count_nonzero(data < _SPACE) > len(ends) + _PADDING.count(b"\n"):
            controls = np.flatnonzero(data[: ends[-1]] < _SPACE)
            numbers = np.searchsorted(ends, controls, "right")
            is_left[numbers[controls != ends[numbers] - 1]] = True
        quotes = np.flatnonzero(is_quote)
        behind = np.searchsorted(quotes, self._starts)
        counts = np.diff(behind)
        is_left |= counts % 2 == 1
        if is_left.any():
            quotes = quotes[np.repeat(~is_left, counts)]
        return quotes

    def _values(self, quotes: TextNumbers) -> tuple[TextNumbers, TextNumbers, npt.NDArray[np.bool_]]:
        """Return where each value begins, where it ends, and whether it is a number."""
        data = self._bytes
        opens, closes = quotes[0::2], quotes[1::2]
        is_key = data[closes + 1] == _COLON
        numbers = closes[np.flatnonzero(is_key)] + 2
        numbers = numbers[_MAY_BEGIN[data[numbers]]]
        numbers += data[numbers] == _SPACE
        numbers = numbers[_is_digit(data[numbers])]
        texts = np.flatnonzero(~is_key)
        opens, closes = opens[texts] + 1, closes[texts]
        if not len(numbers):
            return opens, closes, np.zeros(len(opens), np.bool_)
        ends = numbers + 1
        for _ in range(_DIGITS_MAX - 1):
            ends += _is_digit(data[ends])
        # No parser takes a number with a zero before it; others are part of the shape.
        is_whole = _AFTER_NUMBER[data[ends]] & ((data[numbers] != _ZERO) | (ends == numbers + 1))
        starts = np.append(opens, numbers[is_whole])
        order = np.argsort(starts, kind="stable")
        return starts[order], np.append(closes, ends[is_whole])[order], order >= len(opens)

    def _cut(self, opens: TextNumbers, closes: TextNumbers) -> tuple[TextNumbers, pa.StringArray]:
        """Return the number of each text's first piece, with the end of all, and the pieces of all in order."""
        texts = len(self._starts) - 1
        first = 2 * np.searchsorted(opens, self._starts) + np.arange(texts + 1)
        bounds = np.empty(first[-1] + 3, np.int32)
        is_value = np.ones(len(bounds), np.bool_)
        is_value[first] = is_value[-2:] = False
        bounds[first] = self._starts
        bounds[-2:] = len(self._text) - 1, len(self._text)
        bounds[is_value] = np.column_stack([opens, closes]).ravel()
        return first, texts_between(bounds, self._text)

    def _grouped(self, is_number: npt.NDArray[np.bool_], is_left: npt.NDArray[np.bool_]) -> Sequence[TextGroup]:
        """Return which texts have which shape; those that are left have none."""
        # Of each text the values before it, and one more piece between values than it has values.
        texts = np.arange(len(self.first))
        values = (self.first - texts) // 2
        between = 2 * np.arange(values[-1] + texts[-1]) - np.repeat(texts[:-1], np.diff(values) + 1)
        begins = values + texts
        numbers = np.flatnonzero(is_number)
        if len(numbers):
            # A number leaves a digit, as a text leaves its quotes: so it shows where it was.
            behind = numbers + np.searchsorted(values[1:], numbers, "right") + 1
            between = np.insert(between, behind, len(self.pieces) - 1)
            begins += np.searchsorted(numbers, values)
        skeletons = self.pieces.take(pa.array(between))
        bounds = bounds_of_texts(skeletons)[begins]
        whole = texts_between(bounds, skeletons.buffers()[2]).dictionary_encode()
        codes = whole.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        order = order[~is_left[order]]
        cuts = np.flatnonzero(np.diff(codes[order])) + 1
        groups = [rows for rows in np.split(order, cuts) if len(rows)]
        return [
            TextGroup(whole.dictionary[int(codes[rows[0]])].as_py().encode().rstrip(b"\n"), rows) for rows in groups
        ]


class ShapedTexts:
    """Those of some texts that have one of some shapes, in their order.

    Args:
        cut: the texts.
        groups: the numbers of those of each shape.
    """

    def __init__(self, cut: CutTexts, groups: Sequence[TextNumbers]) -> None:
        self._cut = cut
        rows = np.concatenate([np.empty(0, np.int64), *groups])
        order = np.argsort(rows, kind="stable")
        self.rows: TextNumbers = rows[order]
        """Their numbers among all."""
        self._groups: TextNumbers = np.repeat(np.arange(len(groups)), [len(group) for group in groups])[order]

    def values(self, places: Sequence[Sequence[int]]) -> list[pa.StringArray]:
        """Return columns of values of each text, shape (texts,); null where there is none.

        Args:
            places: of each group, the place of the value of each column, -1 where its texts have none.
        """
        return self._cut.values(self.rows, np.array(places, np.int64).T[:, self._groups])

    def lists(self, places: Sequence[npt.NDArray[np.int64]]) -> tuple[TextNumbers, list[pa.StringArray]]:
        """Return the values of the elements of a list in each text, one list behind the other.

        Args:
            places: of each group, the places of the values of each element, -1 for none, shape (elements, columns).

        Returns:
            How many elements each text has, shape (texts,), and columns of values, each of shape (elements,).
        """
        lengths = np.array(list(map(len, places)), np.int64)
        counts = lengths[self._groups]
        texts = np.repeat(np.arange(len(counts)), counts)
        # The number of each element in its list, and from there among those of all groups.
        elements = np.arange(len(texts)) - np.repeat(np.cumsum(counts) - counts, counts)
        elements += (np.cumsum(lengths) - lengths)[self._groups[texts]]
        return counts, self._cut.values(self.rows[texts], np.concatenate(places)[elements].T)

    def filled(self, templates: Sequence[Template]) -> Iterator[tuple[TextNumbers, pa.StringArray]]:
        """Yield of each group the places of its texts among these, and a template filled with the values of each.

        Values stand there as they were written.
        """
        # One table of pieces for all groups: to make it copies what is in it.
        pieces = pa.concat_arrays([self._cut.pieces, *(template.constants for template in templates)])
        first = self._cut.first[self.rows].astype(np.int32)
        begin = len(self._cut.pieces)
        for group, template in enumerate(templates):
            rows = np.flatnonzero(self._groups == group)
            steps = np.where(template.is_value, 2 * template.numbers + 1, begin + template.numbers)
            begin += len(template.constants)
            parts = pieces.take(pa.array((first[rows, None] * template.is_value + steps).ravel()))
            yield rows, texts_between(bounds_of_texts(parts)[:: len(template.numbers)], parts.buffers()[2])


def _is_digit(characters: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    # Of unsigned numbers, what is less than the zero becomes large.
    return characters - np.uint8(_ZERO) < _DIGITS
