"""The pieces of a repository that are looked at one by one, in a fixed order, with their sizes.

A piece is what one worker looks at: a catalog, a group of journals, a staged unit, a log with its table of contents, a
shard, a section of contents. Its key sorts as the walk goes and stays the same between walks, so that a walk can stop
and go on behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from custody.config import Settings
from custody.errors import CustodyError, StorageError
from custody.flow.content import claims_in, sections_of
from custody.format.names import ID_DIGITS
from custody.vfs import FileSystem
from custody.workspace import Workspace

QUARANTINE, RECORDS, SINK = "quarantine", "records", "sink"
# The place of a kind is part of what a scrub remembers: add at the end.
_EVENTS = ("states", "catalog", "journals", "unit", "log", "shard", "ids", QUARANTINE, "content", "claims")
_ORDER = (*_EVENTS, RECORDS, SINK, "leases", "software")


class CheckUnit(msgspec.Struct, frozen=True):
    """One piece; `name` is a path of the catalog, a shard's name, or a group's first id; `bytes` are those on disk."""

    kind: str
    writer: str
    name: str = ""
    bytes: int = 0

    @property
    def key(self) -> str:
        """Its place in a walk: by writer, then by kind, then by name."""
        return f"{self.writer}/{_ORDER.index(self.kind)}/{self.name}"


def writer_check_units(workspace: Workspace) -> list[CheckUnit]:
    """Return the pieces of one writer in the order of their keys; of a catalog that cannot be read, the others.

    Sizes are those that the catalog says, and of what it does not list those of the files.
    """
    found = [
        CheckUnit("states", workspace.writer),
        CheckUnit("catalog", workspace.writer, bytes=_catalog_bytes(workspace)),
        *_journals(workspace),
        *_units(workspace),
        *_contents(workspace),
        CheckUnit("ids", workspace.writer),
        CheckUnit("claims", workspace.writer),
        CheckUnit("leases", workspace.writer),
        CheckUnit("software", workspace.writer),
    ]
    try:
        state = workspace.catalog.load()
    except CustodyError:
        return sorted(found, key=lambda piece: piece.key)  # the catalog's own piece says what is wrong with it
    found += [CheckUnit("log", workspace.writer, path, state.files[path].size_bytes) for path in state.files]
    found += [CheckUnit("shard", workspace.writer, name, shard.size_bytes) for name, shard in state.shards.items()]
    return sorted(found, key=lambda piece: piece.key)


def shared_check_units(settings: Settings, fs: FileSystem) -> list[CheckUnit]:
    """Return the pieces that are the repository's and no writer's: what it put aside, remembers, and sank."""
    folder = settings.quarantine
    quarantine = CheckUnit(QUARANTINE, "", bytes=sum(size_of(fs, folder / name) for name in fs.list(folder)))
    return sorted([quarantine, CheckUnit(RECORDS, ""), CheckUnit(SINK, "")], key=lambda piece: piece.key)


def size_of(fs: FileSystem, path: Path) -> int:
    """Return a file's size, 0 of one that went meanwhile or is none."""
    try:
        return fs.size(path)
    except StorageError:
        return 0


def _catalog_bytes(workspace: Workspace) -> int:
    objects = workspace.catalog.objects
    return sum(info.size_bytes for info in objects.store.list(objects.prefix))


def _journals(workspace: Workspace) -> Iterator[CheckUnit]:
    for group in workspace.groups():
        size = sum(size_of(workspace.fs, path) for path in (*group.sealed, *group.open))
        yield CheckUnit("journals", workspace.writer, f"{group.first_event_id:0{ID_DIGITS}d}", size)


def _contents(workspace: Workspace) -> Iterator[CheckUnit]:
    fs, store, writer = workspace.fs, workspace.settings.store, workspace.writer
    for container, section in sections_of(fs, store, writer):
        claims = claims_in(fs, store, writer, container, section)
        yield CheckUnit(
            "content", writer, f"{container}/{section}", sum(size_of(fs, item.path(store)) for item in claims)
        )


def _units(workspace: Workspace) -> Iterator[CheckUnit]:
    fs = workspace.fs
    for first in workspace.staged():
        folder = workspace.paths.staged_unit(first)
        size = sum(size_of(fs, folder / name) for name in fs.list(folder))
        yield CheckUnit("unit", workspace.writer, f"{first:0{ID_DIGITS}d}", size)
