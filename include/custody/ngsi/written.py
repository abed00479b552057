"""What became of a batch: figures for reports, and the objects of what is in no file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import msgspec

from custody.ngsi.draft import NOT_WRITTEN, Draft
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
    refused: int = 0
    """Those of them whose file did not answer."""
    deferred: int = 0
    """Parts that wait there."""
    files: int = 0
    bytes: int = 0
    destinations: tuple[Destination, ...] = ()
    """Those that got data, for their Hive tables."""
    problem: str | None = None
    """Why something is put aside or deferred."""

    @classmethod
    def of(cls, batch: Staged, made: Draft, deferred: Mapping[int, str]) -> Self:
        """Return what a batch added of which some parts, by their places, are deferred, each with the reason."""
        problems = [*(item.message for item in made.aside), *deferred.values()]
        return cls(
            number=batch.number,
            records=len(made.sources) - len(made.made.unplaced),
            left=len(made.left),
            aside=sum(len(item.notifications) for item in made.aside),
            refused=sum(len(item.notifications) for item in made.aside if item.code == NOT_WRITTEN),
            deferred=len(deferred),
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
