"""The terminal's table and results.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
from rich.table import Table

from benchmarks.append.grid import Cell, Plan, Series
from benchmarks.append.machine import Machine
from benchmarks.append.peers.base import About

SUBJECTS = ("custody", "custody-columns")
RATIOS = ("raw", "sqlite", "nifi-sync")


@dataclass(slots=True)
class Results:
    """All that a run found."""

    plan: Plan
    machine: Machine
    peers: Sequence[About]
    skipped: Mapping[str, str]
    """Peers that could not run, and why."""
    bytes_per_event: Mapping[int, float]
    """By batch size: how long custody's record of an event is."""
    load_before: list[float]
    load_after: list[float] = field(default_factory=list)
    series: Sequence[Series] = ()

    def write(self, path: Path) -> None:
        """Write results.json."""
        document = {
            "format": 1,
            "machine": self.machine.document(),
            "load_average": {"before": self.load_before, "after": self.load_after},
            "plan": asdict(self.plan),
            "peers": [asdict(about) for about in self.peers],
            "skipped": dict(self.skipped),
            "custody_bytes_per_event": {str(batch): round(size, 1) for batch, size in self.bytes_per_event.items()},
            "ratios": [
                {**asdict(cell), "of": subject, **self.ratios(cell, subject)}
                for subject in self._subjects
                for cell in self.plan.cells
            ],
            "cells": [one.document() for one in self.series],
        }
        path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")

    def medians(self, cell: Cell) -> dict[str, float]:
        """Return events per second by peer."""
        return {one.peer: one.median for one in self.series if one.cell == cell}

    @property
    def _subjects(self) -> list[str]:
        """The ways of custody that were measured."""
        return [about.key for about in self.peers if about.key in SUBJECTS]

    def ratios(self, cell: Cell, subject: str) -> dict[str, float]:
        """Return the rate of one of custody's ways over each other durable peer's."""
        medians = self.medians(cell)
        return {key: round(medians[subject] / medians[key], 3) for key in RATIOS if key in medians}

    def caption(self) -> str:
        """Return where and how it was measured, in one line."""
        disk = self.machine.disk
        return (
            f"{self.machine.processors} processors, {disk.file_system} on {disk.device} "
            f"(4 KB sync: {disk.sync_p50_ms} ms), {self.machine.kernel}, Python {self.machine.python}; "
            f"{self.plan.rounds} × {self.plan.seconds:g} s a cell; load {self.load_before[0]} to "
            f"{(self.load_after or self.load_before)[0]}"
        )

    def table(self) -> Table:
        """Return the medians, and custody's rate over the others'."""
        table = Table(title="Acknowledged events per second, median of the rounds", caption=self.caption())
        table.add_column("threads", justify="right")
        table.add_column("batch", justify="right")
        for about in self.peers:
            table.add_column(about.label if about.durable else f"{about.label}\n(not durable)", justify="right")
        labels = {about.key: about.label for about in self.peers}
        shown = [(subject, key) for subject in self._subjects for key in RATIOS if key in labels]
        for subject, key in shown:
            table.add_column(f"{labels[subject]} ÷\n{labels[key]}", justify="right")
        for cell in self.plan.cells:
            medians = self.medians(cell)
            ratios = {subject: self.ratios(cell, subject) for subject in self._subjects}
            table.add_row(
                str(cell.threads),
                str(cell.batch_events),
                *(f"{medians[about.key]:,.0f}" for about in self.peers),
                *(f"{ratios[subject][key]:.2f}" for subject, key in shown),
                end_section=cell.batch_events == self.plan.batch_events[-1],
            )
        return table
