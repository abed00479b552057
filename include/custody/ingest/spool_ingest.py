"""A spool on the machine of the repository: its events are ingested without a server between."""

from __future__ import annotations

from custody.capture import CaptureLimits, Format, split_text
from custody.client.spool_delivery import Receipt
from custody.errors import BackpressureError
from custody.ingest.ingest import Ingest, UnreadDelivery


class RepositorySender:
    """Takes the events of a spool into a repository, as the events door does.

    Args:
        ingest: stores them; the caller holds it.
        limits: of one event.
        origin: the spool's folder, which the quarantine shows as the file.
    """

    def __init__(self, ingest: Ingest, limits: CaptureLimits, origin: str) -> None:
        self._ingest = ingest
        self._limits = limits
        self._origin = origin

    def send(self, lines: bytes) -> Receipt:
        """Store events, a line of JSON each; bad ones go to the quarantine.

        Raises:
            BackpressureError, LockedError, StorageError: as `Ingest.deliveries`; the quarantine may be full, too.
        """
        text = split_text(lines, self._limits, Format.CUSTODY)
        delivery = UnreadDelivery(origin=self._origin, format=text.format, outcomes=(), size=len(lines), text=text)
        [report] = self._ingest.deliveries([delivery])
        if isinstance(report, BackpressureError):
            raise report
        return Receipt(report.counts.stored, report.counts.repeated, report.counts.rejected)
