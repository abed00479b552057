"""The base of all peers: a store that acknowledges batches of events."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.append.grid import Cell, Reading


class PeerUnavailableError(Exception):
    """A peer cannot run on this machine; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class About:
    """What a reader of the results must know of a peer."""

    key: str
    label: str
    durable: bool
    """Whether an acknowledged event survives power loss."""
    description: str
    version: str


class Peer(Protocol):
    """One store of the comparison."""

    @property
    def about(self) -> About:
        """What it is."""
        ...

    def measure(self, cell: Cell, seconds: float, folder: Path, *, verify: bool) -> Reading:
        """Append for so long into a new store in `folder`; `verify`: close it, read it again and count."""
        ...

    def close(self) -> None:
        """Let go of what outlives a measurement."""
        ...
