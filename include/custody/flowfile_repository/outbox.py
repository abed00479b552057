"""The provenance side of a commit: events that the FlowFile log holds are brought into the provenance journal once.

Events get a key of their own in the log, `flowfiles:<repository>` and a number, by which the provenance repository
knows what it has. So the events of a process that died between log and journal can be delivered by any other one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

import msgspec

from custody.errors import ClosedError
from custody.model import Event
from custody.vfs.group_commit import GroupCommitQueue

_LOGGER = logging.getLogger(__name__)


class Provenance(Protocol):
    """Where events go to, and what is there already."""

    @property
    def name(self) -> str:
        """The writer's name, to which the event ids belong."""
        ...

    def append(self, events: Sequence[Event]) -> range:
        """Append events in one piece and return their ids once they are acknowledged."""
        ...

    def missing(self, events: Sequence[Event]) -> list[Event]:
        """Return the events that are not stored, by their keys."""
        ...


def with_keys(events: Sequence[Event], repository: str, first_ordinal: int) -> list[Event]:
    """Return events with their keys; numbers follow one another from `first_ordinal` on."""
    node = f"flowfiles:{repository}"
    return [
        msgspec.structs.replace(event, source_node=node, source_ordinal=first_ordinal + number)
        for number, event in enumerate(events)
    ]


def deliver_missing(provenance: Provenance, events: Sequence[Event]) -> None:
    """Append the events that the journal lacks."""
    missing = provenance.missing(events)
    if missing:
        provenance.append(missing)


@dataclass(slots=True)
class Delivery:
    """The events of one transaction that the log holds, on their way into the journal."""

    transaction: int
    events: Sequence[Event]
    """With their keys."""
    event_ids: range = range(0)
    """Their ids, once they are in the journal."""


class Outbox:
    """The events of this process's commits between log and journal.

    Whoever wrote commits to the log adds them; `deliver` returns once the journal has them, or has refused them. One
    append at a time runs, and takes all that was added until then: so many commits share one sync of the journal, and
    the log can be written meanwhile.

    Args:
        provenance: where events go to; None when nobody needs them.
        name: of the repository, for messages.
    """

    def __init__(self, provenance: Provenance | None, name: str) -> None:
        self._provenance = provenance
        self._name = name
        # Guards the three below; held for moments only.
        self._lock = Lock()
        self._added: list[Delivery] = []
        self._refused: list[Delivery] = []
        """The journal may lack these: they are compared before they are appended again."""
        self._delivered: list[int] = []
        """Transactions whose events are in the journal, which the log has still to learn."""
        self._callers: GroupCommitQueue[None] = GroupCommitQueue(f"outbox of {name}", lambda _: self._append_added())

    def add(self, deliveries: Sequence[Delivery]) -> None:
        """Add what the log holds, in the order of the log."""
        with self._lock:
            self._added += deliveries

    def deliver(self) -> None:
        """Return when the journal has what was added before, or has refused it: then it waits for `deliver_again`."""
        with suppress(ClosedError):  # closed meanwhile: whoever closes delivers the rest
            self._callers.put(None)

    def deliver_again(self) -> None:
        """Deliver what the journal refused before; raises as the journal does. One thread at a time."""
        while self._refused and self._provenance is not None:
            with self._lock:
                waiting = list(self._refused)
            deliver_missing(self._provenance, [event for one in waiting for event in one.events])
            with self._lock:
                del self._refused[: len(waiting)]
                self._delivered += [one.transaction for one in waiting]

    @property
    def delivered(self) -> tuple[int, ...]:
        """The transactions whose delivery the log has still to learn; `learned` removes them."""
        with self._lock:
            return tuple(self._delivered)

    def learned(self, transactions: Iterable[int]) -> None:
        """Forget deliveries that the log knows of."""
        known = set(transactions)
        with self._lock:
            self._delivered = [number for number in self._delivered if number not in known]

    @property
    def refused(self) -> int:
        """Of how many commits the events wait because the journal refused them."""
        return len(self._refused)

    def close(self) -> None:
        """Take no more, and deliver what was added, if the journal takes it."""
        self._callers.close("the FlowFile repository is closed.")
        self._append_added()

    def _append_added(self) -> None:
        with self._lock:
            added, self._added = self._added, []
            is_waiting = bool(self._refused)
        if not added:
            return
        is_delivered = False
        try:
            # Behind events that wait, others wait too: the journal has them in the order of the log.
            if not is_waiting:
                self._append(added)
                is_delivered = True
        except Exception as error:  # noqa: BLE001 - the commits stand, and their events are safe in the log
            _LOGGER.warning("events of %d commits wait to be delivered: %s", len(added), error)
        finally:
            with self._lock:
                if is_delivered:
                    self._delivered += [one.transaction for one in added]
                else:
                    self._refused += added

    def _append(self, deliveries: Sequence[Delivery]) -> None:
        if self._provenance is None:
            return
        first = self._provenance.append([event for one in deliveries for event in one.events]).start
        for one in deliveries:
            one.event_ids = range(first, first + len(one.events))
            first += len(one.events)
