"""What waits in the triggerer until a repository has work: for the rollover, and for others by another look."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from custody_airflow.polling import SharedLooks

_LOOKS: SharedLooks[dict[str, Any] | None] = SharedLooks()


class WorkTrigger(BaseTrigger):
    """Fires once a repository has work of one kind; holds only a path and a number. A kind is what `look` sees."""

    def __init__(self, repository: str, poke_seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow types its triggers in parts
        self.repository = repository
        self.poke_seconds = poke_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the database keeps of this trigger."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return name, {"repository": self.repository, "poke_seconds": self.poke_seconds}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look again and again; the event is what waits."""
        about = (type(self), self.repository)
        while True:
            found = await _LOOKS.ask(about, lambda: self.look(Path(self.repository)), self.poke_seconds / 2)
            if found is not None:
                yield TriggerEvent(found)
                return
            await asyncio.sleep(self.poke_seconds)

    @staticmethod
    @abstractmethod
    def look(repository: Path) -> dict[str, Any] | None:
        """Return what waits in a repository as plain values, None when nothing does."""


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
        work, left = pending(settings), peek_leftovers(settings)
        if not (work.is_any or left.is_any):
            return None
        return {**msgspec.to_builtins(work), "leftovers": list(left.paths)}
