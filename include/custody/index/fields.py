"""The searchable fields: what each is called in a query, where its terms come from, and its Whoosh type.

Fields with terms are identifiers, attributes and the text `details`; times and numbers are columns of every shard. The
Whoosh types are stock ones, so that stock Whoosh opens a shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from whoosh import fields
from whoosh.analysis import IDTokenizer, LowercaseFilter
from whoosh.columns import NumericColumn

from custody.errors import ConfigurationError
from custody.index.arrays import integers, number_scalar
from custody.index.terms import (
    INDEXED,
    WHOLE,
    WORDS,
    TermLimit,
    TermValues,
    attribute,
    column,
    element_values,
    text_values,
    whole,
)

ATTRIBUTE_PREFIX = "attribute."
# On disk in the number columns: part of the format.
ABSENT = (1 << 63) - 1
"""What a number column holds where there is no number; Whoosh's own choice for signed numbers."""
POINTER_COLUMN = "event_id"
# Part of the terms of a shard, where a number field has any: 64 / 8 terms a number, and a range is a few of them.
NUMBER_STEP_BITS = 8


_Take = Callable[[pa.Table, TermLimit], TermValues]


@dataclass(frozen=True, slots=True)
class SearchField:
    """One field of the index; `take` gives its terms in the rows of a table, each as long as `limit` allows."""

    name: str
    help: str
    take: _Take
    limit: TermLimit = INDEXED

    def values(self, table: pa.Table) -> TermValues:
        """Return its terms in the rows of a table."""
        return self.take(table, self.limit)

    @property
    def is_attribute(self) -> bool:
        """Whether its values are those of an attribute."""
        return self.name == "filename" or self.name.startswith(ATTRIBUTE_PREFIX)


def _column(name: str) -> _Take:
    return lambda table, limit: whole(column(table, name), limit=limit)


def _uuids(table: pa.Table, limit: TermLimit) -> TermValues:
    """Give an event's own FlowFile and all that it came from or led to."""
    related = [element_values(column(table, name), limit) for name in ("parent_uuids", "child_uuids")]
    return TermValues.joined([whole(column(table, "flowfile_uuid"), limit=limit), *related])


def _claim(part: str) -> _Take:
    def values(table: pa.Table, limit: TermLimit) -> TermValues:
        claims = [pc.struct_field(column(table, name), part) for name in ("content_claim", "previous_content_claim")]
        return TermValues.joined([whole(claim, limit=limit) for claim in claims])

    return values


def _attribute(name: str) -> _Take:
    return lambda table, limit: attribute(table, name, limit)


def _text(name: str) -> _Take:
    # Words have no limit: the analyzer's are short, and a text is searched by each of them.
    return lambda table, _: text_values(column(table, name))


# The names are in the manifests of shards and in users' queries: add, never rename.
IDENTIFIER_FIELDS = (
    SearchField("event_type", "type of the event, such as SEND", _column("event_type")),
    SearchField("flowfile_uuid", "uuid of the FlowFile, or of one of its parents or children", _uuids),
    SearchField("component_id", "id of the processor or port", _column("component_id")),
    SearchField("component_type", "type of the processor or port", _column("component_type")),
    SearchField("component_name", "name of the processor or port", _column("component_name")),
    SearchField("process_group_id", "id of the process group", _column("process_group_id")),
    SearchField("transit_uri", "where data came from or went to", _column("transit_uri")),
    SearchField("filename", "the attribute filename after the event", _attribute("filename")),
    SearchField("relationship", "relationship of a ROUTE", _column("relationship")),
    SearchField(
        "source_queue_identifier",
        "queue that the FlowFile came from",
        _column("source_queue_identifier"),
    ),
    SearchField(
        "alternate_identifier_uri",
        "another identifier of the data",
        _column("alternate_identifier_uri"),
    ),
    SearchField(
        "source_system_flowfile_identifier",
        "the FlowFile's identifier in the system that sent it",
        _column("source_system_flowfile_identifier"),
    ),
    SearchField("content_claim_container", "container of the content", _claim("container")),
    SearchField("content_claim_section", "section of the content", _claim("section")),
    SearchField("content_claim_identifier", "identifier of the content", _claim("identifier")),
    SearchField("source_node", "node that reported the event", _column("source_node")),
)
TEXT_FIELD = SearchField("details", "words of the event's details", _text("details"))
TIME_FIELDS = {
    "event_time": "time of the event",
    "lineage_start_date": "when the oldest ancestor entered the flow",
}
NUMBER_FIELDS = {
    "file_size": "bytes of the content",
    "source_ordinal": "the event's number in its source",
}
STANDARD_FIELDS = (*(_field.name for _field in IDENTIFIER_FIELDS), TEXT_FIELD.name)
"""The fields that can be left out of an index; times and numbers are always columns of it."""


def is_numeric(name: str) -> bool:
    """Whether a field is a number or a time."""
    return name in NUMBER_FIELDS or name in TIME_FIELDS


def identifier_fields(attributes: Iterable[str], standard: Iterable[str] = STANDARD_FIELDS) -> list[SearchField]:
    """Return the chosen fields of whole terms: some of the standard ones, and those of attributes."""
    chosen = [
        SearchField(ATTRIBUTE_PREFIX + name, f"the attribute {name} after the event", _attribute(name))
        for name in attributes
    ]
    names = set(standard)
    return [*(field for field in IDENTIFIER_FIELDS if field.name in names), *chosen]


def searched_fields(attributes: Iterable[str], standard: Iterable[str] = STANDARD_FIELDS) -> list[SearchField]:
    """Return all chosen fields that have terms."""
    names = tuple(standard)
    return [*identifier_fields(attributes, names), *([TEXT_FIELD] if TEXT_FIELD.name in names else [])]


def whole_fields(attributes: Iterable[str]) -> list[SearchField]:
    """Return all fields that have terms, which are whole however long they are."""
    return [replace(field, limit=WHOLE) for field in searched_fields(attributes)]


Layout = Literal["packed", "whoosh"]
"""The files of a shard: as small as they get, or such as Whoosh opens."""


@dataclass(frozen=True, slots=True)
class IndexedFields:
    """The fields of an index: standard ones, attributes, and the number fields that have terms besides their column;
    and the layout of its files.
    """

    attributes: tuple[str, ...] = ()
    standard: tuple[str, ...] = STANDARD_FIELDS
    ranges: tuple[str, ...] = ()
    attribute_characters: int | None = None
    """The most characters of an attribute's value that its term has."""
    layout: Layout = "packed"

    @classmethod
    def checked(
        cls,
        attributes: Iterable[str],
        standard: Iterable[str],
        ranges: Iterable[str],
        attribute_characters: int | None = None,
        layout: Layout = "packed",
    ) -> IndexedFields:
        """Return it with the names of fields in a fixed order.

        Raises:
            ConfigurationError: a field is not known, or a packed index is to have terms of numbers.
        """
        names = tuple(dict.fromkeys(attributes))
        numbers = number_fields(ranges)
        if numbers and layout == "packed":
            raise ConfigurationError(
                f"index: expected the layout whoosh for terms of {', '.join(numbers)}, got packed. Custody finds "
                'ranges without such terms: leave index.ranges empty, or set index.layout = "whoosh".'
            )
        return cls(names, standard_fields(standard), numbers, attribute_characters, layout)

    @property
    def searched(self) -> list[SearchField]:
        """The fields that have terms, but for numbers."""
        limit = TermLimit(characters=self.attribute_characters)
        fields = searched_fields(self.attributes, self.standard)
        return [replace(field, limit=limit) if field.is_attribute else field for field in fields]

    @property
    def schema(self) -> fields.Schema:
        """What Whoosh has to know of them."""
        return whoosh_schema(self.attributes, self.ranges, self.standard)


def number_fields(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of number and time fields, checked.

    Raises:
        ConfigurationError: one is not known.
    """
    known = (*TIME_FIELDS, *NUMBER_FIELDS)
    for name in names:
        if name not in known:
            raise ConfigurationError(f"index: unknown number field {name!r}. Known fields: {', '.join(known)}.")
    return tuple(name for name in known if name in set(names))


def standard_fields(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of standard fields, checked, in the order of STANDARD_FIELDS.

    Raises:
        ConfigurationError: one is not known.
    """
    chosen = set(names)
    unknown = sorted(chosen.difference(STANDARD_FIELDS))
    if unknown:
        raise ConfigurationError(f"index: unknown field {unknown[0]!r}. Known fields: {', '.join(STANDARD_FIELDS)}.")
    return tuple(name for name in STANDARD_FIELDS if name in chosen)


def whoosh_schema(
    attributes: Iterable[str],
    ranges: Iterable[str] = (*TIME_FIELDS, *NUMBER_FIELDS),
    standard: Iterable[str] = STANDARD_FIELDS,
) -> fields.Schema:
    """Return the schema of a shard: stock Whoosh types only, so that stock Whoosh opens it.

    Numbers and times are columns; those in `ranges` have terms as well, so that stock Whoosh finds ranges of them.
    """
    schema = fields.Schema()
    for field in searched_fields(attributes, standard):
        is_text = field is TEXT_FIELD
        schema.add(field.name, fields.TEXT(analyzer=WORDS, phrase=True, stored=False) if is_text else identifier_type())
    chosen = set(ranges)
    for name in (*TIME_FIELDS, *NUMBER_FIELDS):
        # Signed: Whoosh answers unsigned ranges wrongly. A step of 8 bits: 8 terms a number instead of 16.
        number = fields.NUMERIC(int, 64, signed=True, shift_step=NUMBER_STEP_BITS, sortable=True)
        schema.add(name, number if name in chosen else fields.COLUMN(NumericColumn("q", default=ABSENT)))
    # The event id of each document: how a match leads back to its event. Unsigned and not searched, so without terms.
    schema.add(POINTER_COLUMN, fields.COLUMN(NumericColumn("Q")))
    return schema


def identifier_type() -> fields.FieldType:
    """Return the type of a field of whole, lower-cased terms."""
    return fields.ID(analyzer=IDTokenizer() | LowercaseFilter())


def number_values(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    """Return a number or time of each row, ABSENT where there is none.

    A number that is ABSENT itself becomes the one below it. No query can tell the two apart: its numbers end at 2^62.
    """
    # ABSENT marks a missing number in a column, so no real number may have its value.
    column = table.column(name).cast(pa.int64())
    least = pc.min_element_wise(column, number_scalar(ABSENT - 1), skip_nulls=False)
    return integers(least.fill_null(number_scalar(ABSENT)), np.int64)
