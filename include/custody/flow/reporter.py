"""What a producer reports of FlowFiles; nothing of it changes a FlowFile."""

from __future__ import annotations

from collections.abc import Sequence

from custody.errors import InvalidInputError
from custody.flow.flowfile import FlowFile
from custody.flow.ledger import Ledger


class Reporter(Ledger):
    """Reports events.

    All methods raise NotFoundError for a FlowFile that the session does not know or that has ended, InvalidInputError
    when the event lacks what its type needs, ClosedError when the session has ended. `duration_ms` is how long it took;
    when it is -1, the time since the session began to handle the FlowFile is taken.
    """

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
    ) -> None:
        """Say which way a FlowFile goes on.

        `destinations` are the queues behind the relationship, if they are known: a route back into the one queue that
        the FlowFile was taken from leads nowhere and is not stored.
        """
        record = self._record(flowfile)
        event = self._draft(record, "ROUTE", relationship=relationship, details=details, event_duration=duration_ms)
        if record.queue is None or tuple(destinations) != (record.queue,):
            self.reported.append(event)

    def addinfo(self, flowfile: FlowFile, namespace: str, identifier: str, *, details: str | None = None) -> None:
        """Give a FlowFile another name: `namespace:identifier`, under which it is found too."""
        record = self._record(flowfile)
        space, name = namespace.strip().removesuffix(":"), identifier.strip().removeprefix(":")
        if not space or not name:
            raise InvalidInputError(f"expected a namespace and an identifier, got {namespace!r} and {identifier!r}.")
        self._report(record, "ADDINFO", alternate_identifier_uri=f"{space}:{name}", details=details)

    def _sent(self, flowfile: FlowFile, kind: str, force: bool, **fields: object) -> int | None:
        record = self._record(flowfile)
        event = record.completed(self._draft(record, kind, **fields), self._now())
        if not force:
            self.reported.append(event)
            return None
        ids = self._writer.append([event])
        self.told.add(record.uuid)
        return ids.start
