"""A run of an export: what its receiver did not get yet is delivered, each event at least once, in order.

Each writer is followed from its cursor to where its events are settled, those in journals included. The cursor moves
after a delivery, so whatever dies repeats a delivery and loses none. Of two runs of an export one delivers: it holds
the export's lease. An event that the receiver refuses for good goes to the quarantine, and those around it on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from whoosh import query

from custody.capture.nifi_json import event_to_json
from custody.clock import Clock
from custody.config import ExportTarget, Settings
from custody.errors import (
    ConfigurationError,
    CustodyError,
    EarlierStateError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    StripeMissingError,
)
from custody.export.cursors import Cursors, read_cursors, write_cursors
from custody.export.opening import open_receiver
from custody.export.receiver import EventBatch, Receiver, RefusedError, UnavailableError
from custody.lease import Attempt, FencedFileSystem, Heartbeat, take
from custody.model.visibility import Visibility
from custody.quarantine import Quarantine, QuarantineEntry, bad_piece
from custody.query import parse_query
from custody.query.scan import Scan
from custody.read.reader import get_many, next_event_id, tables_from
from custody.read.results import Notices, waiting_for_stripes
from custody.read.settled import settled_bound
from custody.vfs import FileSystem
from custody.workspace import FILES_MAX, Workspace, without_archives

QUARANTINE_FORMAT = "export"
"""The format of entries of the quarantine that an export made; its name follows behind a colon."""
_LEASE = "lease"
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 60.0
_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class ExportReport:
    """The result of a run of one export."""

    export: str
    delivered: int = 0
    """Events that the receiver took."""
    bytes: int = 0
    """Of these events, as columns in memory."""
    refused: int = 0
    """Events that went to the quarantine."""
    notices: list[str] = field(default_factory=list)
    """What could not be read, and so was passed over."""
    files: list[str] = field(default_factory=list)
    """URIs of the files that the receiver wrote, the first FILES_MAX of them."""


@dataclass(frozen=True, slots=True)
class ExportStatus:
    """How far an export is."""

    export: str
    kind: str
    url: str
    delivered: int
    refused: int
    waiting: int
    """Ids between the cursors and where events are settled: as many events, where no ids were left out."""
    updated_ms: int | None
    """When a cursor moved last; None before the first delivery."""
    next_event_ids: Mapping[str, int]


class Export:
    """One export of a repository.

    Args:
        settings: of the repository.
        name: of the table `[exports.NAME]`.
        fs: holds the repository.
        clock: tells when a cursor moved.

    Raises:
        NotFoundError: the settings have no such export.
    """

    def __init__(self, settings: Settings, name: str, fs: FileSystem, clock: Clock) -> None:
        if name not in settings.exports:
            known = ", ".join(sorted(settings.exports)) or "none"
            raise NotFoundError(
                f"no export {name!r} in the settings, which have {known}. Add a table [exports.{name}] to "
                "custody.toml; see docs/export.md."
            )
        self.settings, self.name = settings, name
        self.target: ExportTarget = settings.exports[name]
        self.folder: Path = settings.exports_home / name
        self._fs, self._clock = fs, clock
        self._quarantine = Quarantine(fs, settings.quarantine, settings.repository.quarantine_bytes_max)

    def status(self) -> ExportStatus:
        """Return how far it is, from disk; raises as `settled_bound` and `read_cursors`."""
        stored = read_cursors(self._fs, self.folder, self.name)
        cursors = stored or Cursors(export=self.name)
        waiting = 0
        for workspace in self.workspaces():
            bound = settled_bound(workspace, Notices(strict=False))
            waiting += max(0, bound - cursors.next_event_ids.get(workspace.writer, 0))
        return ExportStatus(
            self.name,
            self.target.kind,
            self.target.url,
            cursors.delivered,
            cursors.refused,
            waiting,
            stored.updated_ms if stored else None,
            cursors.next_event_ids,
        )

    def rewind(self, positions: Mapping[str, int], attempt: Attempt) -> Cursors:
        """Let writers go on from other events than their cursors say; also where the cursors cannot be read.

        Raises:
            LockedError: a run of the export is under way.
        """
        with self._leased(attempt) as fs:
            try:
                cursors = read_cursors(fs, self.folder, self.name)
            except CustodyError:
                cursors = None
            cursors = cursors or Cursors(export=self.name)
            cursors = msgspec.structs.replace(
                cursors, updated_ms=self._clock.now_ms(), next_event_ids={**cursors.next_event_ids, **positions}
            )
            write_cursors(fs, self.folder, cursors)
        return cursors

    @contextmanager
    def started(self, attempt: Attempt, receiver: Receiver | None = None) -> Iterator[ExportRun]:
        """Hold the export's lease and its receiver; yield what delivers.

        Raises:
            LockedError: another run of the export is under way.
            ConfigurationError: the settings do not fit the receiver.
        """
        opened = receiver or open_receiver(self.name, self.target, self.settings, self._fs)
        try:
            with self._leased(attempt) as fs:
                cursors = read_cursors(fs, self.folder, self.name)
                if cursors is None:
                    cursors = Cursors(export=self.name, next_event_ids=self._first_positions())
                    # Kept at once: another run must not take a later moment for the beginning.
                    write_cursors(fs, self.folder, cursors)
                yield ExportRun(self, fs, self._clock, opened, cursors, self._quarantine)
        finally:
            opened.close()

    def refused(self) -> Iterator[QuarantineEntry]:
        """Yield the entries of the quarantine that it made, oldest event first."""
        return refused_entries(self._quarantine, self.name)

    def workspaces(self) -> list[Workspace]:
        """Return the files of every writer but the archive, by name.

        The archive's events are delivered under the names of the writers that it took up, as before.
        """
        return without_archives(Workspace.all(self.settings, self._fs, self._clock))

    def _first_positions(self) -> dict[str, int]:
        if self.target.begin == "oldest":
            return {}
        return {item.writer: settled_bound(item, Notices(strict=False)) for item in self.workspaces()}

    @contextmanager
    def _leased(self, attempt: Attempt) -> Iterator[FileSystem]:
        lease = take(
            self._fs,
            self.folder / _LEASE,
            self.name,
            attempt,
            self._clock,
            wait_seconds=self.settings.lease.wait_seconds,
            dead_seconds=self.settings.lease.dead_seconds,
        )
        with Heartbeat([lease], self._clock, self.settings.lease.dead_seconds):
            try:
                yield FencedFileSystem(self._fs, lease)
            except BaseException:
                lease.release(failed=True)
                raise
        # Nothing is left over by a run that died: the next one goes on from the cursors.
        lease.release(recovered=True)


def _parsed_query(name: str, text: str, attributes: Sequence[str], now_ms: int) -> query.Query | None:
    """Return the query of an export; None where it has none, and delivers every event."""
    if not text:
        return None
    try:
        return parse_query(text, attributes, now_ms)
    except InvalidInputError as error:
        raise ConfigurationError(f"exports.{name}.query: {error}") from error


class ExportRun:
    """Delivers what waits, as long as it holds the export's lease; made by `Export.started`."""

    def __init__(
        self,
        export: Export,
        fs: FileSystem,
        clock: Clock,
        receiver: Receiver,
        cursors: Cursors,
        quarantine: Quarantine,
    ) -> None:
        self._export = export
        self._fs, self._clock = fs, clock
        self._receiver = receiver
        self._cursors = cursors
        self._quarantine = quarantine
        self._attributes = export.settings.index.attributes
        self._query = _parsed_query(export.name, export.target.query, self._attributes, clock.now_ms())
        self._workspaces: dict[str, Workspace] = {}
        self._files: list[str] = []
        self.on_delivery: Callable[[int], None] = lambda _: None
        """Called with the events of each delivery."""

    def deliver_waiting(
        self, *, retry_seconds: float | None = None, stop: threading.Event | None = None
    ) -> ExportReport:
        """Deliver everything that is settled now.

        A receiver that takes nothing is tried again for `retry_seconds`, those of the settings by default, or until
        `stop` is set.

        Durability: on return the cursors are behind what was delivered, also after power loss.

        Raises:
            UnavailableError: the receiver took nothing for that long; what it took before counts.
            BackpressureError: a refused event finds no room in the quarantine; it stays the next one.
            StorageError: a container or a stripe of a writer is missing, or on another machine; the others' events were
                delivered.
            SupersededError: another run took over.
        """
        report = self._new_report()
        seconds = self._export.target.retry_seconds if retry_seconds is None else retry_seconds
        patience = _Patience(seconds, stop or threading.Event())
        failures: list[StorageError | EarlierStateError] = []
        for listed in self._export.workspaces():
            # Kept from call to call: a workspace knows the catalog as it was read last.
            workspace = self._workspaces.setdefault(listed.writer, listed)
            notices = Notices(strict=False)
            try:
                self._require_delivered(workspace)
                bound = settled_bound(workspace, notices, self._position(workspace.writer))
            # The events of the others do not wait for a disk that is missing, or of an earlier moment.
            except (StorageError, EarlierStateError) as error:
                failures.append(error)
                continue
            try:
                self._deliver(workspace, bound, notices, patience, report)
            # Nor for a stripe. The events behind those that lie there wait, because a cursor never goes back by itself.
            except StripeMissingError as error:
                failures.append(error)
            report.notices += [text for text in notices if text not in report.notices]
            if patience.stop.is_set():
                return report
        for failure in failures:
            raise failure
        return report

    def resend(self, *, stop: threading.Event | None = None) -> ExportReport:
        """Deliver the events that the receiver refused once more; those that it takes leave the quarantine.

        Raises:
            UnavailableError: the receiver takes nothing now.
        """
        report = self._new_report()
        patience = _Patience(self._export.target.retry_seconds, stop or threading.Event())
        for entry in list(self._export.refused()):
            writer = entry.node or ""
            workspace = self._workspaces.setdefault(writer, Workspace(self._export.settings, writer, self._fs))
            workspace = self._as_given_out(workspace)
            events = get_many(workspace, [entry.index or 0], on_damage=waiting_for_stripes(Notices(strict=False)))
            if not events:
                report.notices.append(f"event {entry.index} of {writer!r} is gone; its copy stays")
                continue
            table = next(tables_from(workspace, events[0].event_id, 1, Notices(strict=False)))
            try:
                self._try(EventBatch(writer, table), patience)
            except RefusedError as error:
                report.refused += 1
                report.notices.append(str(error))
                continue
            report.delivered += 1
            self._quarantine.remove(entry.key)
        return report

    def _new_report(self) -> ExportReport:
        """Return a report whose files are those that are written from now on."""
        self._files = []
        return ExportReport(self._export.name, files=self._files)

    def _as_given_out(self, workspace: Workspace) -> Workspace:
        """Return a writer's files without the values that are given to nobody."""
        masks = self._export.settings.query.mask_attributes
        return workspace.seen_by(Visibility(None, (), masks)) if masks else workspace

    def _require_delivered(self, workspace: Workspace) -> None:
        """Raise EarlierStateError where events were delivered that the repository does not know."""
        position, given_out = self._position(workspace.writer), next_event_id(workspace)
        if position > given_out:
            raise EarlierStateError(
                f"writer {workspace.writer!r}: its events are of an earlier moment: expected ids up to {position - 1}, "
                f"which export {self._export.name!r} has delivered by {self._export.folder}, got ids up to "
                f"{given_out - 1}. Nothing of it is delivered. Bring the newer state back. To go on from the earlier "
                f"one for good: custody export {self._export.name} --rewind {workspace.writer}:{given_out}"
            )

    def _position(self, writer: str) -> int:
        return self._cursors.next_event_ids.get(writer, 0)

    def _batches(self, workspace: Workspace, bound: int, notices: Notices) -> Iterator[EventBatch]:
        """Yield what waits of a writer below a bound, cut by events and bytes."""
        target, position = self._export.target, self._position(workspace.writer)
        if bound <= position:
            return
        for table in tables_from(self._as_given_out(workspace), position, on_damage=waiting_for_stripes(notices)):
            settled = table.slice(0, int(np.searchsorted(table.column("event_id").to_numpy(), bound)))
            chosen = settled
            if self._query is not None:
                chosen = settled.filter(pa.array(Scan(settled, self._attributes).match(self._query)))
            for piece in _cut(chosen, target.batch_events, target.batch_bytes):
                yield EventBatch(workspace.writer, piece)
            if settled.num_rows < table.num_rows:
                return

    def _deliver(
        self, workspace: Workspace, bound: int, notices: Notices, patience: _Patience, report: ExportReport
    ) -> None:
        """Deliver a writer's events below a bound, and move its cursor behind them; less when it is to stop."""
        for batch in self._batches(workspace, bound, notices):
            delivered, refused = self._hand_over(batch, patience)
            self._move(batch.writer, batch.last_event_id + 1, delivered, refused)
            report.delivered += delivered
            report.refused += refused
            report.bytes += batch.table.nbytes
            if patience.stop.is_set():
                return
        # Ids at the end may be those of events that expired or cannot be read: nobody looks at them again.
        if bound > self._position(workspace.writer):
            self._move(workspace.writer, bound, 0, 0)

    def _hand_over(self, batch: EventBatch, patience: _Patience) -> tuple[int, int]:
        """Deliver a batch, refused events to the quarantine; return how many were delivered and refused."""
        try:
            self._try(batch, patience)
        except RefusedError as error:
            if batch.table.num_rows == 1:
                self._keep(batch, error)
                return 0, 1
            # By halves: a single event that is refused costs a few more calls, and nothing else is held up by it.
            first, second = (self._hand_over(half, patience) for half in batch.halves())
            return first[0] + second[0], first[1] + second[1]
        self.on_delivery(batch.table.num_rows)
        return batch.table.num_rows, 0

    def _try(self, batch: EventBatch, patience: _Patience) -> None:
        while True:
            try:
                file = self._receiver.deliver(batch)
            except UnavailableError as error:
                patience.wait(error)
            else:
                patience.reset()
                if file is not None and len(self._files) < FILES_MAX:
                    self._files.append(file)
                return

    def _keep(self, batch: EventBatch, error: RefusedError) -> None:
        event = batch.events()[0]
        self._quarantine.add(
            bad_piece(
                msgspec.json.encode(event_to_json(event)),
                severity="error",
                code="export-refused",
                message=f"event {event.event_id} of writer {batch.writer!r}: {error}",
                file=f"export {self._export.name}",
                index=event.event_id,
                offset=0,
                node=batch.writer,
                received_ms=self._clock.now_ms(),
                format=f"{QUARANTINE_FORMAT}:{self._export.name}",
            )
        )

    def _move(self, writer: str, next_event_id: int, delivered: int, refused: int) -> None:
        former = self._cursors
        moved = msgspec.structs.replace(
            former,
            updated_ms=self._clock.now_ms(),
            next_event_ids={**former.next_event_ids, writer: next_event_id},
            delivered=former.delivered + delivered,
            refused=former.refused + refused,
        )
        write_cursors(self._fs, self._export.folder, moved)
        self._cursors = moved


class _Patience:
    """How long a receiver that takes nothing is tried again: with pauses that grow, for some seconds in a row."""

    def __init__(self, seconds: float, stop: threading.Event) -> None:
        self._seconds = seconds
        self.stop = stop
        self._since: float | None = None
        self._pause = _FIRST_PAUSE_SECONDS

    def reset(self) -> None:
        """Take note that the receiver took something."""
        self._since, self._pause = None, _FIRST_PAUSE_SECONDS

    def wait(self, error: UnavailableError) -> None:
        """Wait before the next try; raise the error where there is no time left for one."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        pause = min(max(self._pause, error.retry_seconds or 0.0), _LONGEST_PAUSE_SECONDS)
        if now + pause - self._since > self._seconds or self.stop.is_set():
            raise error
        _LOGGER.warning("%s. Tried again in %.1f s.", error, pause)
        if self.stop.wait(pause):
            raise error
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)


def refused_entries(quarantine: Quarantine, name: str) -> Iterator[QuarantineEntry]:
    """Yield the entries of the quarantine that an export made, oldest event first."""
    ours = (entry for entry in quarantine.entries() if entry.format == f"{QUARANTINE_FORMAT}:{name}")
    yield from sorted(ours, key=lambda entry: (entry.node or "", entry.index or 0))


def _cut(table: pa.Table, events: int, size: int) -> Iterator[pa.Table]:
    """Yield a table in pieces of at most so many events, and of about so many bytes."""
    if table.num_rows == 0:
        return
    # By the mean size: exact sizes of slices would cost more than they are worth.
    rows = max(1, min(events, int(table.num_rows * size / max(table.nbytes, 1))))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def parse_position(text: str) -> tuple[str, int]:
    """Return the writer and the event id of `WRITER:EVENT_ID`.

    Raises:
        InvalidInputError: the text is none.
    """
    writer, colon, number = text.rpartition(":")
    if not colon or not writer or not number.isdecimal():
        raise InvalidInputError(f"{text!r}: expected WRITER:EVENT_ID, such as main:0")
    return writer, int(number)
