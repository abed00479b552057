"""The FlowFile that a replay of one event sends again, or the reason why there is none.

It is what the component was given: attributes and content before the event. Where the event names no content before it,
it is what the component gave: attributes and content after it, for a step that received or made the FlowFile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta

import msgspec

from custody.errors import CustodyError, NotFoundError
from custody.flow import FlowFile
from custody.model import MASK, ContentClaim, Event, EventType
from custody.model.masking import AttributeMask
from custody.replay.refusals import Refusal, RefusalCode

REPLAY_ATTRIBUTE = "flowfile.replay"
REPLAY_TIME_ATTRIBUTE = "flowfile.replay.timestamp"
_NOT_REPLAYED = ("discard.reason", "alternate.identifier")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

FindContent = Callable[[ContentClaim], object]
"""Finds a content by its claim; raises NotFoundError when it is gone, another error when nobody knows."""


class Replay(msgspec.Struct, frozen=True):
    """An event that can be replayed, and what enters the queue by that."""

    writer: str
    event: Event
    queue: str
    attributes: dict[str, str]
    size: int
    content_claim: ContentClaim | None

    def digest(self, mask: AttributeMask) -> bytes:
        """Return what is equal for two events whose replays cannot be told apart by whom some values are masked."""
        attributes = mask.values(self.attributes) if mask else self.attributes
        sent = (self.event.flowfile_uuid, self.queue, self.size, self.content_claim, sorted(attributes.items()))
        return hashlib.blake2b(msgspec.msgpack.encode(sent), digest_size=16).digest()

    def flowfile(self, uuid: str, now_ms: int) -> FlowFile:
        """Return the FlowFile that enters the queue now; its lineage begins when that of the first one did."""
        kept = {name: value for name, value in self.attributes.items() if name not in _NOT_REPLAYED}
        event = self.event
        starts = (event.lineage_start_date, event.flowfile_entry_date, event.event_time)
        return FlowFile(
            uuid=uuid,
            attributes={**kept, "uuid": uuid, REPLAY_ATTRIBUTE: "true", REPLAY_TIME_ATTRIBUTE: _time_text(now_ms)},
            size=self.size,
            entry_date=now_ms,
            lineage_start_date=next(start for start in starts if start is not None),
            content_claim=self.content_claim,
        )

    def report(self, flowfile: FlowFile, user: str, now_ms: int) -> Event:
        """Return the REPLAY event: from the FlowFile of the event to the one that is sent again."""
        event = self.event
        return Event(
            event_type=EventType.REPLAY,
            event_time=now_ms,
            component_id=event.component_id,
            component_type=event.component_type,
            component_name=event.component_name,
            process_group_id=event.process_group_id,
            process_group_name=event.process_group_name,
            flowfile_uuid=event.flowfile_uuid,
            file_size=flowfile.size,
            flowfile_entry_date=flowfile.entry_date,
            lineage_start_date=flowfile.lineage_start_date,
            details=f"Replay requested by {user}",
            parent_uuids=(event.flowfile_uuid,),
            child_uuids=(flowfile.uuid,),
            updated_attributes=dict(flowfile.attributes),
            content_claim=flowfile.content_claim,
        )


class ReplayJudge:
    """Says of events whether they can be replayed.

    Args:
        queues: the names of the queues that exist.
        find: finds contents.
    """

    def __init__(self, queues: Collection[str], find: FindContent) -> None:
        self._queues = queues
        self._find = find

    def judge(self, writer: str, event: Event) -> Replay | Refusal:
        """Return what a replay of an event sends again, or the first reason why it sends nothing."""

        def refused(code: RefusalCode, detail: str = "") -> Refusal:
            return Refusal(writer, event.event_id, code, detail)

        if event.event_type == EventType.JOIN:
            return refused(RefusalCode.SEVERAL_PARENTS)
        has_input, claim, size = _content_of(event)
        lacking = _lacking(claim, size)
        if lacking:
            return refused(RefusalCode.INCOMPLETE_CLAIM, lacking)
        failure = self._content_failure(claim, size)
        if failure is not None:
            return refused(*failure)
        if event.source_queue_identifier is None:
            return refused(RefusalCode.NO_SOURCE_QUEUE)
        if event.source_queue_identifier not in self._queues:
            return refused(RefusalCode.QUEUE_REMOVED, event.source_queue_identifier)
        before = {name: value for name, value in event.previous_attributes.items() if value is not None}
        attributes = before if has_input else event.attributes
        masked = [name for name, value in attributes.items() if value == MASK]
        if masked:
            return refused(RefusalCode.MASKED_ATTRIBUTE, ", ".join(sorted(masked)))
        return Replay(writer, event, event.source_queue_identifier, attributes, size, claim)

    def _content_failure(self, claim: ContentClaim | None, size: int) -> tuple[RefusalCode, str] | None:
        if claim is None or not size:
            return None
        try:
            self._find(claim)
        except NotFoundError as error:
            return RefusalCode.CONTENT_GONE, str(error)
        except CustodyError as error:
            return RefusalCode.CONTENT_UNREADABLE, str(error)
        return None


def _content_of(event: Event) -> tuple[bool, ContentClaim | None, int]:
    """Return whether what a replay sends is the input of the event, its claim and its size."""
    before = _named(event.previous_content_claim)
    if before is not None:
        return True, before, before.size or 0
    # A FlowFile without any content came in: what the step made of it is not what it was given.
    if event.previous_file_size == 0:
        return True, None, 0
    after = _named(event.content_claim)
    if after is not None:
        return False, after, after.size or 0
    return False, None, event.file_size


def _named(claim: ContentClaim | None) -> ContentClaim | None:
    """Return a claim that says anything, None for one that is all empty."""
    if claim is None or all(part is None for part in (claim.container, claim.section, claim.identifier, claim.size)):
        return None
    return claim


def _lacking(claim: ContentClaim | None, size: int) -> str:
    """Return what is missing of the place of a content, as text; empty when nothing is."""
    if claim is None:
        return f"{size} bytes without a claim" if size else ""
    parts = {
        "size": claim.size,
        "identifier": claim.identifier,
        "section": claim.section,
        "container": claim.container,
    }
    missing = [name for name, value in parts.items() if value is None]
    return f"no {', no '.join(missing)}" if missing else ""


def _time_text(now_ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=now_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
