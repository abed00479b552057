"""Where events of a spool, and of a reconciliation, go on the machine of the repository: into it, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from custody.capture import CaptureLimits
from custody.client.spool_delivery import Sender
from custody.format.names import name_as_text
from custody.ingest.spool_ingest import RepositorySender
from custody.repository.repository import Repository


@contextmanager
def sender_into(repository: Repository, origin: Path, *, wait_seconds: float | None = None) -> Iterator[Sender]:
    """Hold a writer slot for the block and take events; `origin` is what the quarantine shows as their file.

    Raises:
        LockedError: live processes hold all slots, also after `wait_seconds`.
    """
    with repository.ingest(wait_seconds=wait_seconds) as ingest:
        limits = CaptureLimits(event_bytes_max=repository.settings.capture.event_bytes_max)
        yield RepositorySender(ingest, limits, name_as_text(str(origin)))
