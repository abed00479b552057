"""Expiry candidates of one writer: for each live log, whether all its events are too old and whether some are held.

Most logs are judged by their entry in the catalog. One is read, in few columns, when a rule means only some of its
events, or when a hold may mean one of them. An unreadable log is not expired by a rule, and counts as held.
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
    matching_rows,
    may_match,
)
from custody.errors import CorruptionError, NotFoundError, StripeMissingError
from custody.format.names import toc_path
from custody.maintenance import groups_on_disk, open_event_log
from custody.retention.disk_usage import allocated_bytes, allocated_folder_bytes
from custody.retention.rules import AgePolicy, same_meaning
from custody.workspace import Workspace


class HeldLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log that would expire but for its holds; bytes on disk with its shard."""

    writer: str
    path: str
    holds: tuple[str, ...]
    bytes: int


@dataclass
class ExpiryCandidates:
    """One writer at one moment; answers that needed a look into a log are cached."""

    workspace: Workspace
    state: CatalogState
    policy: AgePolicy
    holds: Mapping[str, Condition]
    on_disk: frozenset[int]
    """Groups with journals or a staged unit on disk: their logs are still active."""
    _held: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, workspace: Workspace, policy: AgePolicy, holds: Mapping[str, Condition]) -> ExpiryCandidates:
        """Return the candidates of a writer at this moment."""
        # Before the catalog: the log of a group that is committed in between then counts as active.
        on_disk = groups_on_disk(workspace)
        return cls(workspace, workspace.catalog.load(), policy, holds, on_disk)

    @cached_property
    def candidates(self) -> list[AddFile]:
        """The live logs that are not active, by first event id; none of a retired writer."""
        if self.state.seal is not None:
            return []
        files = sorted(self.state.files.values(), key=lambda file: file.first_event_id)
        # Its events would stay in the journals or the staged unit.
        return [file for file in files if not self.on_disk.intersection(file.groups)]

    def is_expired(self, file: AddFile) -> bool:
        """Whether all events of a log are too old."""
        policy = self.policy
        # The bounds in the catalog are enough: nothing has to be read.
        if policy.surely_ms is not None and file.last_event_time_ms < policy.surely_ms:
            return True
        if policy.possibly_ms is None or not policy.rules or file.last_event_time_ms >= policy.possibly_ms:
            return False
        # Every event is older than the shortest time of a rule: only the events tell which rule is theirs.
        return self._all_meant(file, policy.expired)

    def holders(self, file: AddFile) -> tuple[str, ...]:
        """Return the names of the holds that mean an event of a log."""
        # Asked several times in one plan, and each answer may cost the reading of a log.
        if file.path not in self._held:
            self._held[file.path] = tuple(name for name, part in self.holds.items() if self._means(file, part))
        return self._held[file.path]

    def room(self, file: AddFile, shards: Sequence[AddShard]) -> int:
        """Return the bytes on disk of a log, its table of contents, and shards."""
        fs, workspace = self.workspace.fs, self.workspace
        own = 0
        if self.is_in_reach(file):
            heads = (workspace.catalog.objects.files.head(path) for path in log_files(file))
            own = sum(allocated_bytes(info.size_bytes) for info in heads if info is not None)
        own += sum(allocated_bytes(workspace.shard_objects.size_bytes(shard.name)) for shard in shards)
        return own + sum(allocated_folder_bytes(fs, workspace.shard_path(shard)) for shard in shards)

    def is_in_reach(self, file: AddFile) -> bool:
        """Whether a log does not lie on a stripe that is away, where its deletion frees nothing for now."""
        try:
            self.workspace.catalog.objects.files.require(file.path)
        except StripeMissingError:
            return False
        return True

    def held_log(self, file: AddFile) -> HeldLog:
        """Return a log that its holds keep."""
        return HeldLog(
            writer=self.workspace.writer,
            path=file.path,
            holds=self.holders(file),
            bytes=self.room(file, self.leaving([file.path], [file.path])),
        )

    def leaving(self, paths: Sequence[str], expiring: Container[str]) -> list[AddShard]:
        """Return the shards of some logs that have no live log left when the logs in `expiring` go."""
        shards = {shard.name: shard for path in paths for shard in self._shards_by_log.get(path, ())}
        return [
            shard
            for _, shard in sorted(shards.items())
            if all(path in expiring or path not in self.state.files for path in shard.log_paths)
        ]

    @cached_property
    def _shards_by_log(self) -> dict[str, list[AddShard]]:
        by_log: dict[str, list[AddShard]] = {}
        for shard in self.state.shards.values():
            for path in shard.log_paths:
                by_log.setdefault(path, []).append(shard)
        return by_log

    @cached_property
    def hiding(self) -> tuple[list[AddTombstone], list[AddTombstone]]:
        """The tombstones by retention that have to go, and those that have to be added."""
        if self.state.seal is not None:
            return [], []
        present = [stone for _, stone in sorted(self.state.tombstones.items()) if stone.by_retention]
        needed = self.policy.hiding(self.holds.values())
        # Compared by meaning, not by id: each new tombstone makes readers look at the logs again.
        dropped = [stone for stone in present if not any(same_meaning(stone, new) for new in needed)]
        added = [stone for stone in needed if not any(same_meaning(stone, old) for old in present)]
        return dropped, added

    def _means(self, file: AddFile, part: Condition) -> bool:
        # The catalog's bounds first: most holds rule a log out without a look into it.
        bounds = (file.first_event_id, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms)
        if not may_match(part, *bounds):
            return False
        try:
            return any(pc.any(matching_rows([part], table)).as_py() for table in self._tables(file, [part]))
        except (CorruptionError, NotFoundError, StripeMissingError):
            return True  # nobody knows what the damaged part holds, or the stripe that is away

    def _all_meant(self, file: AddFile, stones: Sequence[AddTombstone]) -> bool:
        try:
            # Damage keeps a log: nobody knows whether the unreadable events are too old.
            return all(pc.all(matching_rows(stones, table)).as_py() for table in self._tables(file, stones))
        except (CorruptionError, NotFoundError, StripeMissingError):
            return False

    def _tables(self, file: AddFile, parts: Sequence[AddTombstone | Condition]) -> Iterator[pa.Table]:
        log = open_event_log(self.workspace, file)
        for table in log.tables(range(len(log.toc.blocks)), sorted({"event_id", *columns_needed(parts)})):
            if table.num_rows:
                yield table


def log_files(file: AddFile) -> list[str]:
    """Return the paths of a log and its table of contents."""
    return [file.path, file.toc_path or toc_path(file.path)]
