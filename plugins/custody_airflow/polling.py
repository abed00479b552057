"""One look for many triggers: who waits for the same thing shares what was just seen.

Hundreds of deferred sensors live in the one event loop of a triggerer. Each asks every few seconds; the folders are
listed once for all of them, in a thread, and never twice at the same time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Look(NamedTuple, Generic[T]):
    begun: float
    task: asyncio.Task[T]

    def serves(self, fresh_seconds: float) -> bool:
        """Whether its answer is young enough; one that is under way is waited for, however long it takes."""
        if self.task.get_loop() is not asyncio.get_running_loop():
            return False  # it ended with its event loop
        return not self.task.done() or time.monotonic() - self.begun < fresh_seconds


class SharedLooks(Generic[T]):
    """Answers of the last moments, by what they are about."""

    def __init__(self) -> None:
        self._looks: dict[Hashable, _Look[T]] = {}

    async def ask(self, about: Hashable, look: Callable[[], T], fresh_seconds: float) -> T:
        """Return what `look` returns, or what it returned to somebody else less than `fresh_seconds` ago.

        An error of `look` goes to all who share it.
        """
        known = self._looks.get(about)
        if known is None or not known.serves(fresh_seconds):
            self._looks = {key: other for key, other in self._looks.items() if other.serves(fresh_seconds)}
            # Reading folders blocks; in the event loop it would hold up all other triggers.
            known = _Look(time.monotonic(), asyncio.create_task(asyncio.to_thread(look)))
            self._looks[about] = known
        # Shielded: one trigger that is cancelled must not take the answer from the others.
        return await asyncio.shield(known.task)
