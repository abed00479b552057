"""What reading gives: events, and notices of what could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from custody.errors import CorruptionError
from custody.eventlog import Damage
from custody.model import Event, to_events

_EVENTS_TOGETHER = 512


class Notices:
    """Takes note of damage, each part of a file once; if `strict`, raises CorruptionError instead."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._texts: dict[str, None] = {}

    def __call__(self, damage: Damage) -> None:
        """Take note, or raise."""
        if self._strict:
            raise CorruptionError(str(damage))
        self._texts[str(damage)] = None

    def remark(self, text: str) -> None:
        """Take note of what is no damage, or is known already; never raises."""
        self._texts[text] = None

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._texts))


class Events(list[Event]):
    """A list of events, and what could not be read on the way."""

    def __init__(self, events: Iterable[Event], notices: Iterable[str]) -> None:
        super().__init__(events)
        self.notices = tuple(notices)


def events_of(tables: Iterable[pa.Table]) -> Iterator[Event]:
    """Yield the events of tables; few objects are alive at a time, which spares the garbage collector."""
    for table in tables:
        for batch in table.to_batches(max_chunksize=_EVENTS_TOGETHER):
            yield from to_events(batch)


class EventStream(Iterator[Event]):
    """Events one after the other, or by `tables` as columns, which is quicker; only one of both may be used.

    `notices` grows while the events are read.
    """

    def __init__(self, tables: Iterator[pa.Table], notices: Notices) -> None:
        self._tables = tables
        self._notices = notices
        self._events = events_of(tables)

    @property
    def notices(self) -> tuple[str, ...]:
        """What could not be read so far."""
        return tuple(self._notices)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the events as tables with EVENT_SCHEMA, a few blocks of a log each."""
        return self._tables

    def __next__(self) -> Event:
        return next(self._events)
