"""Whether interrupted work left anything, by names of files alone. The leftover sensor's question.

What a step writes it writes under a lease, and says when its work is done: a lease that ended otherwise stands for all
that its attempt may have left in folders that are too large to be looked through each minute.

What interrupted work left, and what is to be done about it.

Unfinished files in the folders that belong to the repository and to no writer.

Finding what interrupted work left: by names, places and the catalog, and by nothing else. Nothing is changed here.

A leftover of a step is one only while nobody works under the lease of that step: whoever asks holds the lease of the
rollover, or only looks. What a compaction leaves is told by the suffix in its names; while one is under way, it is left
alone. What no lease covers is a leftover when it has been there for an hour.
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
    ContainerPaths,
    ContentPaths,
    event_log_folder,
    parse_event_log,
    parse_shard,
    parse_staged_unit,
    parse_written_anew,
)
from custody.lease import is_dead, lease_status, read_holder
from custody.recovery.adoption import journals_of_others
from custody.rollover import is_live, swept_groups
from custody.vfs import TEMPORARY_SUFFIX, FileSystem, PosixFileSystem
from custody.workspace import ROLLOVER_LEASE, Workspace, lease_folder, name_before

_UNDER_WAY = (BUILDING_PREFIX, REMOVING_PREFIX)


class Leftovers(msgspec.Struct, frozen=True, kw_only=True):
    """Where interrupted work left something: paths of files, folders, or leases that did not end well."""

    paths: tuple[str, ...]

    @property
    def is_any(self) -> bool:
        """Whether step `recover` has something to do."""
        return bool(self.paths)


def leftovers(settings: Settings, fs: FileSystem | None = None) -> Leftovers:
    """Return what interrupted work left in a repository, of all writers. Only folders are listed, no file is opened.

    The one exception is a lease that did not end: its file names the process that has to be looked for.
    """
    fs = fs or PosixFileSystem()
    return Leftovers(paths=tuple(path for workspace in Workspace.all(settings, fs) for path in _of_writer(workspace)))


def _of_writer(workspace: Workspace) -> Iterator[str]:
    settings, fs, writer = workspace.settings, workspace.fs, workspace.writer
    if not is_live(fs, settings, writer):
        yield from (str(path) for group in workspace.groups() for path in group.open)
        for root in settings.containers:
            folder = ContainerPaths(root, writer).journals
            yield from (str(folder / name) for name in fs.list(folder) if name.endswith(TEMPORARY_SUFFIX))
    now, dead_seconds = workspace.clock.now_ms(), settings.lease.dead_seconds
    held = False
    for name in (ROLLOVER_LEASE, COMPACT_LEASE, RETENTION_LEASE):
        found = lease_status(fs, lease_folder(settings, writer, name))
        if found is None:
            continue
        if found.is_open:
            dead = is_dead(fs, found, now, dead_seconds)
            held = held or not dead
            if dead:
                yield str(found.path)
        elif found.failed and name == ROLLOVER_LEASE:
            yield str(found.path)
    if not held:
        folders = [workspace.paths.staging, *(ContainerPaths(root, writer).index for root in settings.containers)]
        for folder in folders:
            yield from (str(folder / name) for name in fs.list(folder) if name.startswith(_UNDER_WAY))


Action = Literal["seal", "remove", "discard", "put back", "sweep", "close", "keep", "adopt"]
"""seal: cut the torn tail, write the end record, give the final name. remove: nothing needs it, delete it. discard: get
it out of the way, look whether the lease still stands, delete it; the next steps make it again. put back: it is listed,
and a removal that was superseded took it away. sweep: delete what became live elsewhere. close: say that the attempt
failed. keep: a person has to look at it. adopt: bring it in under another writer name,
which is done only when it is asked for."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One leftover."""

    writer: str
    path: str
    what: str
    action: Action
    why: str
    error: str | None = None
    """Why it could not be done."""


def shared_partials(settings: Settings, fs: FileSystem) -> Iterator[Path]:
    """Yield what was never given its final name: of quarantine, reports, turns, ledger, scrub and watch.

    Of these folders, two have folders in them, one a run or one for some of the files: all are listed, so this is not
    for what is done each minute.
    """
    for folder in (settings.quarantine, settings.turns, settings.maintenance_folder, settings.watch_mark.parent):
        yield from _partials(fs, folder)
    for folder in (settings.runs, settings.landed):
        yield from _partials(fs, folder)
        for name in fs.list(folder):
            if fs.is_directory(folder / name):
                yield from _partials(fs, folder / name)


def _partials(fs: FileSystem, folder: Path) -> Iterator[Path]:
    yield from (folder / name for name in fs.list(folder) if name.endswith(TEMPORARY_SUFFIX))


YOUNG_MS = 3_600_000
LEASES = (ROLLOVER_LEASE, COMPACT_LEASE, RETENTION_LEASE)


class Search:
    """One look at a writer's files. Names are listed before the catalog is read, so that no commit falls in between."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.fs = workspace.fs
        self.groups = workspace.groups()

    def findings(self) -> Iterator[Finding]:
        """Yield all leftovers, in the order in which they are to be dealt with."""
        yield from self._leases()
        yield from self._journals()
        yield from self._staging()
        yield from self._logs()
        yield from self._shards()
        yield from self._catalog()
        yield from self._contents()
        yield from self._shared()
        yield from self._done()
        yield from self._of_others()

    @cached_property
    def _state(self) -> CatalogState:
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
        """Whether a live attempt holds a lease, another one than this."""
        workspace = self.workspace
        found = lease_status(self.fs, lease_folder(workspace.settings, workspace.writer, name))
        if found is None or not found.is_open or (workspace.lease and workspace.lease.folder == found.path.parent):
            return False
        return not is_dead(self.fs, found, workspace.clock.now_ms(), workspace.settings.lease.dead_seconds)

    def _found(self, path: Path, what: str, action: Action, why: str) -> Finding:
        return Finding(writer=self.workspace.writer, path=str(path), what=what, action=action, why=why)

    def _leases(self) -> Iterator[Finding]:
        workspace = self.workspace
        for name in LEASES:
            folder = lease_folder(workspace.settings, workspace.writer, name)
            found = lease_status(self.fs, folder)
            own = workspace.lease is not None and workspace.lease.folder == folder
            if found is not None and found.is_open and not own and not self.is_held(name):
                who = read_holder(self.fs, found.path) or "an unknown attempt"
                yield self._found(found.path, f"lease of {who}", "close", "its process is gone and did not say so")
            for partial in self._partials(folder):
                if self._is_old(partial):
                    yield self._found(partial, "temporary file", "remove", "who wrote it never gave it a name")

    def _journals(self) -> Iterator[Finding]:
        workspace = self.workspace
        if is_live(self.fs, workspace.settings, workspace.writer):
            return
        for root in workspace.settings.containers:
            paths = ContainerPaths(root, workspace.writer)
            for partial in (*self._partials(paths.home), *self._partials(paths.journals)):
                yield self._found(partial, "temporary file", "seal", "its writer is dead and never gave it a name")
        for group in workspace.ownership.on_disk():  # whosever they are, and whatever becomes of them then
            for path in group.open:
                why = "its writer is dead: no process holds the lock"
                yield self._found(path, "open journal", "seal", why)

    def _staging(self) -> Iterator[Finding]:
        folder = self.workspace.paths.staging
        for name in self.fs.list(folder):
            first = parse_staged_unit(name)
            if name.startswith(BUILDING_PREFIX):
                yield self._found(folder / name, "unfinished unit", "discard", "the attempt that merged it ended")
            elif name.startswith(REMOVING_PREFIX):
                yield self._found(folder / name, "removed unit", "remove", "its removal did not come to its end")
            elif first is not None:
                yield from self._damaged_unit(folder / name, first)

    def _damaged_unit(self, path: Path, first: int) -> Iterator[Finding]:
        try:
            self.workspace.manifest(first)
        except (CorruptionError, FormatVersionError, StorageError) as error:
            known = any(group.first_event_id == first for group in self.groups) or first in live_groups(self._state)
            if not known:
                yield self._found(path, "damaged unit", "keep", f"its journals are gone and it is not live. {error}")
            elif isinstance(error, CorruptionError):
                yield self._found(path, "damaged unit", "discard", f"it can be made again from the journals. {error}")

    def _logs(self) -> Iterator[Finding]:
        data = self.workspace.paths.home / "data"
        for day in self.fs.list(data):
            folder = data / day / event_log_folder()
            for name in self.fs.list(folder):
                yield from self._log(folder / name, f"data/{day}/{event_log_folder()}/")

    def _log(self, path: Path, prefix: str) -> Iterator[Finding]:
        if path.suffix == TEMPORARY_SUFFIX:
            if not (parse_written_anew(path.name) and self._is_compacting):
                yield self._found(path, "temporary file", "remove", "the attempt that wrote it ended")
        elif path.name.startswith(REMOVING_PREFIX):
            before = name_before(path.name)
            if prefix + before in self._kept and not self.fs.exists(path.with_name(before)):
                yield self._found(path, "listed file without its name", "put back", "its removal was superseded")
            else:
                yield self._found(path, "removed file", "remove", "its removal did not come to its end")
        else:
            first = parse_event_log(prefix + path.name)
            plain = first is not None and not parse_written_anew(path.name)
            if plain and first is not None and self._is_uncommitted(first) and prefix + path.name not in self._kept:
                what = "event log" if path.suffix == ".parquet" else "table of contents"
                yield self._found(
                    path, what, "discard", "no revision lists it, and the journals of its group are there"
                )

    def _shards(self) -> Iterator[Finding]:
        for root in self.workspace.settings.containers:
            folder = ContainerPaths(root, self.workspace.writer).index
            for name in self.fs.list(folder):
                yield from self._shard(folder / name)

    def _shard(self, path: Path) -> Iterator[Finding]:
        named = parse_shard(path.name)
        if path.name.startswith(REMOVING_PREFIX):
            yield self._found(path, "removed index shard", "remove", "its removal did not come to its end")
        elif path.name.startswith(BUILDING_PREFIX):
            if not self._may_be_building(path):
                yield self._found(path, "unfinished index shard", "discard", "the attempt that built it ended")
        elif named is not None and self._is_unlisted_shard(path.name, named[1]):
            why = "no revision lists its log, and the journals of its group are there"
            yield self._found(path, "index shard", "discard", why)

    def _is_unlisted_shard(self, name: str, first_event_id: int) -> bool:
        plain = not parse_written_anew(name)
        return plain and self._is_uncommitted(first_event_id) and name not in self._state.shards

    def _may_be_building(self, path: Path) -> bool:
        shard = path.name.removeprefix(BUILDING_PREFIX).rpartition("-")[0]
        if parse_written_anew(shard):
            return self._is_compacting
        # A live shard is built anew by whoever is asked to, under no lease.
        return shard in self._state.shards and not self._is_old(path)

    def _catalog(self) -> Iterator[Finding]:
        folder = self.workspace.paths.transactions
        for place in (folder, *(folder / name for name in self.fs.list(folder))):
            for partial in self._partials(place) if self.fs.is_directory(place) else ():
                if self._is_old(partial):
                    yield self._found(partial, "temporary file", "remove", "who wrote it never gave it a name")

    def _contents(self) -> Iterator[Finding]:
        store, writer = self.workspace.settings.store, self.workspace.writer
        for container, section in sections_of(self.fs, store, writer):
            for partial in self._partials(ContentPaths(store, writer).section(container, section)):
                if self._is_old(partial):
                    yield self._found(partial, "temporary file", "remove", "who wrote it never gave it a name")

    def _shared(self) -> Iterator[Finding]:
        """What belongs to the repository is found with the writer of the settings, once."""
        settings = self.workspace.settings
        if self.workspace.writer != settings.repository.writer:
            return
        for partial in shared_partials(settings, self.fs):
            if self._is_old(partial):
                yield self._found(partial, "temporary file", "remove", "who wrote it never gave it a name")

    def _done(self) -> Iterator[Finding]:
        try:
            found = list(swept_groups(self.workspace))
        except (CorruptionError, FormatVersionError):
            return  # a damaged unit: it was found before
        journals = {group.first_event_id: group.sealed for group in self.groups}
        for groups in found:
            unit = self.workspace.paths.staged_unit(groups[0])
            staged = [unit] if self.fs.exists(unit) else []
            for path in [*(path for group in groups for path in journals.get(group, ())), *staged]:
                what = "staged unit" if path == unit else "journal"
                yield self._found(path, f"{what} of live groups", "sweep", "its events are live, or none is whole")

    def _of_others(self) -> Iterator[Finding]:
        why = "no answer gives its events out: custody recover --adopt"
        for path in journals_of_others(self.workspace, self._state):
            yield self._found(path, "journal of another incarnation", "adopt", why)

    def _is_uncommitted(self, first_event_id: int) -> bool:
        """Whether an event belongs to a group that has journals and is not live: a group's ids end before the next."""
        known, waiting = self._known_groups
        place = bisect_right(known, first_event_id) - 1
        return place >= 0 and known[place] in waiting

    def _partials(self, folder: Path) -> list[Path]:
        return [folder / name for name in self.fs.list(folder) if name.endswith(TEMPORARY_SUFFIX)]

    def _is_old(self, path: Path) -> bool:
        fs, inside = self.fs, [path]
        try:
            if fs.is_directory(path):
                inside = [path / name for name in fs.list(path)] or inside
            changed = [fs.modified_ms(item) for item in inside]
        except StorageError:
            return False  # gone in this moment
        return bool(changed) and max(changed) <= self.workspace.clock.now_ms() - YOUNG_MS


def find(workspace: Workspace) -> list[Finding]:
    """Return what interrupted work left of a writer's files, in the order in which it is to be dealt with."""
    return list(Search(workspace).findings())
