"""Catalogs to test with: one of a few transactions, and all that a state says as one comparable value."""

from __future__ import annotations

from pathlib import Path

from custody.catalog import Action, AddFile, AddShard, Catalog, CatalogState
from custody.clock import ManualClock
from custody.store import LocalStore
from custody.vfs import PosixFileSystem

START_MS = 1_772_409_600_000


def add(path: str, first: int = 0, rows: int = 1) -> Action:
    file = AddFile(path=path, rows=rows, first_event_id=first, last_event_id=first + rows - 1)
    return Action(add_file=file)


def open_catalog(root: Path, clock: ManualClock | None = None) -> Catalog:
    store = LocalStore(PosixFileSystem(), root)
    return Catalog(store, "main", "provenance", clock or ManualClock(START_MS))


def value(state: CatalogState) -> tuple[object, ...]:
    """All that a state says."""
    files = {path: file.SerializeToString(deterministic=True) for path, file in state.files.items()}
    shards = {name: shard.SerializeToString(deterministic=True) for name, shard in state.shards.items()}
    position = (state.catalog_id, state.revision, state.uuid, state.digest, state.commit_time_ms, state.next_event_id)
    return *position, files, shards


def build(root: Path, commits: int = 4) -> Catalog:
    catalog = open_catalog(root)
    for number in range(commits):
        shard = Action(add_shard=AddShard(name=f"shard-{number}", documents=10))
        catalog.commit([add(f"file-{number}", 10 * number, 10), shard], next_event_id=10 * number + 10)
    return catalog


def transactions(root: Path, suffix: str = "txn") -> list[Path]:
    return sorted((root / "main/provenance/transactions").glob(f"*/*.{suffix}"))
