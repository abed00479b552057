"""The intake of Site-to-Site: the content of a packet becomes acknowledged events, or goes to the quarantine.

What a packet holds is known by the attribute that NiFi's reporting tasks set, never guessed from its bytes. Provenance
is ingested, each event once, however often and in whatever batches it comes. Everything else is kept in the quarantine
with the reason: to refuse it would make its sender come again for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from io import BufferedReader
from threading import Lock
from typing import BinaryIO, Protocol, cast

from custody.capture import CaptureLimits, ColumnBatch, Context, Format, Outcome, read_batches
from custody.capture.formats import DETECT_BYTES, detect
from custody.capture.validate import PIECE_BYTES_MAX
from custody.clock import Clock
from custody.config import Settings
from custody.format.names import name_as_text
from custody.ingest.bad_pieces import BadPieces
from custody.ingest.ingest import BatchDelivery, Delivery, FileReport, FileTally, Ingest
from custody.quarantine import Quarantine, bad_piece
from custody.serving.event_intake import BATCH_EVENTS_MAX, EventIntake

PROVENANCE = "SiteToSiteProvenanceReportingTask"
TYPE_ATTRIBUTE, TASK_ATTRIBUTE = "reporting.task.type", "reporting.task.uuid"
_SHOWN_CHARACTERS = 80
_RENEW_EVENTS = 1_000_000
_RENEW_SECONDS = 900.0
_COLUMNS_FROM = 64
"""Fewer events are read as rows: columns take a millisecond, however few they are, and rows of several senders are
stored by one append."""

Batches = Iterable[Sequence[Outcome] | ColumnBatch]
"""What a packet holds, a part of it at a time."""


class EventStore(Protocol):
    """Stores events that came in packets, each once. Blocks; called by one thread at a time."""

    def store(self, batches: Batches, origin: str, format: Format, producer: str | None) -> FileReport:
        """Store what a producer delivered; None has to prove nothing.

        Durability: on return the events are acknowledged, and the rest is in the quarantine.
        """
        ...


class IngestStore:
    """An `EventStore` that has an ingest, and its writer, for itself."""

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest
        self._storing = Lock()
        self._since_renewal = 0
        self._renewed = time.monotonic()

    def store(self, batches: Batches, origin: str, format: Format, producer: str | None) -> FileReport:
        """Store what was read, as `Ingest.batches` does."""
        with self._storing:
            # What an ingest knows of stored events grows with each of them, and a server runs for months.
            if self._since_renewal > _RENEW_EVENTS or time.monotonic() - self._renewed > _RENEW_SECONDS:
                self._ingest.renew()
                self._since_renewal, self._renewed = 0, time.monotonic()
            report = self._ingest.batches(batches, origin=origin, format=format, producer=producer)
            self._since_renewal += report.stored
            return report


class IntakeStore:
    """An `EventStore` that shares an intake, and its writer, with other doors."""

    def __init__(self, intake: EventIntake) -> None:
        self._intake = intake

    def store(self, batches: Batches, origin: str, format: Format, producer: str | None) -> FileReport:
        """Store what was read, a batch at a time, so that no packet is in memory as a whole."""
        counts = FileTally(origin, format, None)
        # Of all batches together: a packet is one body in the quarantine.
        bad = BadPieces()
        for batch in batches:
            self._take(_delivery(batch, origin, format, producer, bad), counts)
        if bad:
            self._take(Delivery(origin=origin, format=format, outcomes=(), size=0, bad=bad, producer=producer), counts)
        return counts.report("")

    def _take(self, delivery: Delivery, counts: FileTally) -> None:
        # The thread of the port has no loop: the answer comes back to one of its own.
        stored = asyncio.run(self._intake.take(delivery)).counts
        counts.read += stored.read
        counts.stored += stored.stored
        counts.repeated += stored.repeated
        counts.retold += stored.retold
        counts.rejected += stored.rejected
        counts.warned += stored.warned


class PacketIntake:
    """Takes packets, one after the other.

    Args:
        settings: of the repository; the section `capture` bounds events.
        store: takes what is provenance.
        quarantine: takes what is not.
        clock: tells times of arrival.
    """

    def __init__(self, settings: Settings, store: EventStore, quarantine: Quarantine, clock: Clock) -> None:
        capture = settings.capture
        self._limits = CaptureLimits(event_bytes_max=capture.event_bytes_max, file_bytes_max=capture.body_bytes_max)
        self._store = store
        self._quarantine = quarantine
        self._clock = clock
        self.stored = 0
        """Events that were stored."""
        self.repeated = 0
        """Events that had been stored before."""
        self.rejected = 0
        """Pieces of provenance that went to the quarantine."""
        self.kept = 0
        """Packets that are no provenance, and went to the quarantine as a whole."""

    def take(self, attributes: Mapping[str, str], content: BinaryIO, producer: str | None = None) -> None:
        """Take one packet of a producer. Durability: on return all of it is acknowledged, or in the quarantine.

        Raises:
            BackpressureError, LockedError, StorageError, ClosedError: as `Ingest.batches`; the sender has to send it
                again, and what was stored of it is known then.
        """
        kind = attributes.get(TYPE_ATTRIBUTE, PROVENANCE)
        # The same for a packet that comes again, so that what is wrong with it is kept once.
        origin = f"site-to-site/{_shown(attributes.get(TASK_ATTRIBUTE, 'packet'))}"
        if kind != PROVENANCE:
            self._keep(kind, origin, content)
            return
        head = cast(BufferedReader, content).peek(DETECT_BYTES)[:DETECT_BYTES]
        # A record writer of the task may write Avro. Other formats are not what the attribute says.
        format = Format.NIFI_AVRO if detect(head) is Format.NIFI_AVRO else Format.NIFI
        context = Context(received_ms=self._clock.now_ms())
        batches = read_batches(
            content,
            self._limits,
            batch_events=BATCH_EVENTS_MAX,
            format=format,
            context=context,
            columns_from=_COLUMNS_FROM,
        )
        report = self._store.store(batches, origin, format, producer)
        self.stored += report.stored
        self.repeated += report.repeated
        self.rejected += report.rejected

    def _keep(self, kind: str, origin: str, content: BinaryIO) -> None:
        raw = content.read(PIECE_BYTES_MAX)
        self._quarantine.add(
            bad_piece(
                raw,
                severity="error",
                code="not-provenance",
                message=f"expected packets of {PROVENANCE}, got one of {_shown(kind)}. Point that task elsewhere.",
                file=origin,
                index=None,
                offset=0,
                node=None,
                received_ms=self._clock.now_ms(),
                format=Format.NIFI,
            )
        )
        self.kept += 1


def _delivery(
    batch: Sequence[Outcome] | ColumnBatch, origin: str, format: Format, producer: str | None, bad: BadPieces
) -> Delivery:
    """Return a part of a packet that is not the last one."""
    fields = {"origin": origin, "format": format, "producer": producer, "bad": bad, "is_last": False}
    if isinstance(batch, ColumnBatch):
        size = batch.events.nbytes + sum(len(piece.raw) for piece in batch.rejected)
        return BatchDelivery(outcomes=(), size=size, batches=(batch,), **fields)  # type: ignore[arg-type]
    size = sum(len(outcome.raw) for outcome in batch)
    return Delivery(outcomes=batch, size=size, **fields)  # type: ignore[arg-type]


def _shown(text: str) -> str:
    """Return a text from outside, fit for a message and for the place of an entry."""
    return name_as_text(text.replace("/", "_"))[:_SHOWN_CHARACTERS]
