"""What became of a batch: figures for reports, and the objects of what is in no file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import msgspec

from custody.ngsi.attempts import Failed
from custody.ngsi.draft import NO_FILE, NOT_WRITTEN, Draft
from custody.ngsi.kept import ASIDE, LEFT
from custody.ngsi.naming import Destination
from custody.ngsi.staged import Staged


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
