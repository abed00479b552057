"""The grid of a run: cells of threads × batch size, and the result of each."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Cell:
    """So many threads, each appending batches of one size."""

    threads: int
    batch_events: int

    def __str__(self) -> str:
        return f"{self.threads} × {self.batch_events}"


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement: what was acknowledged between the first start and the last acknowledgement."""

    events: int
    seconds: float
    acknowledgements: int
    p50_ms: float
    """Half of the acknowledgements took at most this long."""
    p99_ms: float
    stored: int | None = None
    """Events that were found when the store was closed and read again; None: not looked."""
    note: str | None = None
    """What the store complained about."""

    @property
    def events_per_second(self) -> float:
        """Acknowledged events per second."""
        return self.events / self.seconds

    def with_stored(self, stored: int) -> Reading:
        """The same measurement with what was found afterwards."""
        return replace(self, stored=stored)


@dataclass(slots=True)
class Series:
    """All rounds of one peer in one cell."""

    peer: str
    cell: Cell
    rounds: list[Reading] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The rounds' median of events per second."""
        return statistics.median(self.rates)

    @property
    def rates(self) -> list[float]:
        """Events per second of each round."""
        return [reading.events_per_second for reading in self.rounds]

    def document(self) -> dict[str, object]:
        """The series as JSON values."""
        return {
            "peer": self.peer,
            **asdict(self.cell),
            "median_events_per_second": round(self.median, 1),
            "rounds": [
                asdict(reading) | {"events_per_second": round(reading.events_per_second, 1)} for reading in self.rounds
            ],
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """How a run goes through its cells."""

    seconds: float
    rounds: int
    threads: tuple[int, ...]
    batch_events: tuple[int, ...]

    @property
    def cells(self) -> list[Cell]:
        """All cells, in the order in which a round takes them."""
        return [Cell(threads, batch) for threads in self.threads for batch in self.batch_events]
