"""The searchable fields: what each is called in a query, where its terms come from, and its Whoosh type.

Terms of identifier fields are lower-cased as a whole, so that search ignores case; `details` is split into words.
Numbers are signed: Whoosh answers unsigned ranges wrongly (2.7.4 and 2.7.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from whoosh import fields
from whoosh.analysis import IDTokenizer, LowercaseFilter
from whoosh.columns import NumericColumn

from custody.errors import ConfigurationError, InvalidInputError
from custody.index.arrays import integers, number
from custody.index.values import Values, attribute, column, elements, whole
from custody.index.words import WORDS, text_values

ATTRIBUTE_PREFIX = "attribute."
ABSENT = (1 << 63) - 1
"""What a number column holds where there is no number; Whoosh's own choice for signed numbers."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SearchField:
    """One field of the index; `values` gives its terms in the rows of a table."""

    name: str
    help: str
    values: Callable[[pa.Table], Values]


def _column(name: str) -> Callable[[pa.Table], Values]:
    return lambda table: whole(column(table, name))


def _uuids(table: pa.Table) -> Values:
    """Give an event's own FlowFile and all that it came from or led to."""
    related = [elements(column(table, name)) for name in ("parent_uuids", "child_uuids")]
    return Values.joined([whole(column(table, "flowfile_uuid")), *related])


def _claim(part: str) -> Callable[[pa.Table], Values]:
    def values(table: pa.Table) -> Values:
        claims = [pc.struct_field(column(table, name), part) for name in ("content_claim", "previous_content_claim")]
        return Values.joined([whole(claim) for claim in claims])

    return values


def _attribute(name: str) -> Callable[[pa.Table], Values]:
    return partial(attribute, name=name)


def _text(name: str) -> Callable[[pa.Table], Values]:
    return lambda table: text_values(column(table, name))


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
POINTER_COLUMN = "event_id"
NUMBER_STEP_BITS = 8


def numbers(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    """Return a number or time of each row, ABSENT where there is none.

    A number that is ABSENT itself becomes the one below it. No query can tell the two apart: its numbers end at 2^62.
    """
    column = table.column(name).cast(pa.int64())
    least = pc.min_element_wise(column, number(ABSENT - 1), skip_nulls=False)
    return integers(least.fill_null(number(ABSENT)), np.int64)


def identifier_fields(attributes: Iterable[str]) -> list[SearchField]:
    """Return the fields of whole terms, those of the chosen attributes included."""
    chosen = [
        SearchField(ATTRIBUTE_PREFIX + name, f"the attribute {name} after the event", _attribute(name))
        for name in attributes
    ]
    return [*IDENTIFIER_FIELDS, *chosen]


def identifier() -> fields.FieldType:
    """Return the type of a field of whole, lower-cased terms."""
    return fields.ID(analyzer=IDTokenizer() | LowercaseFilter())


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


def whoosh_schema(attributes: Iterable[str], ranges: Iterable[str] = (*TIME_FIELDS, *NUMBER_FIELDS)) -> fields.Schema:
    """Return the schema of a shard: stock Whoosh types only, so that stock Whoosh opens it.

    Numbers and times are columns; those in `ranges` have terms as well, so that stock Whoosh finds ranges of them.
    """
    schema = fields.Schema()
    for field in identifier_fields(attributes):
        schema.add(field.name, identifier())
    schema.add(TEXT_FIELD.name, fields.TEXT(analyzer=WORDS, phrase=True, stored=False))
    chosen = set(ranges)
    for name in (*TIME_FIELDS, *NUMBER_FIELDS):
        # Signed: Whoosh answers unsigned ranges wrongly. A step of 8 bits: 8 terms a number instead of 16.
        number = fields.NUMERIC(int, 64, signed=True, shift_step=NUMBER_STEP_BITS, sortable=True)
        schema.add(name, number if name in chosen else fields.COLUMN(NumericColumn("q", default=ABSENT)))
    schema.add(POINTER_COLUMN, fields.COLUMN(NumericColumn("Q")))
    return schema


def parse_time(text: str) -> int:
    """Return milliseconds since the epoch of an ISO 8601 date or time (UTC where no zone is given) or of a number.

    Raises:
        InvalidInputError: it is neither.
    """
    if text.lstrip("-").isdigit() and len(text) > len("20260131"):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(
            f"time {text!r}: expected ISO 8601, such as 2026-01-31 or 2026-01-31T09:30:00, ms since the epoch, "
            "or English, such as yesterday, '3 hours ago' or '5 march 2026'."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
