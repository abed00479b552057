"""The searchable fields: what each is called in a query, where its terms come from, and its Whoosh type.

Terms of identifier fields are lower-cased as a whole, so that search ignores case; `details` is split into words.
Numbers are signed: Whoosh answers unsigned ranges wrongly (2.7.4 and 2.7.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from whoosh import fields
from whoosh.analysis import IDTokenizer, LowercaseFilter, SimpleAnalyzer
from whoosh.columns import NumericColumn

from custody.errors import InvalidInputError

ATTRIBUTE_PREFIX = "attribute."
_WORDS = SimpleAnalyzer()
TERM_BYTES_MAX = 4096  # a longer value is found by its first bytes; Whoosh itself stops at 64 KiB

Terms = list[list[str]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SearchField:
    """One field of the index; `terms` gives the list of terms of each row of a table."""

    name: str
    help: str
    terms: Callable[[pa.Table], Terms]


def _column(name: str) -> Callable[[pa.Table], Terms]:
    def terms(table: pa.Table) -> Terms:
        return [[] if value is None else [value] for value in table.column(name).to_pylist()]

    return terms


def _uuids(table: pa.Table) -> Terms:
    """Give an event's own FlowFile and all that it came from or led to."""
    rows = zip(
        table.column("flowfile_uuid").to_pylist(),
        table.column("parent_uuids").to_pylist(),
        table.column("child_uuids").to_pylist(),
        strict=True,
    )
    return [list(dict.fromkeys([own, *parents, *children])) for own, parents, children in rows]


def _claim(part: str) -> Callable[[pa.Table], Terms]:
    def terms(table: pa.Table) -> Terms:
        columns = [
            pc.struct_field(table.column(name), part).to_pylist()
            for name in ("content_claim", "previous_content_claim")
        ]
        rows = zip(*columns, strict=True)
        return [list(dict.fromkeys(value for value in row if value is not None)) for row in rows]

    return terms


def _attribute(name: str) -> Callable[[pa.Table], Terms]:
    def terms(table: pa.Table) -> Terms:
        rows = zip(
            table.column("previous_attributes").to_pylist(),
            table.column("updated_attributes").to_pylist(),
            strict=True,
        )
        return [_current(name, dict(previous), dict(updated)) for previous, updated in rows]

    return terms


def _current(name: str, previous: dict[str, str | None], updated: dict[str, str | None]) -> list[str]:
    value = updated[name] if name in updated else previous.get(name)
    return [] if value is None else [value]


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
TEXT_FIELD = SearchField("details", "words of the event's details", _column("details"))
TIME_FIELDS = {
    "event_time": "time of the event",
    "lineage_start_date": "when the oldest ancestor entered the flow",
}
NUMBER_FIELDS = {
    "file_size": "bytes of the content",
    "source_ordinal": "the event's number in its source",
}
POINTER_COLUMN = "event_id"


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


def whoosh_schema(attributes: Iterable[str]) -> fields.Schema:
    """Return the schema of a shard: stock Whoosh types only, so that stock Whoosh opens it."""
    schema = fields.Schema()
    for field in identifier_fields(attributes):
        schema.add(field.name, identifier())
    schema.add(TEXT_FIELD.name, fields.TEXT(analyzer=_WORDS, phrase=True, stored=False))
    for name in (*TIME_FIELDS, *NUMBER_FIELDS):
        schema.add(name, fields.NUMERIC(int, 64, signed=True, shift_step=8, sortable=True))
    schema.add(POINTER_COLUMN, fields.COLUMN(NumericColumn("Q")))
    return schema


def words(text: str) -> list[str]:
    """Return the indexed words of a text field, in their order."""
    return [token.text for token in _WORDS(text)]


def term(value: str) -> str:
    """Return the indexed form of a value of an identifier field."""
    return value.encode("utf-8", "replace")[:TERM_BYTES_MAX].decode("utf-8", "ignore").lower()


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
            f"time {text!r}: expected ISO 8601, such as 2026-01-31 or 2026-01-31T09:30:00, or ms since the epoch."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
