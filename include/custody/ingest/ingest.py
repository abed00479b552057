"""Ingest: a file of events becomes acknowledged events, each exactly once; what is bad goes to the quarantine.

An event that is stored already, by whichever writer, is found by its key. If its content is the same it is a repetition
and counted as such; if it differs, both cannot be true, and the second one is rejected. One of another time and another
FlowFile is another event (`custody.capture.is_other_event`). Ingests of several processes
lock the sources of their events, so that what one looks up is still true when it stores. A file is read once from its
beginning to its end, in bounded memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, compress, groupby
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.capture import (
    Accepted,
    CaptureLimits,
    ColumnBatch,
    Context,
    Format,
    FormerOrdinals,
    InputPlace,
    Outcome,
    Rejected,
    SplitText,
    batched_outcomes,
    contradictions,
    detect_file,
    former_ordinal,
    former_ordinals,
    harmless_differences,
    is_other_event,
    read_batches,
    read_piece,
    read_together,
    shared_time,
)
from custody.errors import (
    BackpressureError,
    FormatVersionError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from custody.format.names import name_as_text
from custody.format.number_sets import is_among
from custody.ingest.bad_pieces import PIECES_MAX, BadPieces, BodyFacts, HeldPiece
from custody.ingest.dedup import (
    NO_WRITER,
    Key,
    PreviewedKeys,
    StoredAt,
    StoredKeys,
    key_of,
    keys_of_writer,
    repeated_rows,
)
from custody.ingest.source_locks import SourceLocks
from custody.model import (
    UNASSIGNED,
    Event,
    EventProblem,
    Severity,
    require_text,
    require_valid,
    to_batch,
    to_events,
)
from custody.ngsi.http_notification import Arrival, kept_arrival, with_arrival
from custody.quarantine import BadPiece, Quarantine, QuarantineEntry, body_of
from custody.read.reader import stored_events, stored_values
from custody.workspace import Workspace

_COLUMNS_FROM = 64
"""Fewer events that came together are read as rows: columns take a millisecond, however few they are."""
_ALONE_FROM = 512
"""So many events of one delivery gain nothing by those of others."""


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


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What one sender delivered at once, already read: its outcomes, and what the quarantine says of the bad ones."""

    origin: str
    """Where it came to, such as a URL without a query; the quarantine shows it as the file."""
    format: Format
    outcomes: Sequence[Outcome]
    size: int
    """Bytes of all of it."""
    node: str | None = None
    """Names the source of events that do not name it themselves."""
    producer: str | None = None
    """Who delivers, by the name of a token or certificate; None for programs of this machine."""
    bad: BadPieces | None = None
    """Collects the bad pieces of a body that comes in parts; they are kept with the part that `is_last`."""
    is_last: bool = True

    @property
    def pieces(self) -> int:
        """How many events there are, and pieces that are none."""
        return len(self.outcomes)


class BatchDelivery(Delivery, frozen=True, kw_only=True):
    """A delivery that was read as columns, in one or several batches; `outcomes` are those that came as rows."""

    batches: Sequence[ColumnBatch]

    @property
    def pieces(self) -> int:
        """How many events there are, and pieces that are none."""
        return len(self.outcomes) + sum(len(batch.numbers) + len(batch.rejected) for batch in self.batches)


class UnreadDelivery(Delivery, frozen=True, kw_only=True):
    """A delivery that is read when it is stored, together with others; `outcomes` are none yet."""

    text: SplitText

    @property
    def pieces(self) -> int:
        """How many events there are, and pieces that are none."""
        return len(self.text.pieces)


def delivery_of_text(
    text: SplitText, origin: str, size: int, node: str | None = None, producer: str | None = None
) -> Delivery:
    """Return a delivery of a text: of many events it is read here, so that those of others need not wait for that."""
    fields = {"origin": origin, "format": text.format, "outcomes": (), "size": size, "node": node, "producer": producer}
    if len(text.pieces) < _ALONE_FROM:
        return UnreadDelivery(text=text, **fields)  # type: ignore[arg-type]
    return BatchDelivery(batches=[read_together([text])], **fields)  # type: ignore[arg-type]


class ColumnDelivery(Delivery, frozen=True, kw_only=True):
    """A delivery whose events are columns; `outcomes` are those of its rows that are none of them."""

    events: pa.RecordBatch
    """As `require_valid_columns` returns them, each with its source and its ordinal."""
    rows: npt.NDArray[np.int64]
    """The number of each event in the delivery, shape (events,)."""

    @property
    def pieces(self) -> int:
        """How many events there are, and pieces that are none."""
        return len(self.rows) + len(self.outcomes)


class RefusedPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a delivery that was not stored as an event."""

    index: int | None
    """Number of the piece in the delivery, from 0; None for all of it."""
    offset: int
    code: str
    message: str
    key: str
    """Of its entry in the quarantine."""


class DeliveryReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one delivery."""

    counts: FileReport
    refused: tuple[RefusedPiece, ...]
    """Those that were kept one by one; `counts.rejected` is the number of all."""


class FileTally:
    """Counts what becomes of one file, and holds what goes into the quarantine with each of its pieces."""

    def __init__(
        self, file: str, format: Format, node: str | None, producer: str | None = None, *, is_kept_piece: bool = False
    ) -> None:
        self.file = file
        self.format = format
        self.node = node
        self.producer = producer
        """Who delivers it, as `Delivery.producer`."""
        self.is_kept_piece = is_kept_piece
        """Whether it comes out of the quarantine, which does not know who delivered it."""
        self.read = self.stored = self.repeated = self.retold = self.rejected = self.warned = 0
        self.first: int | None = None
        self.last: int | None = None
        self.problems: list[str] = []
        self.bad = BadPieces()
        self.failure: BackpressureError | None = None
        """Why all of it has to come again, of what is one of several deliveries."""

    def may_contradict(self, former: Event) -> bool:
        """Whether an event of it with the key of a stored one is the same event, or contradicts it.

        A producer's numbers are its own: one who takes the numbers of another keeps none of its events out.
        """
        return self.is_kept_piece or former.delivered_by == self.producer

    @property
    def facts(self) -> BodyFacts:
        """What its bad pieces share."""
        return BodyFacts(self.file, self.format, self.node)

    def reject(self, piece: HeldPiece) -> None:
        """Count a piece that is not stored, and hold it until it is kept with the others."""
        self.rejected += 1
        self.bad.add(piece, self.format)

    def note_stored(self, ids: range) -> None:
        """Count events that were stored, behind those that were before."""
        if ids:
            self.stored += len(ids)
            self.first = ids.start if self.first is None else self.first
            self.last = ids.stop - 1

    def note_kept(self, pieces: Sequence[HeldPiece], entries: Sequence[QuarantineEntry]) -> None:
        """Note the problems of pieces, and where each is kept; of a preview there are no entries.

        Behind the entries of these pieces there may be others, of pieces that were joined.
        """
        keys = [f" [quarantine {entry.key}]" for entry in entries] or [""] * len(pieces)
        for (_, place, problem), key in zip(pieces, keys, strict=False):
            self.problems.append(f"{self.file}: {place}: {problem.severity}: {problem.message}{key}")
        for entry in entries[len(pieces) :]:
            self.problems.append(f"{self.file}: {entry.severity}: {entry.message} [quarantine {entry.key}]")

    def note_full(self, refusal: BackpressureError) -> None:
        """Note that bad pieces found no room; of a file nothing more is read.

        Raises:
            BackpressureError: the refusal, unless this is one of several deliveries.
        """
        raise refusal

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


class _SharedTally(FileTally):
    """Counts what becomes of one of several deliveries: a full quarantine fails this one and no other."""

    def __init__(self, delivery: Delivery) -> None:
        super().__init__(delivery.origin, delivery.format, delivery.node, delivery.producer)
        self._refused: list[RefusedPiece] = []
        self.bad = self.bad if delivery.bad is None else delivery.bad
        self.is_last = delivery.is_last

    def note_kept(self, pieces: Sequence[HeldPiece], entries: Sequence[QuarantineEntry]) -> None:
        """Note the problems of pieces; of those that were not stored also the place."""
        super().note_kept(pieces, entries)
        for (_, place, problem), entry in zip(pieces, entries, strict=False):
            if not entry.is_stored:
                self._refused.append(
                    RefusedPiece(
                        index=place.index,
                        offset=place.offset,
                        code=problem.code,
                        message=problem.message,
                        key=entry.key,
                    )
                )

    def note_full(self, refusal: BackpressureError) -> None:
        """Note why all of the delivery has to come again."""
        self.failure = refusal

    def result(self, writer: str) -> DeliveryReport | BackpressureError:
        """Return the report, or why all of it has to be sent again."""
        if self.failure is not None:
            return self.failure
        return DeliveryReport(counts=self.report(writer), refused=tuple(self._refused))


class _AgainTally(FileTally):
    """Counts what becomes of a piece of the quarantine that is tried again; it stays until all of it is stored."""

    def __init__(self, entry: QuarantineEntry, format: Format) -> None:
        super().__init__(entry.file, format, entry.node, is_kept_piece=True)
        self._entry = entry

    def reject(self, piece: HeldPiece) -> None:
        """Count a piece that is not stored again."""
        self.rejected += 1
        if len(self.problems) < PIECES_MAX:
            self.note_kept([piece], [self._entry])


class _Shares:
    """Of which tally each of some elements is that were read together, by their numbers.

    Args:
        tallies: in the order of their elements.
        begins: the number of the first element of each.
    """

    def __init__(self, tallies: Sequence[FileTally], begins: Sequence[int]) -> None:
        self._tallies = tallies
        self._begins = np.array(begins, np.int64)

    @classmethod
    def of_one(cls, tally: FileTally) -> _Shares:
        """Return what all elements belong to one tally of."""
        return cls([tally], [0])

    def tallies_of(self, numbers: Sequence[int] | npt.NDArray[np.int64]) -> list[FileTally]:
        """Return the tally of each element."""
        return [self._tallies[place] for place in self._places(numbers).tolist()]

    def counts(self, numbers: npt.NDArray[np.int64]) -> list[tuple[FileTally, int]]:
        """Return each tally with the number of its elements, in their order."""
        counts = np.bincount(self._places(numbers), minlength=len(self._tallies)).tolist()
        return list(zip(self._tallies, counts, strict=True))

    def delivered(self, events: pa.RecordBatch, numbers: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Return the events of some elements with the names of those who delivered them."""
        if all(tally.producer is None for tally in self._tallies):
            return events
        names = pa.array([tally.producer for tally in self._tallies], pa.string())
        place = events.schema.get_field_index(_PRODUCER)
        return events.set_column(place, events.schema.field(place), names.take(pa.array(self._places(numbers))))

    def share_with(self, numbers: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which elements are of the same tally as one of the others."""
        return is_among(self._places(numbers), self._places(others))

    def _places(self, numbers: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        places: npt.NDArray[np.int64] = np.searchsorted(self._begins, np.asarray(numbers, np.int64), side="right") - 1
        return places


class _StoredEvent(NamedTuple):
    """An event that is stored already, and its writer."""

    writer: str
    event: Event
    is_compared: bool
    """False for one of which only time and FlowFile may be compared: a forgotten one, or one of a preview."""


class _PutAside(NamedTuple):
    """A piece of a file that goes to the quarantine, and why."""

    tally: FileTally
    raw: bytes
    place: InputPlace
    problem: EventProblem


_PRODUCER = "delivered_by"
_KEY_COLUMNS = ["source_node", "source_ordinal"]
_IDENTITY_COLUMNS = ["event_id", "event_time", "flowfile_uuid"]
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

    def append_checked(self, events: pa.RecordBatch) -> range:
        """Append events that are columns and were checked; return their ids."""
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
        self._stored_keys: StoredKeys = StoredKeys(workspaces, writer.name, keys_of_writer(writer))
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
        context = Context(node, int(status.st_mtime * 1000), limits.nifi_zone)
        try:
            # Unbuffered: the reader has a buffer of its own, and `tell` says how far it has come.
            with path.open("rb", buffering=0) as stream:
                format = format or detect_file(stream)
                batches = read_batches(
                    stream, self._limits, batch_events=limits.batch_events, format=format, context=context
                )
                return self._take(batches, FileTally(name, format, node), lambda: progress(stream.tell()))
        # Of custody's own files, and says so itself. Any other OSError comes from the input file.
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"{name}: cannot read: {error.strerror}") from error

    def deliveries(self, deliveries: Sequence[Delivery]) -> list[DeliveryReport | BackpressureError]:
        """Store what several senders delivered; return the result of each. What came as rows is stored by one append.

        A sender whose bad pieces find no room in the quarantine gets a BackpressureError and has to send all of it
        again; what was stored of it counts as repeated then.

        Durability: on return the stored events are acknowledged.

        Raises:
            BackpressureError: too much waits to be rolled over.
            LockedError: another ingest stored events of one of the sources for too long.
            StorageError: the disk refused; it is unknown which events are stored.
        """
        tallies = [_SharedTally(item) for item in deliveries]
        pairs: list[tuple[FileTally, Accepted]] = []
        with self._turn():
            together, outcomes = _read(deliveries, tallies)
            rejected: list[_PutAside] = []
            for tally, of_delivery in zip(tallies, outcomes, strict=True):
                for outcome in of_delivery:
                    if isinstance(outcome, Rejected):
                        rejected.append(_PutAside(tally, outcome.raw, outcome.place, outcome.problem))
                    else:
                        pairs.append((tally, outcome))
            self._put_aside(rejected)
            for tally, delivery in zip(tallies, deliveries, strict=True):
                if isinstance(delivery, ColumnDelivery):
                    pairs += self._store_columns(tally, delivery)
                elif isinstance(delivery, BatchDelivery):
                    for batch in delivery.batches:
                        self._take_columns(_Shares.of_one(tally), batch)
            for shares, batch in together:
                self._take_columns(shares, batch)
            if pairs:
                self._store(pairs, self._writer.append)
            # Behind all of a body, so that it is one file, and before its sender is answered.
            self._keep([(tally, tally.bad) for tally in tallies if tally.is_last])
        return [tally.result(self._writer.name) for tally in tallies]

    def batches(
        self,
        batches: Iterable[Sequence[Outcome] | ColumnBatch],
        *,
        origin: str,
        format: Format,
        producer: str | None = None,
    ) -> FileReport:
        """Ingest what was read elsewhere, by a producer; `origin` is what the quarantine shows as its file.

        Durability: on return the stored events are acknowledged; so are on raise those before the failure.

        Raises:
            BackpressureError: too much waits to be rolled over, or the quarantine is full.
            LockedError: another ingest stored events of the same source for too long.
            StorageError: the disk refused.
        """
        return self._take(batches, FileTally(origin, format, None, producer))

    def renew(self) -> None:
        """Forget what memory does not have to hold, so that it does not grow for ever: events that are live by now.

        What other writers stored is looked up anew in the next turn.

        Raises:
            StorageError: a container of the writer is missing, which may hold events that are not live.
        """
        self._source_locks.forget()
        self._stored_keys.drop_live()

    def _distrust(self) -> None:
        """Forget which events are stored: the next turn reads it anew."""
        self._source_locks.forget()
        self._stored_keys.forget()

    def resubmit(self, key: str, *, format: Format | None = None) -> FileReport:
        """Try a quarantined piece again, as the format that it came in; it leaves the quarantine when all is stored.

        A notification that a receiver had put there becomes what it would have: events with the body as their content.

        Raises:
            NotFoundError: there is no such entry.
        """
        [report] = self.resubmit_each([key], format=format)
        return report

    def resubmit_each(self, keys: Sequence[str], *, format: Format | None = None) -> Iterator[FileReport]:
        """Try quarantined pieces again as `resubmit` does, and yield the report of each, in their order.

        Pieces of one body that follow each other leave together, for its file is written anew for that.

        Raises:
            NotFoundError: there is no such entry; those before it are done.
        """
        for body, of_body in groupby(keys, body_of):
            wanted = list(of_body)
            reports = []
            stored = []
            try:
                pieces = {piece.entry.key: piece for piece in self._quarantine.pieces(body)}
                for key in wanted:
                    report = self._resubmitted(self._quarantine.checked(pieces.get(key), key), format)
                    if report.rejected == 0:
                        stored.append(key)
                    reports.append(report)
            finally:
                # Only behind the acknowledgement: a crash in between leaves the entries, and the events count as
                # repetitions then.
                self._quarantine.remove(*stored)
            yield from reports

    def _resubmitted(self, piece: BadPiece, format: Format | None) -> FileReport:
        raw, entry = piece
        format = format or _format_of(entry)
        context = Context(entry.node, entry.received_ms, self._workspace.settings.capture.nifi_zone)
        place = InputPlace(entry.index, entry.offset)
        outcomes = read_piece(raw, place, self._limits, format=format, context=context)
        tally = _AgainTally(entry, format)
        if format is Format.NGSI and entry.format == format and urlsplit(entry.file).scheme in _URL_SCHEMES:
            # One notification as a whole.
            arrival = kept_arrival(raw, entry.file, entry.received_ms)
            return self._take([list(outcomes)], tally, store=partial(self._append_notification, arrival))
        return self._take(self._batched(outcomes), tally)

    def _append_notification(self, arrival: Arrival | None, events: Sequence[Event]) -> range:
        """Append the events of a notification that a receiver had kept, as it would have: with the body as content."""
        if arrival is None or not events:
            return self._writer.append(events)
        return self._writer.append_with_content([with_arrival(event, arrival) for event in events], arrival.body)

    @property
    def _limits(self) -> CaptureLimits:
        capture = self._workspace.settings.capture
        return CaptureLimits(event_bytes_max=capture.event_bytes_max, file_bytes_max=capture.file_bytes_max)

    def _batched(self, outcomes: Iterable[Outcome]) -> Iterator[list[Outcome]]:
        return batched_outcomes(outcomes, self._workspace.settings.capture.batch_events)

    def _take(
        self,
        batches: Iterable[Sequence[Outcome] | ColumnBatch],
        tally: FileTally,
        progress: Callable[[], None] = lambda: None,
        store: Callable[[Sequence[Event]], range] | None = None,
    ) -> FileReport:
        """Store what was accepted, by `store` where it is given, and quarantine what was not."""
        with self._turn():
            for batch in batches:
                if isinstance(batch, ColumnBatch):
                    self._take_columns(_Shares.of_one(tally), batch)
                else:
                    self._take_outcomes(tally, batch, store or self._writer.append)
                progress()
            self._keep([(tally, tally.bad)])
        return tally.report(self._writer.name)

    def _take_outcomes(
        self, tally: FileTally, batch: Sequence[Outcome], store: Callable[[Sequence[Event]], range]
    ) -> None:
        self._put_aside(_rejections(tally, batch))
        self._store([(tally, outcome) for outcome in batch if isinstance(outcome, Accepted)], store)

    def _take_columns(self, shares: _Shares, batch: ColumnBatch) -> None:
        """Store the events of a batch that are new, in their order; the others are compared one by one."""
        of_rejected = zip(shares.tallies_of(batch.of_rejected), batch.rejected, strict=True)
        self._put_aside([_PutAside(tally, item.raw, item.place, item.problem) for tally, item in of_rejected])
        is_repeated = repeated_rows(batch.events.select(_KEY_COLUMNS))
        if is_repeated.any():
            # Copies are compared with each other, one by one, and with them all that came in the same file.
            is_slow = shares.share_with(batch.numbers, batch.numbers[is_repeated])
            slow = np.flatnonzero(is_slow)
            tallies = shares.tallies_of(batch.numbers[slow])
            self._take_new(shares, batch.of_elements(~is_slow))
            self._store(list(zip(tallies, batch.accepted(slow.tolist()), strict=True)), self._writer.append)
        else:
            self._take_new(shares, batch)

    def _take_new(self, shares: _Shares, batch: ColumnBatch) -> None:
        """Store the events of a batch that are new, no two of which have one key."""
        events = batch.events.num_rows
        if not events:
            return
        keys = batch.events.select(_KEY_COLUMNS)
        self._know_stored(set(keys.column("source_node").unique().to_pylist()))
        older = former_ordinals(batch.events)
        # Both keys of an event in one look: of small batches it costs more than the keys that are looked up.
        is_stored = self._stored_keys.stored_rows(_with_former(keys, older) if len(older.rows) else keys)
        is_new = ~is_stored[:events]
        is_new[older.rows] &= ~is_stored[events:]
        rows = np.flatnonzero(~is_new)
        for tally, count in shares.counts(batch.numbers[is_new]):
            tally.read += count
        if len(rows):
            former = list(zip(shares.tallies_of(batch.numbers[rows]), batch.accepted(rows.tolist()), strict=True))
            # Of what was stored and has expired since, a copy is new. By the objects: several events may have one
            # place.
            again = {id(item) for _, item in self._without_stored(former)}
            is_new[[row for row, (_, item) in zip(rows.tolist(), former, strict=True) if id(item) in again]] = True
        warned = [row for row in batch.warned if is_new[row]]
        tallies = shares.tallies_of(batch.numbers[warned])
        is_new[warned] = self._warn([(tally, batch.warned[row]) for tally, row in zip(tallies, warned, strict=True)])
        # A filter copies all that it leaves.
        new = batch.events if is_new.all() else batch.events.filter(pa.array(is_new))
        ids = self._append_new(shares.delivered(new, batch.numbers[is_new]))
        for tally, count in shares.counts(batch.numbers[is_new]):
            tally.note_stored(ids[:count])
            ids = ids[count:]

    def _append_new(self, events: pa.RecordBatch) -> range:
        """Append events that are columns; return their ids."""
        if not events.num_rows:
            return range(0)
        ids = self._writer.append_checked(events)
        self._stored_keys.add_columns(events.select(_KEY_COLUMNS), ids)
        return ids

    def _warn(self, accepted: Sequence[tuple[FileTally, Accepted]]) -> list[bool]:
        """Keep the bytes of events that are about to be stored, with their warnings; return which may be.

        Before they are stored: an event that is stored is a repetition when it comes again, and would be warned of
        never again if what warns of it had been lost with the process.
        """
        warned: dict[int, tuple[FileTally, BadPieces]] = {}
        for tally, item in accepted:
            for problem in item.warnings:
                tally.warned += 1
                _, pieces = warned.setdefault(id(tally), (tally, BadPieces()))
                pieces.add(HeldPiece(item.raw, item.place, problem), tally.format)
        self._keep(list(warned.values()))
        # One whose warning found no room comes again, for its sender is told so.
        return [not item.warnings or tally.failure is None for tally, item in accepted]

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the sources that are locked in the block until its end."""
        try:
            yield
        except BaseException:
            # An append may have failed: what is stored has to be read again.
            self._distrust()
            raise
        finally:
            # The turn ends with the file, so that ingests that wait for its sources can go on.
            self._source_locks.end()

    def _store(self, accepted: Sequence[tuple[FileTally, Accepted]], store: Callable[[Sequence[Event]], range]) -> None:
        nodes = {key[0] for _, item in accepted if (key := key_of(item.event)) is not None}
        if nodes:
            self._know_stored(nodes)
        fresh = self._without_stored(accepted)
        fresh = list(compress(fresh, self._warn(fresh)))
        events = [_delivered(item.event, tally) for tally, item in fresh]
        # Nothing to append is no reason to wait where too much waits to be rolled over.
        ids = store(events) if events else range(0)
        self._stored_keys.add([key_of(event) for event in events], ids)
        for (tally, _), event_id in zip(fresh, ids, strict=True):
            tally.note_stored(range(event_id, event_id + 1))

    def _store_columns(self, tally: FileTally, delivery: ColumnDelivery) -> list[tuple[FileTally, Accepted]]:
        """Store those events of a delivery that are new; return the others, which are compared one by one."""
        keys = delivery.events.select(_KEY_COLUMNS)
        self._know_stored(set(keys.column("source_node").unique().to_pylist()))
        known = self._stored_keys.known_rows(keys)
        fresh = delivery.events.filter(pa.array(~known))
        tally.read += fresh.num_rows
        shares = _Shares.of_one(tally)
        tally.note_stored(self._append_new(shares.delivered(fresh, np.zeros(fresh.num_rows, np.int64))))
        again = to_events(delivery.events.filter(pa.array(known)))
        return [
            (tally, Accepted(event, InputPlace(row, 0), msgspec.json.encode(event)))
            for event, row in zip(again, delivery.rows[known].tolist(), strict=True)
        ]

    def _know_stored(self, nodes: set[str]) -> None:
        """Know all events of these sources that are stored."""
        # Locked before the look-up and until the events are stored: no other ingest can store them in between.
        if self._source_locks.take(nodes):
            self._stored_keys.refresh()

    def _without_stored(self, accepted: Sequence[tuple[FileTally, Accepted]]) -> list[tuple[FileTally, Accepted]]:
        """Return the events that are not stored yet; count repetitions, reject contradictions."""
        keys = [key_of(item.event) for _, item in accepted]
        former_keys = [_former_key(item.event) for _, item in accepted]
        searched = [key for key in (*keys, *former_keys) if key is not None]
        places = self._stored_keys.find(searched)
        several = [key for key, of_key in places.items() if len(of_key) > 1]
        if several:
            owners = zip((*keys, *former_keys), chain(accepted, accepted), strict=True)
            places |= self._possible_copies({key: places[key] for key in several}, owners)
        stored = self._stored_events(places)
        # Behind the reading: what was erased meanwhile is found here.
        erased = self._stored_keys.erased(searched)
        fresh = []
        contradicting: list[_PutAside] = []
        for (tally, item), key, former_key in zip(accepted, keys, former_keys, strict=True):
            tally.read += 1
            former = stored.get(key, []) if key is not None else []
            copies = [one for one in former if not is_other_event(one.event, item.event)]
            # What was forgotten on purpose must not come back.
            if _is_erased(item.event, key, erased) or not all(one.is_compared for one in copies):
                tally.repeated += 1
                continue
            if self._is_stored_by_former_number(item.event, former_key, stored, erased):
                tally.repeated += 1
                continue
            same = [one for one in copies if not contradictions(one.event, item.event)]
            own = [one for one in copies if tally.may_contradict(one.event)]
            if same:
                tally.repeated += 1
                tally.retold += bool(harmless_differences(same[0].event, item.event))
            elif own:
                contradicting.append(_PutAside(tally, item.raw, item.place, _contradiction(own[0], item.event)))
            else:
                fresh.append((tally, item))
                if key is not None:
                    # So that a second one in the same batch is compared with it.
                    added = _StoredEvent(self._writer.name, _delivered(item.event, tally), is_compared=True)
                    stored.setdefault(key, []).append(added)
        self._put_aside(contradicting)
        return fresh

    @staticmethod
    def _is_stored_by_former_number(
        event: Event,
        key: Key | None,
        stored: Mapping[Key, Sequence[_StoredEvent]],
        erased: Mapping[Key, Sequence[tuple[int, int]]],
    ) -> bool:
        """Whether an older custody stored this event by the number in `key`, or it was forgotten since."""
        if key is None:
            return False
        copies = [one for one in stored.get(key, ()) if not is_other_event(one.event, event)]
        if _is_erased(event, key, erased):
            return True
        return any(not one.is_compared or not contradictions(one.event, event) for one in copies)

    def _possible_copies(
        self, places: Mapping[Key, Sequence[StoredAt]], owners: Iterable[tuple[Key | None, tuple[FileTally, Accepted]]]
    ) -> dict[Key, list[StoredAt]]:
        """Return those places whose events are of a time or a FlowFile of an event at hand of the same key.

        A source that began its ordinals anew a hundred times has a hundred events of each key: two columns of them are
        read, and all fields of the few that may be copies.
        """
        times: dict[Key, set[int]] = {key: set() for key in places}
        flowfiles: dict[Key, set[str]] = {key: set() for key in places}
        for key, (_, item) in owners:
            if key is not None and key in places:
                times[key].add(item.event.event_time)
                flowfiles[key].add(item.event.flowfile_uuid)
        told: dict[StoredAt, tuple[int, str]] = {}
        for writer, ids in _by_writer(places).items():
            told.update(self._times_and_flowfiles(writer, ids))
        possible: dict[Key, list[StoredAt]] = {}
        for key, of_key in places.items():
            known = ((place, *told[place]) for place in of_key if place in told)
            possible[key] = [place for place, time, name in known if time in times[key] or name in flowfiles[key]]
        return possible

    def _times_and_flowfiles(self, writer: str, event_ids: Sequence[int]) -> Iterator[tuple[StoredAt, tuple[int, str]]]:
        """Yield the time, ms, and the FlowFile of those events of a writer that are there."""
        table = stored_values(self._stored_keys.workspace(writer), event_ids, _IDENTITY_COLUMNS)
        ids, times, names = (table.column(name) for name in _IDENTITY_COLUMNS)
        rows = zip(ids.to_pylist(), times.cast(pa.int64()).to_pylist(), names.to_pylist(), strict=True)
        yield from ((StoredAt(writer, event_id), (time, name)) for event_id, time, name in rows)

    def _stored_events(self, places: Mapping[Key, Sequence[StoredAt]]) -> dict[Key, list[_StoredEvent]]:
        """Return the stored events of each key; one that expired since it was looked up, or was erased, is left out."""
        events: dict[StoredAt, _StoredEvent] = {}
        for writer, event_ids in _by_writer(places).items():
            events.update(self._events_of(writer, event_ids))
        held = {key: [events[place] for place in of_key if place in events] for key, of_key in places.items()}
        return {key: of_key for key, of_key in held.items() if of_key}

    def _events_of(self, writer: str, event_ids: Sequence[int]) -> Iterator[tuple[StoredAt, _StoredEvent]]:
        """Yield those events of a writer that are there."""
        events, forgotten = stored_events(self._stored_keys.workspace(writer), event_ids)
        for event in events:
            is_compared = event.event_id not in forgotten
            yield StoredAt(writer, event.event_id), _StoredEvent(writer, event, is_compared)

    def _put_aside(self, pieces: Sequence[_PutAside]) -> None:
        """Count what is rejected and hold its bytes, which are kept when all of the body was read."""
        for tally, raw, place, problem in pieces:
            tally.reject(HeldPiece(raw, place, problem))
            if tally.bad.is_full:
                self._keep([(tally, tally.bad)])

    def _keep(self, bodies: Sequence[tuple[FileTally, BadPieces]]) -> None:
        """Put pieces into the quarantine, each body as one file, with few syncs for all.

        Raises:
            BackpressureError: those of a file find no room; of one of several deliveries this is noted.
        """
        bodies = [(tally, bad) for tally, bad in bodies if bad]
        if not bodies:
            return
        now_ms = self._workspace.clock.now_ms()
        first = [bad.first for _, bad in bodies]
        results = self._quarantine.add_bodies([bad.taken(tally.facts, now_ms) for tally, bad in bodies])
        for (tally, _), pieces, result in zip(bodies, first, results, strict=True):
            if isinstance(result, BackpressureError):
                tally.note_full(result)
            else:
                tally.note_kept(pieces, result)


def _read(
    deliveries: Sequence[Delivery], tallies: Sequence[FileTally]
) -> tuple[list[tuple[_Shares, ColumnBatch]], list[Sequence[Outcome]]]:
    """Read what is not read yet, as columns where many events of a kind came together.

    Returns:
        The columns with the tallies of their elements, and the outcomes of each delivery that are rows.
    """
    outcomes = [delivery.outcomes for delivery in deliveries]
    kinds: dict[object, list[tuple[int, SplitText]]] = defaultdict(list)
    for place, delivery in enumerate(deliveries):
        if isinstance(delivery, UnreadDelivery):
            kinds[delivery.text.kind].append((place, delivery.text))
    together = []
    for placed in kinds.values():
        ends = np.cumsum([len(text.pieces) for _, text in placed]).tolist()
        if ends[-1] >= _COLUMNS_FROM:
            shares = _Shares([tallies[place] for place, _ in placed], [0, *ends[:-1]])
            together.append((shares, read_together([text for _, text in placed])))
        else:
            for place, text in placed:
                outcomes[place] = text.outcomes()
    return together, outcomes


def _rejections(tally: FileTally, outcomes: Iterable[Outcome]) -> list[_PutAside]:
    return [_PutAside(tally, item.raw, item.place, item.problem) for item in outcomes if isinstance(item, Rejected)]


def _is_erased(event: Event, key: Key | None, erased: Mapping[Key, Sequence[tuple[int, int]]]) -> bool:
    """Whether an event is one of those that were erased with these keys, each between two times."""
    if key is None or key not in erased:
        return False
    time_ms = shared_time(event)
    return time_ms is None or any(first <= time_ms <= last for first, last in erased[key])


def _by_writer(places: Mapping[Key, Sequence[StoredAt]]) -> dict[str, list[int]]:
    ids: dict[str, list[int]] = defaultdict(list)
    for place in chain.from_iterable(places.values()):
        ids[place.writer].append(place.event_id)
    return ids


def _delivered(event: Event, tally: FileTally) -> Event:
    """Return an event with the name of who delivered it."""
    return event if tally.producer is None else msgspec.structs.replace(event, delivered_by=tally.producer)


def _contradiction(former: _StoredEvent, event: Event) -> EventProblem:
    where = (
        "in this file"
        if former.event.event_id == UNASSIGNED
        else f"as event {former.event.event_id} of writer {former.writer!r}"
    )
    message = (
        f"{event.source_node} number {event.source_ordinal} is stored {where} with different content "
        f"({', '.join(contradictions(former.event, event))}); an event is never overwritten"
    )
    return EventProblem(Severity.ERROR, "contradiction", message)


class _Nowhere:
    """Takes events and keeps what tells those of one key apart; the ids say how many there were."""

    name = NO_WRITER

    def __init__(self) -> None:
        self._next = 0
        self._firsts: list[int] = []
        self._kept: list[pa.RecordBatch] = []

    def append(self, events: Sequence[Event]) -> range:
        require_valid(events)
        return self._keep(to_batch(events, 0))

    def append_checked(self, events: pa.RecordBatch) -> range:
        require_valid(to_events(events))
        return self._keep(events)

    def _keep(self, events: pa.RecordBatch) -> range:
        ids = range(self._next, self._next + events.num_rows)
        self._next = ids.stop
        self._firsts.append(ids.start)
        self._kept.append(events.select(["event_time", "flowfile_uuid"]))
        return ids

    def event(self, event_id: int) -> Event:
        """Return an event with its time and its FlowFile alone."""
        batch = bisect_right(self._firsts, event_id) - 1
        row = event_id - self._firsts[batch]
        columns = self._kept[batch]
        time_ms = columns.column("event_time").cast(pa.int64())[row].as_py()
        return Event("", time_ms, "", "", columns.column("flowfile_uuid")[row].as_py(), 0, event_id)

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
        self._nowhere = _Nowhere()
        super().__init__(workspace, self._nowhere, workspaces, quarantine)
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

    def _keep(self, bodies: Sequence[tuple[FileTally, BadPieces]]) -> None:
        for tally, bad in bodies:
            tally.note_kept(bad.first, ())
            bad.taken(tally.facts, 0)

    def _times_and_flowfiles(self, writer: str, event_ids: Sequence[int]) -> Iterator[tuple[StoredAt, tuple[int, str]]]:
        if writer != NO_WRITER:
            yield from super()._times_and_flowfiles(writer, event_ids)
            return
        for event in map(self._nowhere.event, event_ids):
            yield StoredAt(writer, event.event_id), (event.event_time, event.flowfile_uuid)

    def _events_of(self, writer: str, event_ids: Sequence[int]) -> Iterator[tuple[StoredAt, _StoredEvent]]:
        if writer != NO_WRITER:
            yield from super()._events_of(writer, event_ids)
            return
        for event in map(self._nowhere.event, event_ids):
            yield StoredAt(writer, event.event_id), _StoredEvent(writer, event, is_compared=False)


def _with_former(keys: pa.RecordBatch, older: FormerOrdinals) -> pa.RecordBatch:
    """Return the keys of events, and behind them those that an older custody gave some of them."""
    of_older = keys.take(pa.array(older.rows)).set_column(1, "source_ordinal", pa.array(older.ordinals))
    return pa.concat_batches([keys, of_older])


def _former_key(event: Event) -> Key | None:
    """Return the key by which an older custody stored the same event; None where it was the same."""
    ordinal = former_ordinal(event)
    return None if ordinal is None or event.source_node is None else (event.source_node, ordinal)


def _format_of(entry: QuarantineEntry) -> Format:
    try:
        return Format(entry.format)
    except ValueError:
        formats = ", ".join(Format)
        raise FormatVersionError(
            f"quarantine entry {entry.key}: expected a format out of {formats}, got {entry.format!r}. "
            "Name one with --format, or use a newer custody."
        ) from None
