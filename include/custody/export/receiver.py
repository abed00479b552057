"""The interface of receivers: a batch of events is taken, refused for good, or cannot be taken now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from custody.errors import InvalidInputError, StorageError
from custody.model import Event, to_events


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Neighbouring events of one writer, in the order of their ids; the table has the columns of an event log."""

    writer: str
    table: pa.Table

    @property
    def first_event_id(self) -> int:
        """The least id."""
        return int(self.table.column("event_id")[0].as_py())

    @property
    def last_event_id(self) -> int:
        """The greatest id."""
        return int(self.table.column("event_id")[-1].as_py())

    def events(self) -> Sequence[Event]:
        """Return the events as objects."""
        return to_events(self.table)

    def halves(self) -> tuple[EventBatch, EventBatch]:
        """Return the batch as two, neither of them empty where it has two events."""
        middle = self.table.num_rows // 2
        return EventBatch(self.writer, self.table.slice(0, middle)), EventBatch(self.writer, self.table.slice(middle))


class RefusedError(InvalidInputError):
    """A receiver refuses a delivery for good: the same bytes would be refused again."""


class UnavailableError(StorageError):
    """A receiver does not take events now; `retry_seconds` is when it wants to be asked again, where it says so."""

    def __init__(self, message: str, retry_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class Receiver(Protocol):
    """Takes events. One call at a time; what it takes may come again after a crash."""

    def deliver(self, batch: EventBatch) -> str | None:
        """Hand a batch over; on return the receiver has it durably, as far as its own promise goes.

        Returns the URI of the file that it is now, None where it became none.

        Raises:
            RefusedError: it refuses this batch for good.
            UnavailableError: it cannot be reached, or takes nothing now.
            ConfigurationError: it does not let this client in, or the settings do not fit it.
        """
        ...

    def close(self) -> None:
        """Give connections back."""
        ...
