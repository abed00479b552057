"""Results of reading: events, and notices of what could not be read.

Readers pass what they meet to a callback, `OnDamage`, as one kind of thing: a `Damage` to a file, an `Absence` of
events that are out of reach, or `NewerColumns` that this custody cannot show. `Notices` collects them for an answer.

An absence is no damage: nobody knows what a missing container holds. The notice says what is known: the ids that
nothing else holds, and the id from which on nothing is known at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.catalog import CatalogState, UncertainTimes
from custody.errors import CustodyError, StorageError
from custody.eventlog import Damage, OnDamage, refuse
from custody.journal import Group, MissingContainer, count_pending
from custody.model import Event, newer_notice, to_events
from custody.rollover import stray_journals
from custody.workspace import Moment, Workspace

_RANGES_SHOWN = 5
# Twice as quick as 15,000 at a time (docs/design/012-reading.md).
_EVENTS_TOGETHER = 512


@dataclass(frozen=True, slots=True)
class Absence(Damage):
    """Events that an answer may lack: not damaged, but out of reach; `last_event_id` None knows no end."""

    def __str__(self) -> str:
        return self.problem

    def may_hold(self, event_id: int) -> bool:
        """Whether an event of this id may be among them."""
        return event_id >= (self.first_event_id or 0) and (self.last_event_id is None or event_id <= self.last_event_id)


@dataclass(frozen=True, slots=True)
class NewerColumns(Damage):
    """Columns that a newer custody stored and this one does not show; the events themselves can be read."""

    def __str__(self) -> str:
        return self.problem

    @classmethod
    def of(cls, path: Path, version: int, columns: Sequence[str]) -> NewerColumns:
        """Return the notice for columns that a schema version added."""
        return cls(path, None, None, None, newer_notice(version, columns), is_doubt=True)


@dataclass(frozen=True, slots=True)
class UncertainRevisions(Damage):
    """Revisions of which a time does not tell whether they were there; the answer may lack their events."""

    def __str__(self) -> str:
        return self.problem

    @classmethod
    def of(cls, workspace: Workspace, times: UncertainTimes) -> UncertainRevisions:
        """Return the notice for a question that was asked as of a time."""
        return cls(Path(workspace.writer), None, None, None, f"writer {workspace.writer!r}: {times}", is_doubt=True)


class Notices:
    """Collects what readers meet, each part of a file once; if `strict`, certain damage raises CorruptionError instead.

    What is out of reach, or in doubt, is never more than a note.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        # A dict keeps each text once, in the order in which they were met.
        self._texts: dict[str, None] = {}
        self.absent: list[Absence] = []
        """What is out of reach, as far as readers met it."""

    def __call__(self, damage: Damage) -> None:
        """Take note of it, or raise."""
        if isinstance(damage, Absence):
            self.absent.append(damage)
        # An absence is never raised: nobody knows whether the missing container holds anything that is asked for.
        elif self._strict:
            refuse(damage)
        self._texts[str(damage)] = None

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._texts))


def waiting_for_stripes(on_damage: OnDamage) -> OnDamage:
    """Return what passes damage on, but raises where a disk is away: for readers that never come back to an event.

    Raises:
        StripeMissingError: by what is returned, when a stripe is not there.
    """

    def pass_on(damage: Damage) -> None:
        if damage.is_away:
            refuse(damage)
        on_damage(damage)

    return pass_on


class LossTracker:
    """Passes damage of one writer's logs on, and remembers the ids that were lost to it."""

    def __init__(self, on_damage: OnDamage) -> None:
        self._on_damage = on_damage
        self._ranges: set[tuple[int, int]] = set()

    def __call__(self, damage: Damage) -> None:
        """Remember it, and pass it on."""
        self._on_damage(damage)
        # Without bounds it is no block of a log, and costs no ids that an index knows.
        if damage.first_event_id is not None and damage.last_event_id is not None:
            self._ranges.add((damage.first_event_id, damage.last_event_id))

    def of(self, event_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return which of some ids were lost; the others are gone rightly, with a log that expired meanwhile."""
        lost = np.zeros(len(event_ids), np.bool_)
        for first, last in self._ranges:
            lost |= (event_ids >= first) & (event_ids <= last)
        return event_ids[lost]


class Events(list[Event]):
    """A list of events, and what could not be read on the way."""

    def __init__(self, events: Iterable[Event], notices: Notices) -> None:
        super().__init__(events)
        self.notices = tuple(notices)
        self.absent = tuple(notices.absent)
        """What was out of reach, with the ids that it may hold."""


class Counts(dict[str, int]):
    """Numbers by writer, and what could not be read and is not counted."""

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
        """Notices of what could not be read so far."""
        return tuple(self._notices)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the events as tables with EVENT_SCHEMA, a few blocks of a log each."""
        return self._tables

    def __next__(self) -> Event:
        return next(self._events)


@dataclass(frozen=True, slots=True)
class Earlier(Absence):
    """What an answer may lack, or give out wrongly, as it is made of an earlier state than one that was seen."""


def report_earlier(workspace: Workspace, on_damage: OnDamage) -> None:
    """Report that the writer's catalog or claims are of an earlier moment than one that was seen of them."""
    earlier = workspace.earlier_state()
    if earlier is not None:
        text = f"{earlier}. This answer is made of the earlier state."
        # Nothing is known of what came between: what was forgotten or expired since may be in the answer, too.
        on_damage(Earlier(workspace.paths.home, None, 0, None, text))


def report_absent(workspace: Workspace, moment: Moment, on_damage: OnDamage) -> None:
    """Report what an answer of a writer lacks, or may lack; called after its journals and catalog were read."""
    report_earlier(workspace, on_damage)
    for missing in workspace.missing():
        on_damage(_of_container(workspace, moment.state, missing))
    for absence in foreign_journals(workspace, moment):
        on_damage(absence)


def foreign_journals(workspace: Workspace, moment: Moment) -> Iterator[Absence]:
    """Yield the journals of a moment whose events are not the writer's, though they lie among its own."""
    # Other events under the same ids: no step touches them, and no answer may mix them in.
    if moment.foreign:
        paths = [path for group in moment.foreign for path in (*group.sealed, *group.open)]
        yield _of_journals(workspace, paths, "of another incarnation of the name")
    strays = list(stray_journals(workspace, moment.state, moment.groups))
    if strays:
        yield _of_journals(workspace, strays, "with ids that the live logs give to other events")


def _of_container(workspace: Workspace, state: CatalogState, missing: MissingContainer) -> Absence:
    last = None if missing.reserved is None else missing.reserved - 1
    if missing.host:
        text = (
            f"writer {missing.writer!r}: its container {missing.place} is on the machine {missing.host!r}: events that "
            "are acknowledged there and not live yet are not part of this answer."
        )
        return Absence(missing.place, None, 0, last, text)
    text = (
        f"{missing}. Acknowledged events that are not live yet may lie on it; of the ids, nothing here holds "
        f"{_unheld(workspace, state)}."
    )
    return Absence(missing.place, None, 0, last, text)


def _unheld(workspace: Workspace, state: CatalogState) -> str:
    # Here: the checks and all that they need take longer to import than an event to read, and little is ever missing.
    from custody.maintenance.verification.check_ids import missing_ids

    try:
        ranges = list(missing_ids(workspace, state))
        waiting = [group for group in workspace.groups() if not workspace.is_committed(state, group.first_event_id)]
        # Ids of waiting events were given out, so the missing container may hold any behind them.
        behind = max(state.next_event_id, count_pending(workspace.fs, waiting).next_event_id)
    # This text explains an absence, and must not fail over another file.
    except (CustodyError, OSError):
        return "an unknown part, as other files cannot be read"
    shown = ", ".join(f"{first} to {last}" for first, last in ranges[:_RANGES_SHOWN])
    more = f", {len(ranges) - _RANGES_SHOWN} more stretches" if len(ranges) > _RANGES_SHOWN else ""
    count = sum(last - first + 1 for first, last in ranges)
    gaps = f"{shown}{more} ({count} events at most), and " if ranges else ""
    return f"{gaps}any from {behind} on"


def _of_journals(workspace: Workspace, paths: Sequence[Path], what: str) -> Absence:
    folders = ", ".join(dict.fromkeys(str(path.parent) for path in paths))
    try:
        held = count_pending(workspace.fs, [Group(workspace.writer, 0, tuple(paths), ())])
    # A journal that cannot be read now: the notice says less, and the answer goes on.
    except StorageError:
        count, last = "events", None
    else:
        count, last = f"{held.events} events up to id {held.next_event_id - 1}", held.next_event_id - 1
    text = (
        f"{folders}: {len(paths)} journals {what} {workspace.writer!r}: {count} are not part of this answer. "
        "Bring them in under another writer name: custody recover --adopt"
    )
    return Absence(paths[0], None, 0, last, text)
