"""Fixtures of the tests of the FlowFile repository: FlowFiles, a provenance that is a list, a disk in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from custody.clock import ManualClock
from custody.errors import BackpressureError
from custody.flow import FlowFile
from custody.flowfile_repository import FlowFileOptions, FlowFileRepository, Placed, Waiting, Work
from custody.flowfile_repository.records import Key
from custody.ingest.dedup import key_of
from custody.model import ContentClaim, Event
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.support import event

HOME = Path("/home/flowfiles")
NOW = 1_772_409_600_000
CLAIM = f"custody:main/1/0000/{NOW}-"
"""The text of a resource claim, without its number."""


def flowfile(name: str = "f", *, age: int = 0, size: int = 0, claim: int | None = None, **attributes: str) -> FlowFile:
    """A FlowFile that entered the flow `age` milliseconds before NOW; its content lies in the claim of this number."""
    return FlowFile(
        uuid=name,
        attributes={"uuid": name, **attributes},
        size=size,
        entry_date=NOW - age,
        lineage_start_date=NOW - age,
        content_claim=None
        if claim is None
        else ContentClaim(container="custody:main/1", section="0000", identifier=f"{NOW}-{claim}", offset=0, size=size),
    )


def waiting(name: str, sequence: int, *, key: Key = (), penalised_until_ms: int = 0, size: int = 0) -> Waiting:
    return Waiting(flowfile(name, size=size), "q", sequence, NOW, key, penalised_until_ms)


class Journal:
    """A provenance repository whose events are a list; it refuses while `error` is set."""

    name = "main"

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.error: Exception | None = None
        self.is_error_after_append = False
        self.forgotten: set[object] = set()

    def append(self, events: Sequence[Event]) -> range:
        first = len(self.events)
        if self.error is None or self.is_error_after_append:
            self.events += events
        if self.error is not None:
            raise self.error
        return range(first, len(self.events))

    def missing(self, events: Sequence[Event]) -> list[Event]:
        if self.error is not None:
            raise self.error
        stored = {key_of(one) for one in self.events} | self.forgotten
        return [one for one in events if key_of(one) not in stored]

    def refuse(self, *, is_after_append: bool = False) -> None:
        self.error, self.is_error_after_append = BackpressureError("the journal is full."), is_after_append

    @property
    def kinds(self) -> list[str]:
        return [one.event_type for one in self.events]


class Machine:
    """One disk, one clock and one journal, and the processes that work on them."""

    def __init__(self, *, threshold: int = 20_000, now_ms: int = NOW) -> None:
        self.fs = MemoryFileSystem()
        self.fs.make_directory(HOME.parent)
        self.clock = ManualClock(now_ms)
        self.journal = Journal()
        self.options = FlowFileOptions(swap_threshold=threshold)
        self.cut: list[tuple[Path, int, bytes, str]] = []

    def open(self) -> FlowFileRepository:
        return FlowFileRepository(
            self.fs,
            HOME,
            self.clock,
            self.journal,
            self.options,
            keep_cut=lambda path, offset, data, reason: self.cut.append((path, offset, bytes(data), reason)),
            wait_seconds=5,
        )

    def die(self) -> None:
        """Kill all processes: their locks are free, and what they wrote is there."""
        self.fs = self.fs.crashed(CrashMode.ALL_KEPT)

    @property
    def log(self) -> Path:
        """The newest log."""
        return sorted(HOME / "log" / name for name in self.fs.list(HOME / "log"))[-1]

    @property
    def swap_files(self) -> list[str]:
        return self.fs.list(HOME / "swap")

    def overwrite(self, path: Path, data: bytes) -> None:
        with self.fs.create(path.with_name("other")) as file:
            file.write(data)
            file.sync()
        self.fs.rename(path.with_name("other"), path)


def put(
    flowfiles: FlowFileRepository,
    queue: str,
    items: Iterable[FlowFile],
    *,
    penalised_until_ms: int = 0,
    events: int = 0,
) -> range:
    """Commit new FlowFiles to a queue, with so many events."""
    told = [event(number) for number in range(events)]
    placed = [Placed(item, queue, penalised_until_ms) for item in items]
    return flowfiles.commit(Work("putting", placed, events=told))


def drain(flowfiles: FlowFileRepository, queue: str, *, at_once: int = 1000) -> list[str]:
    """Take everything out of a queue, and end it; return the uuids in their order."""
    taken: list[str] = []
    while items := flowfiles.take(queue, "draining", count=at_once).items:
        taken += [item.uuid for item in items]
        flowfiles.commit(Work("draining", leaves=[item.uuid for item in items]))
    return taken


def uuids(items: Iterable[Waiting]) -> list[str]:
    return [item.uuid for item in items]
