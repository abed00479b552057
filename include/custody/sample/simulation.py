"""The simulated world: its clock, chance and agenda, and the components and FlowFiles that live in it.

Time is made of processes: a process is a generator that yields how many milliseconds it waits, and the one that is due
next runs next. Whatever it emits between two waits happens at one instant, so the outbox is filled in time order. Equal
instants keep the order of scheduling, which makes a run repeatable.

Identifiers of components are derived from names, so they are the same in every sample, as the ids of a real flow stay
the same from one day to the next. All events of one session show the same state before and the same changes: a FlowFile
collects changes in `updates` and `size` while events are emitted, and `commit` makes them the new state.
"""

from __future__ import annotations

import heapq
import itertools
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

# Component ids of all samples come from it: with another one, old and new samples would not be of the same flows.
_NAMESPACE = uuid.UUID("5c0b7a4e-3d7e-5f0e-9b1d-6a1f0c2d8e47")


@dataclass(frozen=True, slots=True)
class SimComponent:
    """The component that an event happened in: a processor, a port or, for downloads, the root group."""

    id: str
    kind: str
    name: str
    group_id: str | None
    group_name: str | None


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A flow on the canvas."""

    name: str

    def component(self, kind: str, name: str) -> SimComponent:
        """Return the processor of this simple class name and this label."""
        return SimComponent(
            id=stable_id(f"{self.name}/{name}"),
            kind=kind,
            name=name,
            group_id=stable_id(self.name),
            group_name=self.name,
        )


def stable_id(name: str) -> str:
    """Return the uuid that this name always has."""
    return str(uuid.uuid5(_NAMESPACE, name))


ROOT_NAME = "NiFi Flow"
# Events of the root group carry its name as their component type, and no parent group.
ROOT = SimComponent(id=stable_id(ROOT_NAME), kind=ROOT_NAME, name=ROOT_NAME, group_id=None, group_name=None)


@dataclass(slots=True)
class SimFlowFile:
    """One FlowFile; a brand-new one has no committed attributes and no previous size."""

    uuid: str
    lineage_start_ms: int
    size: int
    previous_size: int | None
    attributes: dict[str, str] = field(default_factory=dict)
    updates: dict[str, str | None] = field(default_factory=dict)
    last_ordinal: int = -1

    def update(self, changes: Mapping[str, str | None]) -> None:
        """Set attributes in the current session; None removes one, an equal value is no change."""
        for name, value in changes.items():
            if self.attributes.get(name) != value:
                self.updates[name] = value

    def commit(self) -> None:
        """End the session: its changes become the state before the next event."""
        self.attributes = self.current_attributes()
        self.updates = {}
        self.previous_size = self.size

    def current_attributes(self) -> dict[str, str]:
        """Return the attributes with the current session's changes applied."""
        merged: dict[str, str | None] = {**self.attributes, **self.updates}
        return {name: value for name, value in merged.items() if value is not None}

    def child(self, uuid: str, size: int, changes: Mapping[str, str]) -> SimFlowFile:
        """Return a committed descendant: same lineage start, inherited attributes, its own uuid."""
        return SimFlowFile(
            uuid=uuid,
            lineage_start_ms=self.lineage_start_ms,
            size=size,
            previous_size=size,
            attributes={**self.current_attributes(), "uuid": uuid, **changes},
        )


SimProcess: TypeAlias = Iterator[int]
_T = TypeVar("_T")


class Simulation:
    """Clock, chance and agenda, shared by the nodes."""

    def __init__(self, seed: int, start_time_ms: int) -> None:
        self.now_ms = start_time_ms
        self.outbox: list[dict[str, object]] = []
        self._random = random.Random(seed)  # noqa: S311 - a repeatable sample, not a secret
        self._agenda: list[tuple[int, int, SimProcess]] = []
        self._sequence = itertools.count()

    def spawn(self, process: SimProcess, delay_ms: int = 0) -> None:
        """Let a process run beside the others, from `delay_ms` from now."""
        # The sequence orders equal instants: processes themselves cannot be compared.
        heapq.heappush(self._agenda, (self.now_ms + delay_ms, next(self._sequence), process))

    def run(self) -> Iterator[dict[str, object]]:
        """Yield events as they happen, until every process has ended."""
        while self._agenda:
            self.now_ms, _, process = heapq.heappop(self._agenda)
            delay_ms = next(process, None)
            if delay_ms is not None:
                self.spawn(process, delay_ms)
            if self.outbox:
                yield from self.outbox
                self.outbox.clear()

    def draw(self, least: int, most: int) -> int:
        """Return an integer of the closed range."""
        # random() is faster than randint, and its sequence stays the same between Python versions.
        return least + int(self._random.random() * (most - least + 1))

    def chance(self, probability: float) -> bool:
        """Return whether something of this probability happens now."""
        return self._random.random() < probability

    def pick(self, choices: Sequence[_T]) -> _T:
        """Return one of the choices, all equally likely."""
        return choices[int(self._random.random() * len(choices))]

    def new_uuid(self) -> str:
        """Return a version 4 uuid; the uuid module would take its bits from the system."""
        bits = self._random.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | (0x4 << 76 | 0x2 << 62)
        digits = f"{bits:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
