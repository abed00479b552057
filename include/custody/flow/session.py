"""The session: what a producer does with FlowFiles in one piece of work, stored as one piece when it is committed.

Events wait in the session and show their FlowFile as it is at the commit, except what left the system: SEND and UPLOAD
show it as it was sent, CLONE as it was copied. What nobody reported is found at the commit: FlowFiles that were made,
contents and attributes that were changed.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from custody.errors import (
    BackpressureError,
    ClosedError,
    InvalidInputError,
    StorageError,
)
from custody.flow.changes import Changes
from custody.flow.commit import events_at_commit
from custody.flow.flowfile import FlowFile
from custody.flow.ledger import State
from custody.model import Acknowledged, require_valid

_REFUSED = (BackpressureError, ClosedError, InvalidInputError)
"""What a writer raises before it has written anything."""


class Session(Changes):
    """One piece of work of one component; one thread uses it, and it ends with `commit` or `rollback`.

    As a context manager it is committed at the end of the block, and rolled back when the block raises. Methods that
    change a FlowFile return its new value; an older value stands for the same FlowFile.
    """

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
        self.terminated.append(self._draft(record, "DROP", details=details))
        record.has_ended = True

    def expire(self, flowfile: FlowFile, threshold: str) -> None:
        """End a FlowFile that became too old in its queue, before anything was done with it.

        `threshold` is the age as the queue's owner would write it, such as `30 sec`.

        Raises:
            NotFoundError: the session does not know the FlowFile, or it has ended.
            InvalidInputError: something was done with it in this session.
        """
        record = self._record(flowfile)
        mentioned = {uuid for event in self.reported for uuid in (event.flowfile_uuid, *event.parent_uuids)}
        mentioned |= {*self.forks, *self.told, *(uuid for event in self.joins.values() for uuid in event.parent_uuids)}
        if record.current is not record.original or record.uuid in mentioned:
            raise InvalidInputError(
                f"FlowFile {record.uuid}: expected one that nothing was done with. Drop it instead."
            )
        event = self._draft(record, "EXPIRE", details=f"Expiration Threshold = {threshold}")
        self.reported.append(record.expired(event))
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
        events = events_at_commit(self, self._now())
        require_valid(events)
        try:
            ids = self._writer.append(events)
        except _REFUSED:
            raise
        except BaseException as error:
            self.state = State.UNKNOWN
            if isinstance(error, OSError):
                raise StorageError(
                    f"writer {self._writer.name!r}: the commit of {len(events)} events of {self.component.type} "
                    f"failed: {error}. It is unknown whether they are stored: search for their FlowFiles once a "
                    "writer was opened again. Roll the session back."
                ) from error
            raise
        self.state = State.COMMITTED
        return Acknowledged(self._writer.name, ids)

    def rollback(self) -> None:
        """End the session without its events; what was sent by force is stored already and stays.

        Raises:
            ClosedError: the session has ended.
        """
        if self.state is not State.UNKNOWN:
            self._require_open()
        self.state = State.ROLLED_BACK

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.state is State.OPEN and kind is None:
                self.commit()
        finally:
            if self.state in (State.OPEN, State.UNKNOWN):
                self.rollback()
