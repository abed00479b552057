"""What one writer has that may expire: for each live log whether all its events are too old, and whether some are held.

Most logs are judged by what the catalog says of them. One is read, in few columns, when a rule means some of its
events only, or when a hold may mean one of them. What cannot be read is neither expired by a rule nor free of a hold.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import (
    AddFile,
    AddShard,
    AddTombstone,
    CatalogState,
    Condition,
    columns_needed,
    may_mean,
    meant,
)
from custody.errors import CorruptionError, NotFoundError
from custody.format.names import toc_path
from custody.maintenance import groups_on_disk, open_event_log
from custody.retention.disk_usage import allocated_file_bytes, allocated_folder_bytes
from custody.retention.rules import AgePolicy, same_meaning
from custody.workspace import Workspace


class HeldLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log that would have gone, and the holds that keep it; bytes on disk with its shard."""

    writer: str
    path: str
    holds: tuple[str, ...]
    bytes: int


@dataclass
class ExpiryCandidates:
    """One writer at one moment; what was read of a log is kept for the next question."""

    workspace: Workspace
    state: CatalogState
    keeping: AgePolicy
    holds: Mapping[str, Condition]
    on_disk: frozenset[int]
    """Groups of which journals or a staged unit are there: their logs are still active."""
    _held: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, workspace: Workspace, keeping: AgePolicy, holds: Mapping[str, Condition]) -> ExpiryCandidates:
        """Look at a writer now."""
        on_disk = groups_on_disk(workspace)  # before the catalog, so that no group falls in between
        return cls(workspace, workspace.catalog.load(), keeping, holds, on_disk)

    @cached_property
    def candidates(self) -> list[AddFile]:
        """The live logs that are not active, by first event id; none of a writer that was retired."""
        if self.state.seal is not None:
            return []
        files = sorted(self.state.files.values(), key=lambda file: file.first_event_id)
        return [file for file in files if not self.on_disk.intersection(file.groups)]

    def is_expired(self, file: AddFile) -> bool:
        """Whether all events of a log are too old."""
        keeping = self.keeping
        if keeping.surely_ms is not None and file.last_event_time_ms < keeping.surely_ms:
            return True
        if keeping.possibly_ms is None or not keeping.rules or file.last_event_time_ms >= keeping.possibly_ms:
            return False
        # Every event is older than the shortest time: only the events themselves tell which time is theirs.
        return self._all_meant(file, keeping.expired)

    def holders(self, file: AddFile) -> tuple[str, ...]:
        """Return the names of the holds that mean an event of a log."""
        if file.path not in self._held:
            self._held[file.path] = tuple(name for name, part in self.holds.items() if self._means(file, part))
        return self._held[file.path]

    def room(self, file: AddFile, shards: Sequence[AddShard]) -> int:
        """Return the bytes on disk of a log, its table of contents, and shards."""
        fs, workspace = self.workspace.fs, self.workspace
        own = sum(allocated_file_bytes(fs, workspace.paths.home / path) for path in log_files(file))
        return own + sum(allocated_folder_bytes(fs, workspace.shard_path(shard)) for shard in shards)

    def held_log(self, file: AddFile) -> HeldLog:
        """Return a log that stays because of holds."""
        return HeldLog(
            writer=self.workspace.writer,
            path=file.path,
            holds=self.holders(file),
            bytes=self.room(file, self.leaving([file.path], [file.path])),
        )

    def leaving(self, paths: Sequence[str], gone: Container[str]) -> list[AddShard]:
        """Return the shards of some logs of which no live log is left when the logs in `gone` go."""
        found = {shard.name: shard for path in paths for shard in self._shards_by_log.get(path, ())}
        return [
            shard
            for _, shard in sorted(found.items())
            if all(path in gone or path not in self.state.files for path in shard.log_paths)
        ]

    @cached_property
    def _shards_by_log(self) -> dict[str, list[AddShard]]:
        found: dict[str, list[AddShard]] = {}
        for shard in self.state.shards.values():
            for path in shard.log_paths:
                found.setdefault(path, []).append(shard)
        return found

    @cached_property
    def hiding(self) -> tuple[list[AddTombstone], list[AddTombstone]]:
        """The tombstones by retention that have to go, and those that have to be added."""
        if self.state.seal is not None:
            return [], []
        standing = [stone for _, stone in sorted(self.state.tombstones.items()) if stone.by_retention]
        wanted = self.keeping.hiding(self.holds.values())
        gone = [stone for stone in standing if not any(same_meaning(stone, new) for new in wanted)]
        new = [stone for stone in wanted if not any(same_meaning(stone, old) for old in standing)]
        return gone, new

    def _means(self, file: AddFile, part: Condition) -> bool:
        bounds = (file.first_event_id, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms)
        if not may_mean(part, *bounds):
            return False
        try:
            return any(pc.any(meant([part], table)).as_py() for table in self._tables(file, [part]))
        except (CorruptionError, NotFoundError):
            return True  # nobody knows what the damaged part holds

    def _all_meant(self, file: AddFile, stones: Sequence[AddTombstone]) -> bool:
        try:
            return all(pc.all(meant(stones, table)).as_py() for table in self._tables(file, stones))
        except (CorruptionError, NotFoundError):
            return False

    def _tables(self, file: AddFile, parts: Sequence[AddTombstone | Condition]) -> Iterator[pa.Table]:
        log = open_event_log(self.workspace, file)
        for table in log.tables(range(len(log.toc.blocks)), sorted({"event_id", *columns_needed(parts)})):
            if table.num_rows:
                yield table


def log_files(file: AddFile) -> list[str]:
    """Return the paths of a log and its table of contents."""
    return [file.path, file.toc_path or toc_path(file.path)]
