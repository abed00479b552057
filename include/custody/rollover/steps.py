"""The steps of a rollover. Each lists its units from disk, and each unit can be done again with the same result.

| step | unit | reads | writes |
|---|---|---|---|
| recover | writer | dead writers' open journals | sealed journals |
| rollover | group | sealed journals | staging file |
| compress | group | staging file | event log, table of contents |
| index | group | staging file | index shard |
| commit | writer | all of the above | one catalog transaction |
| checkpoint | writer | catalog | checkpoint |
| sweep | group | catalog | removes journals and staging file |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar

import msgspec
import pyarrow as pa

from custody.config import Settings
from custody.eventlog import write_staging
from custody.journal import MergeReader, seal_abandoned
from custody.journal.writer import lock_path
from custody.model import EVENT_SCHEMA
from custody.rollover.pending import is_live
from custody.rollover.publish import build_index, compress_group, lost_shards, transaction_of
from custody.rollover.report import UnitReport
from custody.rollover.workspace import Workspace
from custody.vfs import FileSystem

_CHUNK_BYTES = 64 << 20


class Unit(msgspec.Struct, frozen=True):
    """One piece of a step's work: a writer, and a group of it where the step works on groups."""

    writer: str
    first_event_id: int | None = None

    def __str__(self) -> str:
        return self.writer if self.first_event_id is None else f"{self.writer}/{self.first_event_id}"


class Step(ABC):
    """One step: which units wait for it, and what it does with one."""

    name: ClassVar[str]

    def units(self, settings: Settings, fs: FileSystem | None = None) -> list[Unit]:
        """Return the units that wait, in the order in which they must be done."""
        return [unit for workspace in Workspace.all(settings, fs) for unit in self.waiting(workspace)]

    @abstractmethod
    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Yield one writer's units that wait."""

    @abstractmethod
    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Do one unit; doing it again changes nothing."""


class Recover(Step):
    """Seals the journals that a dead writer left open."""

    name = "recover"

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Writers with open journals and no live process."""
        has_open = any(group.open for group in workspace.groups())
        if has_open and not is_live(workspace.fs, workspace.settings, workspace.writer):
            yield Unit(workspace.writer)

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Take the writer's lock and seal; a writer that came to life meanwhile has sealed them itself."""
        containers = workspace.settings.containers
        with workspace.fs.lock(lock_path(containers, unit.writer)):
            sealed = seal_abandoned(workspace.fs, containers, unit.writer)
        lost = sum(item.lost_bytes for item in sealed)
        return UnitReport(unit=str(unit), note=f"{len(sealed)} journals sealed, {lost} unacknowledged bytes cut")


class Rollover(Step):
    """Merges a sealed group into one staging file, in event-id order."""

    name = "rollover"

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Sealed groups that are neither merged nor live."""
        state, staged = workspace.catalog.load(), set(workspace.staged())
        for group in workspace.groups():
            first = group.first_event_id
            if group.is_sealed and first not in staged and not workspace.is_committed(state, first):
                yield Unit(workspace.writer, first)

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Merge one group."""
        first = _group_id(unit)
        group = next(group for group in workspace.groups() if group.first_event_id == first)
        merged = MergeReader(workspace.fs, [group])
        table = pa.concat_tables([EVENT_SCHEMA.empty_table(), *merged.chunks(_CHUNK_BYTES)])
        size = write_staging(workspace.fs, workspace.paths.staging_file(first), table)
        return UnitReport(unit=str(unit), events=table.num_rows, bytes=size)


class Compress(Step):
    """Writes a staging file as an event log with its table of contents."""

    name = "compress"

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Merged groups that are not live."""
        yield from _staged_units(workspace)

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Write one log; one that is there already from an interrupted run is replaced."""
        return compress_group(workspace, str(unit), _group_id(unit))


class Index(Step):
    """Builds the index shard of a group."""

    name = "index"

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Merged groups that are not live, and live logs whose shard is gone."""
        yield from _staged_units(workspace)
        yield from (Unit(workspace.writer, first) for first in lost_shards(workspace))

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Build one shard; a whole one from an interrupted run is kept."""
        return build_index(workspace, str(unit), _group_id(unit))


class Commit(Step):
    """Makes a writer's finished groups live, in one transaction."""

    name = "commit"

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Writers with merged groups that are not live."""
        if any(_staged_units(workspace)):
            yield Unit(workspace.writer)

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Commit all groups whose log, table of contents and shard are there."""
        firsts = [_group_id(group) for group in _staged_units(workspace)]
        if not firsts:
            return UnitReport(unit=str(unit), note="committed already")
        actions, events, size, next_event_id = transaction_of(workspace, firsts)
        state = workspace.catalog.commit(actions, next_event_id=next_event_id)
        return UnitReport(unit=str(unit), events=events, bytes=size, note=f"revision {state.revision}")


class Checkpoint(Step):
    """Writes a checkpoint of the catalog when one is due."""

    name = "checkpoint"

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Writers whose newest checkpoint is too far behind."""
        if workspace.catalog.checkpoint_age() >= workspace.settings.catalog.checkpoint_every:
            yield Unit(workspace.writer)

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Write and verify one."""
        path = workspace.catalog.checkpoint()
        return UnitReport(unit=str(unit), bytes=workspace.fs.size(path), note=path.name)


class Sweep(Step):
    """Removes the journals and the staging file of groups that are live."""

    name = "sweep"

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Live groups that still have journals or a staging file."""
        state = workspace.catalog.load()
        sealed = {group.first_event_id for group in workspace.groups() if group.is_sealed}
        for first in sorted(sealed | set(workspace.staged())):
            if workspace.is_committed(state, first):
                yield Unit(workspace.writer, first)

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Remove journals first: a staging file without journals is still found and swept."""
        first = _group_id(unit)
        fs = workspace.fs
        workspace.catalog.settle()
        journals = [path for group in workspace.groups() if group.first_event_id == first for path in group.sealed]
        staging = workspace.paths.staging_file(first)
        files = [*journals, *([staging] if fs.exists(staging) else [])]
        size = sum(fs.size(path) for path in files)
        for path in files:
            fs.remove(path)
        for folder in {path.parent for path in files}:
            fs.sync_directory(folder)
        return UnitReport(unit=str(unit), bytes=size, note=f"{len(files)} files removed")


STEPS: Mapping[str, Step] = {
    step.name: step for step in (Recover(), Rollover(), Compress(), Index(), Commit(), Checkpoint(), Sweep())
}
"""All steps by name, in the order in which a pass runs them."""


def _staged_units(workspace: Workspace) -> Iterator[Unit]:
    state = workspace.catalog.load()
    for first in workspace.staged():
        if not workspace.is_committed(state, first):
            yield Unit(workspace.writer, first)


def _group_id(unit: Unit) -> int:
    if unit.first_event_id is None:
        raise ValueError(f"unit {unit} names no group")
    return unit.first_event_id
