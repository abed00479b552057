"""One run of the sink: notifications that wait in the event logs become batches, and batches files.

Events are taken writer by writer from the sink's cursors on, merged by the time of their arrival, and cut into batches
by `batch_size` and `batch_timeout`. Batches that are due by now are written, several small ones in one go: the lines
are the same, the syncs fewer. What is not due yet waits for the next run. Memory holds a go at a time.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from custody.clock import Clock
from custody.errors import CorruptionError, NotFoundError
from custody.model import Event
from custody.ngsi.naming import Destination
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink import resubmission
from custody.ngsi_sink.batch_plan import Gone, Taken, Unread, Written
from custody.ngsi_sink.notifications import Bodies, received_ms
from custody.ngsi_sink.retry import Batch, cut
from custody.ngsi_sink.sink import Sink
from custody.quarantine import Quarantine
from custody.vfs import FileSystem

GO_EVENTS, GO_BYTES = 10_000, 16 << 20
"""As much is written in one go: more costs memory, less costs syncs."""
_BATCH_EVENTS_MAX = 100_000
_PROGRESS_SECONDS = 10.0
_LOGGER = logging.getLogger(__name__)


class Waiting(Protocol):
    """The events of a repository, as the sink sees them: those that are live, of every writer."""

    def bounds(self) -> Mapping[str, int]:
        """Return by writer the event id up to which nothing can become live any more."""
        ...

    def notified(self, writer: str, first: int, bound: int) -> Iterator[Event]:
        """Yield the events of notifications with ids from `first` up to, not with, `bound`, in their order."""
        ...

    def get(self, writer: str, event_ids: Sequence[int]) -> Sequence[Event]:
        """Return the events with these ids that are still there."""
        ...

    def contents(self) -> Callable[[Event], bytes]:
        """Return what reads the contents of some events, one after the other.

        Raises:
            NotFoundError: it expired, was erased, or never was here.
            CorruptionError: it is damaged.
        """
        ...


@dataclass(slots=True)
class Persisted:
    """What a run did."""

    events: int = 0
    """Notified entities that were taken."""
    batches: int = 0
    goes: int = 0
    records: int = 0
    left: int = 0
    aside: int = 0
    deferred: int = 0
    unfit: int = 0
    """Files in whose place something stands that is not what was committed, or no file."""
    files: int = 0
    bytes: int = 0
    again: int = 0
    """Entries of the quarantine that were submitted again and are written now."""
    waiting: int = 0
    """Notified entities whose batch is not due yet."""
    problems: list[str] = field(default_factory=list)
    destinations: dict[str, Destination] = field(default_factory=dict)
    """Those that got data, by location."""
    is_stopped: bool = False
    """Nothing at all of a go could be written: the run ended there, what follows waits."""


@dataclass(frozen=True, slots=True)
class _Event:
    writer: str
    event: Event

    @property
    def received_ms(self) -> int:
        return received_ms(self.event)


def persist(
    waiting: Waiting,
    sink: Sink,
    parameters: Parameters,
    clock: Clock,
    *,
    until_ms: int | None = None,
    on_go: Callable[[Written], None] = lambda _: None,
    go_events: int = GO_EVENTS,
) -> Persisted:
    """Write what is due, in goes of as many batches as have `go_events` events.

    With `until_ms`, everything that arrived before this time is due, too; other batches wait until they are full or
    `batch_timeout` old.

    Durability: what the result counts survives power loss.

    Raises:
        StorageError: the disk of the sink, or of the repository, refused; do it again.
        SupersededError: another attempt took over.
    """
    run = _Run(waiting, sink, parameters, clock, on_go)
    run.all(until_ms, go_events)
    return run.done


def submit_again(
    waiting: Waiting, sink: Sink, parameters: Parameters, fs: FileSystem, folder: Path, quarantine: Quarantine
) -> Persisted:
    """Take the entries of the quarantine that a user marked; one that cannot be written stays, or comes back anew."""
    done = Persisted()
    run = _Run(waiting, sink, parameters, None, lambda _: None)
    for key, name in list(resubmission.marks(fs, folder)):
        held = sink.aside(name)
        if held is not None:
            events = [item.source for item in held.notifications]
            found: list[Taken] = []
            for writer in sorted({source.writer for source in events}):
                ids = [source.event_id for source in events if source.writer == writer]
                there = waiting.get(writer, ids)
                done.left += len(ids) - len(there)
                found += run.taken([_Event(writer, event) for event in there])
            written = sink.write(found, {}, settles=[name])
            run.add(written)
            problem = written.problem
        else:
            problem = sink.resume(name)
        if problem is None:
            done.again += 1
        else:
            done.problems.append(problem)
        if held is not None or problem is None:
            resubmission.settle(fs, folder, quarantine, key)
        else:
            resubmission.unmark(fs, folder, key)
    if done.again or done.problems:
        sink.rest({})
    done.records, done.files, done.bytes = run.done.records, run.done.files, run.done.bytes
    done.destinations = run.done.destinations
    return done


class _Run:
    def __init__(
        self,
        waiting: Waiting,
        sink: Sink,
        parameters: Parameters,
        clock: Clock | None,
        on_go: Callable[[Written], None],
    ) -> None:
        self._waiting = waiting
        self._sink = sink
        self._parameters = parameters
        self._clock = clock
        self._on_go = on_go
        self._told = time.monotonic()
        self._last: dict[str, int] = {}
        self.done = Persisted()

    def all(self, until_ms: int | None, go_events: int) -> None:
        """Write all batches that are due."""
        assert self._clock is not None  # noqa: S101 - of a run that cuts
        now_ms = self._clock.now_ms()
        bounds = self._waiting.bounds()
        cursors = self._sink.cursors
        streams = [self._arrivals(writer, cursors.get(writer, 0), bound) for writer, bound in sorted(bounds.items())]
        values = self._parameters.values
        merged = heapq.merge(*streams, key=lambda item: item.received_ms)
        # A time that has not come yet is none of an arrival: it says nothing of how long the event has waited.
        early = now_ms - values.batch_timeout * 1000
        events = ((item.received_ms if item.received_ms <= now_ms else early, item) for item in merged)
        pending: set[str] = set()
        go: list[_Event] = []
        go_bytes = 0
        for batch in cut(
            events, size=min(values.batch_size, _BATCH_EVENTS_MAX), timeout_ms=values.batch_timeout * 1000
        ):
            if not self._is_due(batch, now_ms, until_ms):
                self.done.waiting = len(batch.items)
                pending = {item.writer for item in batch.items}
                break
            self.done.batches += 1
            for item in batch.items:
                # Entities of one notification have one content, which is held once.
                is_new = not go or go[-1].event.content_claim != item.event.content_claim
                go_bytes += item.event.file_size if is_new else 0
                go.append(item)
                if go_bytes >= GO_BYTES and not self._write(go):
                    return
                if go_bytes >= GO_BYTES:
                    go, go_bytes = [], 0
            if len(go) >= go_events:
                if not self._write(go):
                    return
                go, go_bytes = [], 0
        if go and not self._write(go):
            return
        self._sink.rest({writer: bound for writer, bound in bounds.items() if writer not in pending})

    def _arrivals(self, writer: str, first: int, bound: int) -> Iterator[_Event]:
        return (_Event(writer, event) for event in self._waiting.notified(writer, first, bound))

    def _is_due(self, batch: Batch[_Event], now_ms: int, until_ms: int | None) -> bool:
        values = self._parameters.values
        is_full = len(batch.items) >= min(values.batch_size, _BATCH_EVENTS_MAX)
        is_wanted = until_ms is not None and batch.due_ms - values.batch_timeout * 1000 < until_ms
        return is_full or batch.due_ms <= now_ms or is_wanted

    def _write(self, go: Sequence[_Event]) -> bool:
        """Write some events; return whether to go on."""
        for item in go:
            self._last[item.writer] = item.event.event_id + 1
        written = self._sink.write(self.taken(go), self._last)
        self.done.events += len(go)
        self.add(written)
        self._on_go(written)
        if time.monotonic() - self._told > _PROGRESS_SECONDS:
            self._told = time.monotonic()
            _LOGGER.info("%d events in %d batches written", self.done.events, self.done.batches)
        self.done.is_stopped = written.is_unanswered and written.files == 0
        return not self.done.is_stopped

    def add(self, written: Written) -> None:
        """Count a go in."""
        done = self.done
        done.goes += 1
        done.records += written.records
        done.left += written.left
        done.aside += written.aside
        done.deferred += written.deferred
        done.unfit += written.unfit
        done.files += written.files
        done.bytes += written.bytes
        done.destinations.update((item.location, item) for item in written.destinations)
        if written.problem is not None:
            done.problems.append(written.problem)

    def taken(self, events: Sequence[_Event]) -> list[Taken]:
        """Return what is to be written of some events, each with its content; what cannot be read says so."""
        bodies = Bodies(self._waiting.contents(), self._parameters)
        found: list[Taken] = []
        for item in events:
            body = b""
            try:
                body = bodies.body(item.event)
                found += [Taken(item.writer, item.event, record, body) for record in bodies.records(item.event)]
            except NotFoundError as error:
                found.append(Taken(item.writer, item.event, Gone(str(error))))
            except CorruptionError as error:
                found.append(Taken(item.writer, item.event, Unread(str(error)), body))
        return found
