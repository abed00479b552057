"""Replaced builds of the software tables: they are removed after the grace, or when the limit needs their room.

Earlier revisions of their catalog still list them. So, as with event logs, the floor is raised first: a query for such
a revision is refused, and never meets a missing file. A build that no revision lists is under way or was abandoned; it
goes when nothing in it was touched for the grace, and never to make room.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

from custody.catalog import Catalog
from custody.clock import Clock
from custody.config import Settings
from custody.format.names import BUILDS
from custody.retention.deletion import delete_revisions, keep_from
from custody.retention.disk_usage import allocated_bytes, allocated_folder_bytes
from custody.store import ObjectInfo
from custody.swh.publishing import database_catalog, database_folder
from custody.vfs import FileSystem

_REMOVING = ".removing-"
"""No build's name begins with a dot."""


def former_builds(settings: Settings, fs: FileSystem, clock: Clock, *, needs_room: bool) -> list[Path]:
    """Return the folders of builds that may go now, and the rest of those whose removal was interrupted.

    Of an object store a build counts wherever any of it is: here, where it was made, or in the store.

    Args:
        settings: of the repository.
        fs: where its store is.
        clock: what the grace is measured with.
        needs_room: whether what was replaced goes without a grace.
    """
    folder = database_folder(settings) / BUILDS
    catalog = database_catalog(settings, fs, clock)
    stored = _stored(catalog)
    names = sorted({*fs.list(folder), *stored})
    if not names:
        return []
    live = {file.partition for file in catalog.load().files.values()}
    replaced = {name: at_ms for name, (_, at_ms) in _replaced(catalog).items()}
    now = clock.now_ms()
    before = now - settings.retention.grace_ms
    folders = []
    for name in names:
        if name.startswith(_REMOVING):
            is_former = True
        elif name in live:
            is_former = False
        elif name in replaced:
            is_former = replaced[name] <= (now if needs_room else before)
        else:
            # A build without any file is about to begin.
            touched = (*_touched(fs, folder / name), *(info.modified_ms for info in stored.get(name, ())))
            is_former = max(touched, default=now) <= before
        folders += [folder / name] if is_former else []
    return folders


def remove_former(settings: Settings, fs: FileSystem, clock: Clock, *, needs_room: bool) -> tuple[int, int]:
    """Remove builds that may go; return how many, and their bytes.

    Durability: on return the floor and the removals survive power loss, or a later call finds the rest.
    """
    folders = former_builds(settings, fs, clock, needs_room=needs_room)
    if not folders:
        return 0, 0
    catalog = database_catalog(settings, fs, clock)
    catalog.settle()  # the transaction that replaced a build may come from a process that died before it was durable
    replaced = _replaced(catalog)
    revisions = [replaced[folder.name][0] for folder in folders if folder.name in replaced]
    if revisions:
        # The floor first, as with event logs: no kept revision may list a file that is gone.
        keep_from(catalog, max(revisions))
        delete_revisions(catalog)
    stored = _stored(catalog)
    sizes = [allocated_bytes(info.size_bytes) for folder in folders for info in stored.get(folder.name, ())]
    size = sum(sizes) if settings.is_store_remote else sum(allocated_folder_bytes(fs, folder) for folder in folders)
    for folder in folders:
        for info in stored.get(folder.name, ()):
            catalog.objects.files.delete(info.key)
        if not fs.exists(folder):
            continue
        removed = folder
        # Renamed before it is deleted: a build under its own name is always whole.
        if not folder.name.startswith(_REMOVING):
            removed = folder.with_name(f"{_REMOVING}{uuid.uuid4().hex}")
            fs.rename(folder, removed)
            # Durable before the first removal, or a power loss could bring the old name back on a part of the build.
            fs.sync_directory(folder.parent)
        fs.remove_tree(removed)
        fs.sync_directory(folder.parent)
    return len(folders), size


def _stored(catalog: Catalog) -> dict[str, list[ObjectInfo]]:
    """Return, by build, what an object store has of it; nothing where the store is a folder."""
    builds: dict[str, list[ObjectInfo]] = {}
    for info in catalog.objects.files.list(f"{BUILDS}/") if catalog.objects.files.copies is not None else ():
        builds.setdefault(Path(info.key).parts[1], []).append(info)
    return builds


def _replaced(catalog: Catalog) -> dict[str, tuple[int, int]]:
    """Return, by build, the kept revision that removed the last of its files, and its time (ms since the epoch)."""
    removals: dict[str, tuple[int, int]] = {}
    if catalog.load().revision < 0:
        return removals
    for transaction in catalog.timeline():
        for action in transaction.actions:
            if action.HasField("remove_file"):
                name = Path(action.remove_file.path).parts[1]
                removals[name] = (transaction.revision, transaction.commit_time_ms)
    return removals


def _touched(fs: FileSystem, folder: Path) -> Iterator[int]:
    for name in fs.list(folder):
        path = folder / name
        if fs.is_directory(path):
            yield from _touched(fs, path)
        else:
            yield fs.modified_ms(path)
