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
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from airflow.triggers.base import BaseTrigger, TaskSkippedEvent, TriggerEvent

from custody.errors import CustodyError
from custody_airflow.environment import repository_folder

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
FAILED = "look_failed"
"""The key of an event that has an error's text: the task looks again in a worker, where errors become tries."""


class WorkTrigger(BaseTrigger):
    """Fires once a repository has work of one kind, which `look` finds; holds only a path and numbers.

    :param repository: its folder; empty is the one that the deployment names.
    :param poke_seconds: seconds between two looks.
    :param wait_seconds: the task is skipped when nothing came for so long (templated); 0 looks once. None waits until
        the task times out.
    """

    nothing: ClassVar[str]
    """Why a task is skipped."""

    def __init__(self, repository: str, poke_seconds: float, wait_seconds: str | int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow types its triggers in parts
        self.repository = repository
        self.poke_seconds = poke_seconds
        self.wait_seconds = wait_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments that Airflow's database keeps of this trigger."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        arguments: dict[str, Any] = {"repository": self.repository, "poke_seconds": self.poke_seconds}
        if self.wait_seconds is not None:
            arguments["wait_seconds"] = self.wait_seconds
        return name, arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look again and again; the event is what waits, or the end of the task."""
        if self.wait_seconds is None:
            yield TriggerEvent(await self._work(None))
            return
        try:
            work = await self._work(time.monotonic() + int(self.wait_seconds))
        # Any error, for one of the triggerer would be none of the task: it would be skipped without a word.
        except Exception as error:  # noqa: BLE001
            kind = "" if isinstance(error, CustodyError) else f"{type(error).__name__}: "
            yield TriggerEvent({FAILED: f"{kind}{error}"})
            return
        if work is None:
            self.log.info("%s", self.nothing)
            yield TaskSkippedEvent()
        else:
            # To the task, in a worker: what the triggerer itself leaves as XCom is JSON within a text.
            yield TriggerEvent(work)

    def is_over(self, found: dict[str, Any] | None) -> bool:
        """Whether a look ends the wait."""
        return found is not None

    async def _work(self, deadline: float | None) -> dict[str, Any] | None:
        """Return what the look found that ends the wait, else what the last one before the deadline found."""
        folder = Path(self.repository) if self.repository else repository_folder()
        about = (type(self), str(folder))
        # The first look of a task is its own: what arrived before its run counts. Later ones are shared.
        fresh_seconds = self.poke_seconds / 2 if deadline is None else 0.0
        while True:
            found = await _LOOKS.ask(about, lambda: self.look(folder), fresh_seconds)
            fresh_seconds = self.poke_seconds / 2
            left = self.poke_seconds if deadline is None else deadline - time.monotonic()
            if self.is_over(found) or left <= 0:
                return found
            await asyncio.sleep(min(self.poke_seconds, left))

    @staticmethod
    @abstractmethod
    def look(repository: Path) -> dict[str, Any] | None:
        """Return the work that waits in a repository as plain values, None where there is none."""


class JournalTrigger(WorkTrigger):
    """Fires once journals or leftovers of an interrupted run wait."""

    nothing = "no journals and no leftovers: nothing to roll over"

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


class LeftoverTrigger(WorkTrigger):
    """Fires where an interrupted run or a dead writer left something; it looks at names only."""

    nothing = "no interrupted run and no dead writer left anything"

    @staticmethod
    def look(repository: Path) -> dict[str, Any] | None:
        """Return where something was left."""
        import msgspec

        from custody.config import load_settings
        from custody.recovery import peek_leftovers

        remains = peek_leftovers(load_settings(repository))
        plain: dict[str, Any] = msgspec.to_builtins(remains)
        return plain if remains.is_any else None
