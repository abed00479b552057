"""The intake of Site-to-Site: the content of a packet becomes acknowledged events, or goes to the quarantine.

What a packet holds is known by the attribute that NiFi's reporting tasks set, never guessed from its bytes. Provenance
is ingested, each event once, however often and in whatever batches it comes. Everything else is kept in the quarantine
with the reason: to refuse it would make its sender come again for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedReader
from threading import Lock
from typing import BinaryIO, Protocol, cast

from custody.capture import CaptureLimits, Context, Format, Outcome, read_stream
from custody.capture.formats import DETECT_BYTES, detect
from custody.capture.validate import PIECE_BYTES_MAX
from custody.clock import Clock
from custody.config import Settings
from custody.format.names import name_as_text
from custody.ingest.ingest import Delivery, FileReport, FileTally, Ingest
from custody.quarantine import Quarantine
from custody.serving.event_intake import BATCH_EVENTS_MAX, EventIntake

PROVENANCE = "SiteToSiteProvenanceReportingTask"
TYPE_ATTRIBUTE, TASK_ATTRIBUTE = "reporting.task.type", "reporting.task.uuid"
_SHOWN_CHARACTERS = 80
_RENEW_EVENTS = 1_000_000
_RENEW_SECONDS = 900.0
_SLICE_BYTES = 4 << 20


class EventStore(Protocol):
    """Stores events that came in packets, each once. Blocks; called by one thread at a time."""

    def store(self, outcomes: Iterable[Outcome], origin: str, format: Format) -> FileReport:
        """Store what was read. Durability: on return the events are acknowledged, and the rest is in the quarantine."""
        ...


class IngestStore:
    """An `EventStore` that has an ingest, and its writer, for itself."""

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest
        self._storing = Lock()
        self._since_renewal = 0
        self._renewed = time.monotonic()

    def store(self, outcomes: Iterable[Outcome], origin: str, format: Format) -> FileReport:
        """Store what was read, as `Ingest.outcomes` does."""
        with self._storing:
            # What an ingest knows of stored events grows with each of them, and a server runs for months.
            if self._since_renewal > _RENEW_EVENTS or time.monotonic() - self._renewed > _RENEW_SECONDS:
                self._ingest.renew()
                self._since_renewal, self._renewed = 0, time.monotonic()
            report = self._ingest.outcomes(outcomes, origin=origin, format=format)
            self._since_renewal += report.stored
            return report


class IntakeStore:
    """An `EventStore` that shares an intake, and its writer, with other doors."""

    def __init__(self, intake: EventIntake) -> None:
        self._intake = intake

    def store(self, outcomes: Iterable[Outcome], origin: str, format: Format) -> FileReport:
        """Store what was read, some at a time, so that no packet is in memory as a whole."""
        counts = FileTally(origin, format, None)
        for some, size in _slices(outcomes):
            delivery = Delivery(origin=origin, format=format, outcomes=some, size=size)
            # The thread of the port has no loop: the answer comes back to one of its own.
            stored = asyncio.run(self._intake.take(delivery)).counts
            counts.read += stored.read
            counts.stored += stored.stored
            counts.repeated += stored.repeated
            counts.retold += stored.retold
            counts.rejected += stored.rejected
            counts.warned += stored.warned
        return counts.report("")


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
        self._limits = CaptureLimits(event_bytes_max=capture.event_bytes_max, file_bytes_max=capture.file_bytes_max)
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

    def take(self, attributes: Mapping[str, str], content: BinaryIO) -> None:
        """Take one packet. Durability: on return all of it is acknowledged, or in the quarantine.

        Raises:
            BackpressureError, LockedError, StorageError, ClosedError: as `Ingest.outcomes`; the sender has to send it
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
        report = self._store.store(read_stream(content, self._limits, format=format, context=context), origin, format)
        self.stored += report.stored
        self.repeated += report.repeated
        self.rejected += report.rejected

    def _keep(self, kind: str, origin: str, content: BinaryIO) -> None:
        raw = content.read(PIECE_BYTES_MAX)
        self._quarantine.add(
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
        self.kept += 1


def _slices(outcomes: Iterable[Outcome]) -> Iterator[tuple[list[Outcome], int]]:
    """Yield what was read in slices, each with its bytes; a slice is in memory as a whole."""
    some: list[Outcome] = []
    size = 0
    for outcome in outcomes:
        some.append(outcome)
        size += len(outcome.raw)
        if len(some) == BATCH_EVENTS_MAX or size > _SLICE_BYTES:
            yield some, size
            some, size = [], 0
    if some:
        yield some, size


def _shown(text: str) -> str:
    """Return a text from outside, fit for a message and for the place of an entry."""
    return name_as_text(text.replace("/", "_"))[:_SHOWN_CHARACTERS]
