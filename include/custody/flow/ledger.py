"""The ledger of a session: its FlowFiles and what was reported of them, until it ends."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

import msgspec

from custody.clock import Clock
from custody.errors import ClosedError, InvalidInputError, NotFoundError
from custody.flow.flowfile import Component, FlowFile
from custody.flow.record import Record
from custody.model import Event, check_event, require_text, require_types


class Appender(Protocol):
    """What events are appended to: a writer with a name."""

    @property
    def name(self) -> str:
        """The writer's name, to which the event ids belong."""
        ...

    def append(self, events: Sequence[Event]) -> range:
        """Append events in one piece and return their ids once they are acknowledged."""
        ...


class State(Enum):
    """How far a session has come; the value completes the sentence "the session …"."""

    OPEN = "is open"
    COMMITTED = "was committed"
    ROLLED_BACK = "was rolled back"
    UNKNOWN = "could not be committed and can only be rolled back"


@dataclass(slots=True)
class Fork:
    """The children that one FlowFile got in a session: one event."""

    time_ms: int
    children: list[str] = field(default_factory=list)


class Ledger:
    """What a session holds until its end.

    Args:
        component: who reports.
        writer: where events go to.
        clock: tells the times of events.
        new_uuid: makes the uuids of new FlowFiles.
    """

    def __init__(
        self,
        component: Component,
        writer: Appender,
        clock: Clock,
        new_uuid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        if not component.id or not component.type:
            raise InvalidInputError("component: expected an id and a type, got an empty one.")
        for name, value in msgspec.structs.asdict(component).items():
            if not isinstance(value, str | None):
                raise InvalidInputError(f"component.{name}: expected text, got {value!r}.")
            require_text(**{f"component.{name}": value})
        self.component = component
        self.state = State.OPEN
        self.records: dict[str, Record] = {}
        self.forks: dict[str, Fork] = {}
        self.joins: dict[str, Event] = {}
        self.reported: list[Event] = []
        self.terminated: list[Event] = []
        self.told: set[str] = set()
        """Uuids of FlowFiles that events tell of which are stored already."""
        self._writer = writer
        self._clock = clock
        self._new_uuid = new_uuid

    def current(self, flowfile: FlowFile) -> FlowFile:
        """Return a FlowFile as it is now in this session.

        Raises:
            NotFoundError: the session does not know it, or it has ended here.
            ClosedError: the session has ended.
        """
        return self._record(flowfile).current

    def _now(self) -> int:
        return self._clock.now_ms()

    def _require_open(self) -> None:
        if self.state is not State.OPEN:
            raise ClosedError(f"the session of {self.component.type} {self.state.value}. Begin another one.")

    def _record(self, flowfile: FlowFile) -> Record:
        """Return what is known of a FlowFile that lives in this session."""
        self._require_open()
        record = self.records.get(flowfile.uuid)
        if record is None:
            raise NotFoundError(
                f"FlowFile {flowfile.uuid}: this session does not know it. Take it into the session first."
            )
        if record.has_ended:
            raise NotFoundError(f"FlowFile {flowfile.uuid}: it has ended in this session.")
        return record

    def _records(self, flowfiles: Iterable[FlowFile]) -> list[Record]:
        found = {record.uuid: record for record in map(self._record, flowfiles)}
        if not found:
            raise InvalidInputError("parents: expected at least one FlowFile, got none.")
        return list(found.values())

    def _add(self, flowfile: FlowFile) -> FlowFile:
        """Bring in a FlowFile that was made here."""
        record = Record(None, flowfile, self._now())
        self._require_storable(record)
        self.records[flowfile.uuid] = record
        return flowfile

    def _change(self, record: Record, **values: object) -> FlowFile:
        """Give a FlowFile other values, unless no event could tell of them."""
        changed = replace(record, current=msgspec.structs.replace(record.current, **values))
        self._require_storable(changed)
        record.current = changed.current
        return record.current

    def _require_storable(self, record: Record) -> None:
        """Refuse a FlowFile of which no event could be stored, so that the session's other events still can.

        Raises:
            InvalidInputError: the message says why not.
        """
        event = record.completed(record.draft("UNKNOWN", self.component, record.start_ms), record.start_ms)
        _refuse(event, f"FlowFile {record.uuid!a}")

    def _draft(self, record: Record, kind: str, **fields: object) -> Event:
        """Return an event about a FlowFile that obeys the rules of its type.

        Raises:
            InvalidInputError: it does not.
        """
        event = record.draft(kind, self.component, self._now(), **fields)
        _refuse(event, f"{kind} of FlowFile {record.uuid}")
        return event

    def _report(self, record: Record, kind: str, **fields: object) -> None:
        self.reported.append(self._draft(record, kind, **fields))


def _refuse(event: Event, what: str) -> None:
    """Raise InvalidInputError when an event breaks a rule, also one that would only earn a warning."""
    try:
        require_types(event)
    except InvalidInputError as error:
        raise InvalidInputError(f"{what}: {error}") from error
    for problem in check_event(event):
        raise InvalidInputError(f"{what}: {problem.message}. Nothing of it was stored.")
