"""Removes data files that no kept revision lists: first out of the way, then, in a later run, for good.

Data is listed first and the catalog is loaded second, so that a file which is written and committed meanwhile is
either not in the listing or in the catalog. A file that is written and not committed yet is young: only files older
than a threshold are touched. What is moved to the trash and turns out to be listed is moved back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from custody.catalog.forgotten import added_by, names_in
from custody.catalog.log import Catalog
from custody.catalog.objects import Objects
from custody.clock import Clock
from custody.format.names import TIME_DIGITS, parse_event_log
from custody.store import ObjectInfo

HOUR_MS = 3_600_000
OLDER_THAN_MS = 24 * HOUR_MS
TRASH_KEPT_MS = 7 * 24 * HOUR_MS


@dataclass
class Collection:
    """What a run found: keys relative to the database, and bytes."""

    moved: list[str] = field(default_factory=list)
    moved_bytes: int = 0
    deleted: list[str] = field(default_factory=list)
    deleted_bytes: int = 0
    restored: list[str] = field(default_factory=list)
    young: list[str] = field(default_factory=list)
    """Not listed, but too young to be told from what is being written."""
    unknown: list[str] = field(default_factory=list)
    """Names that are not custody's; they are left alone."""


def collect(
    catalog: Catalog,
    clock: Clock,
    *,
    older_than_ms: int = OLDER_THAN_MS,
    trash_kept_ms: int = TRASH_KEPT_MS,
    dry_run: bool = False,
) -> Collection:
    """Move unlisted files to the trash and delete what has been there long enough; a dry run only looks.

    Raises:
        CorruptionError: the catalog cannot be read; then nothing is touched.
    """
    objects, now = catalog.objects, clock.now_ms()
    data = list(objects.store.list(f"{objects.home}data/"))
    trash = list(objects.store.list(f"{objects.home}trash/"))
    kept = kept_files(catalog)
    found = Collection()
    _empty_trash(objects, trash, kept, now - trash_kept_ms, found, dry_run=dry_run)
    for info in data:
        path = info.key.removeprefix(objects.home)
        if path in kept:
            continue
        if parse_event_log(path) is None:
            found.unknown.append(path)
        elif info.modified_ms > now - older_than_ms:
            found.young.append(path)
        else:
            found.moved.append(path)
            found.moved_bytes += info.size_bytes
            if not dry_run:
                objects.store.move(info.key, f"{objects.home}trash/{now:0{TIME_DIGITS}d}/{path}")
    if catalog.copies is not None and not dry_run:
        catalog.copies.tidy(_let_go(catalog), now - older_than_ms)  # what they hid lies in its place no more
    return found


def _let_go(catalog: Catalog) -> set[str]:
    """Return the ids of all tombstones and marks that any kept revision has."""
    state = catalog.load()
    if state.revision < 0:
        return set()
    known = names_in(catalog.at(state.floor))
    for transaction in catalog.timeline(state.floor):
        known.update(added_by(transaction.actions))
    return known


def kept_files(catalog: Catalog) -> set[str]:
    """Return the paths of all files, tables of contents included, that any kept revision lists."""
    state = catalog.load()
    files = list(catalog.at(state.floor).files.values()) if state.revision >= 0 else []
    for transaction in catalog.timeline(state.floor) if state.revision >= 0 else ():
        files += [action.add_file for action in transaction.actions if action.HasField("add_file")]
    return {path for file in files for path in (file.path, file.toc_path) if path}


def _empty_trash(
    objects: Objects, trash: list[ObjectInfo], kept: set[str], before_ms: int, found: Collection, *, dry_run: bool
) -> None:
    for info in trash:
        moved, _, path = info.key.removeprefix(f"{objects.home}trash/").partition("/")
        if not moved.isdigit() or parse_event_log(path) is None:
            found.unknown.append(info.key.removeprefix(objects.home))
        elif path in kept:
            if objects.store.head(objects.home + path) is None:
                found.restored.append(path)
                if not dry_run:
                    objects.store.move(info.key, objects.home + path)
        elif int(moved) <= before_ms:
            found.deleted.append(path)
            found.deleted_bytes += info.size_bytes
            if not dry_run:
                objects.store.delete(info.key)
                objects.store.drop_folder(info.key.rpartition("/")[0] + "/")
