"""The body of a delivery: bytes in one of four encodings become outcomes, or columns without a Python object an event.

An Arrow stream is checked in columns; its good rows stay columns. Only a row that names a content becomes an event, for
it gets its claim.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.capture import (
    Accepted,
    CaptureLimits,
    ColumnBatch,
    Context,
    Format,
    InputPlace,
    Outcome,
    Rejected,
    SplitText,
    detect,
    read_batches,
    read_stream,
    split_text,
)
from custody.capture.custody_json import (
    CONTENT_KEY,
    SOURCE_FORMAT,
    UNNAMED_NODE,
    batch_ordinals,
    check_content_name,
    event_and_content,
    with_ordinal,
)
from custody.capture.encodings import GZIP
from custody.capture.formats import DETECT_BYTES
from custody.capture.own_claims import without_refused_rows
from custody.capture.validate import rejected, validate_element
from custody.errors import InvalidInputError
from custody.model import EVENT_SCHEMA, Event, EventProblem, to_events
from custody.serving.access import producer_named
from custody.serving.arrow_body import bounded_table
from custody.serving.http_requests import BodyRefusedError

ARROW = "application/vnd.apache.arrow.stream"
AVRO = frozenset({"avro/binary", "application/avro", "application/vnd.apache.avro"})
JSON = frozenset({"application/json", "application/x-ndjson", "application/ndjson", "application/jsonl", ""})
BAD_ROWS_MAX = 1000
"""A body of columns with more bad rows is refused as a whole: each is written as JSON."""
NODES_MAX = 1000
"""Sources of one body of columns: each costs a look-up of its own."""
COLUMN_BYTES = 128 << 10
"""A body of other formats that is as long becomes columns: of fewer events these take longer than rows."""
_BATCH_EVENTS = 1 << 16
_AVRO_BATCH_EVENTS = 1 << 12
"""Each bad record of a batch is held with the header of its file."""
_CONTENT_NAME = re.compile(rb"%b|\\u00[2-7]" % CONTENT_KEY.encode())
"""What the key of a content looks like, as it is or with escapes of its characters."""
_COLUMNS = EVENT_SCHEMA.remove(0).names


@dataclass(frozen=True, slots=True)
class BodyHead:
    """What the head of a request says of its body."""

    media_type: str
    is_zipped: bool = False
    format: Format | None = None
    """Of JSON; None where its keys decide."""
    node: str | None = None
    """Names the source of events that do not name it themselves."""
    zone: str | None = None
    """Of the clock of a NiFi, as that of `Context`."""
    key: str | None = None
    """Of the batch, which numbers its events that have no ordinal."""
    is_strict: bool = False
    origin: str = ""
    sender: str = "-"
    """The name of the token or certificate that delivers it."""

    @property
    def producer(self) -> str | None:
        """Who delivers; None where nobody has to prove anything."""
        return producer_named(self.sender)


@dataclass(frozen=True, slots=True)
class EventBody:
    """What a body holds."""

    format: Format
    outcomes: Sequence[Outcome]
    contents: Mapping[int, str] = field(default_factory=dict)
    """The digests of contents, by the number of the outcome whose event names one."""
    events: pa.RecordBatch | None = None
    """Those that stay columns, as `require_valid_columns` returns them."""
    rows: npt.NDArray[np.int64] | None = None
    """Where each of them was in the body, from 0."""
    text: SplitText | None = None
    """What is left to be read by whoever stores it, together with the bodies of others."""
    batches: Sequence[ColumnBatch] = ()
    """Those that were read as columns."""


def read_body(body: bytes, head: BodyHead, limits: CaptureLimits) -> EventBody:
    """Return what a body holds; pieces of it that cannot be read are rejected outcomes.

    Raises:
        InvalidInputError: nothing of it can be read, or it has more than a body may have.
        BodyRefusedError: it has more events, or takes more bytes, than a body may.
    """
    if head.media_type == ARROW:
        return _of_arrow(body, head, limits)
    if head.media_type in AVRO:
        return _of_other_format(body, head, limits, Format.NIFI_AVRO)
    format = head.format or detect(body[:DETECT_BYTES])
    return _of_json(body, head, limits) if format is Format.CUSTODY else _of_other_format(body, head, limits, format)


def _of_other_format(body: bytes, head: BodyHead, limits: CaptureLimits, format: Format) -> EventBody:
    context = Context(head.node, zone=head.zone)
    if len(body) < COLUMN_BYTES:
        read = read_stream(io.BytesIO(body), limits, format=format, context=context)
        return EventBody(format, list(_at_most(limits.pieces_max, read)))
    outcomes: list[Outcome] = []
    batches: list[ColumnBatch] = []
    size = _AVRO_BATCH_EVENTS if format is Format.NIFI_AVRO else _BATCH_EVENTS
    pieces = 0
    for part in read_batches(io.BytesIO(body), limits, batch_events=size, format=format, context=context):
        if isinstance(part, ColumnBatch):
            batches.append(part)
            pieces += part.events.num_rows + len(part.rejected)
        else:
            outcomes += part
            pieces += len(part)
        if pieces > limits.pieces_max:
            raise _too_many(limits.pieces_max)
    return EventBody(format, outcomes, batches=batches)


def _at_most(count: int, outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """Yield outcomes, as long as they are no more than that."""
    for number, outcome in enumerate(outcomes):
        if number >= count:
            raise _too_many(count)
        yield outcome


def _too_many(count: int) -> BodyRefusedError:
    return BodyRefusedError(413, "events", f"expected at most {count} events in a body (capture.body_events_max)")


def _of_json(body: bytes, head: BodyHead, limits: CaptureLimits) -> EventBody:
    context = Context(head.node, is_numbered=head.key is None)
    text = split_text(body, limits, Format.CUSTODY, context, limits.pieces_max + 1)
    if len(text.pieces) > limits.pieces_max:
        raise _too_many(limits.pieces_max)
    if head.key is not None:
        text = replace(text, ordinals=batch_ordinals(head.key, len(text.pieces), head.producer))
    # What names contents gets them before it is stored, and what is refused as a whole has to be read before.
    if not head.is_strict and not body.startswith(GZIP) and _CONTENT_NAME.search(body) is None:
        return EventBody(Format.CUSTODY, (), text=text)
    outcomes: list[Outcome] = []
    contents: dict[int, str] = {}
    for number, element in enumerate(text.pieces):
        if isinstance(element, Rejected):
            outcomes.append(element)
            continue
        names: list[str | None] = []

        def read(raw: bytes, context: Context, names: list[str | None] = names) -> Sequence[Event]:
            event, sha256 = event_and_content(raw, context)
            names.append(sha256)
            return (event,)

        [outcome] = validate_element(element.raw, element.place, read, context)
        if names and names[0] is not None and isinstance(outcome, Accepted):
            contents[number] = names[0]
        outcomes.append(outcome if text.ordinals is None else with_ordinal(outcome, text.ordinals[number]))
    return EventBody(Format.CUSTODY, outcomes, contents)


def _of_arrow(body: bytes, head: BodyHead, limits: CaptureLimits) -> EventBody:
    table = _with_sources(_table(body, limits), head)
    digests = None
    if CONTENT_KEY in table.schema.names:
        digests = table.column(CONTENT_KEY).cast(pa.string())
        table = table.drop_columns([CONTENT_KEY])
    events, problems = without_refused_rows(table)
    if len(problems) > BAD_ROWS_MAX:
        raise InvalidInputError(f"expected at most {BAD_ROWS_MAX} bad rows, got {len(problems)}, {_said(problems)}")
    bad = [
        Rejected(InputPlace(row, 0), problem, _row_as_json(table.slice(row, 1))) for row, problem in problems.items()
    ]
    rows = np.delete(np.arange(table.num_rows), list(problems))
    if digests is None or digests.null_count == len(digests):
        return EventBody(Format.CUSTODY, bad, {}, events, rows)
    has_content = pc.is_valid(digests.combine_chunks().take(pa.array(rows)))
    named, plain = events.filter(has_content), events.filter(pc.invert(has_content))
    mask = has_content.to_numpy(zero_copy_only=False)
    outcomes: list[Outcome] = []
    contents: dict[int, str] = {}
    for event, row in zip(to_events(named), rows[mask].tolist(), strict=True):
        sha256 = digests[row].as_py()
        place, raw = InputPlace(row, 0), msgspec.json.encode(event)
        try:
            check_content_name(sha256)
        except InvalidInputError as error:
            outcomes.append(rejected(place, "bad-value", str(error), raw))
            continue
        contents[len(outcomes)] = sha256
        outcomes.append(Accepted(event, place, raw))
    return EventBody(Format.CUSTODY, [*outcomes, *bad], contents, plain, rows[~mask])


def _table(body: bytes, limits: CaptureLimits) -> pa.Table:
    table = bounded_table(body, limits.pieces_max, limits.file_bytes_max)
    names = table.schema.names
    unknown = sorted({*names} - {*_COLUMNS, "event_id", CONTENT_KEY})
    if unknown or len(set(names)) < len(names):
        raise InvalidInputError(
            f"columns: expected each at most once out of {', '.join(_COLUMNS)} and {CONTENT_KEY}, "
            f"got {', '.join(unknown or names)}"
        )
    # Another repository's ids mean nothing here, and who delivers is told by the token alone.
    return table.drop_columns([name for name in ("event_id", "delivered_by") if name in names])


def _with_sources(table: pa.Table, head: BodyHead) -> pa.Table:
    """Return a table in which every event has a source and an ordinal.

    Raises:
        InvalidInputError: ordinals are missing, and no key numbers the batch.
    """
    count = table.num_rows
    for name, value in (("source_format", SOURCE_FORMAT), ("source_node", head.node or UNNAMED_NODE)):
        table = _filled(table, name, pa.repeat(pa.scalar(value, pa.string()), count))
    nodes = pc.count_distinct(table.column("source_node")).as_py()
    if nodes > NODES_MAX:
        raise InvalidInputError(f"source_node: expected at most {NODES_MAX} sources in a body, got {nodes}")
    has_all = "source_ordinal" in table.schema.names and table.column("source_ordinal").null_count == 0
    if has_all:
        return table
    if head.key is None:
        raise InvalidInputError(
            "source_ordinal: expected the source's own number of each event, or the header Idempotency-Key, which "
            "numbers the events of a batch"
        )
    ordinals = batch_ordinals(head.key, count, head.producer)
    return _filled(table, "source_ordinal", pa.array(np.arange(ordinals.start, ordinals.stop), pa.int64()))


def _filled(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """Return a table whose column has these values where it has none."""
    place = table.schema.get_field_index(name)
    if place < 0:
        return table.append_column(name, values)
    column = table.column(name)
    try:
        whole = pc.if_else(pc.is_valid(column), column.cast(values.type), pa.chunked_array([values]))
    except pa.ArrowException as error:
        raise InvalidInputError(f"column {name}: expected {values.type}, got {column.type} ({error})") from None
    return table.set_column(place, name, whole)


def _said(problems: Mapping[int, EventProblem]) -> str:
    row, problem = next(iter(problems.items()))
    return f"row {row} first: {problem.message}"


def _row_as_json(row: pa.Table) -> bytes:
    """Return one row for the quarantine, as JSON of the same keys."""
    values = {}
    for name in row.schema.names:
        column = row.column(name)
        value = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()[0]
        if value is not None:
            values[name] = dict(value) if pa.types.is_map(column.type) else value
    return msgspec.json.encode(values)
