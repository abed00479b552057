"""Chunks: the notifications that a run of the sink writes at once, and their plan, which any process can make.

The lines of a chunk follow from its events, their contents, the parameters and the columns that destinations have. So a
`Chunk` names its events, and whoever can read the repository plans it with the same result. Only the sink itself sees
how long files are, commits and appends. It takes a plan that was made elsewhere as far as it still holds; a chunk that
cannot be read whole elsewhere has none, and its own process finds out what is the matter.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import msgspec

from custody.errors import CorruptionError, CustodyError, NotFoundError
from custody.model import Event
from custody.ngsi.parameters import Parameters
from custody.ngsi.rendering import ColumnsByLocation
from custody.ngsi_sink.batch_plan import (
    BatchPlan,
    ContentMissing,
    ContentUnreadable,
    SourceRecord,
    part_name,
    plan_batch,
)
from custody.ngsi_sink.notifications import NotificationReader, received_ms
from custody.ngsi_sink.target import Failure

EVENT_WORK_BYTES = 2 << 10
"""What an event counts at least where work is measured in bytes: reading and rendering it takes some 80 µs, however
small it is, so that the default of `spark.driver_bytes_max` is as much work as the start of a session of Spark."""


class NotificationSource(Protocol):
    """The events of a repository, of every writer, as the sink reads them."""

    def bounds(self, cursors: Mapping[str, int] | None = None) -> Mapping[str, int]:
        """Return by writer the event id up to which nothing can come any more; below `cursors` nothing is asked for."""
        ...

    def notified(self, writer: str, first: int, bound: int) -> Iterator[Event]:
        """Yield the events of notifications with ids from `first` up to, not with, `bound`, in their order."""
        ...

    def get(self, writer: str, event_ids: Sequence[int]) -> Sequence[Event]:
        """Return the events with these ids that still exist."""
        ...

    def contents(self) -> Callable[[Event], bytes]:
        """Return a function that reads the content of an event; call it with events one after the other.

        Raises:
            NotFoundError: it expired, was erased, or never was here.
            CorruptionError: it is damaged.
        """
        ...


class WriterEvent(msgspec.Struct, frozen=True, gc=False):
    """An event with the name of its writer."""

    writer: str
    event: Event

    @property
    def received_ms(self) -> int:
        """When it arrived."""
        return received_ms(self.event)


class Span(msgspec.Struct, frozen=True, array_like=True):
    """The events of a writer with ids from `first` up to, not with, `upto`."""

    writer: str
    first: int
    upto: int


class Chunk(msgspec.Struct, frozen=True):
    """Some events in the order in which they are written; `sha256` is that of their names."""

    spans: tuple[Span, ...]
    events: int
    sha256: str
    bytes: int
    """Of their contents."""

    @classmethod
    def of(cls, events: Sequence[WriterEvent], content_bytes: int) -> Chunk:
        """Return the chunk of some events, of which those of a writer follow each other."""
        return cls(spans_of(events), len(events), _names_sha256(events), content_bytes)


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """A chunk with a plan that another process made when destinations had certain columns."""

    chunk: Chunk
    plan: BatchPlan
    columns: ColumnsByLocation

    def holds(self, cursors: Mapping[str, int], columns: ColumnsByLocation) -> bool:
        """Whether a sink with these cursors and columns would make the same plan."""
        if any(span.first < cursors.get(span.writer, 0) for span in self.chunk.spans):
            return False  # a part of the events is written
        locations = self.plan.additions.columns
        return all(self.columns.get(location, ()) == columns.get(location, ()) for location in locations)


class ChunkPlanner(Protocol):
    """Plans chunks in other processes, several at a time."""

    @property
    def starts_at_bytes(self) -> int:
        """So much work a run does itself before it hands chunks over: less is not worth the way there."""
        ...

    @property
    def chunks_at_once(self) -> int:
        """How many chunks are handed over together."""
        ...

    def plan(self, chunks: Sequence[Chunk], columns: ColumnsByLocation) -> Future[Sequence[BatchPlan | None]]:
        """Begin to plan some chunks, as `plan_chunk`; the result has a plan for each of them, or None."""
        ...


def spans_of(events: Iterable[WriterEvent]) -> tuple[Span, ...]:
    """Return the spans of some events, of which those of a writer follow each other."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for item in events:
        first.setdefault(item.writer, item.event.event_id)
        last[item.writer] = item.event.event_id
    return tuple(Span(writer, first[writer], last[writer] + 1) for writer in sorted(first))


def work_bytes(events: int, content_bytes: int) -> int:
    """Return how much work some events with their contents are, in bytes, as steps size their units."""
    return max(content_bytes, events * EVENT_WORK_BYTES)


def merged(source: NotificationSource, spans: Iterable[Span]) -> Iterator[WriterEvent]:
    """Yield the notified events of some spans, one of a writer, in the order of their arrival."""
    streams = [_of(source, span) for span in sorted(spans, key=lambda span: span.writer)]
    # The order of ids within a writer stays, even where its clock was set back: a merge never reorders one stream. It
    # looks at the next event of each stream only, so that a merge of what a piece of it has gives that piece again.
    return heapq.merge(*streams, key=lambda item: item.received_ms)


def source_records(
    events: Iterable[WriterEvent], source: NotificationSource, parameters: Parameters
) -> list[SourceRecord]:
    """Return what is to be written of some events, each with its content, or with the reason why there is none."""
    # A new one for each chunk: the contents that it mapped are given back when the chunk is done.
    reader = NotificationReader(source.contents(), parameters)
    records: list[SourceRecord] = []
    for item in events:
        body = b""
        try:
            body = reader.body(item.event)
            records += [SourceRecord(item.writer, item.event, record, body) for record in reader.records(item.event)]
        except NotFoundError as error:
            records.append(SourceRecord(item.writer, item.event, ContentMissing(str(error))))
        except CorruptionError as error:
            records.append(SourceRecord(item.writer, item.event, ContentUnreadable(str(error)), body))
    return records


def plan_chunk(
    source: NotificationSource, parameters: Parameters, chunk: Chunk, columns: ColumnsByLocation
) -> BatchPlan | None:
    """Return the plan of a chunk, as if all of its files could be reached; None where it cannot be read whole here.

    What is missing or damaged for this process may be there for the sink's own.
    """
    try:
        events = list(merged(source, chunk.spans))
        if len(events) != chunk.events or _names_sha256(events) != chunk.sha256:
            return None
        records = source_records(events, source, parameters)
    except CustodyError:
        return None
    if any(isinstance(record.content, ContentMissing | ContentUnreadable) for record in records):
        return None
    return plan_batch(records, parameters, columns, _reach_all, part=part_name(records))


def _of(source: NotificationSource, span: Span) -> Iterator[WriterEvent]:
    return (WriterEvent(span.writer, event) for event in source.notified(span.writer, span.first, span.upto))


def _reach_all(_: Iterable[str]) -> dict[str, Failure]:
    return {}


def _names_sha256(events: Iterable[WriterEvent]) -> str:
    names = "".join(f"{item.writer}:{item.event.event_id}\n" for item in events)
    return hashlib.sha256(names.encode()).hexdigest()
