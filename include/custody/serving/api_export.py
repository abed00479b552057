"""Events as a stream: JSON lines, Arrow or CSV. A page at a time is read, so that a slow client holds no more.

JSON lines end with a line that counts the events and has a digest of all lines before, so that a cut is seen. Arrow's
stream has its own end, and CSV none.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from custody.format.csv_cells import plain_cell
from custody.model import EVENT_SCHEMA, to_batch
from custody.read.search import StoredEvent
from custody.read.time_travel import AsOf, Revisions
from custody.repository import Repository
from custody.serving.event_document import event_document

PAGE_EVENTS = 250
"""Few: while the values of a page become Python's, no other thread of the process goes on."""
PIECE_BYTES = 64 << 10
_COLUMNS = (
    "event_id",
    "event_type",
    "event_time",
    "component_id",
    "component_type",
    "component_name",
    "flowfile_uuid",
    "file_size",
    "transit_uri",
    "relationship",
    "details",
    "source_node",
    "source_ordinal",
)
Page = list[StoredEvent]


@dataclass
class _End:
    """What is known when all events were given out."""

    events: int = 0
    lost: int = 0
    notices: tuple[str, ...] = ()
    as_of: Revisions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExportKind:
    """A form of a stream: how pages become bytes."""

    media_type: str
    encode: Callable[[Iterator[Page], _End], Iterator[bytes]]


def event_stream(
    repository: Repository, kind: ExportKind, query: str, writer: str | None, as_of: AsOf | None
) -> Iterator[bytes]:
    """Yield the events of a query as bytes, the oldest first.

    Raises:
        CustodyError: as `Repository.search`; before the first piece where the query cannot be read.
    """
    end = _End()

    def pages() -> Iterator[Page]:
        cursor = None
        while True:
            found = repository.search(
                query, limit=PAGE_EVENTS, oldest_first=True, cursor=cursor, writer=writer, as_of=as_of
            )
            end.events += len(found.events)
            end.lost += found.lost
            end.notices = found.notices or end.notices
            # Each page is of its own moment, and the last one's has the events of all.
            end.as_of = found.as_of
            yield list(found.events)
            cursor = found.cursor
            if cursor is None:
                return

    return kind.encode(pages(), end)


def small_pieces(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces that a server passes on at once: others are answered between any two of them."""
    for piece in pieces:
        for begin in range(0, len(piece), PIECE_BYTES):
            yield piece[begin : begin + PIECE_BYTES]


def _json_lines(pages: Iterator[Page], end: _End) -> Iterator[bytes]:
    digest = hashlib.sha256()
    encoder = msgspec.json.Encoder()
    for page in pages:
        documents = [{"writer": stored.writer, "event": event_document(stored.event)} for stored in page]
        lines = encoder.encode_lines(documents)
        digest.update(lines)
        yield lines
    last = {
        "end": True,
        "events": end.events,
        "lost": end.lost,
        "as_of": end.as_of,
        "digest": f"sha-256:{digest.hexdigest()}",
        "notices": end.notices,
    }
    yield encoder.encode(last) + b"\n"


def _arrow(pages: Iterator[Page], _: _End) -> Iterator[bytes]:
    schema = pa.schema([pa.field("writer", pa.string(), nullable=False), *EVENT_SCHEMA])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as stream:
        for page in pages:
            batch = to_batch([stored.event for stored in page], 0)
            ids = pa.array([stored.event.event_id for stored in page], EVENT_SCHEMA.field(0).type)
            columns = [pa.array([stored.writer for stored in page], pa.string()), ids, *batch.columns[1:]]
            stream.write_batch(pa.record_batch(columns, schema=schema))
            yield _taken(sink)
    yield _taken(sink)


def _csv(pages: Iterator[Page], _: _End) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("writer", *_COLUMNS, "attributes"))
    for page in pages:
        for stored in page:
            values = [getattr(stored.event, name) for name in _COLUMNS]
            attributes = msgspec.json.encode(stored.event.attributes).decode()
            writer.writerow([csv_cell(value) for value in (stored.writer, *values, attributes)])
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()


def csv_cell(value: object) -> object:
    """Return a value as a cell of CSV that no table program takes for a formula."""
    return plain_cell(value) if isinstance(value, str) else value


def _taken(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data


EXPORTS = {
    "ndjson": ExportKind("application/x-ndjson", _json_lines),
    "arrow": ExportKind("application/vnd.apache.arrow.stream", _arrow),
    "csv": ExportKind("text/csv; charset=utf-8", _csv),
}
