"""Caches of reading: open logs, decoded blocks and journals, and single events, within the bounds of the settings.

All readers of one file system share one set of caches. A log is known by its path and digest, so that a log that was
written anew is opened anew; logs that are live no more are closed. A sealed journal never changes, so its events are
kept once they are decoded. An open one grows at its end only, so only the new part is decoded and added. What is
damaged is never cached: it may be whole the next time.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.catalog import AddFile, CatalogState
from custody.errors import CorruptionError, NotFoundError, StripeMissingError
from custody.eventlog import BoundedCache, Damage, EventLog, OnDamage
from custody.eventlog.blocks import numbers, one_chunk
from custody.format.framing import Frame, frames
from custody.format.number_sets import distinct
from custody.journal import Group, JournalFile
from custody.journal.encoding import check
from custody.journal.journal_file import TornTail
from custody.model import NO_EVENTS, Event
from custody.read.results import NewerColumns
from custody.read.tail import PART_BYTES, Tail, TailPart, parts_of
from custody.vfs import FileSystem
from custody.vfs.wrapping import WrappingFileSystem
from custody.workspace import Workspace

if TYPE_CHECKING:
    from custody.query import LiveShards

EventIds = npt.NDArray[np.int64]
EventKey = tuple[bytes, tuple[str, ...], int]
"""Of a cached event: its log's digest, what hides events from the reader, and its id."""
_CHUNKS_MAX = 64
# Of a journal's file, as is the order of its first two records; part of the format.
_PREAMBLE_BYTES = 8
_HEAD_RECORDS = 2  # the header and the schema
# One part in so many of the cache holds single events: at the default about 9,000, some large lineages.
_EVENTS_SHARE = 8
# An event as an object beside its bytes in columns: the object, its dictionaries, and the heads of its texts.
_EVENT_BYTES = 1500
_TEXT_COPIES = 2
# That a group was asked for events: its paths, and their places in dictionaries.
_MARK_BYTES = 1000


@dataclass(frozen=True, slots=True)
class LiveLogs:
    """The live logs of a catalog's state in the order of their ids, which do not overlap; arrays of shape (logs,)."""

    files: tuple[AddFile, ...]
    firsts: npt.NDArray[np.int64]
    lasts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, state: CatalogState) -> LiveLogs:
        """Return the live logs of a state."""
        files = tuple(sorted(state.files.values(), key=lambda file: file.first_event_id))
        firsts = np.array([file.first_event_id for file in files], np.int64)
        lasts = np.array([file.last_event_id for file in files], np.int64)
        return cls(files, firsts, lasts)

    def holders(self, event_ids: EventIds) -> npt.NDArray[np.int64]:
        """Return the number of the log whose range holds each id, -1 where none does."""
        if not self.files:
            return np.full(len(event_ids), -1, np.int64)
        numbers = np.searchsorted(self.firsts, event_ids, side="right") - 1
        # An id below the first log has number -1. It is compared with the last log then, and gets -1 either way.
        holders: npt.NDArray[np.int64] = np.where(event_ids <= self.lasts[numbers], numbers, -1)
        return holders

    def by_log(self, event_ids: EventIds) -> tuple[list[tuple[AddFile, EventIds]], EventIds]:
        """Return the logs whose ranges hold some sorted ids, in their order, each with its ids; and the other ids."""
        holders = self.holders(event_ids)
        # The next events of a writer lie in one log as a rule; this look is made for each writer of a search.
        if len(holders) and holders[0] == holders[-1] >= 0 and (holders == holders[0]).all():
            return [(self.files[int(holders[0])], event_ids)], event_ids[:0]
        numbers: list[int] = distinct(holders[holders >= 0]).tolist()
        return [(self.files[number], event_ids[holders == number]) for number in numbers], event_ids[holders < 0]


# Longer than the times of any file system are coarse: a folder that was changed so lately may change again unseen.
_SETTLED_MS = 5000


@dataclass(slots=True)
class _ListedFolders:
    """The folders of the live logs of a state; they are listed again when they were changed."""

    names: dict[Path, dict[str, str]]
    """For each folder the names that have to be there, and the path in the catalog of each."""
    _settled: dict[Path, int] = field(default_factory=dict)
    """When folders were changed last, ms since the epoch; only of those that nobody had changed for a while."""
    _gone: dict[Path, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, workspace: Workspace, state: CatalogState) -> Self:
        """Return the folders of a state's logs."""
        names: defaultdict[Path, dict[str, str]] = defaultdict(dict)
        for file in state.files.values():
            path = workspace.log_place(file.path)
            names[path.parent][path.name] = file.path
        return cls(dict(names))

    def gone(self, fs: FileSystem) -> frozenset[str]:
        """Return the paths in the catalog of the logs that are not there."""
        gone: frozenset[str] = frozenset()
        for folder, names in self.names.items():
            changed_ms = fs.modified_ms(folder) if fs.is_directory(folder) else 0
            if not changed_ms or self._settled.get(folder) != changed_ms:
                now_ms = time.time_ns() // 1_000_000
                # Listed behind the look at the time: a change in between shows at the next look.
                there = set(fs.list(folder))
                self._gone[folder] = frozenset(path for name, path in names.items() if name not in there)
                self._settled.pop(folder, None)
                # A disk without a clock says 0, and is listed each time.
                if changed_ms and changed_ms + _SETTLED_MS < now_ms:
                    self._settled[folder] = changed_ms
            if self._gone[folder]:
                gone |= self._gone[folder]
        return gone


@dataclass(frozen=True, slots=True)
class DecodedJournal:
    """The events of a journal, or of a sealed group in the order of their ids, and what is damaged in it."""

    table: pa.Table
    damage: tuple[Damage, ...] = ()
    newer: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Schema versions of a newer custody, each with the columns that it added."""
    torn: tuple[Damage, ...] = ()
    """The torn ends of open journals: of a live writer what it writes in this moment, of a dead one maybe a loss."""


@dataclass(frozen=True, slots=True)
class _OpenJournal:
    """An open journal as it was read last: its size, how much of that was whole, and the events of that part."""

    size: int
    intact_bytes: int
    decoded: DecodedJournal


class TailCache:
    """Cache of decoded journals, within a bound of bytes."""

    def __init__(self, cache: BoundedCache[Hashable, object]) -> None:
        self._cache = cache

    def read(
        self,
        fs: FileSystem,
        groups: Sequence[Group],
        on_damage: OnDamage,
        is_writer_live: Callable[[], bool],
    ) -> pa.Table:
        """Return the events of some groups, which are given by first event id, in the order of their ids.

        The end of an open journal that is no whole record is reported only when its writer is dead.

        Raises:
            StorageError: a journal is gone: it was sealed or swept in this moment.
        """
        return self._tail(fs, groups, on_damage, is_writer_live, frozenset()).decoded

    def read_in_parts(
        self,
        fs: FileSystem,
        groups: Sequence[Group],
        on_damage: OnDamage,
        is_writer_live: Callable[[], bool],
        *,
        is_for_few: bool = False,
    ) -> Tail:
        """Return the same events, those of sealed groups in parts if they do not fit into the cache; raises as `read`.

        A group that is cached already is used as it is. With `is_for_few`, for who takes single events, a large group
        comes in parts the first time: to decode and keep it takes as much memory as the group, and pays from the second
        question on.
        """
        if not groups:
            return Tail()
        unread = [group for group in groups if group.is_sealed and self._cache.get(group.sealed) is None]
        sizes = [sum(fs.size(path) for path in group.sealed) for group in unread]
        # Less than a part is decoded in one go anyway.
        is_fitting = sum(sizes) <= max(self._cache.cost_max, PART_BYTES)
        in_parts = frozenset() if is_fitting else frozenset(group.sealed for group in unread)
        if is_fitting and is_for_few:
            large = (group.sealed for group, size in zip(unread, sizes, strict=True) if size > PART_BYTES)
            in_parts = frozenset(paths for paths in large if not self._was_asked(paths))
        return self._tail(fs, groups, on_damage, is_writer_live, in_parts)

    def _was_asked(self, paths: tuple[Path, ...]) -> bool:
        """Whether single events of a group were asked for before, as far as is remembered; from now on they were."""
        key = "asked", paths
        was_asked = self._cache.get(key) is not None
        if not was_asked:
            self._cache.put(key, True, _MARK_BYTES)
        return was_asked

    def _tail(
        self,
        fs: FileSystem,
        groups: Sequence[Group],
        on_damage: OnDamage,
        is_writer_live: Callable[[], bool],
        in_parts: frozenset[tuple[Path, ...]],
    ) -> Tail:
        tables, parts = list[pa.Table](), list[TailPart]()
        for group in groups:
            if group.sealed in in_parts:
                decoded, journals = _checked(fs, group.sealed)
                parts += parts_of(journals)
            else:
                decoded = self._sealed_group(fs, group) if group.is_sealed else self._open_group(fs, group)
            for damage in decoded.damage:
                on_damage(damage)
            for version, columns in decoded.newer:
                on_damage(NewerColumns.of((*group.sealed, *group.open)[0], version, columns))
            # The lock is looked at only where an end is torn: a live writer's last record may just be on its way.
            for damage in decoded.torn if decoded.torn and not is_writer_live() else ():
                on_damage(damage)
            tables.append(decoded.table)
        return Tail(pa.concat_tables(tables) if tables else NO_EVENTS, tuple(parts))

    def _sealed_group(self, fs: FileSystem, group: Group) -> DecodedJournal:
        # By the group's journals: once all are sealed, nothing is added to it any more.
        cached = self._cache.get(group.sealed)
        if isinstance(cached, DecodedJournal):
            return cached
        decoded = _merged([self._sealed(fs, path) for path in group.sealed])
        if decoded.damage:
            return decoded  # read anew the next time: it may be whole again
        # By the paths: the name of a sealed journal is never used again.
        self._cache.put(group.sealed, decoded, decoded.table.nbytes)
        # From now on the group replaces its journals, under both of their names.
        for path in group.sealed:
            if len(group.sealed) > 1:
                self._cache.drop((path,))
            self._cache.drop((path.with_suffix(".journal"),))
        return decoded

    def _open_group(self, fs: FileSystem, group: Group) -> DecodedJournal:
        sealed = [self._sealed(fs, path) for path in group.sealed]
        return _merged(sealed + [self._open(fs, path) for path in group.open])

    def _sealed(self, fs: FileSystem, path: Path) -> DecodedJournal:
        cached = self._cache.get((path,))
        if isinstance(cached, DecodedJournal):
            return cached
        decoded, _ = _decode(fs, path)
        if not decoded.damage:
            self._cache.put((path,), decoded, decoded.table.nbytes)
        return decoded

    def _open(self, fs: FileSystem, path: Path) -> DecodedJournal:
        cached = self._cache.get((path,))
        if isinstance(cached, _OpenJournal):
            # Nothing was appended. Where the end was torn, size alone does not tell whether it has become whole.
            if cached.intact_bytes == cached.size == fs.size(path):
                return cached.decoded
            grown = _grow(path, fs.read(path), cached)
            if grown is not None:
                self._cache.put((path,), grown, grown.decoded.table.nbytes)
                return grown.decoded
        # The size before the bytes: what is appended in between must count as new the next time.
        size = fs.size(path)
        decoded, intact_bytes = _decode(fs, path)
        if not decoded.damage and intact_bytes:
            self._cache.put((path,), _OpenJournal(size, intact_bytes, decoded), decoded.table.nbytes)
        return decoded


class EventCache:
    """Cache of single events of logs, for answers that take few events of many blocks, within a bound of bytes.

    A block is a thousand times as large as an event: of events that lie far apart, the blocks would push each other
    out of any cache.
    """

    def __init__(self, cost_max: int) -> None:
        self._cache: BoundedCache[EventKey, Event] = BoundedCache(cost_max)

    def keys(self, workspace: Workspace, file: AddFile, state: CatalogState, event_ids: EventIds) -> list[EventKey]:
        """Return the keys of events of a log that may be given out in a state."""
        names, digest = hiding(workspace, state), file.sha256
        return [(digest, names, event_id) for event_id in event_ids.tolist()]

    def get_many(self, keys: Sequence[EventKey]) -> list[Event | None]:
        """Return the events with some keys, None for each that is not cached."""
        return self._cache.get_many(keys)

    def put(self, events: Iterable[tuple[EventKey, Event]], nbytes: int) -> None:
        """Keep events that may be given out in the state of their keys, which take `nbytes` each as columns."""
        self._cache.put_many(events, _EVENT_BYTES + _TEXT_COPIES * nbytes)


def hiding(workspace: Workspace, state: CatalogState) -> tuple[str, ...]:
    """Return what hides events from this reader, as a part of keys: another tombstone or rule may hide other events."""
    seen = () if workspace.visibility is None else (workspace.visibility.key,)
    return *sorted(state.tombstones), *seen


class Caches:
    """The caches of everything that reads through one file system; safe between threads."""

    def __init__(self, cache_bytes: int, logs_max: int) -> None:
        self.events = EventCache(cache_bytes // _EVENTS_SHARE)
        self.decoded: BoundedCache[Hashable, object] = BoundedCache(cache_bytes - cache_bytes // _EVENTS_SHARE)
        """Blocks of logs, and journals."""
        self.tail = TailCache(self.decoded)
        self.logs: BoundedCache[tuple[Path, bytes], EventLog] = BoundedCache(logs_max)
        self._states: dict[Path, tuple[CatalogState, LiveLogs]] = {}
        self._shards: dict[Path, tuple[CatalogState, LiveShards]] = {}
        self._listed: dict[Path, tuple[CatalogState, _ListedFolders]] = {}

    def live(self, workspace: Workspace, state: CatalogState) -> LiveLogs:
        """Return the live logs of a state; logs that are live no more are closed."""
        home = workspace.paths.home
        # Without a lock: two threads may both compute it, with the same result.
        former = self._states.get(home)
        if former is not None and former[0] is state:
            return former[1]
        logs = LiveLogs.of(state)
        if former is not None and state.revision < former[0].revision:
            return logs  # somebody looks at the past: what is live today stays open
        self._states[home] = state, logs
        # Logs that are live no more are closed: their disk space is only freed then, once retention has deleted them.
        listed = {(workspace.log_place(file.path), file.sha256) for file in logs.files}
        for key in self.logs:
            if key[0].is_relative_to(home) and key not in listed:
                self.logs.drop(key)
        return logs

    def shards(self, workspace: Workspace, state: CatalogState) -> LiveShards:
        """Return the live shards of a state, in their order."""
        from custody.query import LiveShards  # a reader that searches nothing needs none of it

        home = workspace.paths.home
        former = self._shards.get(home)
        if former is not None and former[0] is state:
            return former[1]
        shards = LiveShards.of(state)
        if former is None or state.revision >= former[0].revision:
            self._shards[home] = state, shards
        return shards

    def gone(self, workspace: Workspace, state: CatalogState) -> frozenset[str]:
        """Return the paths of the live logs of a state whose names are not in their folders on this machine."""
        home = workspace.paths.home
        former = self._listed.get(home)
        if former is None or former[0] is not state:
            former = state, _ListedFolders.of(workspace, state)
            self._listed[home] = former
        return former[1].gone(workspace.fs)

    def log(self, workspace: Workspace, file: AddFile, *, whole: bool = False) -> EventLog:
        """Return a live log, open; with `whole` its file lies on this machine, else it may be read by ranges.

        Raises:
            NotFoundError, CorruptionError, FormatVersionError: as EventLog; then it is not kept.
        """
        path = workspace.log_place(file.path)
        key = path, file.sha256
        log = self.logs.get(key)
        if log is None or (whole and log.is_ranged):
            ranged = None if whole else workspace.catalog.objects.files.ranged(file.path, file.size_bytes)
            # By path and digest: a log that was written anew under its name is another one.
            log = EventLog(
                workspace.fs,
                workspace.log_path(file.path) if ranged is None else path,
                sha256=file.sha256,
                toc_sha256=file.toc_sha256,
                cache=self.decoded,
                ranged=ranged,
            )
            # Loaded before it is kept, so that a log that is damaged or gone is tried anew the next time.
            log.load()
            self.logs.put(key, log, 1)
        return log


# The caches live as long as their file system, which nothing in them refers to.
_CACHES: WeakKeyDictionary[FileSystem, Caches] = WeakKeyDictionary()
# Only while caches are made: they are safe between threads themselves.
_LOCK = Lock()


def caches_of(workspace: Workspace) -> Caches:
    """Return the caches of a workspace's file system; the first workspace's settings decide their bounds."""
    with _LOCK:
        caches = _CACHES.get(workspace.fs)
        if caches is None:
            query = workspace.settings.query
            caches = _CACHES[workspace.fs] = Caches(query.cache_bytes, query.open_logs_max)
        return caches


def open_log(workspace: Workspace, file: AddFile, on_damage: OnDamage, *, whole: bool = False) -> EventLog | None:
    """Return a live log, open; None when it expired meanwhile, or is damaged and was reported.

    With `whole` its file lies on this machine; else a log of an object store may be read by ranges.
    """
    is_away = False
    try:
        log = caches_of(workspace).log(workspace, file, whole=whole)
    except NotFoundError:
        # Retention takes a log out of the catalog before it deletes the file. So a file that is gone is only an error
        # when the newest state of the catalog still lists it.
        try:
            require_expired(workspace, file)
        except (CorruptionError, StripeMissingError) as error:
            problem, is_away = str(error), isinstance(error, StripeMissingError)
        else:
            return None
    except (CorruptionError, StripeMissingError) as error:
        problem, is_away = str(error), isinstance(error, StripeMissingError)
    else:
        if log.unknown_columns:
            on_damage(NewerColumns.of(log.path, log.metadata.schema_version, log.unknown_columns))
        return log
    where, ids = workspace.log_place(file.path), (file.first_event_id, file.last_event_id)
    on_damage(Damage(where, None, *ids, problem, is_away=is_away))
    return None


def require_expired(workspace: Workspace, file: AddFile) -> None:
    """Raise CorruptionError when the newest state of the catalog still lists a log that is gone.

    Raises:
        StripeMissingError: the log is not gone: its stripe is not there.
    """
    workspace.catalog.objects.files.require(file.path)
    # Not the state that a question saw: the log was in that one.
    if file.path in workspace.newest_state().files:
        path = workspace.log_place(file.path)
        raise CorruptionError(f"{path}: expected a live event log, found no file. Bring it back from a backup.")


def read_tail(workspace: Workspace, groups: Sequence[Group], on_damage: OnDamage) -> pa.Table:
    """Return the events of some groups that wait, in the order of their ids; raises as `TailCache.read`."""
    return caches_of(workspace).tail.read(workspace.fs, groups, on_damage, workspace.is_held)


def read_tail_in_parts(
    workspace: Workspace, groups: Sequence[Group], on_damage: OnDamage, *, is_for_few: bool = False
) -> Tail:
    """Return the same events, in parts as `TailCache.read_in_parts` says; raises as `TailCache.read`."""
    tail = caches_of(workspace).tail
    return tail.read_in_parts(workspace.fs, groups, on_damage, workspace.is_held, is_for_few=is_for_few)


def _checked(fs: FileSystem, paths: Sequence[Path]) -> tuple[DecodedJournal, list[JournalFile]]:
    """Return the sealed journals of a group whose events can be read, and, without events, what is said of them all."""
    said: list[DecodedJournal] = []
    journals: list[JournalFile] = []
    for path in paths:
        try:
            journal = JournalFile.read(fs, path)
            check(journal.records)
        except CorruptionError as error:
            said.append(_unread(path, error))
            continue
        said.append(_said_of(journal, NO_EVENTS))
        journals.append(journal)
        # The check touched every page of the file; without this, memory would grow with the number of journals.
        journal.release_memory()
    return _merged(said), journals


def _unread(path: Path, error: CorruptionError) -> DecodedJournal:
    return DecodedJournal(NO_EVENTS, (Damage(path, None, None, None, str(error)),))


def _said_of(journal: JournalFile, table: pa.Table, omitted_bytes: int = 0) -> DecodedJournal:
    """Return the events of a journal with what is damaged in it, or newer."""
    path = journal.path
    problems = tuple(Damage(path, None, None, None, str(item)) for item in journal.damage)
    unknown = journal.unknown_columns
    newer = ((journal.header.schema_version, unknown),) if journal.header is not None and unknown else ()
    torn = (_torn_end(path, journal.torn, omitted_bytes),) if journal.torn is not None else ()
    return DecodedJournal(table, problems, newer, torn)


def _decode(fs: FileSystem, path: Path, omitted_bytes: int = 0) -> tuple[DecodedJournal, int]:
    """Return the events of a journal, and how many of its bytes are whole.

    `omitted_bytes` of the file are not in what `fs` gives, which matters for the offsets in messages.
    """
    try:
        journal = JournalFile.read(fs, path)
        table = journal.table()
    except CorruptionError as error:
        return _unread(path, error), 0
    return _said_of(journal, table, omitted_bytes), journal.intact_bytes


def _torn_end(path: Path, torn: TornTail, omitted_bytes: int) -> Damage:
    text = (
        f"{path} @{torn.offset + omitted_bytes}: its writer is dead and left {torn}. custody recover puts them aside."
    )
    return Damage(path, None, None, None, text, is_doubt=True)


class _OneFile(WrappingFileSystem):
    """A file system in which every file has the same bytes."""

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


def _grow(path: Path, data: bytes, former: _OpenJournal) -> _OpenJournal | None:
    """Decode what was appended since the last time; None when the file has to be read as a whole."""
    # Shorter than before: recovery cut it, or the writer began it anew.
    if len(data) < former.intact_bytes:
        return None
    head = _head_bytes(data)
    if not 0 < head <= former.intact_bytes:
        return None
    # The new records, behind the header and the schema that they need, are a journal too.
    spliced = _OneFile(data[:head] + data[former.intact_bytes :])
    decoded, intact_bytes = _decode(spliced, path, former.intact_bytes - head)
    if decoded.damage or intact_bytes < head:
        return None
    table = pa.concat_tables([former.decoded.table, decoded.table])
    # A journal that is read after each append would become a table of as many chunks; every column costs by the chunk.
    if table.column(0).num_chunks > _CHUNKS_MAX:
        table = table.combine_chunks()
    return _OpenJournal(
        len(data), former.intact_bytes + intact_bytes - head, replace(former.decoded, table=table, torn=decoded.torn)
    )


def _head_bytes(data: bytes) -> int:
    """Return where the first record behind header and schema begins, 0 when these are not whole."""
    head = list(islice(frames(data, _PREAMBLE_BYTES), _HEAD_RECORDS))
    last = head[-1] if len(head) == _HEAD_RECORDS else None
    return last.end if isinstance(last, Frame) and isinstance(head[0], Frame) else 0


def _merged(parts: list[DecodedJournal]) -> DecodedJournal:
    """Return the events of several journals in the order of their ids."""
    table = pa.concat_tables([NO_EVENTS, *(part.table for part in parts)])
    ids = numbers(one_chunk(table.column("event_id")), np.int64)
    if len(ids) and (np.diff(ids) < 0).any():
        table = table.sort_by("event_id")
    newer = dict.fromkeys(item for part in parts for item in part.newer)
    damage = tuple(damage for part in parts for damage in part.damage)
    return DecodedJournal(table, damage, tuple(newer), tuple(damage for part in parts for damage in part.torn))
