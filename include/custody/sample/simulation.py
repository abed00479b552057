"""The simulated time: many processes, one at a time, always the one that is due next.

A process is a generator that yields how many milliseconds it waits. Whatever it emits between two
waits happens at one instant, so the outbox is filled in time order. Equal instants keep the order
of scheduling, which makes a run repeatable.
"""

import heapq
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import TypeAlias, TypeVar

Process: TypeAlias = Iterator[int]
_T = TypeVar("_T")


class Simulation:
    """Clock, chance and agenda, shared by the nodes."""

    def __init__(self, seed: int, start_time_ms: int) -> None:
        self.now_ms = start_time_ms
        self.outbox: list[dict[str, object]] = []
        self._random = random.Random(seed)  # noqa: S311 - a repeatable sample, not a secret
        self._agenda: list[tuple[int, int, Process]] = []
        self._sequence = itertools.count()

    def spawn(self, process: Process, delay_ms: int = 0) -> None:
        """Let a process run beside the others, from `delay_ms` from now."""
        heapq.heappush(self._agenda, (self.now_ms + delay_ms, next(self._sequence), process))

    def run(self) -> Iterator[dict[str, object]]:
        """Yield events as they happen, until every process has ended."""
        while self._agenda:
            self.now_ms, _, process = heapq.heappop(self._agenda)
            delay_ms = next(process, None)
            if delay_ms is not None:
                self.spawn(process, delay_ms)
            if self.outbox:
                yield from self.outbox
                self.outbox.clear()

    def draw(self, least: int, most: int) -> int:
        """Return an integer of the closed range."""
        # random() is faster than randint, and its sequence stays the same between Python versions.
        return least + int(self._random.random() * (most - least + 1))

    def chance(self, probability: float) -> bool:
        """Return whether something of this probability happens now."""
        return self._random.random() < probability

    def pick(self, choices: Sequence[_T]) -> _T:
        """Return one of the choices, all equally likely."""
        return choices[int(self._random.random() * len(choices))]

    def new_uuid(self) -> str:
        """Return a version 4 uuid; the uuid module would take its bits from the system."""
        bits = self._random.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | (0x4 << 76 | 0x2 << 62)
        digits = f"{bits:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
