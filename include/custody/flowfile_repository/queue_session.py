"""The session over queues: FlowFiles are taken, changed and sent on; one commit lets queues, contents, events agree.

Contents are streams: what is read and written passes through in pieces. A content is written to a new place and is
durable before the commit that refers to it; the old one stays as it was. A split shares the bytes of its parent.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import BinaryIO, Self

from custody.clock import Clock
from custody.errors import CustodyError, InvalidInputError, NotFoundError
from custody.flow import Component, FlowFile, Session
from custody.flow.content import Content, ContentStream, ContentWriter, ResourceClaim, StoredContent
from custody.flowfile_repository.flowfile_repository import FlowFileRepository, Placed, Work
from custody.flowfile_repository.outbox import Provenance
from custody.flowfile_repository.records import Waiting
from custody.model import Acknowledged, ContentClaim, Event

PENALTY_MS = 30_000
"""How long a penalised FlowFile waits, unless said otherwise."""
_READ_BYTES = 256 << 10

FindContent = Callable[[ContentClaim], Content]
"""Finds a content by its claim; raises NotFoundError when it is gone."""


class ContentInput(io.RawIOBase):
    """A content as a stream; each piece was checked before it is given out."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Whether it can be read: it can."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fill a buffer as far as the next piece goes; 0 at the end."""
        target = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        length = min(len(target), len(self._rest))
        target[:length] = self._rest[:length]
        self._rest = self._rest[length:]
        return length


class _Committing:
    """Where the events of a session go to: with its commit into the log, or by force at once into the journal."""

    def __init__(self, flowfiles: FlowFileRepository, provenance: Provenance) -> None:
        self._flowfiles = flowfiles
        self._provenance = provenance
        self.work: Work | None = None
        """The FlowFiles of the commit that is under way."""

    @property
    def name(self) -> str:
        """The writer's name."""
        return self._provenance.name

    def append(self, events: Sequence[Event]) -> range:
        """Store events: with the work of the commit, if one is under way."""
        if self.work is None:
            return self._provenance.append(events)
        work = self.work
        return self._flowfiles.commit(replace(work, events=tuple(events)))


class QueueSession:
    """One piece of work of one component on FlowFiles of queues; one thread uses it.

    As a context manager it is committed at the end of the block, and rolled back when the block raises. Each FlowFile
    of the session has to be transferred, removed or put back before the commit.

    Args:
        flowfiles: the queues.
        component: who works.
        provenance: where events go to.
        content: writes contents.
        find_content: finds contents.
        clock: tells the times of events.
        new_uuid: makes the uuids of new FlowFiles.
    """

    def __init__(
        self,
        flowfiles: FlowFileRepository,
        component: Component,
        provenance: Provenance,
        content: Callable[[], ContentWriter],
        find_content: FindContent,
        clock: Clock,
        new_uuid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.name = uuid.uuid4().hex
        self.component = component
        self._flowfiles = flowfiles
        self._provenance = provenance
        self._content = content
        self._find_content = find_content
        self._clock = clock
        self._new_uuid = new_uuid
        self._committing = _Committing(flowfiles, provenance)
        self.report = Session(component, self._committing, clock, new_uuid)
        """The provenance side of the session, for what it reports beside the methods here."""
        self._taken: dict[str, str] = {}
        """The queue that each FlowFile was taken from, by uuid."""
        self._penalties: dict[str, int] = {}
        self._destinations: dict[str, str] = {}
        self._transfers: dict[str, tuple[list[FlowFile], list[Event]]] = {}
        """The clones and ROUTEs of each FlowFile's last transfer, which the next one replaces."""
        self._living: dict[str, FlowFile] = {}
        """The FlowFiles that were neither removed nor put back, as they were when they came."""
        self._returned: list[str] = []

    def get(self, queue: str, accepts: Callable[[FlowFile], bool] | None = None) -> FlowFile | None:
        """Take the first FlowFile of a queue, None when there is none; raises as `get_many`."""
        return next(iter(self.get_many(queue, 1, accepts)), None)

    def get_many(
        self,
        queue: str,
        count: int,
        accepts: Callable[[FlowFile], bool] | None = None,
        *,
        with_penalised: bool = False,
    ) -> list[FlowFile]:
        """Take the first FlowFiles of a queue, at most `count`; nobody else gets them until the session ends.

        Those that are too old are ended with an EXPIRE of this component, in a commit of their own. Penalised ones are
        passed over, or with `with_penalised` come last: to be ended, whatever they wait for.

        Raises:
            NotFoundError: there is no such queue.
            ClosedError: the session has ended.
        """
        taking = self._flowfiles.take(
            queue,
            self.name,
            count=count,
            accepts=accepts,
            component=self.component.id,
            with_penalised=with_penalised,
        )
        try:
            if taking.expired:
                self._expire(queue, taking.expired)
            for item in taking.items:
                self.report.take(item.flowfile, queue=queue)
        except CustodyError:
            # Who called never sees them: nobody else would give them back before the process ends.
            self._flowfiles.give_back(self.name, [item.uuid for item in (*taking.items, *taking.expired)])
            raise
        for item in taking.items:
            self._taken[item.uuid] = queue
            self._living[item.uuid] = item.flowfile
        return [item.flowfile for item in taking.items]

    def create(
        self,
        attributes: Mapping[str, str] | None = None,
        *,
        size: int = 0,
        content_claim: ContentClaim | None = None,
    ) -> FlowFile:
        """Make a FlowFile that comes from no other one, without content or with one that is stored already."""
        return self._made(self.report.create(attributes, size=size, content_claim=content_claim))

    def fork(self, parent: FlowFile, attributes: Mapping[str, str] | None = None) -> FlowFile:
        """Make a FlowFile from another one, with its attributes and without content."""
        return self._made(self.report.fork(parent, attributes))

    def join(self, parents: Sequence[FlowFile], attributes: Mapping[str, str] | None = None) -> FlowFile:
        """Make a FlowFile from several ones, with the attributes that all of them have and without content."""
        return self._made(self.report.join(parents, attributes))

    def clone(self, parent: FlowFile, *, offset: int = 0, size: int | None = None) -> FlowFile:
        """Make a copy of a FlowFile, or of a part of it; the bytes are shared."""
        return self._made(self.report.clone(parent, offset=offset, size=size))

    def split(self, parent: FlowFile, ranges: Iterable[tuple[int, int]]) -> list[FlowFile]:
        """Make a FlowFile of each part, an offset and a length in bytes; nothing is copied.

        Raises:
            InvalidInputError: a part does not lie in the parent; none was made.
        """
        parts: list[FlowFile] = []
        with self._unmade_on_error(parts):
            for offset, size in ranges:
                parts.append(self.clone(parent, offset=offset, size=size))
        return parts

    def merge(
        self,
        parents: Sequence[FlowFile],
        attributes: Mapping[str, str] | None = None,
        *,
        header: bytes = b"",
        delimiter: bytes = b"",
        footer: bytes = b"",
    ) -> FlowFile:
        """Make a FlowFile whose content is that of its parents, one after the other; a JOIN tells of it.

        Raises:
            NotFoundError: the session does not know a parent, or its content is gone; nothing was made.
            CorruptionError: a content is not what was written; nothing was made.
            StorageError: the disk refused; nothing was made.
        """
        merged = self.join(parents, attributes)
        with self._unmade_on_error([merged]), self.write(merged) as output:
            output.write(header)
            for number, parent in enumerate(parents):
                if number:
                    output.write(delimiter)
                for chunk in self.chunks(parent):
                    output.write(chunk)
            output.write(footer)
        return self.current(merged)

    def chunks(self, flowfile: FlowFile) -> Iterator[bytes]:
        """Yield the content of a FlowFile in pieces of at most 256 KiB, each checked.

        Raises:
            NotFoundError: the content is gone; the message says where it was looked for.
            CorruptionError: what is stored is not what was written.
        """
        current = self.report.current(flowfile)
        if current.content_claim is None:
            if current.size:
                raise NotFoundError(f"FlowFile {current.uuid}: it has {current.size} bytes of content and no claim.")
            return iter(())
        return self._find_content(current.content_claim).chunks() if current.size else iter(())

    def read(self, flowfile: FlowFile) -> BinaryIO:
        """Return the content of a FlowFile as a stream; raises as `chunks`."""
        return io.BufferedReader(ContentInput(self.chunks(flowfile)), _READ_BYTES)

    def read_bytes(self, flowfile: FlowFile) -> bytes:
        """Return the whole content of a FlowFile, for one that fits into memory; raises as `chunks`."""
        return b"".join(self.chunks(flowfile))

    @contextmanager
    def write(self, flowfile: FlowFile, *, details: str | None = None) -> Iterator[ContentStream]:
        """Give a FlowFile new content: the block writes it, in pieces; when the block raises, nothing has changed.

        The old content can be read meanwhile, and stays what it is for everybody else who refers to it.

        Raises:
            NotFoundError: the session does not know the FlowFile.
            StorageError: the disk refused; the FlowFile is as before.
        """
        self.report.current(flowfile)
        with self._content().open() as stream:
            yield stream
            self._set_content(flowfile, stream.finish(), details)

    @contextmanager
    def append(self, flowfile: FlowFile) -> Iterator[ContentStream]:
        """Give a FlowFile its content and what the block writes behind it; raises as `write` and `chunks`."""
        with self.write(flowfile) as output:
            for chunk in self.chunks(flowfile):
                output.write(chunk)
            yield output

    def write_bytes(self, flowfile: FlowFile, data: bytes, *, details: str | None = None) -> FlowFile:
        """Give a FlowFile this content; return its new value."""
        self.report.current(flowfile)
        return self._set_content(flowfile, self._content().put(data), details)

    def put_attribute(self, flowfile: FlowFile, name: str, value: str) -> FlowFile:
        """Set one attribute; return the FlowFile's new value."""
        return self.put_attributes(flowfile, {name: value})

    def put_attributes(self, flowfile: FlowFile, changes: Mapping[str, str | None]) -> FlowFile:
        """Set attributes, and remove those whose value is None; return the FlowFile's new value."""
        return self.report.modify_attributes(flowfile, changes)

    def modify(self, flowfile: FlowFile, details: str) -> None:
        """Say what was done to a content that was written in this session."""
        current = self.report.current(flowfile)
        self.report.modify_content(
            flowfile, size=current.size, content_claim=current.content_claim, sha256=_digest(current), details=details
        )

    def receive(self, flowfile: FlowFile, transit_uri: str, **details: str) -> None:
        """Say that a new FlowFile came from another system; see `Session.receive`."""
        self.report.receive(flowfile, transit_uri, **details)  # type: ignore[arg-type]

    def fetch(self, flowfile: FlowFile, transit_uri: str, **details: str) -> None:
        """Say that a FlowFile's content was fetched from another system; see `Session.fetch`."""
        self.report.fetch(flowfile, transit_uri, **details)  # type: ignore[arg-type]

    def send(self, flowfile: FlowFile, transit_uri: str, *, force: bool = True) -> int | None:
        """Say that a FlowFile was sent to another system, as it is at this moment; see `Session.send`."""
        return self.report.send(flowfile, transit_uri, force=force)

    def associate(self, flowfile: FlowFile, namespace: str, identifier: str) -> None:
        """Give a FlowFile another name under which it is found too: an ADDINFO tells of it."""
        self.report.addinfo(flowfile, namespace, identifier)

    def transfer(self, flowfile: FlowFile, *queues: str, relationship: str | None = None) -> None:
        """Send a FlowFile on to a queue at the commit; for each further queue it is cloned.

        With a `relationship` a ROUTE tells of the way. The last call counts: what an earlier one made is gone.

        Raises:
            NotFoundError: the session does not know the FlowFile, or a queue does not exist.
            InvalidInputError: no queue is named.
        """
        if not queues:
            raise InvalidInputError(f"FlowFile {flowfile.uuid}: expected a queue to transfer it to, got none.")
        current = self.report.current(flowfile)
        for queue in queues:
            self._flowfiles.require_queue(queue)
        self._take_back_transfer(current)
        copies: list[FlowFile] = []
        routes = [] if relationship is None else [self.report.route(flowfile, relationship, destinations=queues)]
        for queue in queues[1:]:
            copies.append(self.clone(current))
            if relationship is not None:
                routes.append(self.report.route(copies[-1], relationship, destinations=[queue]))
            self._destinations[copies[-1].uuid] = queue
        self._destinations[current.uuid] = queues[0]
        self._transfers[current.uuid] = copies, [event for event in routes if event is not None]

    def put_back(self, flowfile: FlowFile) -> None:
        """Return a FlowFile to the queue that it was taken from, as it was, at the commit.

        Raises:
            InvalidInputError: it was made or changed in this session.
        """
        current = self.report.current(flowfile)
        if flowfile.uuid not in self._taken or current != self._living[flowfile.uuid]:
            raise InvalidInputError(
                f"FlowFile {flowfile.uuid}: expected one that was taken and not changed. Transfer it instead."
            )
        self._take_back_transfer(flowfile)
        self._returned.append(flowfile.uuid)
        del self._living[flowfile.uuid]

    def penalise(self, flowfile: FlowFile, milliseconds: int = PENALTY_MS) -> None:
        """Let a FlowFile wait for a while in the queue that it enters, or goes back to."""
        self.report.current(flowfile)
        self._penalties[flowfile.uuid] = self._clock.now_ms() + milliseconds

    def yield_component(self, milliseconds: int = 1000) -> None:
        """Let this component get nothing for a while."""
        self._flowfiles.yield_component(self.component.id, milliseconds)

    def remove(self, flowfile: FlowFile, reason: str | None = None) -> None:
        """Take a FlowFile out of the flow."""
        self.report.drop(flowfile, reason)
        self._end(flowfile)

    def terminate(self, flowfile: FlowFile, relationship: str) -> None:
        """End a FlowFile that did its work, on a relationship that leads nowhere."""
        self.report.terminate(flowfile, relationship)
        self._end(flowfile)

    def current(self, flowfile: FlowFile) -> FlowFile:
        """Return a FlowFile as it is now in this session."""
        return self.report.current(flowfile)

    def commit(self) -> Acknowledged:
        """Make queues, contents and events agree with what the session did, in one piece, and end it.

        Durability: on return all of it survives power loss.

        Raises:
            InvalidInputError: a FlowFile was neither transferred nor removed, or a priority cannot be computed;
                nothing was done, the session can go on.
            BackpressureError: a queue is full; nothing was done, the session can be committed again.
            StorageError: it is unknown whether it is done; the session can only be rolled back.
            ClosedError: the session has ended.
        """
        idle = [uuid_ for uuid_ in self._living if uuid_ not in self._destinations]
        if idle:
            raise InvalidInputError(
                f"{len(idle)} FlowFiles of the session go nowhere, among them {idle[0]}. Transfer them to a queue, "
                "remove them, or put them back."
            )
        placed = [
            Placed(self.report.current(flowfile), self._destinations[uuid_], self._penalties.get(uuid_, 0))
            for uuid_, flowfile in self._living.items()
        ]
        gone = [uuid_ for uuid_ in self._taken if uuid_ not in self._living and uuid_ not in self._returned]
        self._committing.work = Work(self.name, placed, gone, self._returned, penalties=self._penalties)
        try:
            return self.report.commit()
        finally:
            self._committing.work = None

    def rollback(self, *, penalty_ms: int = 0) -> None:
        """Undo: what was taken goes back as it was; what was sent by force stays recorded.

        New contents are left to the cleaning of contents that nobody refers to.
        """
        until = self._clock.now_ms() + penalty_ms if penalty_ms else 0
        # First: when the disk refuses, the session can be rolled back again.
        if self._taken and not self._is_over:
            self._flowfiles.give_back(self.name, list(self._taken), penalised_until_ms=until)
        self.report.rollback()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_over and kind is None:
            try:
                self.commit()
            except BaseException:
                self._give_up()
                raise
        elif not self._is_over:
            self._give_up()

    @property
    def _is_over(self) -> bool:
        return self.report.is_over

    def _give_up(self) -> None:
        if not self._is_over:
            self.rollback()

    def _made(self, flowfile: FlowFile) -> FlowFile:
        self._living[flowfile.uuid] = flowfile
        return flowfile

    def _end(self, flowfile: FlowFile) -> None:
        self._take_back_transfer(flowfile)
        self._forget(flowfile)

    def _forget(self, flowfile: FlowFile) -> None:
        self._living.pop(flowfile.uuid, None)
        self._destinations.pop(flowfile.uuid, None)

    def _take_back_transfer(self, flowfile: FlowFile) -> None:
        """Undo what an earlier transfer of a FlowFile made: as in NiFi, the last word on it counts."""
        copies, routes = self._transfers.pop(flowfile.uuid, ([], []))
        self._destinations.pop(flowfile.uuid, None)
        self._unmake(copies, routes)

    def _unmake(self, flowfiles: Sequence[FlowFile], events: Sequence[Event] = ()) -> None:
        self.report.retract(flowfiles, events)
        for flowfile in flowfiles:
            self._forget(flowfile)

    @contextmanager
    def _unmade_on_error(self, flowfiles: Sequence[FlowFile]) -> Iterator[None]:
        """Take back FlowFiles that were made, as far as they are listed, when the block raises."""
        try:
            yield
        except BaseException:
            if not self._is_over:
                self._unmake(flowfiles)
            raise

    def _set_content(self, flowfile: FlowFile, stored: StoredContent, details: str | None) -> FlowFile:
        resource = ResourceClaim.of(stored.claim)
        if resource is not None:
            self._flowfiles.wrote(self.name, resource.text)
        return self.report.modify_content(
            flowfile, size=stored.size, content_claim=stored.claim, sha256=stored.sha256, details=details
        )

    def _expire(self, queue: str, items: Sequence[Waiting]) -> None:
        """End FlowFiles that are too old, in a commit of their own: a rollback does not bring them back."""
        committing = _Committing(self._flowfiles, self._provenance)
        session = Session(self.component, committing, self._clock, self._new_uuid)
        threshold = next(one for one in self._flowfiles.connections() if one.name == queue).expiration_ms
        for item in items:
            session.take(item.flowfile, queue=queue)
            session.expire(item.flowfile, f"{threshold} ms")
        committing.work = Work(self.name, leaves=[item.uuid for item in items])
        session.commit()


def _digest(flowfile: FlowFile) -> str | None:
    return flowfile.attributes.get("content.sha256")
