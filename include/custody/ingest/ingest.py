"""Ingest: a file of events becomes acknowledged events, each exactly once; what is bad goes to the quarantine.

An event that is stored already, by whichever writer, is known by its key. If its content is the same it is a repetition
and counted as such; if it differs, both cannot be true, and the second one is rejected. Ingests of several processes
lock the sources of their events, so that what one looks up is still true when it stores. A file is read once from its
beginning to its end, in bounded memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from custody.capture import (
    Accepted,
    CaptureLimits,
    Context,
    Format,
    InputPlace,
    Outcome,
    Rejected,
    contradictions,
    detect_file,
    harmless_differences,
    read_piece,
    read_stream,
)
from custody.errors import FormatVersionError, InvalidInputError, NotFoundError, StorageError
from custody.format.names import name_as_text
from custody.ingest.dedup import NO_WRITER, Key, PreviewedKeys, StoredAt, StoredKeys, key_of
from custody.ingest.source_locks import SourceLocks
from custody.model import UNASSIGNED, Event, EventProblem, Severity, require_text, require_valid
from custody.ngsi.http_notification import Arrival, kept_arrival, with_arrival
from custody.quarantine import Quarantine, QuarantineEntry
from custody.read.reader import get_many
from custody.workspace import Workspace


class FileReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one file; the numbers count events, `rejected` also counts pieces that are no events.

    The event ids are those of `writer`.
    """

    file: str
    writer: str
    read: int
    stored: int
    repeated: int
    retold: int
    """How many of the repeated ones gave a name or an address anew; what was stored first stays."""
    rejected: int
    warned: int
    first_event_id: int | None
    last_event_id: int | None
    problems: tuple[str, ...]


class FilePreview(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of one file; the numbers count events, as those of `FileReport`."""

    file: str
    format: str | None
    """As what it would be read; None for a file that would be refused as a whole."""
    bytes: int
    read: int = 0
    to_store: int = 0
    repeated: int = 0
    retold: int = 0
    rejected: int = 0
    warned: int = 0
    problems: tuple[str, ...] = ()
    refusal: str | None = None
    """Why the whole file would be refused; an ingest ends there."""

    @property
    def is_stored(self) -> bool:
        """Whether all that the file holds is stored already."""
        return self.read > 0 and self.read == self.repeated and not self.rejected


class FileTally:
    """Counts what becomes of one file, and holds what goes into the quarantine with each of its pieces."""

    def __init__(self, file: str, format: Format, node: str | None) -> None:
        self.file = file
        self.format = format
        self.node = node
        self.read = self.stored = self.repeated = self.retold = self.rejected = self.warned = 0
        self.first: int | None = None
        self.last: int | None = None
        self.problems: list[str] = []

    def report(self, writer: str) -> FileReport:
        """Return the counts; the ids are those of this writer."""
        return FileReport(
            file=self.file,
            writer=writer,
            read=self.read,
            stored=self.stored,
            repeated=self.repeated,
            retold=self.retold,
            rejected=self.rejected,
            warned=self.warned,
            first_event_id=self.first,
            last_event_id=self.last,
            problems=tuple(self.problems),
        )


# Beside `capture.batch_events`, which bounds batches of small pieces only.
_BATCH_BYTES_MAX = 16 << 20
_URL_SCHEMES = ("http", "https")
"""Of the place that a receiver's entries came from."""

Progress = Callable[[int], None]
"""Called with the number of bytes of the file that were read."""


class EventAppender(Protocol):
    """Where an ingest appends events: a `SlotWriter`, or nothing."""

    name: str

    def append(self, events: Sequence[Event]) -> range:
        """Append events; return their ids."""
        ...

    def append_with_content(self, events: Sequence[Event], content: bytes) -> range:
        """Store a content and append the events that refer to it; return their ids."""
        ...


class Ingest:
    """Brings files into the journals of one writer, which the caller keeps open.

    Args:
        workspace: the files of the writer.
        writer: where the events go to; its first id is set.
        workspaces: returns all writers of the repository.
        quarantine: takes what cannot be stored.
    """

    def __init__(
        self,
        workspace: Workspace,
        writer: EventAppender,
        workspaces: Callable[[], Sequence[Workspace]],
        quarantine: Quarantine,
    ) -> None:
        self._workspace = workspace
        self._writer = writer
        self._quarantine = quarantine
        settings = workspace.settings
        self._stored_keys: StoredKeys = StoredKeys(workspaces, writer.name)
        self._source_locks = SourceLocks(workspace.fs, settings.turns, settings.capture.source_wait_seconds)

    def file(
        self,
        path: Path,
        *,
        format: Format | None = None,
        node: str | None = None,
        progress: Progress = lambda _: None,
    ) -> FileReport:
        """Ingest one file; `node` names the source of events that do not say it themselves.

        Without a format, the file's content decides. Messages show names as `name_as_text` does.

        Durability: on return the stored events are acknowledged; so are on raise those before the failure.

        Raises:
            NotFoundError: there is no such file.
            InvalidInputError: it is larger than capture.file_bytes_max, or `node` is no valid Unicode.
            StorageError: it cannot be read.
            LockedError: another ingest stored events of the same source for too long.
        """
        limits = self._workspace.settings.capture
        require_text(node=node)
        name = name_as_text(str(path))
        if not path.is_file():
            raise NotFoundError(f"{name}: expected a file, found none.")
        status = path.stat()
        if status.st_size > limits.file_bytes_max:
            raise InvalidInputError(
                f"{name}: expected at most {limits.file_bytes_max} bytes (capture.file_bytes_max), "
                f"got {status.st_size}. Split the file or raise the limit."
            )
        context = Context(node, received_ms=int(status.st_mtime * 1000))
        try:
            # Unbuffered: the reader has a buffer of its own, and `tell` says how far it has come.
            with path.open("rb", buffering=0) as stream:
                format = format or detect_file(stream)
                outcomes = read_stream(stream, self._limits, format=format, context=context)
                return self._take(outcomes, FileTally(name, format, node), lambda: progress(stream.tell()))
        # Of custody's own files, and says so itself. Any other OSError comes from the input file.
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"{name}: cannot read: {error.strerror}") from error

    def outcomes(self, outcomes: Iterable[Outcome], *, origin: str, format: Format) -> FileReport:
        """Ingest what was read elsewhere; `origin` is what the quarantine shows as its file.

        Durability: on return the stored events are acknowledged; so are on raise those before the failure.

        Raises:
            BackpressureError: too much waits to be rolled over, or the quarantine is full.
            LockedError: another ingest stored events of the same source for too long.
            StorageError: the disk refused.
        """
        return self._take(outcomes, FileTally(origin, format, None))

    def renew(self) -> None:
        """Forget which events are stored: the next turn reads it anew, so that memory does not grow for ever."""
        self._source_locks.forget()
        self._stored_keys.forget()

    def resubmit(self, key: str, *, format: Format | None = None) -> FileReport:
        """Try a quarantined piece again, as the format that it came in; it leaves the quarantine when all is stored.

        A notification that a receiver had put there becomes what it would have: events with the body as their content.

        Raises:
            NotFoundError: there is no such entry.
        """
        entry, raw = self._quarantine.get(key), self._quarantine.raw(key)
        format = format or _format_of(entry)
        context = Context(entry.node, entry.received_ms)
        place = InputPlace(entry.index, entry.offset)
        outcomes = read_piece(raw, place, self._limits, format=format, context=context)
        tally = FileTally(entry.file, format, entry.node)
        if format is Format.NGSI and entry.format == format and urlsplit(entry.file).scheme in _URL_SCHEMES:
            # One notification as a whole: what is rejected of it again is the same entry.
            same = (replace(item, place=place) if isinstance(item, Rejected) else item for item in outcomes)
            arrival = kept_arrival(raw, entry.file, entry.received_ms)
            report = self._take(same, tally, store=partial(self._append_notification, arrival))
        else:
            report = self._take(outcomes, tally)
        # Only behind the acknowledgement: a crash in between leaves the entry, and the events count as repetitions
        # then.
        if report.rejected == 0:
            self._quarantine.remove(key)
        return report

    def _append_notification(self, arrival: Arrival | None, events: Sequence[Event]) -> range:
        """Append the events of a notification that a receiver had kept, as it would have: with the body as content."""
        if arrival is None or not events:
            return self._writer.append(events)
        return self._writer.append_with_content([with_arrival(event, arrival) for event in events], arrival.body)

    @property
    def _limits(self) -> CaptureLimits:
        capture = self._workspace.settings.capture
        return CaptureLimits(event_bytes_max=capture.event_bytes_max, file_bytes_max=capture.file_bytes_max)

    def _take(
        self,
        outcomes: Iterable[Outcome],
        tally: FileTally,
        progress: Callable[[], None] = lambda: None,
        store: Callable[[Sequence[Event]], range] | None = None,
    ) -> FileReport:
        """Store what was accepted, by `store` where it is given, and quarantine what was not."""
        try:
            for batch in _batches(outcomes, self._workspace.settings.capture.batch_events):
                accepted = [outcome for outcome in batch if isinstance(outcome, Accepted)]
                for outcome in batch:
                    if isinstance(outcome, Rejected):
                        self._reject(tally, outcome.raw, outcome.place, outcome.problem)
                self._store(tally, accepted, store or self._writer.append)
                progress()
        except BaseException:
            # An append may have failed: what is stored has to be read again.
            self.renew()
            raise
        finally:
            # The turn ends with the file, so that ingests that wait for its sources can go on.
            self._source_locks.end()
        return tally.report(self._writer.name)

    def _store(self, tally: FileTally, accepted: list[Accepted], store: Callable[[Sequence[Event]], range]) -> None:
        tally.read += len(accepted)
        nodes = {key[0] for item in accepted if (key := key_of(item.event)) is not None}
        if nodes:
            self._know_stored(nodes)
        fresh = self._without_stored(tally, accepted)
        ids = store([item.event for item in fresh])
        self._stored_keys.add([item.event for item in fresh], ids)
        if fresh:
            tally.stored += len(fresh)
            tally.first = ids.start if tally.first is None else tally.first
            tally.last = ids.stop - 1
        # Warnings are kept behind the acknowledgement: each of them says that its event is stored.
        for item in fresh:
            for problem in item.warnings:
                tally.warned += 1
                self._quarantine_piece(tally, item.raw, item.place, problem)

    def _know_stored(self, nodes: set[str]) -> None:
        """Know all events of these sources that are stored."""
        # Locked before the look-up and until the events are stored: no other ingest can store them in between.
        if self._source_locks.take(nodes):
            self._stored_keys.refresh()

    def _without_stored(self, tally: FileTally, accepted: list[Accepted]) -> list[Accepted]:
        """Return the events that are not stored yet; count repetitions, reject contradictions."""
        places = self._stored_keys.find(item.event for item in accepted)
        stored = self._stored_events(places)
        hidden = self._hidden(places, stored.keys()) | self._stored_keys.erased(item.event for item in accepted)
        fresh = []
        for item in accepted:
            key = key_of(item.event)
            if key in hidden:  # it was forgotten on purpose, so it must not come back
                tally.repeated += 1
                continue
            writer, former = stored.get(key, ("", None)) if key is not None else ("", None)
            if former is None:
                fresh.append(item)
                if key is not None:
                    # So that a second one in the same batch is compared with it.
                    stored[key] = self._writer.name, item.event
            elif not (differ := contradictions(former, item.event)):
                tally.repeated += 1
                tally.retold += bool(harmless_differences(former, item.event))
            else:
                where = (
                    "in this file"
                    if former.event_id == UNASSIGNED
                    else f"as event {former.event_id} of writer {writer!r}"
                )
                message = (
                    f"{item.event.source_node} number {item.event.source_ordinal} is stored {where} "
                    f"with different content ({', '.join(differ)}); an event is never overwritten"
                )
                problem = EventProblem(Severity.ERROR, "contradiction", message)
                self._reject(tally, item.raw, item.place, problem)
        return fresh

    def _stored_events(self, places: dict[Key, StoredAt]) -> dict[Key, tuple[str, Event | None]]:
        """Return the events that are stored, each with its writer."""
        ids: dict[str, list[int]] = defaultdict(list)
        for writer, event_id in places.values():
            ids[writer].append(event_id)
        events: dict[StoredAt, Event] = {}
        for writer, event_ids in ids.items():
            for event in get_many(self._stored_keys.workspace(writer), event_ids):
                events[StoredAt(writer, event.event_id)] = event
        return {key: (place.writer, events[place]) for key, place in places.items() if place in events}

    def _hidden(self, places: dict[Key, StoredAt], readable: Collection[Key]) -> set[Key]:
        """Return the keys of stored events that a tombstone hides."""
        unread = {key: place.writer for key, place in places.items() if key not in readable}
        stones = {name: self._stored_keys.workspace(name).catalog.load().tombstones for name in set(unread.values())}
        # Without any tombstone, an event that is not given out expired since it was looked up.
        return {key for key, writer in unread.items() if stones[writer]}

    def _reject(self, tally: FileTally, raw: bytes, place: InputPlace, problem: EventProblem) -> None:
        tally.rejected += 1
        self._quarantine_piece(tally, raw, place, problem)

    def _quarantine_piece(self, tally: FileTally, raw: bytes, place: InputPlace, problem: EventProblem) -> None:
        key = self._keep(tally, raw, place, problem)
        kept = f" [quarantine {key}]" if key else ""
        tally.problems.append(f"{tally.file}: {place}: {problem.severity}: {problem.message}{kept}")

    def _keep(self, tally: FileTally, raw: bytes, place: InputPlace, problem: EventProblem) -> str:
        """Put a piece into the quarantine; return its key there."""
        return self._quarantine.add(
            raw,
            severity=problem.severity,
            code=problem.code,
            message=problem.message,
            file=tally.file,
            index=place.index,
            offset=place.offset,
            node=tally.node,
            received_ms=self._workspace.clock.now_ms(),
            format=tally.format,
        ).key


class _Nowhere:
    """Takes events and keeps none; the ids say only how many there were."""

    name = NO_WRITER

    def __init__(self) -> None:
        self._next = 0

    def append(self, events: Sequence[Event]) -> range:
        require_valid(events)
        ids = range(self._next, self._next + len(events))
        self._next = ids.stop
        return ids

    def append_with_content(self, events: Sequence[Event], content: bytes) -> range:
        return self.append(events)


class IngestPreview(Ingest):
    """Says what an ingest of files would do, by doing it without the effects: nothing is locked, stored or put aside.

    What other processes store meanwhile is not seen. An event that an earlier one of the same preview repeats counts as
    repeated; whether the two contradict each other is only told of events that are stored.

    Args:
        workspace: of any writer; its settings count.
        workspaces: returns all writers of the repository.
        quarantine: is not written to.
    """

    def __init__(
        self, workspace: Workspace, workspaces: Callable[[], Sequence[Workspace]], quarantine: Quarantine
    ) -> None:
        super().__init__(workspace, _Nowhere(), workspaces, quarantine)
        self._stored_keys = PreviewedKeys(workspaces)
        self._is_stored_known = False

    def preview(
        self,
        path: Path,
        *,
        format: Format | None = None,
        node: str | None = None,
        progress: Progress = lambda _: None,
    ) -> FilePreview:
        """Return what would become of one file; arguments as of `file`.

        Raises:
            CorruptionError, StorageError: what is stored cannot be read.
        """
        name = name_as_text(str(path))
        try:
            size = path.stat().st_size
            if format is None:
                with path.open("rb", buffering=0) as stream:
                    format = detect_file(stream)
        except OSError as error:
            return FilePreview(file=name, format=None, bytes=0, refusal=f"{name}: cannot read: {error.strerror}")
        try:
            counts = self.file(path, format=format, node=node, progress=progress)
        except (InvalidInputError, NotFoundError) as error:
            return FilePreview(file=name, format=None, bytes=size, refusal=str(error))
        return FilePreview(
            file=name,
            format=format,
            bytes=size,
            read=counts.read,
            to_store=counts.stored,
            repeated=counts.repeated,
            retold=counts.retold,
            rejected=counts.rejected,
            warned=counts.warned,
            problems=counts.problems,
        )

    def _know_stored(self, nodes: set[str]) -> None:
        # Once for all files: without locks a second look would be no truer than the first.
        if not self._is_stored_known:
            self._stored_keys.refresh()
            self._is_stored_known = True

    def _keep(self, tally: FileTally, raw: bytes, place: InputPlace, problem: EventProblem) -> str:
        return ""


def _batches(outcomes: Iterable[Outcome], size: int) -> Iterator[list[Outcome]]:
    """Yield the outcomes in lists; where the pieces are large, the lists are shorter."""
    batch: list[Outcome] = []
    batch_bytes = 0
    # Pieces stay in memory until their batch is stored, so large ones end it early.
    for outcome in outcomes:
        batch.append(outcome)
        batch_bytes += len(outcome.raw)
        if len(batch) >= size or batch_bytes >= _BATCH_BYTES_MAX:
            yield batch
            batch, batch_bytes = [], 0
    if batch:
        yield batch


def _format_of(entry: QuarantineEntry) -> Format:
    try:
        return Format(entry.format)
    except ValueError:
        formats = ", ".join(Format)
        raise FormatVersionError(
            f"quarantine entry {entry.key}: expected a format out of {formats}, got {entry.format!r}. "
            "Name one with --format, or use a newer custody."
        ) from None
