"""What a step did: one JSON line a job, shown as the task's result and kept as run history."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class UnitReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a step did with one unit; sizes in bytes: read (`bytes_in`) and written or removed (`bytes`)."""

    unit: str
    events: int = 0
    bytes_in: int = 0
    bytes: int = 0
    seconds: float = 0.0
    note: str | None = None
    error: str | None = None
    error_kind: str | None = None
    """Of an error of custody, its `kind`."""


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a step did with all its units; sizes in bytes, read (`bytes_in`) and written or removed (`bytes`).

    `seconds` are those of the work; until it could begin, from the submit on, it took `startup_seconds`.
    """

    step: str
    repository: str
    units: int
    events: int
    bytes: int
    seconds: float
    failed: int
    details: tuple[UnitReport, ...]
    bytes_in: int = 0
    startup_seconds: float = 0.0

    @classmethod
    def of(
        cls, step: str, repository: str, seconds: float, details: Sequence[UnitReport], *, startup_seconds: float = 0.0
    ) -> StepReport:
        """Add up the reports of the units."""
        return cls(
            step=step,
            repository=repository,
            units=len(details),
            events=sum(unit.events for unit in details),
            bytes_in=sum(unit.bytes_in for unit in details),
            bytes=sum(unit.bytes for unit in details),
            seconds=round(seconds, 3),
            startup_seconds=round(startup_seconds, 3),
            failed=sum(unit.error is not None for unit in details),
            details=tuple(details),
        )

    def line(self) -> str:
        """Return the report as one line of JSON."""
        return msgspec.json.encode(self).decode()
