"""Time as an argument: code asks a `Clock`, tests hand in one that they move themselves."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of the time."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC."""
        ...


# The wall clock, because times are stored and shown; waits and deadlines use time.monotonic instead.
class SystemClock:
    """The machine's wall clock."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC; may jump when the machine's clock is set."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time that was last set."""
        return self._now_ms

    def advance(self, milliseconds: int) -> None:
        """Move the clock; a negative amount sets it back."""
        self._now_ms += milliseconds
