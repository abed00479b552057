"""The terminal's table and the results as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
from rich.table import Table

from benchmarks.append.machine import Machine
from benchmarks.append.peers.base import About
from benchmarks.flowfiles.measures import Plan, Series


@dataclass(slots=True)
class Results:
    """All that a run found."""

    plan: Plan
    machine: Machine
    peers: Sequence[About]
    skipped: Mapping[str, str]
    """Peers that could not run, and why."""
    load_before: list[float]
    load_after: list[float] = field(default_factory=list)
    seconds: float = 0.0
    series: dict[tuple[str, str], Series] = field(default_factory=dict)
    """By figure and peer."""

    def write(self, path: Path) -> None:
        """Write the results."""
        document = {
            "format": 1,
            "machine": self.machine.document(),
            "load_average": {"before": self.load_before, "after": self.load_after},
            "seconds": round(self.seconds, 1),
            "plan": asdict(self.plan),
            "peers": [asdict(about) for about in self.peers],
            "skipped": dict(self.skipped),
            "figures": [
                {
                    "figure": name,
                    "unit": series.figure.unit,
                    "peer": peer,
                    "median": round(series.median, 3),
                    "readings": [round(reading, 3) for reading in series.readings],
                }
                for (name, peer), series in self.series.items()
            ],
        }
        path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")

    def table(self) -> Table:
        """Return the medians."""
        disk, load = self.machine.disk, (self.load_before[0], (self.load_after or self.load_before)[0])
        caption = (
            f"{self.machine.processors} processors, {disk.file_system} on {disk.device} (4 KB sync: {disk.sync_p50_ms} "
            f"ms, one of 100 {disk.sync_p99_ms} ms), Python {self.machine.python}; "
            f"median of {self.plan.rounds} rounds; load {load[0]} to {load[1]}; {self.seconds:.0f} s"
        )
        table = Table(title="FlowFiles: custody beside NiFi, SQLite and the disk", caption=caption)
        table.add_column("")
        table.add_column("unit")
        for about in self.peers:
            table.add_column(about.label if about.durable else f"{about.label}\n(not durable)", justify="right")
        for name in dict.fromkeys(figure for figure, _ in self.series):
            cells = [self.series.get((name, about.key)) for about in self.peers]
            unit = next(cell.figure.unit for cell in cells if cell is not None)
            table.add_row(name, unit, *("" if cell is None else _shown(cell.median) for cell in cells))
        return table


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 20 else f"{value:.2f}"
