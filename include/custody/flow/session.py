"""The session: a producer's work on FlowFiles, whose events are stored together when it is committed, or not at all.

Events wait in the session and show their FlowFile as it is at the commit, except what left the system: SEND and UPLOAD
show it as it was sent, CLONE as it was copied. `commit_events` derives them from what the session did.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from types import TracebackType
from typing import Protocol, Self

import msgspec

from custody.clock import Clock
from custody.errors import (
    BackpressureError,
    ClosedError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from custody.flow.commit_events import FlowFileRecord, Fork, SessionChanges, events_at_commit
from custody.flow.flowfile import (
    Component,
    FlowFile,
    checked_attributes,
    checked_size,
    digest_of,
    given_attributes,
    inherited,
    new_flowfile,
    of_other_content,
    with_changes,
)
from custody.model import (
    Acknowledged,
    ContentClaim,
    Event,
    check_event,
    require_text,
    require_types,
    require_valid,
)

_NOTHING_WRITTEN = (BackpressureError, ClosedError, InvalidInputError)
"""Errors that a writer raises before it has written anything."""


class Appender(Protocol):
    """A writer with a name, to which events are appended."""

    @property
    def name(self) -> str:
        """The writer's name, to which the event ids belong."""
        ...

    def append(self, events: Sequence[Event]) -> range:
        """Append events in one piece and return their ids once they are acknowledged."""
        ...


class SessionState(Enum):
    """The state of a session; the value completes the sentence "the session …"."""

    OPEN = "is open"
    COMMITTED = "was committed"
    ROLLED_BACK = "was rolled back"
    UNKNOWN = "could not be committed and can only be rolled back"


class Session:
    """One piece of work of one component; one thread uses it, and it ends with `commit` or `rollback`.

    As a context manager it is committed at the end of the block, and rolled back when the block raises.

    Methods that make or change a FlowFile return its new value; an older value means the same FlowFile. Methods
    that report an event raise NotFoundError for a FlowFile that the session does not know or that has ended,
    InvalidInputError when the event lacks what its type needs, ClosedError when the session has ended. `duration_ms` is
    how long it took; when it is -1, the time since the session began to handle the FlowFile is taken.

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
        self.state = SessionState.OPEN
        self._changes = SessionChanges(component)
        self._writer = writer
        self._clock = clock
        self._new_uuid = new_uuid

    @property
    def is_over(self) -> bool:
        """Whether it was committed or rolled back."""
        return self.state in (SessionState.COMMITTED, SessionState.ROLLED_BACK)

    def take(self, flowfile: FlowFile, *, queue: str | None = None) -> FlowFile:
        """Take a FlowFile that exists already into the session, from the queue with this identifier.

        Raises:
            InvalidInputError: the session has it already.
            ClosedError: the session has ended.
        """
        self._require_open()
        if flowfile.uuid in self._changes.records:
            raise InvalidInputError(f"FlowFile {flowfile.uuid}: the session has it already.")
        checked_size(flowfile.size)
        record = FlowFileRecord(flowfile, flowfile, self._now(), queue)
        self._require_storable(record)
        self._changes.records[flowfile.uuid] = record
        return flowfile

    def create(
        self,
        attributes: Mapping[str, str] | None = None,
        *,
        size: int = 0,
        content_claim: ContentClaim | None = None,
    ) -> FlowFile:
        """Make a FlowFile that comes from no other one; unless it is received or fetched, a CREATE tells of it.

        Raises:
            InvalidInputError: an attribute is no text, or the size is negative.
            ClosedError: the session has ended.
        """
        self._require_open()
        attributes = given_attributes(attributes)
        now_ms = self._now()
        flowfile = new_flowfile(self._new_uuid(), attributes, size=size, content_claim=content_claim, now_ms=now_ms)
        return self._add(flowfile)

    def fork(
        self,
        parent: FlowFile,
        attributes: Mapping[str, str] | None = None,
        *,
        size: int = 0,
        content_claim: ContentClaim | None = None,
    ) -> FlowFile:
        """Make a FlowFile from another one, with its attributes; one FORK tells of all children of a parent.

        Raises:
            NotFoundError: the session does not know the parent, or it has ended.
            InvalidInputError: an attribute is no text, or the size is negative.
        """
        record = self._record(parent)
        child = new_flowfile(
            self._new_uuid(),
            {**inherited([record.current]), **given_attributes(attributes)},
            size=size,
            content_claim=content_claim,
            now_ms=self._now(),
            lineage_start_date=record.current.lineage_start_date,
        )
        return self._forked(record, child)

    def join(
        self,
        parents: Sequence[FlowFile],
        attributes: Mapping[str, str] | None = None,
        *,
        size: int = 0,
        content_claim: ContentClaim | None = None,
    ) -> FlowFile:
        """Make a FlowFile from several ones, with the attributes that all of them have; a JOIN tells of it.

        Raises:
            NotFoundError: the session does not know one of the parents, or it has ended.
            InvalidInputError: there is no parent, an attribute is no text, or the size is negative.
        """
        records = self._records(parents)
        sources = [record.current for record in records]
        child = new_flowfile(
            self._new_uuid(),
            {**inherited(sources), **given_attributes(attributes)},
            size=size,
            content_claim=content_claim,
            now_ms=self._now(),
            lineage_start_date=min(source.lineage_start_date for source in sources),
        )
        self._add(child)
        self._changes.joins[child.uuid] = self._draft(
            self._changes.records[child.uuid],
            "JOIN",
            parent_uuids=tuple(source.uuid for source in sources),
            child_uuids=(child.uuid,),
        )
        return child

    def clone(self, parent: FlowFile, *, offset: int = 0, size: int | None = None) -> FlowFile:
        """Make a copy of a FlowFile, or of `size` bytes of it from `offset` on.

        A CLONE tells of a whole copy, as the parent is at this moment; a part of it is a child like those of `fork`.

        Raises:
            NotFoundError: the session does not know the parent, or it has ended.
            InvalidInputError: the part does not lie in the FlowFile.
        """
        record = self._record(parent)
        source = record.current
        length = source.size - offset if size is None else size
        if offset < 0 or length < 0 or offset + length > source.size:
            raise InvalidInputError(
                f"FlowFile {source.uuid}: expected a part of its {source.size} bytes, "
                f"got {length} bytes from offset {offset} on."
            )
        claim = source.content_claim
        if claim is not None:
            claim = msgspec.structs.replace(claim, offset=(claim.offset or 0) + offset, size=length)
        uuid = self._new_uuid()
        # A part has other bytes, so the digest of the whole is not its own.
        attributes = source.attributes if length == source.size else of_other_content(source.attributes)
        attributes = {**attributes, "uuid": uuid}
        copy = msgspec.structs.replace(source, uuid=uuid, attributes=attributes, size=length, content_claim=claim)
        if length != source.size:
            return self._forked(record, copy)
        # Before the copy is added: a refused event must leave no copy behind.
        event = self._draft(record, "CLONE", parent_uuids=(source.uuid,), child_uuids=(copy.uuid,))
        self._add(copy)
        # Completed at once: a CLONE shows the parent as it is at this moment, not as of the commit.
        self._changes.reported.append(record.completed(event, self._now()))
        return copy

    def modify_content(
        self,
        flowfile: FlowFile,
        *,
        size: int,
        content_claim: ContentClaim | None = None,
        sha256: str | None = None,
        details: str | None = None,
        duration_ms: int = -1,
    ) -> FlowFile:
        """Give a FlowFile other content; a CONTENT_MODIFIED tells of it unless the FlowFile was made here.

        The attribute `content.sha256` becomes `sha256`, the digest of the new content, or goes.

        Raises:
            NotFoundError: the session does not know the FlowFile, or it has ended.
            InvalidInputError: the size is negative.
        """
        record = self._record(flowfile)
        events = []
        # Drafted before the change: an event that is refused must leave the FlowFile as it was.
        if details is not None or duration_ms >= 0:
            events.append(self._draft(record, "CONTENT_MODIFIED", details=details, event_duration=duration_ms))
        attributes = of_other_content(record.current.attributes) | given_attributes(digest_of(sha256))
        # The digest of the old content goes with it: events must not state it of the new one.
        self._change(record, size=checked_size(size), content_claim=content_claim, attributes=attributes)
        record.has_new_content = True
        self._changes.reported += events
        return record.current

    def modify_attributes(
        self, flowfile: FlowFile, changes: Mapping[str, str | None], *, details: str | None = None
    ) -> FlowFile:
        """Set attributes, and remove those whose value is None.

        Every event of the FlowFile shows the change; an ATTRIBUTES_MODIFIED is stored only if there is no other, or
        when it has `details`.

        Raises:
            NotFoundError: the session does not know the FlowFile, or it has ended.
            InvalidInputError: a value is no text, or the uuid is to be changed.
        """
        record = self._record(flowfile)
        checked = checked_attributes(changes, can_remove=True)
        # Drafted before the change, as in `modify_content`.
        events = [] if details is None else [self._draft(record, "ATTRIBUTES_MODIFIED", details=details)]
        self._change(record, attributes=with_changes(record.current.attributes, checked.items()))
        self._changes.reported += events
        return record.current

    def receive(
        self,
        flowfile: FlowFile,
        transit_uri: str,
        *,
        source_identifier: str | None = None,
        relationship: str | None = None,
        details: str | None = None,
        duration_ms: int = -1,
    ) -> None:
        """Say that a new FlowFile came from another system; `source_identifier` is its name there."""
        self._report(
            self._record(flowfile),
            "RECEIVE",
            transit_uri=transit_uri,
            source_system_flowfile_identifier=source_identifier,
            relationship=relationship,
            details=details,
            event_duration=duration_ms,
        )

    def fetch(
        self,
        flowfile: FlowFile,
        transit_uri: str,
        *,
        relationship: str | None = None,
        details: str | None = None,
        duration_ms: int = -1,
    ) -> None:
        """Say that a FlowFile's content was replaced with that of an external resource."""
        self._report(
            self._record(flowfile),
            "FETCH",
            transit_uri=transit_uri,
            relationship=relationship,
            details=details,
            event_duration=duration_ms,
        )

    def send(
        self,
        flowfile: FlowFile,
        transit_uri: str,
        *,
        force: bool = True,
        relationship: str | None = None,
        details: str | None = None,
        duration_ms: int = -1,
    ) -> int | None:
        """Say that a FlowFile was sent to another system, as it is at this moment.

        With `force` the event is stored at once and survives a rollback, because what was sent cannot be called back;
        its id is returned. Without, it is stored with the others.

        Durability: with `force`, on return the event is acknowledged.

        Raises:
            StorageError: with `force`: the disk refused; it is unknown whether the event survives.
            BackpressureError: with `force`: too much waits to be rolled over.
        """
        return self._sent(
            flowfile,
            "SEND",
            force,
            transit_uri=transit_uri,
            relationship=relationship,
            details=details,
            event_duration=duration_ms,
        )

    def upload(
        self,
        flowfile: FlowFile,
        transit_uri: str,
        uploaded_bytes: int,
        *,
        force: bool = True,
        relationship: str | None = None,
        details: str | None = None,
        duration_ms: int = -1,
    ) -> int | None:
        """Say that data which is not the FlowFile's content was sent to another system; otherwise as `send`.

        How much it was is said in the details; the event's size is the FlowFile's.
        """
        if uploaded_bytes < 0:
            raise InvalidInputError(f"uploaded_bytes: expected 0 or more, got {uploaded_bytes}.")
        amount = f"{uploaded_bytes} bytes"
        return self._sent(
            flowfile,
            "UPLOAD",
            force,
            transit_uri=transit_uri,
            relationship=relationship,
            details=amount if details is None else f"{details} {amount}",
            event_duration=duration_ms,
        )

    def remote_invocation(
        self,
        flowfile: FlowFile,
        transit_uri: str,
        *,
        relationship: str | None = None,
        details: str | None = None,
        duration_ms: int = -1,
    ) -> None:
        """Say that another system was made to do something other than a transfer, such as to delete a file."""
        if not transit_uri:
            raise InvalidInputError("transit_uri: expected where the remote action took place, got an empty text.")
        self._report(
            self._record(flowfile),
            "REMOTE_INVOCATION",
            transit_uri=transit_uri,
            relationship=relationship,
            details=details,
            event_duration=duration_ms,
        )

    def route(
        self,
        flowfile: FlowFile,
        relationship: str,
        *,
        destinations: Sequence[str] = (),
        details: str | None = None,
        duration_ms: int = -1,
    ) -> Event | None:
        """Say which way a FlowFile goes on; return the event, which `retract` takes, or None when none is stored.

        `destinations` are the queues behind the relationship, if they are known: a route back into the one queue that
        the FlowFile was taken from leads nowhere and is not stored.
        """
        record = self._record(flowfile)
        event = self._draft(record, "ROUTE", relationship=relationship, details=details, event_duration=duration_ms)
        if record.queue is not None and tuple(destinations) == (record.queue,):
            return None
        self._changes.reported.append(event)
        return event

    def addinfo(self, flowfile: FlowFile, namespace: str, identifier: str, *, details: str | None = None) -> None:
        """Give a FlowFile another name: `namespace:identifier`, under which it is found too."""
        record = self._record(flowfile)
        space, name = namespace.strip().removesuffix(":"), identifier.strip().removeprefix(":")
        if not space or not name:
            raise InvalidInputError(f"expected a namespace and an identifier, got {namespace!r} and {identifier!r}.")
        self._report(record, "ADDINFO", alternate_identifier_uri=f"{space}:{name}", details=details)

    def current(self, flowfile: FlowFile) -> FlowFile:
        """Return a FlowFile as it is now in this session.

        Raises:
            NotFoundError: the session does not know it, or it has ended here.
            ClosedError: the session has ended.
        """
        return self._record(flowfile).current

    def retract(self, flowfiles: Iterable[FlowFile] = (), events: Collection[Event] = ()) -> None:
        """Take back that FlowFiles were made here, and events that were reported: it is as if none had ever been.

        Raises:
            NotFoundError: the session does not know a FlowFile, or it has ended.
            InvalidInputError: it was not made here, or an event of it is stored already.
        """
        records = [self._record(flowfile) for flowfile in flowfiles]
        for record in records:
            if not record.is_new or record.uuid in self._changes.already_stored:
                raise InvalidInputError(f"FlowFile {record.uuid}: expected one of this session, which nobody knows of.")
        self._changes.retract({record.uuid for record in records}, events)

    def drop(self, flowfile: FlowFile, reason: str | None = None) -> None:
        """Take a FlowFile out of the flow.

        One that was made in this session is forgotten: it leaves neither a CREATE nor a JOIN and is no child of a FORK;
        only if other events tell of it, a DROP does too. To end a FlowFile that did its work, use `terminate`.

        Raises:
            NotFoundError: the session does not know the FlowFile, or it has ended.
        """
        record = self._record(flowfile)
        self._report(record, "DROP", details=None if reason is None else f"Discard reason: {reason}")
        record.has_ended = record.is_removed = True

    def terminate(self, flowfile: FlowFile, relationship: str) -> None:
        """End a FlowFile on a relationship that leads nowhere: its DROP is the last of the session's events.

        Raises:
            NotFoundError: the session does not know the FlowFile, or it has ended.
        """
        record = self._record(flowfile)
        details = f"Auto-Terminated by {relationship} Relationship"
        self._changes.terminated.append(self._draft(record, "DROP", details=details))
        record.has_ended = True

    def expire(self, flowfile: FlowFile, threshold: str) -> None:
        """End a FlowFile that became too old in its queue, before anything was done with it.

        `threshold` is the age as the queue's owner would write it, such as `30 sec`.

        Raises:
            NotFoundError: the session does not know the FlowFile, or it has ended.
            InvalidInputError: something was done with it in this session.
        """
        record = self._record(flowfile)
        if record.current is not record.original or self._changes.mentions(record.uuid):
            raise InvalidInputError(
                f"FlowFile {record.uuid}: expected one that nothing was done with. Drop it instead."
            )
        event = self._draft(record, "EXPIRE", details=f"Expiration Threshold = {threshold}")
        self._changes.reported.append(record.expired(event))
        record.has_ended = record.is_removed = True

    def commit(self) -> Acknowledged:
        """Store the session's events in one piece and end it; return their ids.

        Durability: on return the events are acknowledged, all of them.

        Raises:
            BackpressureError, InvalidInputError: nothing was stored; the session can be committed again.
            StorageError: it is unknown whether the events are stored; the session can only be rolled back.
            ClosedError: the session has ended, or its writer was closed and nothing was stored.
        """
        self._require_open()
        events = events_at_commit(self._changes, self._now())
        # Before the append, so that a refused event leaves the session as it is, to be committed again or rolled back.
        require_valid(events)
        try:
            ids = self._writer.append(events)
        # The session stays open: the same events can be committed again.
        except _NOTHING_WRITTEN:
            raise
        except BaseException as error:
            # A second commit could store everything twice.
            self.state = SessionState.UNKNOWN
            if isinstance(error, OSError):
                raise StorageError(
                    f"writer {self._writer.name!r}: the commit of {len(events)} events of {self.component.type} "
                    f"failed: {error}. It is unknown whether they are stored: search for their FlowFiles once a "
                    "writer was opened again. Roll the session back."
                ) from error
            raise
        self.state = SessionState.COMMITTED
        return Acknowledged(self._writer.name, ids)

    def rollback(self) -> None:
        """End the session without its events; what was sent by force is stored already and stays.

        Raises:
            ClosedError: the session has ended.
        """
        if self.state is not SessionState.UNKNOWN:
            self._require_open()
        self.state = SessionState.ROLLED_BACK

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.state is SessionState.OPEN and kind is None:
                self.commit()
        finally:
            # Also after a commit that was refused: the block is over, nobody commits again.
            if self.state in (SessionState.OPEN, SessionState.UNKNOWN):
                self.rollback()

    def _now(self) -> int:
        return self._clock.now_ms()

    def _require_open(self) -> None:
        if self.state is not SessionState.OPEN:
            raise ClosedError(f"the session of {self.component.type} {self.state.value}. Begin another one.")

    def _record(self, flowfile: FlowFile) -> FlowFileRecord:
        """Return what is known of a FlowFile that lives in this session."""
        self._require_open()
        record = self._changes.records.get(flowfile.uuid)
        if record is None:
            raise NotFoundError(
                f"FlowFile {flowfile.uuid}: this session does not know it. Take it into the session first."
            )
        if record.has_ended:
            raise NotFoundError(f"FlowFile {flowfile.uuid}: it has ended in this session.")
        return record

    def _records(self, flowfiles: Iterable[FlowFile]) -> list[FlowFileRecord]:
        # A parent that is named twice counts once.
        records = {record.uuid: record for record in map(self._record, flowfiles)}
        if not records:
            raise InvalidInputError("parents: expected at least one FlowFile, got none.")
        return list(records.values())

    def _add(self, flowfile: FlowFile) -> FlowFile:
        """Bring in a FlowFile that was made here."""
        record = FlowFileRecord(None, flowfile, self._now())
        self._require_storable(record)
        self._changes.records[flowfile.uuid] = record
        return flowfile

    def _change(self, record: FlowFileRecord, **values: object) -> FlowFile:
        """Give a FlowFile other values, unless no event could tell of them."""
        # Tried on a copy, so that a refused change leaves the FlowFile as it was.
        changed = replace(record, current=msgspec.structs.replace(record.current, **values))
        self._require_storable(changed)
        record.current = changed.current
        return record.current

    def _require_storable(self, record: FlowFileRecord) -> None:
        """Refuse a FlowFile of which no event could be stored, so that the session's other events still can.

        Raises:
            InvalidInputError: the message says why not.
        """
        # Of a type that needs nothing: only the FlowFile's own values can make it fail.
        event = record.completed(record.draft("UNKNOWN", self.component, record.start_ms), record.start_ms)
        _require_valid_event(event, f"FlowFile {record.uuid!a}")

    def _draft(self, record: FlowFileRecord, kind: str, **fields: object) -> Event:
        """Return an event about a FlowFile that obeys the rules of its type.

        Raises:
            InvalidInputError: it does not.
        """
        event = record.draft(kind, self.component, self._now(), **fields)
        _require_valid_event(event, f"{kind} of FlowFile {record.uuid}")
        return event

    def _report(self, record: FlowFileRecord, kind: str, **fields: object) -> None:
        self._changes.reported.append(self._draft(record, kind, **fields))

    def _sent(self, flowfile: FlowFile, kind: str, force: bool, **fields: object) -> int | None:
        record = self._record(flowfile)
        event = record.completed(self._draft(record, kind, **fields), self._now())
        if not force:
            self._changes.reported.append(event)
            return None
        # At once and not with the commit: a rollback cannot call back what was sent.
        ids = self._writer.append([event])
        # Others know of the FlowFile from now on: its DROP is stored, and it cannot expire any more.
        self._changes.already_stored.add(record.uuid)
        return ids.start

    def _forked(self, parent: FlowFileRecord, child: FlowFile) -> FlowFile:
        self._add(child)
        self._changes.forks.setdefault(parent.uuid, Fork(self._now())).children.append(child.uuid)
        return child


def _require_valid_event(event: Event, what: str) -> None:
    """Raise InvalidInputError when an event breaks a rule, also one that would only earn a warning."""
    try:
        require_types(event)
    except InvalidInputError as error:
        raise InvalidInputError(f"{what}: {error}") from error
    for problem in check_event(event):
        raise InvalidInputError(f"{what}: {problem.message}. Nothing of it was stored.")
