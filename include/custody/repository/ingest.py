"""Ingest: a file of events becomes acknowledged events, each exactly once; what is bad goes to the quarantine.

An event that is stored already is known by its key. If its content is the same it is a repetition and counted as such,
if it differs both cannot be true: the second one is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from custody.capture import Accepted, Outcome, Place, Rejected, read_element, read_file
from custody.errors import InvalidInputError, NotFoundError
from custody.journal import JournalWriter
from custody.model import UNASSIGNED, Event, Problem, Severity
from custody.quarantine import Entry, Quarantine
from custody.repository.known import Key, KnownSources, key_of
from custody.repository.reading import get_many, snapshot
from custody.rollover import Workspace

Progress = Callable[[int], None]
"""Called with the number of bytes of the file that are dealt with."""


class FileReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one file; the numbers count events, `rejected` also counts pieces that are no events."""

    file: str
    read: int
    stored: int
    repeated: int
    rejected: int
    warned: int
    first_event_id: int | None
    last_event_id: int | None
    problems: tuple[str, ...]


class _Tally:
    """Counts what happens to one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.read = self.stored = self.repeated = self.rejected = self.warned = 0
        self.first: int | None = None
        self.last: int | None = None
        self.problems: list[str] = []

    def report(self) -> FileReport:
        return FileReport(
            file=self.file,
            read=self.read,
            stored=self.stored,
            repeated=self.repeated,
            rejected=self.rejected,
            warned=self.warned,
            first_event_id=self.first,
            last_event_id=self.last,
            problems=tuple(self.problems),
        )


class Ingest:
    """Brings files into the journals of one writer, which the caller keeps open."""

    def __init__(self, workspace: Workspace, writer: JournalWriter, quarantine: Quarantine) -> None:
        self._workspace = workspace
        self._writer = writer
        self._quarantine = quarantine
        view = snapshot(workspace)
        writer.begin(view.next_event_id)
        self._known = KnownSources(workspace, view)

    def file(self, path: Path, *, node: str | None = None, progress: Progress = lambda _: None) -> FileReport:
        """Ingest one file; `node` names the source of events that do not say it themselves.

        Durability: on return the stored events are acknowledged.

        Raises:
            NotFoundError: there is no such file.
            InvalidInputError: it is larger than capture.file_bytes_max.
        """
        limits = self._workspace.settings.capture
        if not path.is_file():
            raise NotFoundError(f"{path}: expected a file, found none.")
        size = path.stat().st_size
        if size > limits.file_bytes_max:
            raise InvalidInputError(
                f"{path}: expected at most {limits.file_bytes_max} bytes (capture.file_bytes_max), got {size}. "
                "Split the file or raise the limit."
            )
        outcomes = read_file(path.read_bytes(), event_bytes_max=limits.event_bytes_max, node=node)
        return self.outcomes(outcomes, str(path), node=node, progress=progress)

    def resubmit(self, key: str) -> FileReport:
        """Try a quarantined piece again; it leaves the quarantine when all of it is stored.

        Raises:
            NotFoundError: there is no such entry.
        """
        entry, raw = self._quarantine.get(key), self._quarantine.raw(key)
        limit = self._workspace.settings.capture.event_bytes_max
        outcomes: Iterable[Outcome]
        if entry.index is None:
            outcomes = read_file(raw, event_bytes_max=limit, node=entry.node)
        else:
            place = Place(entry.index, entry.offset)
            outcomes = [read_element(raw, place, event_bytes_max=limit, node=entry.node)]
        report = self.outcomes(outcomes, entry.file, node=entry.node)
        if report.rejected == 0:
            self._quarantine.remove(key)
        return report

    def outcomes(
        self, outcomes: Iterable[Outcome], file: str, *, node: str | None, progress: Progress = lambda _: None
    ) -> FileReport:
        """Store what was accepted, quarantine what was not."""
        tally = _Tally(file)
        for batch in _batches(outcomes, self._workspace.settings.capture.batch_events):
            accepted = [outcome for outcome in batch if isinstance(outcome, Accepted)]
            for outcome in batch:
                if isinstance(outcome, Rejected):
                    self._reject(tally, outcome.raw, outcome.place, outcome.problem, node)
            self._store(tally, accepted, node)
            last = batch[-1]
            progress(last.place.offset + len(last.raw))
        return tally.report()

    def _store(self, tally: _Tally, accepted: list[Accepted], node: str | None) -> None:
        tally.read += len(accepted)
        fresh = self._without_known(tally, accepted, node)
        ids = self._writer.append([item.event for item in fresh])
        self._known.add([item.event for item in fresh], ids)
        if fresh:
            tally.stored += len(fresh)
            tally.first = ids.start if tally.first is None else tally.first
            tally.last = ids.stop - 1
        for item in fresh:
            for problem in item.warnings:
                tally.warned += 1
                self._quarantine_piece(tally, item.raw, item.place, problem, node)

    def _without_known(self, tally: _Tally, accepted: list[Accepted], node: str | None) -> list[Accepted]:
        """Return the events that are new; count repetitions, reject contradictions."""
        stored = self._stored_events(self._known.find(item.event for item in accepted))
        fresh = []
        for item in accepted:
            key = key_of(item.event)
            former = stored.get(key) if key is not None else None
            if former is None:
                fresh.append(item)
                if key is not None:
                    stored[key] = item.event
            elif _content(former) == _content(item.event):
                tally.repeated += 1
            else:
                where = "in this file" if former.event_id == UNASSIGNED else f"as event {former.event_id}"
                message = (
                    f"{item.event.source_node} number {item.event.source_ordinal} is stored {where} "
                    "with different content; an event is never overwritten"
                )
                problem = Problem(Severity.ERROR, "contradiction", message)
                self._reject(tally, item.raw, item.place, problem, node)
        return fresh

    def _stored_events(self, ids: dict[Key, int]) -> dict[Key, Event]:
        if not ids:
            return {}
        events = {event.event_id: event for event in get_many(self._workspace, list(ids.values()))}
        return {key: events[event_id] for key, event_id in ids.items() if event_id in events}

    def _reject(self, tally: _Tally, raw: bytes, place: Place, problem: Problem, node: str | None) -> None:
        tally.rejected += 1
        self._quarantine_piece(tally, raw, place, problem, node)

    def _quarantine_piece(self, tally: _Tally, raw: bytes, place: Place, problem: Problem, node: str | None) -> Entry:
        entry = self._quarantine.add(
            raw,
            severity=problem.severity,
            code=problem.code,
            message=problem.message,
            file=tally.file,
            index=place.index,
            offset=place.offset,
            node=node,
            received_ms=self._workspace.clock.now_ms(),
        )
        tally.problems.append(f"{tally.file}: {place}: {problem.severity}: {problem.message} [quarantine {entry.key}]")
        return entry


def _batches(outcomes: Iterable[Outcome], size: int) -> Iterator[tuple[Outcome, ...]]:
    source = iter(outcomes)
    while batch := tuple(islice(source, size)):
        yield batch


def _content(event: Event) -> Event:
    """Return what two copies of an event share: NiFi makes a new eventId for each copy that it sends."""
    return msgspec.structs.replace(event, event_id=UNASSIGNED, source_event_id=None)
