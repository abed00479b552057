"""Words of a text, as Whoosh's simple analyzer finds them: letters, digits, `_` and `*`, with single dots in between.

ASCII texts are cut all at once, by what kind of character stands where; the others by the analyzer itself.

The searchable fields: what each is called in a query, where its terms come from, and its Whoosh type.

Terms of identifier fields are lower-cased as a whole, so that search ignores case; `details` is split into words.
Numbers are signed: Whoosh answers unsigned ranges wrongly (2.7.4 and 2.7.5).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from whoosh import fields
from whoosh.analysis import IDTokenizer, LowercaseFilter, SimpleAnalyzer
from whoosh.columns import NumericColumn

from custody.errors import ConfigurationError, InvalidInputError
from custody.index.arrays import flags, integers, number
from custody.index.arrays import texts as to_texts
from custody.index.terms import Rows, TermValues, attribute, column, elements, whole

WORDS = SimpleAnalyzer()

_IS_WORD = np.array([chr(code).isalnum() or chr(code) in "_*" for code in range(128)] + [False] * 128)
_DOT = ord(".")


def words(text: str) -> list[str]:
    """Return the indexed words of a text, in their order."""
    return [token.text for token in WORDS(text)]


def text_values(texts: pa.StringArray) -> TermValues:
    """Return the words of each row's text and where in the text they stand; each distinct text is cut once."""
    encoded = pc.dictionary_encode(texts)
    distinct = encoded.dictionary
    plain = flags(pc.string_is_ascii(distinct))
    found = _plain_words(distinct, plain) if plain.all() else _any_words(distinct)
    kept = np.flatnonzero(flags(encoded.indices.is_valid()))
    code_of = integers(encoded.indices.drop_null(), np.int32)
    # The words of text t are first[t] to first[t + 1]; each row gets those of its text.
    first = np.searchsorted(found.rows, np.arange(len(distinct) + 1))
    counts = (first[1:] - first[:-1])[code_of]
    begins = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(begins, counts)
    source = np.repeat(first[:-1][code_of], counts) + within
    return TermValues(found.terms, found.codes[source], np.repeat(kept, counts), within.astype(np.int32))


def _plain_words(texts: pa.StringArray, plain: npt.NDArray[np.bool_]) -> TermValues:
    """Return the words of ASCII texts; the rows are the texts' numbers and go up."""
    texts = pc.ascii_lower(pa.concat_arrays([texts]))
    _, offsets_buffer, characters = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(texts) + 1).astype(np.int64)
    data = np.frombuffer(characters or b"", np.uint8)[: offsets[-1]]
    begin, end = _bounds(data, offsets)
    words = pa.StringArray.from_buffers(*_sliced(data, begin, end))
    encoded = words.dictionary_encode()
    rows = np.searchsorted(offsets, begin, side="right") - 1
    return TermValues(encoded.dictionary, integers(encoded.indices, np.int32), rows)


def _bounds(data: npt.NDArray[np.uint8], offsets: Rows) -> tuple[Rows, Rows]:
    """Return where words begin and end; no word goes over the end of a text."""
    if not len(data):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    inner = offsets[(offsets > 0) & (offsets < len(data))]
    is_word = _IS_WORD[data]
    has_before = np.concatenate([[False], is_word[:-1]])
    has_before[inner] = False
    has_after = np.concatenate([is_word[1:], [False]])
    has_after[inner - 1] = False
    inside = is_word | ((data == _DOT) & has_before & has_after)
    before = np.concatenate([[False], inside[:-1]])
    before[inner] = False
    after = np.concatenate([inside[1:], [False]])
    after[inner - 1] = False
    return np.flatnonzero(inside & ~before), np.flatnonzero(inside & ~after) + 1


def _sliced(data: npt.NDArray[np.uint8], begin: Rows, end: Rows) -> tuple[int, pa.Buffer, pa.Buffer]:
    """Return the length and the buffers of a string array of some pieces of the data, which do not overlap."""
    lengths = end - begin
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    mark = np.zeros(len(data) + 1, np.int8)
    mark[begin] += 1
    np.add.at(mark, end, -1)
    characters = data[np.cumsum(mark[:-1], dtype=np.int8).astype(np.bool_)]
    return len(begin), pa.py_buffer(offsets.tobytes()), pa.py_buffer(characters.tobytes())


def _any_words(texts: pa.StringArray) -> TermValues:
    """Return the words of texts, one text after the other."""
    found = [words(text) for text in texts.to_pylist()]
    flat = to_texts([word for row in found for word in row]).dictionary_encode()
    rows = np.repeat(np.arange(len(found)), [len(row) for row in found])
    return TermValues(flat.dictionary, integers(flat.indices, np.int32), rows)


ATTRIBUTE_PREFIX = "attribute."
ABSENT = (1 << 63) - 1
"""What a number column holds where there is no number; Whoosh's own choice for signed numbers."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS = re.compile(r"-?[0-9]{9,40}")  # eight digits are a day


@dataclass(frozen=True, slots=True)
class SearchField:
    """One field of the index; `values` gives its terms in the rows of a table."""

    name: str
    help: str
    values: Callable[[pa.Table], TermValues]


def _column(name: str) -> Callable[[pa.Table], TermValues]:
    return lambda table: whole(column(table, name))


def _uuids(table: pa.Table) -> TermValues:
    """Give an event's own FlowFile and all that it came from or led to."""
    related = [elements(column(table, name)) for name in ("parent_uuids", "child_uuids")]
    return TermValues.joined([whole(column(table, "flowfile_uuid")), *related])


def _claim(part: str) -> Callable[[pa.Table], TermValues]:
    def values(table: pa.Table) -> TermValues:
        claims = [pc.struct_field(column(table, name), part) for name in ("content_claim", "previous_content_claim")]
        return TermValues.joined([whole(claim) for claim in claims])

    return values


def _attribute(name: str) -> Callable[[pa.Table], TermValues]:
    return partial(attribute, name=name)


def _text(name: str) -> Callable[[pa.Table], TermValues]:
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
STANDARD_FIELDS = (*(_field.name for _field in IDENTIFIER_FIELDS), TEXT_FIELD.name)
"""The fields that can be left out of an index; times and numbers are always columns of it."""
NUMBER_STEP_BITS = 8


def numbers(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    """Return a number or time of each row, ABSENT where there is none.

    A number that is ABSENT itself becomes the one below it. No query can tell the two apart: its numbers end at 2^62.
    """
    column = table.column(name).cast(pa.int64())
    least = pc.min_element_wise(column, number(ABSENT - 1), skip_nulls=False)
    return integers(least.fill_null(number(ABSENT)), np.int64)


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


def identifier() -> fields.FieldType:
    """Return the type of a field of whole, lower-cased terms."""
    return fields.ID(analyzer=IDTokenizer() | LowercaseFilter())


@dataclass(frozen=True, slots=True)
class IndexedFields:
    """What an index has: standard fields, attributes, and the number fields that get terms besides their column."""

    attributes: tuple[str, ...] = ()
    standard: tuple[str, ...] = STANDARD_FIELDS
    ranges: tuple[str, ...] = ()

    @classmethod
    def checked(cls, attributes: Iterable[str], standard: Iterable[str], ranges: Iterable[str]) -> IndexedFields:
        """Return it with the names of fields in a fixed order.

        Raises:
            ConfigurationError: a field is not known.
        """
        return cls(tuple(dict.fromkeys(attributes)), standard_fields(standard), number_fields(ranges))

    @property
    def searched(self) -> list[SearchField]:
        """The fields that have terms, but for numbers."""
        return searched_fields(self.attributes, self.standard)

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
        schema.add(field.name, fields.TEXT(analyzer=WORDS, phrase=True, stored=False) if is_text else identifier())
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
    if _MILLISECONDS.fullmatch(text):
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
