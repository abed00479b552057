"""What damage to an event log costs, named by file, block and event ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from custody.errors import CorruptionError


@dataclass(frozen=True, slots=True)
class Damage:
    """A block, or something else in a file, that cannot be read, and the ids of the events that it may have held."""

    path: Path
    block: int | None
    """None: it is not a block that is damaged."""
    first_event_id: int | None
    last_event_id: int | None
    """None: nothing tells which events it held."""
    problem: str
    is_doubt: bool = False
    """Whether nobody can tell if anything was lost: it is told, and stops nobody."""

    def __str__(self) -> str:
        block = "" if self.block is None else f" block {self.block}"
        place = "" if self.problem.startswith(str(self.path)) else f"{self.path}{block}: "
        lost = "" if self.first_event_id is None else f"; events {self.first_event_id} to {self.last_event_id} are lost"
        return f"{place}{self.problem.removesuffix('.')}{lost}."


OnDamage = Callable[[Damage], None]
"""Called with what cannot be read, which is then passed over."""


def refuse(damage: Damage) -> None:
    """Pass nothing over that is certain.

    Raises:
        CorruptionError: unless nobody can tell whether anything was lost.
    """
    if damage.is_doubt:
        return
    raise CorruptionError(str(damage))
