"""What is measured: orders for a peer, its answers, and the figures that come of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from benchmarks.append.peers.base import About

ATTRIBUTES = {f"attribute{number}": f"value {number}" for number in range(10)}
CONTENT_BYTES = 1024
"""Of a FlowFile that is received."""
LARGE_BYTES = 8 << 20
PIECE_BYTES = 256 << 10
SWAP_FILE_FLOWFILES = 10_000


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement; the folder of `commits`, `contents`, `swap` and `fill` does not exist yet."""

    measure: str
    folder: str
    sync: bool = True
    threads: int = 1
    seconds: float = 0.0
    bytes: int = CONTENT_BYTES
    folders: int = 1
    contents: int = 0
    """How many each thread writes."""
    files: int = 0
    flowfiles: int = 0
    batch: int = 1000
    checkpoint: bool = False
    attributes: dict[str, str] = msgspec.field(default_factory=ATTRIBUTES.copy)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a measurement found; what it does not look at is 0."""

    seconds: float
    commits: int = 0
    waiting: int = 0
    """How many FlowFiles the last queues hold."""
    bytes: int = 0
    read_seconds: float = 0.0
    flowfiles: int = 0
    in_seconds: float = 0.0


class Peer(Protocol):
    """One side of the comparison."""

    @property
    def about(self) -> About:
        """What it is."""
        ...

    @property
    def measures(self) -> frozenset[str]:
        """What it can be asked for."""
        ...

    def measure(self, order: Order) -> Answer:
        """Do what the order says."""
        ...

    def close(self) -> None:
        """Let go of what outlives a measurement."""
        ...


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    seconds: float = 2.0
    rounds: int = 3
    threads: tuple[int, ...] = (1, 16)
    folders: tuple[int, ...] = (1, 3)
    contents: int = 4
    large_bytes: int = LARGE_BYTES
    swap_files: int = 5
    flowfiles: int = 1_000_000
    drained: int = 100_000
    is_settled: bool = True
    """Whether the machine's buffers are written between two measurements."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: its name, its unit, and how it is computed from an answer."""

    name: str
    unit: str
    of: Callable[[Answer], float]
    is_less_better: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """An order that each peer gets, but for the folder, and what it tells."""

    measure: str
    label: str
    order: Order
    figures: tuple[Figure, ...]
    check: Callable[[Answer], bool]
    """Whether nothing was lost."""


@dataclass(slots=True)
class Series:
    """The readings of one figure of one peer."""

    peer: str
    figure: Figure
    readings: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.readings)


def short_steps(plan: Plan) -> list[Step]:
    """Return what every round measures, in folders of their own."""
    steps = []
    for threads in plan.threads:
        name = f"commits, {threads} thread{'s' if threads > 1 else ''}"
        order = Order(measure="commits", folder="", threads=threads, seconds=plan.seconds)
        figure = Figure(name, "commits/s", lambda answer: answer.commits / answer.seconds)
        steps.append(Step("commits", name, order, (figure,), lambda a: a.waiting * 3 == a.commits > 0))
    for folders in plan.folders:
        name = f"contents, {folders} folder{'s' if folders > 1 else ''}"
        order = Order(
            measure="contents", folder="", threads=4, folders=folders, contents=plan.contents, bytes=plan.large_bytes
        )
        written = order.threads * plan.contents * plan.large_bytes
        figures = (
            Figure(f"{name}: write", "MB/s", lambda answer: answer.bytes / answer.seconds / 1e6),
            Figure(f"{name}: read", "MB/s", lambda answer: answer.bytes / answer.read_seconds / 1e6),
        )
        steps.append(Step("contents", name, order, figures, lambda answer, total=written: answer.bytes == total))  # type: ignore[misc]
    flowfiles = plan.swap_files * SWAP_FILE_FLOWFILES
    figures = (
        Figure("swap files: out", "FlowFiles/s", lambda answer: answer.flowfiles / answer.seconds),
        Figure("swap files: in", "FlowFiles/s", lambda answer: answer.flowfiles / answer.in_seconds),
    )
    order = Order(measure="swap", folder="", files=plan.swap_files)
    steps.append(Step("swap", "swap files", order, figures, lambda answer: answer.flowfiles == flowfiles))
    return steps


def queue_steps(plan: Plan) -> list[Step]:
    """Return the life of one long queue, in this order and in one folder."""
    count = plan.flowfiles
    filled = Figure("a long queue: in", "FlowFiles/s", lambda answer: count / answer.seconds)
    from_log = Figure("open, log alone", "s", lambda answer: answer.seconds, is_less_better=True)
    from_snapshot = Figure("open, after a snapshot", "s", lambda answer: answer.seconds, is_less_better=True)
    drained = Figure("a long queue: out", "FlowFiles/s", lambda answer: answer.flowfiles / answer.seconds)
    opening = Order(measure="open", folder="")
    return [
        Step("fill", "filling", Order(measure="fill", folder="", flowfiles=count), (filled,), lambda _: True),
        Step(
            "open",
            "opening, with a checkpoint at its end",
            msgspec.structs.replace(opening, checkpoint=True),
            (from_log,),
            lambda answer: answer.waiting == count,
        ),
        *[
            Step("open", "opening", opening, (from_snapshot,), lambda answer: answer.waiting == count)
            for _ in range(plan.rounds)
        ],
        Step(
            "drain",
            "draining",
            Order(measure="drain", folder="", flowfiles=plan.drained),
            (drained,),
            lambda answer: answer.flowfiles >= plan.drained,
        ),
    ]


def in_folder(order: Order, folder: Path) -> Order:
    """Return the order for a folder."""
    return msgspec.structs.replace(order, folder=str(folder))
