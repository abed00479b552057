"""Triggers that wait in the triggerer until a repository has work, and the looks that they share.

Hundreds of deferred sensors live in the one event loop of a triggerer. Each asks every few seconds; `SharedLooks` lists
the folders once for all of them, in a thread, and never twice at the same time.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Hashable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

T = TypeVar("T")


class _Look(NamedTuple, Generic[T]):
    started: float
    task: asyncio.Task[T]

    def serves(self, fresh_seconds: float) -> bool:
        """Whether its result is fresh enough; a look that is under way is waited for, however long it takes."""
        if self.task.get_loop() is not asyncio.get_running_loop():
            return False  # it ended with its event loop
        return not self.task.done() or time.monotonic() - self.started < fresh_seconds


class SharedLooks(Generic[T]):
    """Recent results of looks, by their subject; whoever asks for the same soon after gets the same result."""

    def __init__(self) -> None:
        self._looks: dict[Hashable, _Look[T]] = {}

    async def ask(self, about: Hashable, look: Callable[[], T], fresh_seconds: float) -> T:
        """Return the result of `look`, or the one that another caller got less than `fresh_seconds` ago.

        An error of `look` goes to all callers that share it.
        """
        recent = self._looks.get(about)
        if recent is None or not recent.serves(fresh_seconds):
            self._looks = {key: other for key, other in self._looks.items() if other.serves(fresh_seconds)}
            # Reading folders blocks; in the event loop it would hold up all other triggers.
            recent = _Look(time.monotonic(), asyncio.create_task(asyncio.to_thread(look)))
            self._looks[about] = recent
        # Shielded: one trigger that is cancelled must not take the answer from the others.
        return await asyncio.shield(recent.task)


_LOOKS: SharedLooks[dict[str, Any] | None] = SharedLooks()


class WorkTrigger(BaseTrigger):
    """Fires once a repository has work of one kind, which `look` finds; holds only a path and a number."""

    def __init__(self, repository: str, poke_seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow types its triggers in parts
        self.repository = repository
        self.poke_seconds = poke_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments that Airflow's database keeps of this trigger."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return name, {"repository": self.repository, "poke_seconds": self.poke_seconds}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look again and again; the event is what waits."""
        about = (type(self), self.repository)
        while True:
            work = await _LOOKS.ask(about, lambda: self.look(Path(self.repository)), self.poke_seconds / 2)
            if work is not None:
                yield TriggerEvent(work)
                return
            await asyncio.sleep(self.poke_seconds)

    @staticmethod
    @abstractmethod
    def look(repository: Path) -> dict[str, Any] | None:
        """Return the work that waits in a repository as plain values, None where there is none."""


class JournalTrigger(WorkTrigger):
    """Fires once journals or leftovers of an interrupted run wait."""

    @staticmethod
    def look(repository: Path) -> dict[str, Any] | None:
        """Return counts of work, and paths of leftovers."""
        # Not when the module is imported: the library loads Arrow, which the parser of DAG files has no use for.
        import msgspec

        from custody.config import load_settings
        from custody.recovery import peek_leftovers
        from custody.rollover import pending

        settings = load_settings(repository)
        work, remains = pending(settings), peek_leftovers(settings)
        if not (work.is_any or remains.is_any):
            return None
        return {**msgspec.to_builtins(work), "leftovers": list(remains.paths)}
