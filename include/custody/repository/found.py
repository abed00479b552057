"""What reading gives: events, and notices of what could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.eventlog import Damage, OnDamage, refuse
from custody.model import Event, newer_notice, to_events
from custody.repository.absent import Absence

_EVENTS_TOGETHER = 512


class Notices:
    """Takes note of damage, each part of a file once; if `strict`, raises CorruptionError instead, unless in doubt.

    What is out of reach is never more than a note.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._texts: dict[str, None] = {}
        self.absent: list[Absence] = []
        """What is out of reach, as far as it was met."""

    def __call__(self, damage: Damage) -> None:
        """Take note, or raise."""
        if isinstance(damage, Absence):
            self.absent.append(damage)
        elif self._strict:
            refuse(damage)
        self._texts[str(damage)] = None

    def note(self, text: str) -> None:
        """Take note of what is no damage, also if strict."""
        self._texts[text] = None

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._texts))


class Lost:
    """Hands damage of one writer's logs on, and remembers the ids that it took."""

    def __init__(self, on_damage: OnDamage) -> None:
        self._on_damage = on_damage
        self._ranges: set[tuple[int, int]] = set()

    def __call__(self, damage: Damage) -> None:
        """Take note, and hand it on."""
        self._on_damage(damage)
        if damage.first_event_id is not None and damage.last_event_id is not None:
            self._ranges.add((damage.first_event_id, damage.last_event_id))

    def note(self, text: str) -> None:
        """Hand a note on, where notes are taken."""
        if isinstance(self._on_damage, Notices):
            self._on_damage.note(text)

    def among(self, event_ids: npt.NDArray[np.int64]) -> int:
        """Return how many of some ids were lost; the others are gone rightly, with a log that expired meanwhile."""
        lost = np.zeros(len(event_ids), np.bool_)
        for first, last in self._ranges:
            lost |= (event_ids >= first) & (event_ids <= last)
        return int(lost.sum())


def tell_newer(on_damage: OnDamage, version: int, columns: Sequence[str]) -> None:
    """Take note, where notes are taken, that a newer custody stored events with columns that are not shown."""
    if columns and isinstance(on_damage, Notices | Lost):
        on_damage.note(newer_notice(version, columns))


class Events(list[Event]):
    """A list of events, and what could not be read on the way."""

    def __init__(self, events: Iterable[Event], notices: Notices) -> None:
        super().__init__(events)
        self.notices = tuple(notices)
        self.absent = tuple(notices.absent)
        """What of this was out of reach, with the ids that it may hold."""


class Counts(dict[str, int]):
    """Numbers by writer, and what could not be read on the way: it is not counted."""

    def __init__(self, counts: Mapping[str, int], notices: Iterable[str]) -> None:
        super().__init__(counts)
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
