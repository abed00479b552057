"""The state of a catalog at one revision: which files and shards are live. A frozen value; applying gives a new one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar
from uuid import UUID

from custody.catalog.transaction_pb2 import Action, AddFile, AddShard, Transaction
from custody.errors import ConflictError, FormatVersionError

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CatalogState:
    """What is live at `revision`; times in ms since the epoch, UTC."""

    catalog_id: UUID
    revision: int
    uuid: UUID
    digest: bytes
    commit_time_ms: int
    next_event_id: int
    writer_features: frozenset[str] = frozenset()
    """Who writes has to know all of them; a feature never goes away."""
    files: Mapping[str, AddFile] = field(default_factory=dict)
    """Live Parquet files by path, relative to the database's folder."""
    shards: Mapping[str, AddShard] = field(default_factory=dict)
    """Live index shards by name."""

    def file_of(self, event_id: int) -> AddFile | None:
        """Return the live file whose id range holds an event."""
        return next(
            (file for file in self.files.values() if file.first_event_id <= event_id <= file.last_event_id),
            None,
        )

    def actions(self) -> list[Action]:
        """Return the actions of a checkpoint: the whole state, in a fixed order."""
        files = [Action(add_file=self.files[path]) for path in sorted(self.files)]
        return files + [Action(add_shard=self.shards[name]) for name in sorted(self.shards)]

    def advanced(self, transaction: Transaction, digest: bytes) -> CatalogState:
        """Return the state after a transaction, or the state that a checkpoint spells out."""
        full = transaction.encoding == Transaction.FULL
        files, shards = ({}, {}) if full else (dict(self.files), dict(self.shards))
        apply(transaction.actions, files, shards)
        return replace(
            self,
            catalog_id=UUID(bytes=transaction.catalog_id),
            revision=transaction.revision,
            uuid=UUID(bytes=transaction.uuid),
            digest=digest,
            commit_time_ms=transaction.commit_time_ms,
            next_event_id=max(self.next_event_id, transaction.next_event_id),
            writer_features=self.writer_features | set(transaction.writer_features),
            files=files,
            shards=shards,
        )


EMPTY = CatalogState(UUID(int=0), -1, UUID(int=0), b"", 0, 0)
"""Before the first transaction."""


def apply(actions: Iterable[Action], files: dict[str, AddFile], shards: dict[str, AddShard]) -> None:
    """Apply actions in their order.

    Raises:
        ConflictError: an action adds what is live or removes what is not.
        FormatVersionError: an action is of a kind that this code does not know.
    """
    for action in actions:
        kind = action.WhichOneof("kind")
        if kind == "add_file":
            _add(files, action.add_file.path, action.add_file)
        elif kind == "add_shard":
            _add(shards, action.add_shard.name, action.add_shard)
        elif kind == "remove_file":
            _remove(files, action.remove_file.path)
        elif kind == "remove_shard":
            _remove(shards, action.remove_shard.name)
        else:
            raise FormatVersionError("the catalog holds an action of an unknown kind. Use a newer custody.")


def _add(live: dict[str, _T], name: str, value: _T) -> None:
    if name in live:
        raise ConflictError(f"cannot add {name}: it is live already.")
    live[name] = value


def _remove(live: dict[str, _T], name: str) -> None:
    if name not in live:
        raise ConflictError(f"cannot remove {name}: it is not live.")
    del live[name]
