"""What reading keeps between calls, within the bounds that the settings give: open logs, blocks, decoded journals.

The live tail: the events of journals that are not live yet, decoded once.

A sealed journal never changes, so what was decoded of it is kept. An open one grows at its end only, so what follows
the part that is known is decoded and added to it. What is damaged is read anew each time.

Opening a live log, which may expire, or be damaged, in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.catalog import AddFile, CatalogState, live_groups
from custody.errors import CorruptionError, NotFoundError
from custody.eventlog import BoundedCache, Damage, EventLog, OnDamage
from custody.format.framing import Frame, frames
from custody.journal import Group, JournalFile
from custody.journal.journal_file import TornTail
from custody.model import EVENT_SCHEMA
from custody.read.results import tell_newer
from custody.vfs import FileSystem
from custody.vfs.wrapping import WrappingFileSystem
from custody.workspace import Workspace

_PARTS_MAX = 64
_PREAMBLE_BYTES = 8
_HEAD_RECORDS = 2  # the header and the schema


@dataclass(frozen=True, slots=True)
class Decoded:
    """The events of a journal, or of a sealed group in the order of their ids, and what is damaged in it."""

    table: pa.Table
    damage: tuple[Damage, ...] = ()
    newer: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Schema versions of a newer custody, with the columns that it added."""
    torn: tuple[Damage, ...] = ()
    """The ends of open journals: of a live writer what it writes in this moment, of a dead one what may be lost."""


@dataclass(frozen=True, slots=True)
class _Grown:
    """An open journal as it was: its size, how much of that was whole, and the events of that part."""

    size: int
    intact_bytes: int
    decoded: Decoded


class TailCache:
    """Decoded journals, within a bound of bytes."""

    def __init__(self, kept: BoundedCache[Hashable, object]) -> None:
        self._kept = kept

    def read(
        self,
        fs: FileSystem,
        groups: Sequence[Group],
        on_damage: OnDamage,
        is_writer_live: Callable[[], bool],
    ) -> pa.Table:
        """Return the events of some groups, which are given by first event id, in the order of their ids.

        The end of an open journal that is no whole record is told only when its writer is dead.

        Raises:
            StorageError: a journal is gone: it was sealed or swept in this moment.
        """
        tables = [EVENT_SCHEMA.empty_table()]
        for group in groups:
            decoded = self._sealed_group(fs, group) if group.is_sealed else self._open_group(fs, group)
            for damage in decoded.damage:
                on_damage(damage)
            for version, columns in decoded.newer:
                tell_newer(on_damage, version, columns)
            for damage in decoded.torn if decoded.torn and not is_writer_live() else ():
                on_damage(damage)
            tables.append(decoded.table)
        return pa.concat_tables(tables)

    def _sealed_group(self, fs: FileSystem, group: Group) -> Decoded:
        found = self._kept.get(group.sealed)
        if isinstance(found, Decoded):
            return found
        decoded = _merged([self._sealed(fs, path) for path in group.sealed])
        if decoded.damage:
            return decoded  # looked at anew the next time: it may be whole again
        self._kept.put(group.sealed, decoded, decoded.table.nbytes)
        for path in group.sealed:
            if len(group.sealed) > 1:
                self._kept.drop((path,))
            self._kept.drop((path.with_suffix(".journal"),))
        return decoded

    def _open_group(self, fs: FileSystem, group: Group) -> Decoded:
        sealed = [self._sealed(fs, path) for path in group.sealed]
        return _merged(sealed + [self._open(fs, path) for path in group.open])

    def _sealed(self, fs: FileSystem, path: Path) -> Decoded:
        found = self._kept.get((path,))
        if not isinstance(found, Decoded):
            found, _ = _decode(fs, path)
            if not found.damage:
                self._kept.put((path,), found, found.table.nbytes)
        return found

    def _open(self, fs: FileSystem, path: Path) -> Decoded:
        kept = self._kept.get((path,))
        if isinstance(kept, _Grown):
            if kept.intact_bytes == kept.size == fs.size(path):
                return kept.decoded
            grown = _grow(path, fs.read(path), kept)
            if grown is not None:
                self._kept.put((path,), grown, grown.decoded.table.nbytes)
                return grown.decoded
        size = fs.size(path)
        decoded, intact_bytes = _decode(fs, path)
        if not decoded.damage and intact_bytes:
            # The journal may have grown since its size was taken: then it is looked at again, which does no harm.
            self._kept.put((path,), _Grown(size, intact_bytes, decoded), decoded.table.nbytes)
        return decoded


def _decode(fs: FileSystem, path: Path, left_out: int = 0) -> tuple[Decoded, int]:
    """Return the events of a journal, of which so many bytes are left out, and how many of its bytes are whole."""
    try:
        journal = JournalFile.read(fs, path)
        table = journal.table()
    except CorruptionError as error:
        return Decoded(EVENT_SCHEMA.empty_table(), (Damage(path, None, None, None, str(error)),)), 0
    problems = tuple(Damage(path, None, None, None, str(item)) for item in journal.damage)
    unknown = journal.unknown_columns
    newer = ((journal.header.schema_version, unknown),) if journal.header is not None and unknown else ()
    torn = (_doubt(path, journal.torn, left_out),) if journal.torn is not None else ()
    return Decoded(table, problems, newer, torn), journal.intact_bytes


def _doubt(path: Path, torn: TornTail, left_out: int) -> Damage:
    text = f"{path} @{torn.offset + left_out}: its writer is dead and left {torn}. custody recover puts them aside."
    return Damage(path, None, None, None, text, is_doubt=True)


class _Bytes(WrappingFileSystem):
    """A file system that has other bytes under one name."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, path: Path) -> bytes:
        """Return the bytes."""
        return self._data

    def view(self, path: Path) -> memoryview:
        """Return the bytes."""
        return memoryview(self._data)

    def size(self, path: Path) -> int:
        """Return how many there are."""
        return len(self._data)


def _grow(path: Path, data: bytes, kept: _Grown) -> _Grown | None:
    """Add what came behind the part that is known; None when the file has to be read as a whole."""
    if len(data) < kept.intact_bytes:
        return None
    head = _head_bytes(data)
    if not 0 < head <= kept.intact_bytes:
        return None
    # The new records, behind the header and the schema that they need, are a journal too.
    spliced = _Bytes(data[:head] + data[kept.intact_bytes :])
    decoded, intact_bytes = _decode(spliced, path, kept.intact_bytes - head)
    if decoded.damage or intact_bytes < head:
        return None
    table = pa.concat_tables([kept.decoded.table, decoded.table])
    if table.column(0).num_chunks > _PARTS_MAX:
        table = table.combine_chunks()
    return _Grown(
        len(data), kept.intact_bytes + intact_bytes - head, replace(kept.decoded, table=table, torn=decoded.torn)
    )


def _head_bytes(data: bytes) -> int:
    """Return where the first record behind header and schema begins, 0 when these are not whole."""
    found = list(islice(frames(data, _PREAMBLE_BYTES), _HEAD_RECORDS))
    last = found[-1] if len(found) == _HEAD_RECORDS else None
    return last.end if isinstance(last, Frame) and isinstance(found[0], Frame) else 0


def _merged(parts: list[Decoded]) -> Decoded:
    """Return the events of several journals in the order of their ids."""
    table = pa.concat_tables([EVENT_SCHEMA.empty_table(), *(part.table for part in parts)])
    ids = table.column("event_id").to_numpy()
    if len(ids) and (np.diff(ids) < 0).any():
        table = table.sort_by("event_id")
    newer = dict.fromkeys(found for part in parts for found in part.newer)
    damage = tuple(damage for part in parts for damage in part.damage)
    return Decoded(table, damage, tuple(newer), tuple(damage for part in parts for damage in part.torn))


@dataclass(frozen=True, slots=True)
class LiveLogs:
    """The live logs of a catalog's state in the order of their ids, which do not overlap; arrays of shape (logs,)."""

    files: tuple[AddFile, ...]
    firsts: npt.NDArray[np.int64]
    lasts: npt.NDArray[np.int64]
    groups: frozenset[int]
    """The journal groups whose events they hold, or held until they were erased."""

    @classmethod
    def of(cls, state: CatalogState) -> LiveLogs:
        """Return the live logs of a state."""
        files = tuple(sorted(state.files.values(), key=lambda file: file.first_event_id))
        firsts = np.array([file.first_event_id for file in files], np.int64)
        lasts = np.array([file.last_event_id for file in files], np.int64)
        return cls(files, firsts, lasts, live_groups(state))

    def holders(self, event_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of the log whose range holds each id, -1 where none does."""
        if not self.files:
            return np.full(len(event_ids), -1, np.int64)
        found = np.searchsorted(self.firsts, event_ids, side="right") - 1
        holders: npt.NDArray[np.int64] = np.where(event_ids <= self.lasts[found], found, -1)
        return holders


class Caches:
    """The caches of everything that reads through one file system; safe between threads."""

    def __init__(self, cache_bytes: int, logs_max: int) -> None:
        self.decoded: BoundedCache[Hashable, object] = BoundedCache(cache_bytes)
        """Blocks of logs, and journals."""
        self.tail = TailCache(self.decoded)
        self.logs: BoundedCache[tuple[Path, bytes], EventLog] = BoundedCache(logs_max)
        self._states: dict[Path, tuple[CatalogState, LiveLogs]] = {}
        self._lock = Lock()

    def state(self, workspace: Workspace) -> CatalogState:
        """Return the newest state of a catalog; one thread looks at a time."""
        with self._lock:
            return workspace.catalog.load()

    def live(self, workspace: Workspace, state: CatalogState) -> LiveLogs:
        """Return the live logs of a state; logs that are live no more are closed."""
        home = workspace.paths.home
        kept = self._states.get(home)
        if kept is not None and kept[0] is state:
            return kept[1]
        found = LiveLogs.of(state)
        if kept is not None and state.revision < kept[0].revision:
            return found  # somebody looks at the past: what is live today stays open
        self._states[home] = state, found
        listed = {(home / file.path, file.sha256) for file in found.files}
        for key in self.logs:
            if key[0].is_relative_to(home) and key not in listed:
                self.logs.drop(key)
        return found

    def log(self, workspace: Workspace, file: AddFile) -> EventLog:
        """Return a live log, open.

        Raises:
            NotFoundError, CorruptionError, FormatVersionError: as EventLog; then it is not kept.
        """
        path = workspace.paths.home / file.path
        key = path, file.sha256
        log = self.logs.get(key)
        if log is None:
            log = EventLog(workspace.fs, path, sha256=file.sha256, toc_sha256=file.toc_sha256, cache=self.decoded)
            log.load()
            self.logs.put(key, log, 1)
        return log


# They live as long as their file system, which nothing in them refers to.
_CACHES: WeakKeyDictionary[FileSystem, Caches] = WeakKeyDictionary()
_LOCK = Lock()


def caches_of(workspace: Workspace) -> Caches:
    """Return the caches of a workspace's file system; the settings of the first one that asks decide their bounds."""
    with _LOCK:
        found = _CACHES.get(workspace.fs)
        if found is None:
            query = workspace.settings.query
            found = _CACHES[workspace.fs] = Caches(query.cache_bytes, query.open_logs_max)
        return found


def open_log(workspace: Workspace, file: AddFile, on_damage: OnDamage) -> EventLog | None:
    """Return a live log whose blocks can be found; None when it expired meanwhile, or is damaged and passed over."""
    try:
        log = caches_of(workspace).log(workspace, file)
    except NotFoundError:
        try:
            require_expired(workspace, file)
        except CorruptionError as error:
            problem = str(error)
        else:
            return None
    except CorruptionError as error:
        problem = str(error)
    else:
        tell_newer(on_damage, log.metadata.schema_version, log.unknown_columns)
        return log
    on_damage(Damage(workspace.paths.home / file.path, None, file.first_event_id, file.last_event_id, problem))
    return None


def require_expired(workspace: Workspace, file: AddFile) -> None:
    """Raise CorruptionError unless a log that is gone was expired since the catalog was read."""
    if file.path in caches_of(workspace).state(workspace).files:
        path = workspace.paths.home / file.path
        raise CorruptionError(f"{path}: expected a live event log, found no file. Bring it back from a backup.")
