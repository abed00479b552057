"""Leftovers of interrupted work, found by names, places and the catalog alone; nothing is changed here.

`peek_leftovers` is the question of a sensor: it lists folders and opens no file. `find_leftovers` looks everywhere and
says of each leftover what is to be done about it.

A step writes under a lease and says when its work is done, so a lease that ended otherwise stands for everything that
its attempt may have left in folders too large to be listed each minute. A leftover of a step is one only while nobody
works under the lease of that step: the caller holds the lease of the rollover, or only looks. The suffix in its names
tells what a compaction left; while one is under way, it is left alone. What no lease covers is a leftover once it has
been there for LEFTOVER_AGE_MS.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from custody.catalog import CatalogState, kept_files, live_groups
from custody.config import Settings
from custody.errors import CorruptionError, FormatVersionError, StorageError
from custody.flow.content import sections_of
from custody.format.names import (
    BUILDING_PREFIX,
    COMPACT_LEASE,
    REMOVING_PREFIX,
    RETENTION_LEASE,
    UPLOADS,
    ContainerPaths,
    ContentPaths,
    event_log_folder,
    parse_event_log,
    parse_shard,
    parse_staged_unit,
    parse_unit_part,
    parse_written_anew,
)
from custody.lease import is_dead, lease_status, read_holder
from custody.recovery.foreign_journals import list_foreign_journals
from custody.rollover import swept_groups
from custody.rollover.remaking import can_be_made_again
from custody.store import place_text
from custody.vfs import TEMPORARY_SUFFIX, FileSystem, PosixFileSystem
from custody.workspace import ROLLOVER_LEASE, Workspace, lease_place, name_before_removal

# Such a folder is work under way while its lease is live, and a leftover as soon as nobody holds it.
_UNDER_WAY = (BUILDING_PREFIX, REMOVING_PREFIX)
_LEASES = (ROLLOVER_LEASE, COMPACT_LEASE, RETENTION_LEASE)
UPLOAD, UNFINISHED_UPLOAD = "uploaded object", "unfinished upload"
"""What a leftover in an object store is: an object that never got its name, or the parts of one."""
UPLOAD_ID = "?uploadId="
"""Between the URL of an object and the id of an upload to it."""
LEFTOVER_AGE_MS = 3_600_000
"""Of files that no lease covers: a younger one may belong to somebody who is still writing it."""

UPLOAD_AGE_MS = 24 * LEFTOVER_AGE_MS
"""Of uploads in parts, whose age counts from their begin: the largest takes six hours at the least rate."""

LeftoverAction = Literal["seal", "remove", "discard", "put back", "sweep", "close", "keep", "adopt"]
"""The remedy for a leftover.

- seal: cut the torn tail, write the end record, give the final name.
- remove: delete it; nothing needs it.
- discard: rename it out of the way, check that the lease still stands, delete it; the next steps make it again.
- put back: give it its name again; it is listed, and a removal that was superseded took it away.
- sweep: delete what became live elsewhere.
- close: note that the attempt failed.
- keep: leave it to a person.
- adopt: bring it in under another writer name, which is done only on request.
"""


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """One leftover, and what is to be done about it."""

    writer: str
    path: str
    what: str
    action: LeftoverAction
    why: str
    error: str | None = None
    """Why it could not be done."""


class LeftoverPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Paths of files, folders and leases that interrupted work left behind."""

    paths: tuple[str, ...]

    @property
    def is_any(self) -> bool:
        """Whether step `recover` has something to do."""
        return bool(self.paths)


def peek_leftovers(settings: Settings, fs: FileSystem | None = None) -> LeftoverPaths:
    """Return the leftovers of all writers of a repository. Only folders are listed, no file is opened.

    The one exception is a lease that did not end: its file names the process that has to be looked for.
    """
    fs = fs or PosixFileSystem()
    paths = (path for workspace in Workspace.all(settings, fs) for path in _peek_writer(workspace))
    return LeftoverPaths(paths=tuple(paths))


def _peek_writer(workspace: Workspace) -> Iterator[str]:
    settings, fs, writer = workspace.settings, workspace.fs, workspace.writer
    # A live writer's open journals and temporary files are its own: only without its lock are they leftovers.
    if not workspace.is_held():
        yield from (str(path) for group in workspace.groups() for path in group.open)
        for root in settings.containers:
            folder = ContainerPaths(root, writer).journals
            yield from (str(folder / name) for name in fs.list(folder) if name.endswith(TEMPORARY_SUFFIX))
    now, dead_seconds = workspace.clock.now_ms(), settings.lease.dead_seconds
    held = False
    for name in _LEASES:
        place = lease_place(settings, writer, name, fs)
        lease = lease_status(*place)
        if lease is None:
            continue
        if lease.is_open:
            dead = is_dead(place.files, lease, now, dead_seconds)
            held = held or not dead
            if dead:
                yield place_text(lease.path)
        # Its attempt may have left logs in folders too large to list each minute: the lease stands for them.
        elif lease.failed and name == ROLLOVER_LEASE:
            yield place_text(lease.path)
    # Under a live lease an unfinished folder is work under way.
    if not held:
        folders = [workspace.paths.staging, *(ContainerPaths(root, writer).index for root in settings.containers)]
        for folder in folders:
            yield from (str(folder / name) for name in fs.list(folder) if name.startswith(_UNDER_WAY))


def shared_partials(settings: Settings, fs: FileSystem) -> Iterator[Path]:
    """Yield unfinished files of the repository's own folders, such as those of quarantine, reports, ledger and jobs.

    Two of these have many folders in them, one for each run or for some of the files. All are listed, so this is no
    question for a sensor that asks each minute.
    """
    own = (settings.quarantine, settings.turns, settings.maintenance_folder, settings.watch_mark.parent)
    for folder in (*own, settings.jobs, settings.replays):
        yield from _temporary_files(fs, folder)
    for folder in (settings.runs, settings.landed):
        yield from _temporary_files(fs, folder)
        for name in fs.list(folder):
            if fs.is_directory(folder / name):
                yield from _temporary_files(fs, folder / name)


def _temporary_files(fs: FileSystem, folder: Path) -> Iterator[Path]:
    yield from (folder / name for name in fs.list(folder) if name.endswith(TEMPORARY_SUFFIX))


class LeftoverScan:
    """One scan of a writer's files.

    Journals are listed before the catalog is read: a group that is committed in between is then seen both as journals
    and as live, never as neither.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.fs = workspace.fs
        self.groups = workspace.groups()
        self._remade: dict[Path, bool] = {}
        """Whether a log that nobody lists can be made again; its table of contents asks once more."""

    def leftovers(self) -> Iterator[Leftover]:
        """Yield all leftovers, in the order in which they are to be dealt with."""
        yield from self._leases()
        yield from self._journals()
        yield from self._staging()
        yield from self._logs()
        yield from self._shards()
        yield from self._catalog()
        yield from self._uploads()
        yield from self._contents()
        yield from self._shared()
        yield from self._swept()
        yield from self._foreign_journals()

    @cached_property
    def _state(self) -> CatalogState:
        # Read once, after the groups: all parts of a scan judge by the same state.
        return self.workspace.catalog.load()

    @cached_property
    def _kept(self) -> set[str]:
        return kept_files(self.workspace.catalog)

    @cached_property
    def _known_groups(self) -> tuple[list[int], frozenset[int]]:
        """The groups that are live or have journals, sorted, and those that have journals and are not live."""
        live = live_groups(self._state)
        waiting = frozenset(group.first_event_id for group in self.groups) - live
        return sorted(live | waiting), waiting

    @cached_property
    def _is_compacting(self) -> bool:
        return self.is_held(COMPACT_LEASE)

    def is_held(self, name: str) -> bool:
        """Whether a live attempt other than the caller's holds a lease."""
        workspace = self.workspace
        place = lease_place(workspace.settings, workspace.writer, name, self.fs)
        lease = lease_status(*place)
        if lease is None or not lease.is_open or (workspace.lease and workspace.lease.folder == lease.path.parent):
            return False
        return not is_dead(place.files, lease, workspace.clock.now_ms(), workspace.settings.lease.dead_seconds)

    def _leftover(self, path: Path, what: str, action: LeftoverAction, why: str) -> Leftover:
        return Leftover(writer=self.workspace.writer, path=place_text(path), what=what, action=action, why=why)

    def _leases(self) -> Iterator[Leftover]:
        workspace = self.workspace
        for name in _LEASES:
            place = lease_place(workspace.settings, workspace.writer, name, self.fs)
            lease = lease_status(*place)
            own = workspace.lease is not None and workspace.lease.folder == place.folder
            if lease is not None and lease.is_open and not own and not self.is_held(name):
                who = read_holder(place.files, lease.path) or "an unknown attempt"
                yield self._leftover(lease.path, f"lease of {who}", "close", "its process is gone and did not say so")
            # What is put into a store is there as a whole or not at all.
            for partial in self._temporary(place.folder) if place.files is self.fs else ():
                if self._is_old(partial):
                    yield self._leftover(partial, "temporary file", "remove", "its writer never gave it a name")

    def _journals(self) -> Iterator[Leftover]:
        workspace = self.workspace
        if workspace.is_held():
            return
        for root in workspace.settings.containers:
            paths = ContainerPaths(root, workspace.writer)
            for partial in (*self._temporary(paths.home), *self._temporary(paths.journals)):
                yield self._leftover(partial, "temporary file", "seal", "its writer is dead and never gave it a name")
        # Journals of every incarnation: an open one is sealed first, and judged afterwards.
        for group in workspace.groups_of_all_incarnations():
            for path in group.open:
                why = "its writer is dead: no process holds the lock"
                yield self._leftover(path, "open journal", "seal", why)

    def _staging(self) -> Iterator[Leftover]:
        folder = self.workspace.paths.staging
        for name in self.fs.list(folder):
            first = parse_staged_unit(name)
            if name.startswith(BUILDING_PREFIX):
                yield self._leftover(folder / name, "unfinished unit", "discard", "the attempt that merged it ended")
            elif name.startswith(REMOVING_PREFIX):
                yield self._leftover(folder / name, "removed unit", "remove", "its removal was interrupted")
            elif first is not None:
                yield from self._damaged_unit(folder / name, first)
            elif (part_of := parse_unit_part(name)) is not None and not self._may_be_joined(part_of):
                why = "its unit is whole, or live"
                yield self._leftover(folder / name, "merged part of a unit", "discard", why)

    def _may_be_joined(self, first: int) -> bool:
        """Whether a unit of which a part is merged is still to be merged: the next attempt uses the part."""
        return first in self._known_groups[1] and first not in self.workspace.staged()

    def _damaged_unit(self, path: Path, first: int) -> Iterator[Leftover]:
        try:
            self.workspace.manifest(first)
        except (CorruptionError, FormatVersionError, StorageError) as error:
            has_events = any(group.first_event_id == first for group in self.groups) or first in live_groups(
                self._state
            )
            # Neither journals nor live logs hold its events: the unit may be their last copy, so nothing removes it.
            if not has_events:
                yield self._leftover(path, "damaged unit", "keep", f"its journals are gone and it is not live. {error}")
            # A newer version or a disk that cannot be read is no damage: such a unit stays as it is.
            elif isinstance(error, CorruptionError):
                yield self._leftover(
                    path, "damaged unit", "discard", f"it can be made again from the journals. {error}"
                )

    def _logs(self) -> Iterator[Leftover]:
        for part, home in self.workspace.catalog.objects.files.parts():
            for day in self.fs.list(home / "data"):
                folder = home / "data" / day / event_log_folder()
                for name in self.fs.list(folder):
                    yield from self._log(folder / name, f"{part}data/{day}/{event_log_folder()}/")

    def _log(self, path: Path, prefix: str) -> Iterator[Leftover]:
        if path.suffix == TEMPORARY_SUFFIX:
            # A compaction has a lease of its own: while it is held, this file is work under way.
            if not (parse_written_anew(path.name) and self._is_compacting):
                yield self._leftover(path, "temporary file", "remove", "the attempt that wrote it ended")
        elif path.name.startswith(REMOVING_PREFIX):
            # An attempt may be superseded between its rename and its second look at the lease: by then the other one
            # may have listed the file.
            before = name_before_removal(path.name)
            if prefix + before in self._kept and not self.fs.exists(path.with_name(before)):
                yield self._leftover(path, "listed file without its name", "put back", "its removal was superseded")
            else:
                yield self._leftover(path, "removed file", "remove", "its removal was interrupted")
        else:
            first = parse_event_log(prefix + path.name)
            # Files with a compaction's suffix belong to the garbage collection and to `custody compact`.
            plain = first is not None and not parse_written_anew(path.name)
            if plain and first is not None and self._is_uncommitted(first) and prefix + path.name not in self._kept:
                what = "event log" if path.suffix == ".parquet" else "table of contents"
                if self._can_be_made_again(path.with_suffix(".parquet")):
                    yield self._leftover(
                        path, what, "discard", "no revision lists it, and the journals of its group are there"
                    )
                else:
                    # The last copy, perhaps: its transaction is lost, and a later group begins with the same id.
                    yield self._leftover(
                        path, what, "keep", "no revision lists it, and no journal has its events: custody repair"
                    )

    def _can_be_made_again(self, log: Path) -> bool:
        """Whether a log may go; a table of contents without its log always may."""
        if not self.fs.exists(log):
            return True
        if log not in self._remade:
            self._remade[log] = can_be_made_again(self.workspace, log)
        return self._remade[log]

    def unexplained_logs(self) -> Iterator[Path]:
        """Yield the logs behind the end of the catalog whose events no journal and no staged unit has."""
        files = self.workspace.catalog.objects.files
        staged = {log.first_event_id for manifest in self.workspace.manifests() for log in manifest.logs}
        for relative in files.names("data/"):
            first = parse_event_log(relative) if relative.endswith(".parquet") else None
            is_behind = first is not None and first >= self._state.next_event_id and first not in staged
            if is_behind and relative not in self._kept and not self._can_be_made_again(files.path(relative)):
                yield self.workspace.log_place(relative)

    def _shards(self) -> Iterator[Leftover]:
        for root in self.workspace.settings.containers:
            folder = ContainerPaths(root, self.workspace.writer).index
            for name in self.fs.list(folder):
                yield from self._shard(folder / name)

    def _shard(self, path: Path) -> Iterator[Leftover]:
        named = parse_shard(path.name)
        if path.name.startswith(REMOVING_PREFIX):
            yield self._leftover(path, "removed index shard", "remove", "its removal was interrupted")
        elif path.name.startswith(BUILDING_PREFIX):
            if not self._may_be_building(path):
                yield self._leftover(path, "unfinished index shard", "discard", "the attempt that built it ended")
        elif named is not None and self._is_unlisted_shard(path.name, named[1]):
            why = "no revision lists its log, and the journals of its group are there"
            yield self._leftover(path, "index shard", "discard", why)

    def _is_unlisted_shard(self, name: str, first_event_id: int) -> bool:
        plain = not parse_written_anew(name)
        return plain and self._is_uncommitted(first_event_id) and name not in self._state.shards

    def _may_be_building(self, path: Path) -> bool:
        shard = path.name.removeprefix(BUILDING_PREFIX).rpartition("-")[0]
        if parse_written_anew(shard):
            return self._is_compacting
        # A live shard is built anew by whoever is asked to, under no lease.
        return shard in self._state.shards and not self._is_old(path)

    def _catalog(self) -> Iterator[Leftover]:
        folder = self.workspace.paths.transactions
        for place in (folder, *(folder / name for name in self.fs.list(folder))):
            for partial in self._temporary(place) if self.fs.is_directory(place) else ():
                if self._is_old(partial):
                    yield self._leftover(partial, "temporary file", "remove", "its writer never gave it a name")

    def _uploads(self) -> Iterator[Leftover]:
        """Yield objects of a store that never got their name, and uploads that never ended; no lease covers them."""
        if not self.workspace.settings.is_store_remote:
            return
        store, writer = self.workspace.catalog.objects.store, self.workspace.writer
        for info in store.list(f"{writer}/{UPLOADS}/"):
            if info.modified_ms <= self.workspace.clock.now_ms() - LEFTOVER_AGE_MS:
                yield Leftover(
                    writer=writer,
                    path=store.locate(info.key),
                    what=UPLOAD,
                    action="remove",
                    why="its process never gave it its name",
                )
        for upload in store.unfinished(f"{writer}/"):
            if upload.begun_ms <= self.workspace.clock.now_ms() - UPLOAD_AGE_MS:
                yield Leftover(
                    writer=writer,
                    path=f"{store.locate(upload.key)}{UPLOAD_ID}{upload.upload_id}",
                    what=UNFINISHED_UPLOAD,
                    action="remove",
                    why="its process never completed it; no listing shows its parts",
                )

    def _contents(self) -> Iterator[Leftover]:
        store, writer = self.workspace.settings.content_store, self.workspace.writer
        for container, section in sections_of(self.fs, store, writer):
            for partial in self._temporary(ContentPaths(store, writer).section(container, section)):
                if self._is_old(partial):
                    yield self._leftover(partial, "temporary file", "remove", "its writer never gave it a name")

    def _shared(self) -> Iterator[Leftover]:
        """Yield the leftovers of the repository's own folders; only the scan of the settings' writer reports them."""
        settings = self.workspace.settings
        if self.workspace.writer != settings.repository.writer:
            return
        for partial in shared_partials(settings, self.fs):
            if self._is_old(partial):
                yield self._leftover(partial, "temporary file", "remove", "its writer never gave it a name")

    def _swept(self) -> Iterator[Leftover]:
        try:
            units = list(swept_groups(self.workspace))
        except (CorruptionError, FormatVersionError):
            return  # a damaged unit: `_staging` reported it
        journals = {group.first_event_id: group.sealed for group in self.groups}
        for groups in units:
            unit = self.workspace.paths.staged_unit(groups[0])
            staged = [unit] if self.fs.exists(unit) else []
            for path in [*(path for group in groups for path in journals.get(group, ())), *staged]:
                what = "staged unit" if path == unit else "journal"
                yield self._leftover(path, f"{what} of live groups", "sweep", "its events are live, or none is whole")

    def _foreign_journals(self) -> Iterator[Leftover]:
        why = "no answer gives its events out: custody recover --adopt"
        for path in list_foreign_journals(self.workspace, self._state):
            yield self._leftover(path, "journal of another incarnation", "adopt", why)

    def _is_uncommitted(self, first_event_id: int) -> bool:
        """Whether an event belongs to a group that has journals and is not live: a group ends where the next begins."""
        first_ids, waiting = self._known_groups
        # The group of an id is the last one that begins at or before it, live or waiting.
        place = bisect_right(first_ids, first_event_id) - 1
        return place >= 0 and first_ids[place] in waiting

    def _temporary(self, folder: Path) -> list[Path]:
        return list(_temporary_files(self.fs, folder))

    def _is_old(self, path: Path) -> bool:
        fs, inside = self.fs, [path]
        try:
            if fs.is_directory(path):
                # A folder's own time stands still while a file in it grows.
                inside = [path / name for name in fs.list(path)] or inside
            changed = [fs.modified_ms(item) for item in inside]
        except StorageError:
            return False  # it has just gone
        return bool(changed) and max(changed) <= self.workspace.clock.now_ms() - LEFTOVER_AGE_MS


def unexplained_logs(workspace: Workspace) -> list[Path]:
    """Return the logs behind the end of a writer's catalog that hold events which nothing else holds."""
    return list(LeftoverScan(workspace).unexplained_logs())


def find_leftovers(workspace: Workspace) -> list[Leftover]:
    """Return the leftovers among a writer's files, in the order in which they are to be dealt with."""
    return list(LeftoverScan(workspace).leftovers())
