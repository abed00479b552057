"""What a batch is going to be: records that have a place, their lines by file, and what is left out, with reasons.

What became of a batch: figures for reports, and the objects of what is in no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import msgspec

from custody.capture import ngsi
from custody.errors import InvalidInputError
from custody.model import Event
from custody.ngsi.naming import Destination
from custody.ngsi.parameters import Parameters
from custody.ngsi.parquet import Contents, contents
from custody.ngsi.records import Record, Unplaced
from custody.ngsi.rendering import Known
from custody.ngsi_sink.batch_file import ASIDE, LEFT, Aside, Left, Notified, Source, Staged
from custody.ngsi_sink.retry import Failed

NOT_WRITTEN, NO_FILE, UNREADABLE = "not-written", "no-file", "unreadable"
Reach = Callable[[Iterable[str]], Mapping[str, Failed]]
"""Tries to reach files, with all retries; returns those that do not answer, or cannot be files, with the reason."""


@dataclass(frozen=True, slots=True)
class Gone:
    """An event whose content is no longer there: nothing can be written of it, now or later."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unread:
    """An event whose content is there and is not the notification that it received."""

    reason: str


@dataclass(frozen=True, slots=True)
class Taken:
    """An event of a writer, with what is to be written of it."""

    writer: str
    event: Event
    found: Record | Unplaced | Gone | Unread
    body: bytes = b""
    """What it received, to be shown where it cannot be written."""

    @property
    def source(self) -> Source:
        """The event in a batch."""
        return Source(self.writer, self.event.event_id, self.event.flowfile_uuid)


@dataclass(slots=True)
class Draft:
    """A batch before its files have lengths."""

    made: Contents
    sources: list[Source] = field(default_factory=list)
    """Of the records that are written; `made.sources` are places in it."""
    destinations: dict[str, Destination] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)
    aside: list[Aside] = field(default_factory=list)


def untaken(
    items: Sequence[Taken], have: Mapping[str, int], cursors: Mapping[str, int], settled: Iterable[Aside]
) -> list[Taken]:
    """Return the events that a batch takes, of those from each writer's cursor in `have` up to that in `cursors`.

    Events before the former are in files already, unless they are of what was put aside and is `settled` now.

    Raises:
        InvalidInputError: an event lies behind its writer's new cursor, or they are not in their order.
    """
    again = {notified.source for held in settled for notified in held.notifications}
    last: dict[str, int] = {}
    found = []
    for item in items:
        event_id, writer = item.event.event_id, item.writer
        if item.source in again:
            found.append(item)
            continue
        if event_id < have.get(writer, 0):
            continue
        first, upto = last.get(writer, have.get(writer, 0)), cursors.get(writer, 0)
        if not first <= event_id < upto:
            raise InvalidInputError(
                f"events of the batch: expected ids of writer {writer!r} from {first} up to {upto}, in order, "
                f"got {event_id}"
            )
        last[writer] = event_id
        found.append(item)
    return found


def draft(items: Sequence[Taken], parameters: Parameters, known: Known, reach: Reach, *, part: str) -> Draft:
    """Return the batch of some events; records of files that cannot be reached are put aside, a file's together."""
    left = [
        Left(item.writer, item.event.event_id, item.found.reason)
        for item in items
        if isinstance(item.found, Unplaced | Gone)
    ]
    aside = [_aside(UNREADABLE, item.found.reason, [item]) for item in items if isinstance(item.found, Unread)]
    placed = [(item, item.found) for item in items if isinstance(item.found, Record)]
    while True:
        made = contents([record for _, record in placed], parameters, known, part=part)
        failing = reach(made.files)
        if not failing:
            break
        gone: dict[int, str] = {}
        for path, failed in failing.items():
            its = [number for number in made.sources[path] if number not in gone]
            gone |= dict.fromkeys(its, path)
            if its:
                code = NO_FILE if failed.is_final else NOT_WRITTEN
                aside.append(_aside(code, f"{path}: {failed.reason}", [placed[number][0] for number in its]))
        placed = [pair for number, pair in enumerate(placed) if number not in gone]
    for number, unplaced in made.unplaced.items():
        item = placed[number][0]
        left.append(Left(item.writer, item.event.event_id, unplaced.reason))
    return Draft(
        made=made,
        sources=[item.source for item, _ in placed],
        destinations={record.placed.destination.location: record.placed.destination for _, record in placed},
        left=sorted(left, key=lambda item: (item.writer, item.event_id)),
        aside=aside,
    )


def _aside(code: str, message: str, items: Sequence[Taken]) -> Aside:
    return Aside(
        code=code,
        message=message,
        notifications=tuple(
            Notified(
                source=item.source,
                service=item.event.updated_attributes.get(ngsi.SERVICE),
                service_path=item.event.updated_attributes.get(ngsi.SERVICE_PATH),
                body=item.body.decode(errors="replace"),
            )
            for item in items
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a batch added."""

    number: int
    records: int = 0
    left: int = 0
    """Entities that are in no file for good."""
    aside: int = 0
    """Events that wait in the quarantine."""
    deferred: int = 0
    """Parts that wait there."""
    unfit: int = 0
    """Files, of these events and parts, in whose place something stands that is not what was committed, or no file."""
    is_unanswered: bool = False
    """Whether a file did not answer, or refused: perhaps the target is away."""
    files: int = 0
    bytes: int = 0
    destinations: tuple[Destination, ...] = ()
    """Those that got data, for their Hive tables."""
    problem: str | None = None
    """Why something is put aside or deferred."""

    @classmethod
    def of(cls, batch: Staged, made: Draft, deferred: Mapping[int, Failed]) -> Self:
        """Return what a batch added of which some parts, by their places, are deferred, each with the reason."""
        problems = [*(item.message for item in made.aside), *(failed.reason for failed in deferred.values())]
        codes = [item.code for item in made.aside]
        final = [failed.is_final for failed in deferred.values()]
        return cls(
            number=batch.number,
            records=len(made.sources) - len(made.made.unplaced),
            left=len(made.left),
            aside=sum(len(item.notifications) for item in made.aside),
            deferred=len(deferred),
            unfit=codes.count(NO_FILE) + sum(final),
            is_unanswered=NOT_WRITTEN in codes or not all(final),
            files=len(batch.parts) - len(deferred),
            bytes=sum(part.length for place, part in enumerate(batch.parts) if place not in deferred),
            destinations=tuple(made.destinations.values()),
            problem=problems[0] if problems else None,
        )


def objects_of(made: Draft, number: int) -> dict[str, bytes]:
    """Return the objects that come with a batch: what is in no file."""
    objects = {f"{LEFT}/{number:020d}.json": msgspec.json.encode(made.left)} if made.left else {}
    for place, aside in enumerate(made.aside):
        objects[f"{ASIDE}/{number:020d}-{place:05d}.json"] = msgspec.json.encode(aside)
    return objects
