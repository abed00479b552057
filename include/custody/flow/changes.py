"""How FlowFiles come into a session, come from each other and are changed; the commit tells of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from custody.errors import InvalidInputError
from custody.flow.flowfile import (
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
from custody.flow.ledger import Fork
from custody.flow.record import Record
from custody.flow.reporter import Reporter
from custody.model import ContentClaim


class Changes(Reporter):
    """Makes and changes FlowFiles; each method returns the new value, an older value stands for the same FlowFile."""

    def take(self, flowfile: FlowFile, *, queue: str | None = None) -> FlowFile:
        """Take a FlowFile that exists already into the session, from the queue with this identifier.

        Raises:
            InvalidInputError: the session has it already.
            ClosedError: the session has ended.
        """
        self._require_open()
        if flowfile.uuid in self.records:
            raise InvalidInputError(f"FlowFile {flowfile.uuid}: the session has it already.")
        checked_size(flowfile.size)
        record = Record(flowfile, flowfile, self._now(), queue)
        self._require_storable(record)
        self.records[flowfile.uuid] = record
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
        given = given_attributes(attributes)
        now_ms = self._now()
        return self._add(new_flowfile(self._new_uuid(), given, size=size, content_claim=content_claim, now_ms=now_ms))

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
        self.joins[child.uuid] = self._draft(
            self.records[child.uuid],
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
        kept = source.attributes if length == source.size else of_other_content(source.attributes)
        attributes = {**kept, "uuid": uuid}
        copy = msgspec.structs.replace(source, uuid=uuid, attributes=attributes, size=length, content_claim=claim)
        if length != source.size:
            return self._forked(record, copy)
        event = self._draft(record, "CLONE", parent_uuids=(source.uuid,), child_uuids=(copy.uuid,))
        self._add(copy)
        self.reported.append(record.completed(event, self._now()))
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
        is_told = details is not None or duration_ms >= 0
        told = [self._draft(record, "CONTENT_MODIFIED", details=details, event_duration=duration_ms)] if is_told else []
        attributes = of_other_content(record.current.attributes) | given_attributes(digest_of(sha256))
        self._change(record, size=checked_size(size), content_claim=content_claim, attributes=attributes)
        record.has_new_content = True
        self.reported += told
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
        told = [] if details is None else [self._draft(record, "ATTRIBUTES_MODIFIED", details=details)]
        self._change(record, attributes=with_changes(record.current.attributes, checked.items()))
        self.reported += told
        return record.current

    def _forked(self, parent: Record, child: FlowFile) -> FlowFile:
        self._add(child)
        self.forks.setdefault(parent.uuid, Fork(self._now())).children.append(child.uuid)
        return child
