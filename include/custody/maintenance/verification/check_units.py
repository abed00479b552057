"""Check units: the parts of a repository that are verified one by one, in a fixed order, with their sizes.

A unit is what one worker checks: a catalog, a group of journals, a staged unit, a log with its table of contents, a
shard, a section of contents. Its key sorts in the order of the walk and stays the same between walks, so that a walk
can stop and go on behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from custody.config import Settings
from custody.errors import CorruptionError, CustodyError, FormatVersionError, StorageError
from custody.flow.content import ClaimPlaces, claims_in, sections_of
from custody.format.names import ID_DIGITS
from custody.made_types import made_at_import
from custody.vfs import FileSystem
from custody.workspace import Workspace

QUARANTINE, RECORDS, SINK = "quarantine", "records", "sink"
# The position of a kind is part of the keys that a scrub keeps on disk: add at the end, never change.
_EVENTS = ("states", "catalog", "journals", "unit", "log", "shard", "ids", QUARANTINE, "content", "claims")
_ORDER = (*_EVENTS, RECORDS, SINK, "leases", "software", "handoff", "handed-contents", "filters")


class CheckUnit(msgspec.Struct, frozen=True):
    """One unit; `name` is a path of the catalog, a shard's name, or a group's first id; `bytes` are those on disk."""

    kind: str
    writer: str
    name: str = ""
    bytes: int = 0

    @property
    def key(self) -> str:
        """Its place in a walk: by writer, then by kind, then by name."""
        # Compared as text, so kind 10 sorts before kind 2; scrubs have kept such keys, so it stays like that.
        return f"{self.writer}/{_ORDER.index(self.kind)}/{self.name}"


made_at_import(CheckUnit)


def writer_check_units(workspace: Workspace) -> list[CheckUnit]:
    """Return the units of one writer in the order of their keys; without logs and shards if its catalog is unreadable.

    Sizes are those in the catalog, or of the files where it does not list them.
    """
    units = [
        CheckUnit("states", workspace.writer),
        CheckUnit("catalog", workspace.writer, bytes=_catalog_bytes(workspace)),
        *_journals(workspace),
        *_units(workspace),
        *_contents(workspace),
        *_handed_contents(workspace),
        CheckUnit("ids", workspace.writer),
        CheckUnit("claims", workspace.writer),
        CheckUnit("leases", workspace.writer),
        CheckUnit("software", workspace.writer),
        CheckUnit("filters", workspace.writer, bytes=_filter_bytes(workspace)),
        *([CheckUnit("handoff", workspace.writer)] if workspace.hands_over else []),
    ]
    try:
        state = workspace.catalog.load()
    except CustodyError:
        return sorted(units, key=lambda unit: unit.key)  # the check of the catalog reports what is wrong with it
    units += [CheckUnit("log", workspace.writer, path, state.files[path].size_bytes) for path in state.files]
    units += [CheckUnit("shard", workspace.writer, name, shard.size_bytes) for name, shard in state.shards.items()]
    return sorted(units, key=lambda unit: unit.key)


def shared_check_units(settings: Settings, fs: FileSystem) -> list[CheckUnit]:
    """Return the units that belong to the repository and to no writer: quarantine, small records, and the sink."""
    folder = settings.quarantine
    quarantine = CheckUnit(QUARANTINE, "", bytes=sum(size_of(fs, folder / name) for name in fs.list(folder)))
    return sorted([quarantine, CheckUnit(RECORDS, ""), CheckUnit(SINK, "")], key=lambda piece: piece.key)


def size_of(fs: FileSystem, path: Path) -> int:
    """Return a file's size; 0 for a path that is gone, or no file."""
    try:
        return fs.size(path)
    # Swept or removed since it was listed.
    except StorageError:
        return 0


def _catalog_bytes(workspace: Workspace) -> int:
    objects = workspace.catalog.objects
    return sum(info.size_bytes for info in objects.store.list(objects.prefix))


def _filter_bytes(workspace: Workspace) -> int:
    fs = workspace.fs
    return sum(size_of(fs, folder / name) for folder in workspace.filter_folders() for name in fs.list(folder))


def _journals(workspace: Workspace) -> Iterator[CheckUnit]:
    try:
        groups = workspace.groups()
    except (CorruptionError, FormatVersionError):
        groups = workspace.groups_on_containers()  # the check of what was handed over names the damage
    for group in groups:
        size = sum(size_of(workspace.fs, path) for path in (*group.sealed, *group.open))
        # Padded with zeros, as keys are compared as text.
        yield CheckUnit("journals", workspace.writer, f"{group.first_event_id:0{ID_DIGITS}d}", size)


def _contents(workspace: Workspace) -> Iterator[CheckUnit]:
    fs, store, writer = workspace.fs, workspace.settings.content_store, workspace.writer
    for container, section in sections_of(fs, store, writer):
        claims = claims_in(fs, store, writer, container, section)
        yield CheckUnit(
            "content", writer, f"{container}/{section}", sum(size_of(fs, item.path(store)) for item in claims)
        )


def _handed_contents(workspace: Workspace) -> Iterator[CheckUnit]:
    handed = ClaimPlaces(workspace.fs, workspace.settings.content_store).handed
    sizes: Counter[str] = Counter()
    for resource, stored in ({} if handed is None else handed.listed(workspace.writer)).items():
        sizes[f"{resource.container}/{resource.section}"] += stored.size_bytes
    for name, size in sizes.items():
        yield CheckUnit("handed-contents", workspace.writer, name, size)


def _units(workspace: Workspace) -> Iterator[CheckUnit]:
    fs = workspace.fs
    for first in workspace.staged():
        folder = workspace.paths.staged_unit(first)
        if workspace.stored_units is None:
            size = sum(size_of(fs, folder / name) for name in fs.list(folder))
        else:
            size = workspace.stored_units.size_bytes(first)
        yield CheckUnit("unit", workspace.writer, f"{first:0{ID_DIGITS}d}", size)
