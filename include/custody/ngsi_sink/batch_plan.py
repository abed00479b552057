"""The plan of a batch: the bytes that go to each file, and what goes to none, with reasons.

`plan_batch` renders records, finds out which of their files can be reached, and leaves out the records of the others.
Nothing is written here. `BatchResult` is the result of a planned batch, for reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import msgspec

from custody.capture import ngsi_notification
from custody.errors import InvalidInputError
from custody.model import Event
from custody.ngsi.naming import Destination
from custody.ngsi.parameters import Parameters
from custody.ngsi.records import Record, Unplaced
from custody.ngsi.rendering import ColumnsByLocation, FileAdditions, file_additions
from custody.ngsi_sink.batch_file import QUARANTINED, SKIPPED, BatchManifest, Notified, Quarantined, Skipped, Source
from custody.ngsi_sink.target import Failure

NOT_WRITTEN, NO_FILE, UNREADABLE = "not-written", "no-file", "unreadable"
Reach = Callable[[Iterable[str]], Mapping[str, Failure]]
"""Tries to reach files, with all retries; returns those that do not answer, or cannot be files, with the reason."""


@dataclass(frozen=True, slots=True)
class ContentMissing:
    """The content of an event is no longer there: nothing can be written of it, now or later."""

    reason: str


@dataclass(frozen=True, slots=True)
class ContentUnreadable:
    """The content of an event is there and is not the notification that the event received."""

    reason: str


class SourceRecord(msgspec.Struct, frozen=True, gc=False):
    """An event of a writer, with what is to be written of it."""

    writer: str
    event: Event
    content: Record | Unplaced | ContentMissing | ContentUnreadable
    body: bytes = b""
    """The body that it received, to be shown where it cannot be written."""

    @property
    def source(self) -> Source:
        """The event as a batch names it."""
        return Source(self.writer, self.event.event_id, self.event.flowfile_uuid)


@dataclass(slots=True)
class BatchPlan:
    """A batch before its files have lengths."""

    additions: FileAdditions
    sources: list[Source] = field(default_factory=list)
    """Of the records that are written; `additions.sources` are positions in it."""
    destinations: dict[str, Destination] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)

    def objects(self, number: int) -> dict[str, bytes]:
        """Return the objects of the sink that come with the batch of this number: what is in no file."""
        objects = {f"{SKIPPED}/{number:020d}.json": msgspec.json.encode(self.skipped)} if self.skipped else {}
        for place, quarantined in enumerate(self.quarantined):
            objects[f"{QUARANTINED}/{number:020d}-{place:05d}.json"] = msgspec.json.encode(quarantined)
        return objects


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """The result of a batch: what it added, and what it could not."""

    number: int
    records: int = 0
    skipped: int = 0
    """Entities that will never be in a file."""
    quarantined: int = 0
    """Events that wait in the quarantine."""
    deferred: int = 0
    """Appends that wait there, with their place in the file."""
    unusable_files: int = 0
    """Files, of these events and appends, whose name something else has, or whose bytes are not what was committed."""
    is_unanswered: bool = False
    """Whether a file did not answer, or refused: perhaps the target is away."""
    files: int = 0
    bytes: int = 0
    paths: tuple[str, ...] = ()
    """Of the files that got lines."""
    destinations: tuple[Destination, ...] = ()
    """Those that got data, for their Hive tables."""
    problem: str | None = None
    """Why something is quarantined or deferred."""

    @classmethod
    def of(cls, batch: BatchManifest, plan: BatchPlan, deferred: Mapping[int, Failure]) -> Self:
        """Return the result of a batch; `deferred` are appends, by their positions, with the reasons."""
        problems = [*(item.message for item in plan.quarantined), *(failure.reason for failure in deferred.values())]
        codes = [item.code for item in plan.quarantined]
        final = [failure.is_final for failure in deferred.values()]
        return cls(
            number=batch.number,
            records=len(plan.sources) - len(plan.additions.unplaced),
            skipped=len(plan.skipped),
            quarantined=sum(len(item.notifications) for item in plan.quarantined),
            deferred=len(deferred),
            unusable_files=codes.count(NO_FILE) + sum(final),
            is_unanswered=NOT_WRITTEN in codes or not all(final),
            files=len(batch.parts) - len(deferred),
            bytes=sum(part.length for place, part in enumerate(batch.parts) if place not in deferred),
            paths=tuple(part.path for place, part in enumerate(batch.parts) if place not in deferred),
            destinations=tuple(plan.destinations.values()),
            problem=problems[0] if problems else None,
        )


def new_events(
    items: Sequence[SourceRecord],
    cursors: Mapping[str, int],
    new_cursors: Mapping[str, int],
    resubmitted: Iterable[Quarantined],
) -> list[SourceRecord]:
    """Return the events that a batch takes: those from each writer's cursor up to its new one.

    Events before the cursor are in files already, unless they were quarantined and are `resubmitted` now.

    Raises:
        InvalidInputError: an event lies behind its writer's new cursor, or they are not in their order.
    """
    again = {notified.source for quarantined in resubmitted for notified in quarantined.notifications}
    last: dict[str, int] = {}
    chosen = []
    for item in items:
        event_id, writer = item.event.event_id, item.writer
        # Whatever the cursor says: it passed these events when they were quarantined.
        if item.source in again:
            chosen.append(item)
            continue
        # Handed over again: the cursor was committed together with its rows, so they count already.
        if event_id < cursors.get(writer, 0):
            continue
        first, upto = last.get(writer, cursors.get(writer, 0)), new_cursors.get(writer, 0)
        # An event behind the new cursor would be written now, and once more by the next batch.
        if not first <= event_id < upto:
            raise InvalidInputError(
                f"events of the batch: expected ids of writer {writer!r} from {first} up to {upto}, in order, "
                f"got {event_id}"
            )
        last[writer] = event_id
        chosen.append(item)
    return chosen


def part_name(items: Sequence[SourceRecord]) -> str:
    """Return the name of a batch's new files: by its first event, whatever else was written before."""
    return f"{items[0].writer}-{items[0].event.event_id:020d}" if items else ""


def plan_batch(
    items: Sequence[SourceRecord], parameters: Parameters, columns: ColumnsByLocation, reach: Reach, *, part: str
) -> BatchPlan:
    """Return the batch of some events; records of files that cannot be reached are quarantined, a file's together.

    `columns` are those that destinations have so far, `part` names new files of Parquet.
    """
    skipped = [
        Skipped(item.writer, item.event.event_id, item.content.reason)
        for item in items
        if isinstance(item.content, Unplaced | ContentMissing)
    ]
    quarantined = [
        _quarantined(UNREADABLE, item.content.reason, [item])
        for item in items
        if isinstance(item.content, ContentUnreadable)
    ]
    placed = [(item, item.content) for item in items if isinstance(item.content, Record)]
    # Rendered again until every file can be reached: a record has rows in several files (CSV's metadata), and whether
    # it brings a new column depends on the records before it. It ends, for each round takes records out.
    while True:
        additions = file_additions([record for _, record in placed], parameters, columns, part=part)
        failures = reach(additions.files)
        if not failures:
            break
        unreachable: dict[int, str] = {}
        for path, failure in failures.items():
            # A record with rows in several unreachable files is quarantined once, with the first of them.
            numbers = [number for number in additions.sources[path] if number not in unreachable]
            unreachable |= dict.fromkeys(numbers, path)
            if numbers:
                code = NO_FILE if failure.is_final else NOT_WRITTEN
                message = f"{path}: {failure.reason}"
                quarantined.append(_quarantined(code, message, [placed[number][0] for number in numbers]))
        placed = [pair for number, pair in enumerate(placed) if number not in unreachable]
    for number, unplaced in additions.unplaced.items():
        item = placed[number][0]
        skipped.append(Skipped(item.writer, item.event.event_id, unplaced.reason))
    return BatchPlan(
        additions=additions,
        sources=[item.source for item, _ in placed],
        destinations={record.placed.destination.location: record.placed.destination for _, record in placed},
        skipped=sorted(skipped, key=lambda item: (item.writer, item.event_id)),
        quarantined=quarantined,
    )


def _quarantined(code: str, message: str, items: Sequence[SourceRecord]) -> Quarantined:
    return Quarantined(
        code=code,
        message=message,
        notifications=tuple(
            Notified(
                source=item.source,
                service=item.event.updated_attributes.get(ngsi_notification.SERVICE),
                service_path=item.event.updated_attributes.get(ngsi_notification.SERVICE_PATH),
                # For people only: to submit the event again, its bytes are read from its content.
                body=item.body.decode(errors="replace"),
            )
            for item in items
        ),
    )
