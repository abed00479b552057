"""One run of the sink: notifications become batches, and batches become files.

Events are read writer by writer from the sink's cursors on, merged by the time of their arrival, and cut into batches
by `batch_size` and `batch_timeout`. Batches that are due by now are written, several small ones in one chunk: the lines
are the same, the syncs fewer. Batches that are not due yet wait for the next run. Memory holds one chunk at a time.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from custody.clock import Clock
from custody.ngsi.naming import Destination
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink import resubmission
from custody.ngsi_sink.batch_plan import BatchResult, SourceRecord
from custody.ngsi_sink.chunk import (
    Chunk,
    ChunkPlanner,
    NotificationSource,
    PlannedChunk,
    Span,
    WriterEvent,
    merged,
    source_records,
    spans_of,
    work_bytes,
)
from custody.ngsi_sink.sink import Sink
from custody.quarantine import Quarantine
from custody.vfs import FileSystem
from custody.workspace import FILES_MAX

CHUNK_EVENTS, CHUNK_BYTES = 10_000, 16 << 20
"""The size of a chunk: more costs memory, less costs syncs."""
# Bounds memory whatever ngsi.batch_size is: the events of a batch are collected before it is known to be due.
_BATCH_EVENTS_MAX = 100_000
# Of contents whose plans are made elsewhere at a time: their lines come to this process, twice as many at most.
_WINDOW_BYTES = 64 << 20
_PROGRESS_SECONDS = 10.0
_LOGGER = logging.getLogger(__name__)
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class EventBatch(Generic[Item]):
    """Events that are written together, in the order of their arrival, and when they are due."""

    items: tuple[Item, ...]
    due_ms: int


def cut_batches(events: Iterable[tuple[int, Item]], *, size: int, timeout_ms: int) -> Iterator[EventBatch[Item]]:
    """Yield the batches of events that arrive at times in ascending order.

    A batch is due when it has `size` events, or `timeout_ms` after its first one, whichever comes first. An event that
    comes after that belongs to the next batch.
    """
    open_since, items = 0, list[Item]()
    for at_ms, item in events:
        if items and at_ms >= open_since + timeout_ms:
            yield EventBatch(tuple(items), open_since + timeout_ms)
            items = []
        if not items:
            open_since = at_ms
        items.append(item)
        if len(items) == size:
            yield EventBatch(tuple(items), at_ms)
            items = []
    if items:
        yield EventBatch(tuple(items), open_since + timeout_ms)


@dataclass(slots=True)
class SinkReport:
    """The counts of a run, and what went wrong."""

    events: int = 0
    """Notified entities that were taken."""
    batches: int = 0
    chunks: int = 0
    records: int = 0
    skipped: int = 0
    quarantined: int = 0
    deferred: int = 0
    unusable_files: int = 0
    """Files whose name something else has, or whose bytes are not what was committed."""
    files: int = 0
    bytes: int = 0
    resubmitted: int = 0
    """Entries of the quarantine that were submitted again and are written now."""
    planned_elsewhere: int = 0
    """Chunks whose lines another process made."""
    waiting: int = 0
    """Notified entities whose batch is not due yet."""
    due_ms: int | None = None
    """When that batch is due, if nothing fills it before; None where none waits."""
    bounds: dict[str, int] = field(default_factory=dict)
    """By writer, the event id up to which the run looked."""
    problems: list[str] = field(default_factory=list)
    destinations: dict[str, Destination] = field(default_factory=dict)
    """Those that got data, by location."""
    paths: dict[str, None] = field(default_factory=dict)
    """Of files that got lines, in their order, at most as many as a report names."""
    is_stopped: bool = False
    """Nothing at all of a chunk could be written: the run ended there, and the chunks behind it wait."""

    def add(self, result: BatchResult) -> None:
        """Count a chunk in."""
        self.chunks += 1
        self.records += result.records
        self.skipped += result.skipped
        self.quarantined += result.quarantined
        self.deferred += result.deferred
        self.unusable_files += result.unusable_files
        self.files += result.files
        self.bytes += result.bytes
        self.destinations.update((item.location, item) for item in result.destinations)
        self.paths.update(dict.fromkeys(result.paths[: max(FILES_MAX - len(self.paths), 0)]))
        if result.problem is not None:
            self.problems.append(result.problem)


def write_due(
    source: NotificationSource,
    sink: Sink,
    parameters: Parameters,
    clock: Clock,
    *,
    until_ms: int | None = None,
    on_chunk: Callable[[BatchResult], None] = lambda _: None,
    chunk_events: int = CHUNK_EVENTS,
    ids_unsaved_max: int = 0,
    planner: ChunkPlanner | None = None,
) -> SinkReport:
    """Write what is due, in chunks of as many batches as have `chunk_events` events.

    With `until_ms`, everything that arrived before this time is due, too; other batches wait until they are full or
    `batch_timeout` old. A run that wrote nothing and only passed over other events, no more than `ids_unsaved_max`,
    does not save how far it came. With a `planner`, chunks behind the first ones are planned in other processes, and
    what is written is the same.

    Durability: what the result counts survives power loss.

    Raises:
        StorageError: the disk of the sink, or of the repository, refused; do it again.
        SupersededError: another attempt took over.
    """
    run = _Run(source, sink, parameters, clock, on_chunk, planner)
    run.all(until_ms, chunk_events, ids_unsaved_max)
    return run.report


def next_due_ms(
    source: NotificationSource, cursors: Mapping[str, int], parameters: Parameters, now_ms: int
) -> int | None:
    """Return when the first batch behind the cursors is due, in ms since the epoch; None where nothing waits.

    A batch that is full or old by now was due in the past, and the same time is returned until it is written. Reads no
    more events than tell.
    """
    values = parameters.values
    arrivals = _arrivals(source, cursors, source.bounds(cursors), parameters, now_ms)
    first = next(arrivals, None)
    if first is None:
        return None
    due_ms = first[0] + values.batch_timeout * 1000
    if due_ms <= now_ms:
        return due_ms
    size = min(values.batch_size, _BATCH_EVENTS_MAX)
    filled = next(itertools.islice(itertools.chain([first], arrivals), size - 1, None), None)
    return due_ms if filled is None else min(due_ms, filled[0])


def resubmit(
    source: NotificationSource, sink: Sink, parameters: Parameters, fs: FileSystem, folder: Path, quarantine: Quarantine
) -> SinkReport:
    """Take the entries of the quarantine that a user marked; one that cannot be written stays, or comes back anew."""
    report = SinkReport()
    # A list, because marks are removed on the way.
    for key, name in list(resubmission.marks(fs, folder)):
        quarantined = sink.quarantined(name)
        if quarantined is not None:
            sources = [item.source for item in quarantined.notifications]
            records: list[SourceRecord] = []
            for writer in sorted({item.writer for item in sources}):
                ids = [item.event_id for item in sources if item.writer == writer]
                existing = source.get(writer, ids)
                # Retention deleted these events meanwhile: nothing is left to write of them.
                report.skipped += len(ids) - len(existing)
                records += source_records([WriterEvent(writer, event) for event in existing], source, parameters)
            # One commit lists the rows and takes the quarantined object off: no crash writes them twice or loses them.
            result = sink.write(records, {}, settles=[name])
            report.records += result.records
            report.files += result.files
            report.bytes += result.bytes
            report.destinations.update((item.location, item) for item in result.destinations)
            problem = result.problem
        else:
            problem = sink.retry_deferred(name)
        if problem is None:
            report.resubmitted += 1
        else:
            report.problems.append(problem)
        # Events that could not be written again are quarantined anew, under another key: this entry is done with either
        # way. Deferred bytes stay the same object, so their entry stays and only the mark goes.
        if quarantined is not None or problem is None:
            resubmission.settle(fs, folder, quarantine, key)
        else:
            resubmission.unmark(fs, folder, key)
    if report.resubmitted or report.problems:
        sink.save_cursors({})
    return report


@dataclass(frozen=True, slots=True)
class _Taken:
    """Events that are written at once."""

    items: list[WriterEvent]
    bytes: int
    """Of their contents, each counted once where neighbours share it."""
    batches: int
    """How many begin here."""


class _Run:
    """The state of one run over what is due."""

    def __init__(
        self,
        source: NotificationSource,
        sink: Sink,
        parameters: Parameters,
        clock: Clock,
        on_chunk: Callable[[BatchResult], None],
        planner: ChunkPlanner | None,
    ) -> None:
        self._source = source
        self._sink = sink
        self._parameters = parameters
        self._clock = clock
        self._on_chunk = on_chunk
        self._planner = planner
        self._logged = time.monotonic()
        self._cursors: dict[str, int] = {}
        self._waiting: EventBatch[WriterEvent] | None = None
        """The batch that is not due, once it is met."""
        self.report = SinkReport()

    def all(self, until_ms: int | None, chunk_events: int, ids_unsaved_max: int) -> None:
        """Write all batches that are due."""
        # Time and bounds are taken once: what arrives from here on waits for the next run, so that this one ends.
        now_ms = self._clock.now_ms()
        before = dict(self._sink.cursors)
        self.report.bounds = bounds = dict(self._source.bounds(before))
        if not self._chunks_written(self._chunks(bounds, now_ms, until_ms, chunk_events)):
            return
        pending: set[str] = set()
        if self._waiting is not None:
            self.report.waiting, self.report.due_ms = len(self._waiting.items), self._waiting.due_ms
            pending = {item.writer for item in self._waiting.items}
        # Up to the bounds there is nothing more, except of writers that have events in the batch that is not due.
        reached = {writer: bound for writer, bound in bounds.items() if writer not in pending}
        passed = sum(max(bound - before.get(writer, 0), 0) for writer, bound in reached.items())
        # In any case, so that a batch that a crash left, and that was finished when the sink was opened, is done with.
        self._sink.save_cursors(reached if self.report.chunks or passed > ids_unsaved_max else {})

    def _chunks(
        self, bounds: Mapping[str, int], now_ms: int, until_ms: int | None, chunk_events: int
    ) -> Iterator[_Taken]:
        """Yield what is due, as it is written at once."""
        chunk: list[WriterEvent] = []
        chunk_bytes = batches = 0
        for batch in self._batches(bounds, now_ms):
            # This can be the last batch only: every other one was closed because it was full, or by a later arrival.
            if not self._is_due(batch, now_ms, until_ms):
                self._waiting = batch
                break
            batches += 1
            for item in batch.items:
                # Entities of one notification have one content, which is held once.
                is_new = not chunk or chunk[-1].event.content_claim != item.event.content_claim
                chunk_bytes += item.event.file_size if is_new else 0
                chunk.append(item)
                if chunk_bytes >= CHUNK_BYTES:
                    yield _Taken(chunk, chunk_bytes, batches)
                    chunk, chunk_bytes, batches = [], 0, 0
            if len(chunk) >= chunk_events:
                yield _Taken(chunk, chunk_bytes, batches)
                chunk, chunk_bytes, batches = [], 0, 0
        if chunk:
            yield _Taken(chunk, chunk_bytes, batches)

    def _batches(self, bounds: Mapping[str, int], now_ms: int) -> Iterator[EventBatch[WriterEvent]]:
        values = self._parameters.values
        arrivals = _arrivals(self._source, self._sink.cursors, bounds, self._parameters, now_ms)
        size = min(values.batch_size, _BATCH_EVENTS_MAX)
        return cut_batches(arrivals, size=size, timeout_ms=values.batch_timeout * 1000)

    def _is_due(self, batch: EventBatch[WriterEvent], now_ms: int, until_ms: int | None) -> bool:
        values = self._parameters.values
        is_full = len(batch.items) >= min(values.batch_size, _BATCH_EVENTS_MAX)
        is_asked_for = until_ms is not None and batch.due_ms - values.batch_timeout * 1000 < until_ms
        return is_full or batch.due_ms <= now_ms or is_asked_for

    def _chunks_written(self, chunks: Iterator[_Taken]) -> bool:
        """Write chunks, the first ones by this process alone; return whether to go on."""
        done_bytes, planner = 0, self._planner
        for taken in chunks:
            if planner is not None and done_bytes >= planner.starts_at_bytes:
                return self._planned_written(planner, itertools.chain([taken], chunks))
            done_bytes += work_bytes(len(taken.items), taken.bytes)
            spans = spans_of(taken.items)
            records = source_records(taken.items, self._source, self._parameters)
            if not self._add(self._sink.write(records, self._moved(spans)), len(taken.items), taken.batches):
                return False
        return True

    def _planned_written(self, planner: ChunkPlanner, taken: Iterator[_Taken]) -> bool:
        """Write chunks by plans from elsewhere, while the plans of the next ones are made; return whether to go on."""
        # Names of events and not the events: memory holds the plans of two windows.
        chunks = ((Chunk.of(each.items, each.bytes), each.batches) for each in taken)
        window = _window(chunks, planner.chunks_at_once)
        columns = dict(self._sink.columns)
        plans = planner.plan([chunk for chunk, _ in window], columns)
        while window:
            following = _window(chunks, planner.chunks_at_once)
            next_columns = dict(self._sink.columns)
            next_plans = planner.plan([chunk for chunk, _ in following], next_columns) if following else plans
            for (chunk, batches), plan in zip(window, plans.result(), strict=True):
                cursors = self._moved(chunk.spans)
                read_here = partial(self._records_of, chunk)
                if plan is None:
                    result = self._sink.write(read_here(), cursors)
                else:
                    result = self._sink.write_planned(PlannedChunk(chunk, plan, columns), read_here, cursors)
                self.report.planned_elsewhere += plan is not None
                if not self._add(result, chunk.events, batches):
                    return False
            window, plans, columns = following, next_plans, next_columns
        return True

    def _records_of(self, chunk: Chunk) -> list[SourceRecord]:
        return source_records(merged(self._source, chunk.spans), self._source, self._parameters)

    def _moved(self, spans: Iterable[Span]) -> dict[str, int]:
        """Return the cursors behind some events."""
        # Kept from chunk to chunk: a writer without events in this one stays where the last one put it.
        self._cursors.update((span.writer, span.upto) for span in spans)
        return self._cursors

    def _add(self, result: BatchResult, events: int, batches: int) -> bool:
        """Count a chunk that was written; return whether to go on."""
        self.report.events += events
        self.report.batches += batches
        self.report.add(result)
        self._on_chunk(result)
        if time.monotonic() - self._logged > _PROGRESS_SECONDS:
            self._logged = time.monotonic()
            _LOGGER.info("%d events in %d batches written", self.report.events, self.report.batches)
        # With nothing at all written, the target is most likely away: more chunks would only fill the quarantine.
        self.report.is_stopped = result.is_unanswered and result.files == 0
        return not self.report.is_stopped


def _window(chunks: Iterator[tuple[Chunk, int]], count: int) -> list[tuple[Chunk, int]]:
    """Return the next chunks, so many or as many as have `_WINDOW_BYTES`."""
    window: list[tuple[Chunk, int]] = []
    size = 0
    while len(window) < count and size < _WINDOW_BYTES and (following := next(chunks, None)) is not None:
        window.append(following)
        size += following[0].bytes
    return window


def _arrivals(
    source: NotificationSource,
    cursors: Mapping[str, int],
    bounds: Mapping[str, int],
    parameters: Parameters,
    now_ms: int,
) -> Iterator[tuple[int, WriterEvent]]:
    """Yield the events from the cursors up to the bounds in the order of their arrival, each with its time."""
    spans = [Span(writer, cursors.get(writer, 0), bound) for writer, bound in bounds.items()]
    # A time that has not come yet is none of an arrival: it says nothing of how long the event has waited.
    early = now_ms - parameters.values.batch_timeout * 1000
    return ((item.received_ms if item.received_ms <= now_ms else early, item) for item in merged(source, spans))
