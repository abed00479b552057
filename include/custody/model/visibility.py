"""Visibility: which events somebody may see, by conditions on what events say of themselves.

An event can be seen when a condition of `see` means it and none of `hide` does. The rows are chosen in columns. Readers
apply a visibility where they apply tombstones (`read/tombstone_filter.py`), so what cannot be seen is in no answer. Of
events that can be seen, the values of some attributes may be masked (`masking.py`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from custody.errors import InvalidInputError
from custody.made_types import made_at_import
from custody.model.masking import AttributeMask, regex_of

ATTRIBUTE = "attribute."
"""Begins the name of a condition on an attribute; the rest is the attribute's own name."""
COLUMNS = (
    "event_type",
    "component_id",
    "component_type",
    "component_name",
    "process_group_id",
    "process_group_name",
    "source_format",
    "source_node",
    "source_host",
    "delivered_by",
    "platform",
    "application",
)
"""The fields that a condition can name."""
_MAPS = ("previous_attributes", "updated_attributes")
_WILD = re.compile(r"[*?]")


@dataclass(frozen=True, slots=True)
class EventCondition:
    """The events of which each named field has a value that one of its patterns matches.

    In a pattern `*` stands for any text and `?` for one character; case counts.
    """

    patterns: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def of(cls, patterns: Mapping[str, str | list[str]]) -> EventCondition:
        """Return the condition of a table of fields and patterns.

        Raises:
            InvalidInputError: it names no field, one that it cannot have, or a pattern that is no text.
        """
        if not patterns:
            raise InvalidInputError("expected a field with a pattern, got an empty condition.")
        for name, wanted in patterns.items():
            if name not in COLUMNS and not (name.startswith(ATTRIBUTE) and len(name) > len(ATTRIBUTE)):
                raise InvalidInputError(f"field {name!r}: expected {ATTRIBUTE}NAME or one of {', '.join(COLUMNS)}.")
            listed = wanted if isinstance(wanted, list) else [wanted]
            if not listed or not all(isinstance(one, str) for one in listed):
                raise InvalidInputError(f"field {name!r}: expected a pattern or a list of patterns.")
        return cls(
            tuple((name, (one,) if isinstance(one, str) else tuple(one)) for name, one in sorted(patterns.items()))
        )

    @property
    def columns(self) -> set[str]:
        """The columns that it looks at."""
        return {column for name, _ in self.patterns for column in (_MAPS if name.startswith(ATTRIBUTE) else (name,))}

    def rows(self, table: pa.Table, *, is_strict: bool) -> pa.ChunkedArray:
        """Return which rows are meant: booleans, shape (rows,), no nulls.

        An attribute has a value before the event and one after it. With `is_strict` both have to match as far as they
        are there, without it one is enough: what shows an event looks at all of it, and so does what hides one.
        """
        masks = (self._field(table, name, wanted, is_strict) for name, wanted in self.patterns)
        return reduce(pc.and_, masks)

    @staticmethod
    def _field(table: pa.Table, name: str, wanted: tuple[str, ...], is_strict: bool) -> pa.ChunkedArray:
        if not name.startswith(ATTRIBUTE):
            return pc.fill_null(_matching(table.column(name), wanted), False)
        key = pa.scalar(name.removeprefix(ATTRIBUTE))
        # The last value counts, as in the index and in Python, when a map has a key twice.
        values = [pc.map_lookup(table.column(column).combine_chunks(), key, "last") for column in _MAPS]
        before, after = (pc.fill_null(_matching(each, wanted), False) for each in values)
        either = pc.or_(before, after)
        if not is_strict:
            return either
        misses = [pc.and_not(pc.is_valid(each), mask) for each, mask in zip(values, (before, after), strict=True)]
        return pc.and_not(either, pc.or_(*misses))


@dataclass(frozen=True)
class Visibility:
    """What somebody may see; without a condition in `see` that is nothing."""

    see: tuple[EventCondition, ...] | None
    """None for every event."""
    hide: tuple[EventCondition, ...] = ()
    masks: tuple[str, ...] = ()
    """Patterns of names of attributes whose values are masked."""

    @cached_property
    def key(self) -> str:
        """A text that is the same for equal visibilities alone; caches have it in their keys."""
        parts = [None if one is None else [each.patterns for each in one] for one in (self.see, self.hide)]
        return hashlib.sha256(msgspec.json.encode([*parts, self.mask.patterns])).hexdigest()

    @cached_property
    def mask(self) -> AttributeMask:
        """The attributes whose values are masked."""
        return AttributeMask(self.masks)

    @property
    def hides_events(self) -> bool:
        """Whether there may be an event that cannot be seen."""
        return self.see is not None or bool(self.hide)

    @property
    def is_everything(self) -> bool:
        """Whether it hides no event and no value."""
        return not self.hides_events and not self.masks

    @property
    def without_masks(self) -> Visibility:
        """The same events, with all values: for what sends them on, and shows nobody what they say."""
        return Visibility(self.see, self.hide)

    def masking(self, masks: tuple[str, ...]) -> Visibility:
        """Return what somebody may see for whom more attributes are masked."""
        return Visibility(self.see, self.hide, (*self.masks, *masks))

    @property
    def columns(self) -> list[str]:
        """The columns that `rows` needs, so that a reader decodes no others."""
        return sorted({column for one in (*(self.see or ()), *self.hide) for column in one.columns})

    def rows(self, table: pa.Table) -> pa.ChunkedArray:
        """Return which rows can be seen: booleans, shape (rows,), no nulls."""
        shown = pa.array(np.full(table.num_rows, self.see is None, np.bool_))
        shown = _any((one.rows(table, is_strict=True) for one in self.see or ()), shown)
        hidden = pa.array(np.zeros(table.num_rows, np.bool_))
        hidden = _any((one.rows(table, is_strict=False) for one in self.hide), hidden)
        return pc.and_not(shown, hidden)


made_at_import(Visibility)


def _any(masks: Iterable[pa.ChunkedArray], first: pa.Array) -> pa.ChunkedArray:
    return reduce(pc.or_, masks, first)


def _matching(values: pa.Array | pa.ChunkedArray, wanted: tuple[str, ...]) -> pa.ChunkedArray:
    """Return which texts one of some patterns matches; null where there is no text."""
    exact = [one for one in wanted if not _WILD.search(one)]
    mask = pc.and_(pc.is_in(values, pa.array(exact, pa.string())), pc.is_valid(values))
    for pattern in sorted(set(wanted) - set(exact)):
        mask = pc.or_(mask, pc.fill_null(pc.match_substring_regex(values, f"(?s)^{regex_of(pattern)}$"), False))
    return mask
