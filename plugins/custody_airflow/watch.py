"""The watch over journals in the triggerer: waiting groups become events of the asset `provenance_journals`.

Airflow confirms an event once it is in its database; only then is the mark written, a file in the repository. So a
triggerer that is killed loses no group, and after its restart reports none again. Killed between the two, it reports
one group twice: the second run finds nothing to do and is skipped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from custody.errors import ConfigurationError

if TYPE_CHECKING:
    from custody.rollover import GroupWatch, WaitingGroups

_LOG = logging.getLogger(__name__)


class JournalWatch(BaseEventTrigger):
    """Fires when a group of journals can be rolled over; holds only a path and two numbers.

    :param repository: its folder.
    :param poke_seconds: how often it looks: names of files only.
    :param again_seconds: a group that still waits after this time is reported again.
    """

    def __init__(self, repository: str, poke_seconds: float, again_seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow types its triggers in parts
        self.repository = repository
        self.poke_seconds = poke_seconds
        self.again_seconds = again_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments that Airflow's database keeps of this trigger."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        arguments = ("repository", "poke_seconds", "again_seconds")
        return name, {key: getattr(self, key) for key in arguments}

    def shared_stream_key(self) -> Hashable:
        """Return the key of a stream of this trigger alone: Airflow confirms events only of shared streams."""
        return (type(self).__qualname__, self.repository)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Return the stream that looks for groups and keeps what Airflow has confirmed."""
        return JournalStream(**kwargs)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Fire for each item of the stream."""
        async for item in shared_stream:
            yield TriggerEvent(item)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Refuse: without the stream nobody would confirm the events.

        Raises:
            ConfigurationError: always; an Airflow with streams does not call this.
        """
        raise ConfigurationError(
            "JournalWatch: expected an Airflow with shared streams, got one that runs triggers alone. "
            "Use Airflow 3.3 or a newer one."
        )
        yield  # what makes this a generator, as Airflow expects it


class JournalStream(SharedStreamProducer):
    """The groups that wait in the journals of a repository, and the mark up to which Airflow has taken them over."""

    def __init__(self, repository: str, poke_seconds: float, again_seconds: float) -> None:
        self._folder = Path(repository)
        self._poke_seconds = poke_seconds
        self._again_ms = int(again_seconds * 1000)
        self._watch: GroupWatch | None = None

    async def open_stream(self) -> AsyncIterator[tuple[dict[str, Any], WaitingGroups]]:
        """Look again and again; yield what is new, as plain values and as the library's object."""
        # Reading folders blocks; in the event loop it would hold up all other triggers.
        self._watch = watch = await asyncio.to_thread(self._open)
        while True:
            news = await asyncio.to_thread(self._look, watch)
            if news is not None:
                yield {"repository": str(self._folder), "groups": news.groups, "again": news.again}, news
            await asyncio.sleep(self._poke_seconds)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Move the mark behind events that Airflow's database has.

        Raises:
            RuntimeError: Airflow could not keep an event: the stream ends, and the next one reports it again.
        """
        for item in batch:
            if not item.outcome.is_clean:
                raise RuntimeError(f"{self._folder}: Airflow did not keep the event of {item.broker_payload}")
            if self._watch is not None:
                await asyncio.to_thread(self._watch.confirm, item.broker_payload)

    def _look(self, watch: GroupWatch) -> WaitingGroups | None:
        from custody.errors import CustodyError

        try:
            return watch.poll()
        except CustodyError:
            # A disk that is gone may come back; Airflow would restart a failed trigger every second.
            _LOG.exception("%s: cannot look for journals; looking again", self._folder)
            return None

    def _open(self) -> GroupWatch:
        # Not when the module is imported: the library loads Arrow, which the parser of DAG files has no use for.
        from custody.clock import SystemClock
        from custody.config import load_settings
        from custody.rollover import GroupWatch
        from custody.vfs import PosixFileSystem

        return GroupWatch(PosixFileSystem(), load_settings(self._folder), SystemClock(), self._again_ms)
