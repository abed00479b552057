"""One run: every round takes every cell, every cell every peer, in an order that rotates.

So a disk or a machine that is slow for a while is slow for all peers, and none is always the first after another.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.append.grid import Cell, Plan, Reading, Series
from benchmarks.append.peers.base import Peer


def lost(series: Sequence[Series]) -> list[str]:
    """Return where a store held another number of events than it acknowledged: its speed means nothing there."""
    return [
        f"{one.peer}, {one.cell}: expected {reading.events} acknowledged events in the store, got {reading.stored}"
        for one in series
        for reading in one.rounds
        if reading.stored not in (None, reading.events)
    ]


def measure(
    plan: Plan, peers: Sequence[Peer], scratch: Path, progress: Callable[[str], None]
) -> Iterator[list[Series]]:
    """Yield all series after each round; what the first round stored is read back and counted."""
    series = {(peer.about.key, cell): Series(peer.about.key, cell) for cell in plan.cells for peer in peers}
    for number in range(plan.rounds):
        for place, cell in enumerate(plan.cells):
            for peer in _rotated(peers, number + place):
                progress(f"round {number + 1} of {plan.rounds}, threads × batch {cell}: {peer.about.label}")
                series[peer.about.key, cell].rounds.append(_one(peer, cell, plan.seconds, scratch, verify=number == 0))
        yield list(series.values())


def _one(peer: Peer, cell: Cell, seconds: float, scratch: Path, *, verify: bool) -> Reading:
    folder = scratch / peer.about.key
    try:
        return peer.measure(cell, seconds, folder, verify=verify)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.sync()  # what one peer left in memory must not be written during the next one's turn


def _rotated(peers: Sequence[Peer], by: int) -> list[Peer]:
    start = by % len(peers)
    return [*peers[start:], *peers[:start]]
