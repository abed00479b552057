"""Masks of attributes: values that stay out of journals, or out of answers, by the names of their attributes.

A mask replaces values by `MASK` and leaves names, and which names have a value. It looks at the attributes before and
after an event, and at `extra`: there at keys at any depth, and at the pairs `{"name": …, "value": …}` in which some
formats list settings. Whole columns are masked by their distinct names, without a loop over events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from custody.model.event import Event

MASK = "***"
"""The text that stands for every masked value. It is stored: copies of an event are compared by it."""
MASKED_COLUMNS = ("previous_attributes", "updated_attributes", "extra")
"""The columns of an event in which a mask replaces values."""
_MAPS = MASKED_COLUMNS[:2]
_PAIRS = (("name", "value"), ("key", "value"))
# custody itself reads these: a content is checked by its digest, and a notification is written by what they say of it.
_OWN = "content.sha256"
_OWN_PREFIX = "ngsi."
_NO_QUOTE = '[^"]'
# Longer names are nobody's that come again, and would fill the memory.
_REMEMBERED_CHARACTERS = 256
_UNREADABLE = msgspec.json.encode({"extra": MASK}).decode()
_Value = TypeVar("_Value", str, str | None)
_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)


class AttributeMask:
    """The attributes whose names one of some patterns matches.

    In a pattern `*` stands for any text and `?` for one character; case does not count. Attributes that custody itself
    reads are never masked. A mask without patterns is false, and masks nothing.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns = tuple(sorted({pattern.casefold() for pattern in patterns}))
        # Of a text of JSON: a quoted text that a pattern may match, or anything that spells texts in another way.
        quoted = [f'"{regex_of(pattern, _NO_QUOTE)}"' for pattern in self.patterns]
        self._suspicion = "(?is)" + "|".join([*quoted, r"\\", r"[^\x00-\x7f]"])

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def hides(self, name: str) -> bool:
        """Whether the values of an attribute of this name are masked."""
        return (_remembered if len(name) <= _REMEMBERED_CHARACTERS else _matches)(self.patterns, name)

    def values(self, attributes: dict[str, _Value]) -> dict[str, _Value]:
        """Return attributes with masked values"""
        hidden = [name for name, value in attributes.items() if value is not None and self.hides(name)]
        return {**attributes, **dict.fromkeys(hidden, MASK)}

    def conditions(self, text: str, conditions: Iterable[tuple[str, str]]) -> str:
        """Return a text that names conditions as `attribute:NAME=VALUE`, as rules of retention do, with masks."""
        for name, value in conditions:
            if self.hides(name):
                text = text.replace(f"attribute:{name}={value}", f"attribute:{name}={MASK}")
        return text

    def event(self, event: Event) -> Event:
        """Return an event with masked values."""
        changes: dict[str, object] = {}
        for field in _MAPS if self.patterns else ():
            values: dict[str, str | None] = getattr(event, field)
            masked = self.values(values)
            if masked != values:
                changes[field] = masked
        if self.patterns and event.extra is not None and _is_match(event.extra, self._suspicion):
            changes["extra"] = self._extra(event.extra)
        return msgspec.structs.replace(event, **changes) if changes else event

    def events(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return events with masked values."""
        return [self.event(event) for event in events] if self.patterns else events

    def rows(self, rows: _Rows) -> _Rows:
        """Return events that are columns with masked values; columns may be missing."""
        if not self.patterns:
            return rows
        for place, name in enumerate(rows.schema.names):
            if name in MASKED_COLUMNS:
                mask = self._map if name in _MAPS else self._texts
                column = rows.column(place)
                masked = (
                    pa.chunked_array([mask(chunk) for chunk in column.chunks], column.type)
                    if isinstance(column, pa.ChunkedArray)
                    else mask(column)
                )
                rows = rows.set_column(place, rows.schema.field(place), masked)
        return rows

    def _map(self, attributes: pa.MapArray) -> pa.MapArray:
        """Return a column of attributes; names are looked at once each."""
        if attributes.null_count:
            # Arrow makes no map of a part of a column that has nulls; a copy is whole.
            attributes = pa.concat_arrays([attributes, attributes.slice(0, 0)])
        offsets = attributes.offsets
        first, last = (offsets[0].as_py(), offsets[-1].as_py()) if len(offsets) else (0, 0)
        names = attributes.keys.slice(first, last - first)
        encoded = names.dictionary_encode()
        hidden = pa.array([self.hides(name) for name in encoded.dictionary.to_pylist()], pa.bool_())
        if not pc.any(hidden).as_py():
            return attributes
        items = attributes.items.slice(first, last - first)
        is_hidden = pc.and_(hidden.take(encoded.indices), items.is_valid())
        masked = pc.if_else(is_hidden, pa.scalar(MASK, items.type), items)
        nulls = attributes.is_null() if attributes.null_count else None
        return pa.MapArray.from_arrays(
            pc.subtract(offsets, pa.scalar(first, pa.int32())), names, masked, attributes.type, mask=nulls
        )

    def _texts(self, texts: pa.StringArray) -> pa.StringArray:
        """Return a column of `extra`; only those texts are decoded that may have something to mask."""
        if texts.null_count == len(texts):
            return texts
        suspects = pc.fill_null(pc.match_substring_regex(texts, self._suspicion), fill_value=False)
        masked = [self._extra(text) for text in texts.filter(suspects).to_pylist()]
        return pc.replace_with_mask(texts, suspects, pa.array(masked, texts.type)) if masked else texts

    def _extra(self, text: str) -> str:
        """Return a text of JSON with masked values; one that is no JSON is masked as a whole."""
        try:
            document = _DECODER.decode(text)
            masked = self._document(document)
        # JSON that is nested too deeply ends in a RecursionError; half a character cannot be encoded.
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return _UNREADABLE
        # As it was written where nothing is masked: the text may be compared with another copy's.
        return text if masked == document else _ENCODER.encode(masked).decode()

    def _document(self, value: object) -> object:
        if isinstance(value, list):
            return [self._document(item) for item in value]
        if not isinstance(value, dict):
            return value
        hidden = {key for key in value if self.hides(key)}
        for name, item in _PAIRS:
            if isinstance(value.get(name), str) and item in value and self.hides(value[name]):
                hidden.add(item)
        return {key: MASK if key in hidden and one is not None else self._document(one) for key, one in value.items()}


def blinded(one: Event, other: Event) -> tuple[Event, Event]:
    """Return two events, each with the mask wherever the other one has it: a masked value says nothing.

    So two copies of an event are equal also if one of them was masked, and the other one was not.
    """
    first, second = dict[str, object](), dict[str, object]()
    for field in _MAPS:
        ours: Mapping[str, str | None] = getattr(one, field)
        theirs: Mapping[str, str | None] = getattr(other, field)
        names = [name for name in ours.keys() & theirs.keys() if MASK in (ours[name], theirs[name])]
        hidden = {name: MASK for name in names if ours[name] is not None and theirs[name] is not None}
        if hidden:
            first[field], second[field] = {**ours, **hidden}, {**theirs, **hidden}
    if one.extra != other.extra and any(MASK in (text or "") for text in (one.extra, other.extra)):
        try:
            pair = _blinded(_DECODER.decode(one.extra or "null"), _DECODER.decode(other.extra or "null"))
            first["extra"], second["extra"] = (_SORTED.encode(document).decode() for document in pair)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            pass  # no JSON: texts are compared as they are
    if not first:
        return one, other
    return msgspec.structs.replace(one, **first), msgspec.structs.replace(other, **second)


def _blinded(one: object, other: object) -> tuple[object, object]:
    if one is not None and other is not None and MASK in (one, other):
        return MASK, MASK
    if isinstance(one, dict) and isinstance(other, dict):
        pairs = {key: _blinded(one[key], other[key]) for key in one.keys() & other.keys()}
        return {**one, **{key: pair[0] for key, pair in pairs.items()}}, {
            **other,
            **{key: pair[1] for key, pair in pairs.items()},
        }
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        items = [_blinded(*pair) for pair in zip(one, other, strict=True)]
        return [item[0] for item in items], [item[1] for item in items]
    return one, other


def _as_written(number: str) -> msgspec.Raw:
    # Decoding would round: long fractions lose digits.
    return msgspec.Raw(number.encode())


_DECODER = msgspec.json.Decoder(float_hook=_as_written)
_ENCODER = msgspec.json.Encoder()
_SORTED = msgspec.json.Encoder(order="sorted")


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    if not patterns or name == _OWN or name.startswith(_OWN_PREFIX):
        return False
    return _is_match(name.casefold(), _expression(patterns))


# An attribute's name comes again with nearly every event.
_remembered = lru_cache(maxsize=8192)(_matches)


@lru_cache(maxsize=256)
def _expression(patterns: tuple[str, ...]) -> str:
    return f"(?s)^(?:{'|'.join(map(regex_of, patterns))})$"


def _is_match(text: str, expression: str) -> bool:
    # Arrow's expressions take a time that grows with the text alone. Python's would let whoever chooses a name or a
    # text keep a server busy.
    return bool(pc.match_substring_regex(pa.scalar(text), expression).as_py())


def regex_of(pattern: str, any_character: str = ".") -> str:
    """Return a pattern with `*` and `?` as a regular expression of RE2; no other sign of it is an operator."""
    wild = {"*": f"{any_character}*", "?": any_character}
    return "".join(wild.get(one) or f"\\x{{{ord(one):x}}}" for one in pattern)
