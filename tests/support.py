"""Helpers for several test modules: made-up events, a pass of all steps in this process, a disk that fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from hypothesis import strategies as st

import custody
from custody.capture import Accepted, read_file
from custody.config import Settings
from custody.errors import StorageError
from custody.model import ContentClaim, Event
from custody.recovery import STEPS
from custody.repository import Repository
from custody.sample import SampleOptions, sample_files
from custody.vfs import PosixFileSystem
from custody.vfs.faults import FaultyFileSystem
from custody.workspace import UnitReport, Workspace
from tests import forks

INCLUDE = Path(custody.__file__).parents[1]
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(max_size=12)
MAYBE_TEXT = st.none() | TEXT


def event(number: int = 0, /, **values: object) -> Event:
    """A plain event with an identity of its own; `values` replace its fields."""
    fields: dict[str, object] = {
        "event_type": "CREATE",
        "event_time": 1_772_409_600_000 + number * 1000,
        "component_id": "c0ffee00-0000-4000-8000-000000000001",
        "component_type": "GenerateFlowFile",
        "flowfile_uuid": f"00000000-0000-4000-8000-{number:012d}",
        "file_size": 100 + number,
        "source_node": "node-1",
        "source_ordinal": number,
    }
    return Event(**{**fields, **values})  # type: ignore[arg-type]


def sample(count: int, **options: int) -> list[Event]:
    """Sample events as capture reads them, file after file."""
    chosen = SampleOptions(events=count, **options)  # type: ignore[arg-type]
    outcomes = [found for _, data in sample_files(chosen) for found in read_file(data, event_bytes_max=1 << 20)]
    return [found.event for found in outcomes if isinstance(found, Accepted)]


def write_samples(folder: Path, count: int, **options: int) -> list[Path]:
    """Sample files on disk, in the order in which they were made."""
    paths = []
    for name, data in sample_files(SampleOptions(events=count, **options)):  # type: ignore[arg-type]
        paths.append(folder / name)
        paths[-1].write_bytes(data)
    return paths


def unnumbered(events: Iterable[Event]) -> list[Event]:
    """Events as they were before they got an id."""
    return [msgspec.structs.replace(item, event_id=-1) for item in events]


def numbered(events: Iterable[Event], first: int = 0) -> list[Event]:
    return [msgspec.structs.replace(item, event_id=first + n) for n, item in enumerate(events)]


def run_steps(settings: Settings, *names: str) -> list[UnitReport]:
    """Run steps (all of them when none is named) in this process, as a Spark job would in its workers."""
    done = []
    for name in names or STEPS:
        for unit in STEPS[name].units(settings):
            done.append(STEPS[name].run(Workspace(settings, unit.writer), unit))  # noqa: PERF401 - it may stop halfway
    return done


def append(repository: Repository, events: Sequence[Event]) -> range:
    """Append events in one writer's life; its journal is sealed at the end."""
    with repository.writer() as writer:
        return writer.append(events)


def flipped(data: bytes, bit: int) -> bytes:
    """A copy with one bit changed."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@contextmanager
def python(source: str, *arguments: object) -> Iterator[forks.Popen[str]]:
    """A second Python process with custody on its path; it is ended with the context."""
    with forks.Popen(
        [sys.executable, "-c", source, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(INCLUDE)},
        stdin=forks.PIPE,
        stdout=forks.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


class FailingFileSystem(FaultyFileSystem):
    """A real disk whose durable operation number `fail_at` (from 1) is refused; 0 refuses none."""

    kinds = frozenset({"create", "write", "sync", "rename", "remove", "cut", "sync_file", "sync_directory"})

    def __init__(self, fail_at: int = 0) -> None:
        super().__init__(PosixFileSystem())
        self.fail_at = fail_at
        self.operations: list[str] = []
        """The kinds of the operations so far."""

    def meet(self, kind: str, path: Path) -> None:
        """Count an operation, and strike the one that is to fail."""
        if kind in self.kinds:
            self.operations.append(kind)
            if len(self.operations) == self.fail_at:
                self.strike(kind)

    def admit(self, path: Path, length: int) -> tuple[int, None]:
        """Let all of a write through, unless it is to fail."""
        self.meet("write", path)
        return length, None

    def strike(self, kind: str) -> None:
        raise StorageError(f"cannot {kind}: injected")


NUMBERS = ("flowfile_entry_date", "lineage_start_date", "previous_file_size", "source_ordinal")
TEXTS = tuple(
    field.name
    for field in msgspec.structs.fields(Event)
    if field.default is None and field.name not in NUMBERS and not field.name.endswith("claim")
)
CLAIMS = st.builds(
    ContentClaim, container=MAYBE_TEXT, section=MAYBE_TEXT, identifier=MAYBE_TEXT, offset=st.none() | INT64
)
EVENTS = st.builds(
    Event,
    event_type=TEXT,
    event_time=INT64,
    component_id=TEXT,
    component_type=TEXT,
    flowfile_uuid=TEXT,
    file_size=INT64,
    event_duration=INT64,
    parent_uuids=st.lists(TEXT, max_size=3).map(tuple),
    child_uuids=st.lists(TEXT, max_size=3).map(tuple),
    previous_attributes=st.dictionaries(TEXT, MAYBE_TEXT, max_size=3),
    updated_attributes=st.dictionaries(TEXT, MAYBE_TEXT, max_size=3),
    content_claim=st.none() | CLAIMS,
    previous_content_claim=st.none() | CLAIMS,
    **dict.fromkeys(NUMBERS, st.none() | INT64),
    **dict.fromkeys(TEXTS, MAYBE_TEXT),
)
"""Any event that the columns can hold, good or not."""
