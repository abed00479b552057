"""Deduplication: finds the events of a source that are stored already.

Events are found by their key, the source node and the node's own number of the event. A key may have several events,
since a node whose counter begins anew gives its numbers again (`custody.capture.is_other_event`). All writers of the
repository are searched, not only the slots of this process: an event is stored once however it came in, also when slots
were renamed or their number was changed. Of logs only the columns of the key are read, and only where the bounds that
the catalog keeps for each source overlap the question.
"""

from __future__ import annotations

import errno
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, RLock
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import AddFile, erased_among
from custody.errors import NotFoundError, StorageError
from custody.eventlog import BoundedCache, EventLog
from custody.format.number_sets import distinct, is_among
from custody.journal import JournalFile
from custody.model import NO_EVENTS, Event
from custody.read.cache import require_expired
from custody.workspace import Moment, Workspace, read_at_one_moment
from custody.workspace.snapshot import look_undisturbed

Column = npt.NDArray[np.int64]

Key = tuple[str, int]
_COLUMNS = ["event_id", "source_node", "source_ordinal"]
_NO_KEYS = NO_EVENTS.select(_COLUMNS)
_LOG_KEYS_BYTES_MAX = 256 << 20
"""Of the keys of logs that are held at once."""
_PIECE_BYTES = 4 << 20
"""A journal is read in pieces of so many bytes: its events take several times as much, its keys a tenth."""
_RUN_LENGTH_MAX = 1 << 20
"""A run that is as long is merged no more: that would take three times its memory for a moment."""
NO_WRITER = ""
"""Whose events are those of a preview, which are stored nowhere."""


class StoredAt(NamedTuple):
    """The place of a stored event: its writer and its id there."""

    writer: str
    event_id: int


@dataclass(frozen=True, slots=True)
class _View:
    """The stored events of one writer at one moment: its logs, and the keys in its journals."""

    workspace: Workspace
    logs: tuple[AddFile, ...]
    sealed: dict[Path, SortedKeys]
    """By sealed journal: such a file never changes, so it is read once."""
    tail: tuple[SortedKeys, ...]
    """Of all journals."""


def key_of(event: Event) -> Key | None:
    """Return the key of an event at its source, None for an event that has none."""
    if event.source_node is None or event.source_ordinal is None:
        return None
    return event.source_node, event.source_ordinal


def keys_of(events: Iterable[Event]) -> list[Key]:
    """Return the keys of those events that have one, in their order."""
    return [key for event in events if (key := key_of(event)) is not None]


class WriterKeys:
    """The keys of the events of a writer that this process holds: those that were there, and those that were added.

    All ingests of the writer share it, as each of them adds what it stores and none reads what the others did. Threads
    have `lock` while they use it.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self.view: _View | None = None
        """What was there at the first look; None before that."""
        self.added: dict[str, SortedRuns] = {}
        """By source, the ids of the events that were appended since."""

    def add(self, node: str, ordinals: Sequence[int] | Column, event_ids: Sequence[int] | Column) -> None:
        """Note events of one source that were just appended."""
        with self.lock:
            self.added.setdefault(node, SortedRuns()).add(ordinals, event_ids)

    def find(self, node: str, ordinals: Sequence[int]) -> dict[int, list[int]]:
        """Return the ids of the events of those ordinals of a source that were added."""
        return self.added[node].find(ordinals) if node in self.added else {}

    def has(self, node: str, ordinals: Column) -> npt.NDArray[np.bool_]:
        """Return which ordinals of a source were added."""
        return self.added[node].has(ordinals) if node in self.added else np.zeros(len(ordinals), np.bool_)

    def forget(self) -> None:
        """Drop everything; it has to be read anew."""
        with self.lock:
            self.view, self.added = None, {}

    def drop_live(self) -> None:
        """Drop what is live by now, and is found in the logs; no journal is read.

        Raises:
            StorageError: a container is missing, which may hold events that are not live.
        """
        with self.lock:
            if self.view is None:
                return
            workspace = self.view.workspace
            # Undisturbed: a group that was opened behind the listing must not lie below the bound.
            moment = look_undisturbed(workspace)
            workspace.require_containers()
            workspace.require_newest()
            first_waiting = min((group.first_event_id for group in moment.waiting), default=moment.state.next_event_id)
            waiting = (keys.at_or_above(first_waiting) for keys in self.view.tail)
            tail = tuple(keys for keys in waiting if keys)
            self.view = _View(workspace, tuple(moment.state.files.values()), {}, tail)
            for runs in self.added.values():
                runs.drop_below(first_waiting)
            self.added = {node: runs for node, runs in self.added.items() if runs}


# As long as somebody holds the writer.
_OF_WRITERS: WeakKeyDictionary[object, WriterKeys] = WeakKeyDictionary()
_LOCK = Lock()


def keys_of_writer(writer: object) -> WriterKeys:
    """Return the keys of a writer that this process holds, the same for all who ask."""
    with _LOCK:
        return _OF_WRITERS.setdefault(writer, WriterKeys())


class StoredKeys:
    """Finds stored events by their keys.

    Args:
        workspaces: returns the writers of the repository, looked up anew each time.
        writer: the one whose events are added here; other writers' journals are made durable before they are trusted.
        own: the keys of that writer, where others add to them as well.
    """

    def __init__(
        self, workspaces: Callable[[], Sequence[Workspace]], writer: str, own: WriterKeys | None = None
    ) -> None:
        self._workspaces = workspaces
        self._writer = writer
        self._own = own or WriterKeys()
        self._others: list[_View] = []
        self._log_keys: BoundedCache[tuple[str, str], SortedKeys] = BoundedCache(_LOG_KEYS_BYTES_MAX)

    def refresh(self) -> None:
        """Read what the writers have stored until now; of the own one only what was there before the first `add`.

        Durability: on return the events that `find` finds survive power loss, whoever appended them.

        Raises:
            CorruptionError: a journal or a catalog is damaged.
            StorageError: a container of a writer is missing, which may hold events of any source.
        """
        former = {view.workspace.writer: view for view in self._others}
        # The own writer's events since the first look were added one by one; only others' have to be read again.
        views = [
            self._read_view(workspace if view is None else view.workspace, view)
            for workspace, view in ((one, former.get(one.writer)) for one in self._workspaces())
            if workspace.writer != self._writer
        ]
        # A missing container may hold events of any source, so nothing may be stored without it.
        for view in (*views, *self._own_view()):
            view.workspace.require_containers()  # after the reading: what went away meanwhile was not read
            view.workspace.require_newest()
        self._others = views

    def forget(self) -> None:
        """Drop everything; it has to be read anew."""
        self._own.forget()
        self._others = []

    def drop_live(self) -> None:
        """Drop what is known of the own writer's events that are live by now, so that memory does not grow for ever.

        Raises:
            StorageError: a container of the writer is missing.
        """
        self._own.drop_live()

    def workspace(self, writer: str) -> Workspace:
        """Return the files of a writer that `find` named."""
        return next(view.workspace for view in self._views() if view.workspace.writer == writer)

    def _views(self) -> list[_View]:
        return [*self._others, *self._own_view()]

    def _own_view(self) -> list[_View]:
        """Return the own writer's view, if there is such a writer; it is read where nobody did yet, or one failed."""
        with self._own.lock:
            if self._own.view is None and self._writer:
                for workspace in self._workspaces():
                    if workspace.writer == self._writer:
                        self._own.view = self._read_view(workspace, None)
            return [] if self._own.view is None else [self._own.view]

    def add(self, keys: Sequence[Key | None], event_ids: range) -> None:
        """Note events that were just appended; None is one without a key."""
        by_node: dict[str, tuple[list[int], list[int]]] = {}
        for key, event_id in zip(keys, event_ids, strict=True):
            if key is not None:
                ordinals, ids = by_node.setdefault(key[0], ([], []))
                ordinals.append(key[1])
                ids.append(event_id)
        for node, (ordinals, ids) in by_node.items():
            self._own.add(node, ordinals, ids)

    def find(self, keys: Iterable[Key]) -> dict[Key, list[StoredAt]]:
        """Return where the events with these keys are stored; of a key all of its events."""
        by_node = _ordinals_by_node(keys)
        places: dict[Key, list[StoredAt]] = defaultdict(list)
        if not by_node:
            return places
        wanted = {node: set(ordinals) for node, ordinals in by_node.items()}
        # What leaves the added ones is in the logs of the view from then on: both are looked at as of one moment.
        with self._own.lock:
            for writer, matches in self._matches(by_node):
                columns = (matches.column(name).to_pylist() for name in _COLUMNS)
                for event_id, node, ordinal in zip(*columns, strict=True):
                    if ordinal in wanted[node]:
                        places[node, ordinal].append(StoredAt(writer, event_id))
            for node, ordinals in by_node.items():
                for ordinal, event_ids in self._own.find(node, ordinals).items():
                    places[node, ordinal] += [StoredAt(self._writer, event_id) for event_id in event_ids]
        return dict(places)

    def known_rows(self, keys: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return which rows are no new events: stored ones, forgotten ones, and those that repeat an earlier row.

        Args:
            keys: the columns source_node and source_ordinal, without nulls.
        """
        return self.stored_rows(keys) | repeated_rows(keys)

    def stored_rows(self, keys: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return which rows are events that are stored or were forgotten; `keys` as of `known_rows`."""
        rows_of, ordinals = _rows_by_node(keys)
        known = np.zeros(len(ordinals), np.bool_)
        by_node = {node: ordinals[rows] for node, rows in rows_of.items()}
        stored: dict[str, list[Column]] = {node: [] for node in rows_of}
        with self._own.lock:
            for _, matches in self._matches(by_node):
                for node in matches.column("source_node").unique().to_pylist():
                    of_node = matches.filter(pc.equal(matches.column("source_node"), node))
                    stored[node].append(of_node.column("source_ordinal").to_numpy())
            for node, rows in rows_of.items():
                known[rows] |= self._own.has(node, by_node[node])
        for node, gone in self._gone(by_node):
            stored[node].append(np.array(list(gone), np.int64))
        for node, columns in stored.items():
            if columns:
                known[rows_of[node]] |= is_among(by_node[node], np.concatenate(columns))
        return known

    def erased(self, keys: Iterable[Key]) -> dict[Key, list[tuple[int, int]]]:
        """Return which keys belong to events that were forgotten and erased: only tombstones know them.

        Each with the times, ms, between which these events were.
        """
        found: dict[Key, list[tuple[int, int]]] = defaultdict(list)
        for node, gone in self._gone(_ordinals_by_node(keys)):
            for ordinal, spans in gone.items():
                found[node, ordinal] += spans
        return dict(found)

    def add_columns(self, keys: pa.RecordBatch, event_ids: range) -> None:
        """Note events that were just appended as columns."""
        rows_of, ordinals = _rows_by_node(keys)
        ids = np.arange(event_ids.start, event_ids.stop)
        for node, rows in rows_of.items():
            self._own.add(node, ordinals[rows], ids[rows])

    def _gone(
        self, by_node: Mapping[str, Sequence[int] | Column]
    ) -> Iterator[tuple[str, dict[int, list[tuple[int, int]]]]]:
        """Yield those ordinals of sources that belong to events that were forgotten and erased, as `erased_among`."""
        if not by_node:
            return
        for view in self._views():
            # Newer than the view, so that what its logs do not hold any more is found here.
            stones = view.workspace.catalog.load().tombstones.values()
            for node, ordinals in by_node.items() if stones else ():
                yield node, erased_among(stones, node, ordinals)

    def _read_view(self, workspace: Workspace, former: _View | None) -> _View:
        self._trust(workspace)
        former_sealed = former.sealed if former else {}

        def read(moment: Moment) -> _View:
            paths = [path for group in moment.waiting for path in group.sealed]
            # Open journals grow, so they are read again each time. Those of groups that became live meanwhile drop out.
            sealed = {path: former_sealed.get(path) or _keys_of(workspace, path) for path in paths}
            growing = [_keys_of(workspace, path) for group in moment.waiting for path in group.open]
            tail = tuple(keys for keys in (*sealed.values(), *growing) if keys)
            return _View(workspace, tuple(moment.state.files.values()), sealed, tail)

        return read_at_one_moment(workspace, read)[1]

    def _trust(self, workspace: Workspace) -> None:
        """Make what a writer's journals hold durable, where it is another's."""
        if workspace.writer != self._writer:
            _make_durable(workspace)

    def _matches(self, by_node: Mapping[str, Sequence[int] | Column]) -> Iterator[tuple[str, pa.Table]]:
        """Yield (writer, keys) of stored events whose source and ordinal are both asked for, if not always together."""
        nodes = pa.array(by_node, pa.string())
        columns = {node: np.asarray(ordinals, np.int64) for node, ordinals in by_node.items()}
        ordinals = distinct(np.concatenate([np.empty(0, np.int64), *columns.values()]))
        spans = {node: (int(column.min()), int(column.max())) for node, column in columns.items()}
        # One look into a table for all sources: there may be hundreds in what is stored at once.
        for writer, keys in self._tables(spans):
            yield writer, keys.among(nodes, ordinals)

    def _tables(self, spans: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, SortedKeys]]:
        for view in self._views():
            writer = view.workspace.writer
            # The catalog has the bounds of each source's ordinals in each log, so most logs stay unread.
            for file in view.logs:
                asked = ((spans.get(s.node), s) for s in file.sources)
                if any(span and s.first_ordinal <= span[1] and span[0] <= s.last_ordinal for span, s in asked):
                    yield writer, self._keys(view, file)
            yield from ((writer, keys) for keys in view.tail)

    def _keys(self, view: _View, file: AddFile) -> SortedKeys:
        name = view.workspace.writer, file.path
        keys = self._log_keys.get(name)
        if keys is None:
            try:
                path = view.workspace.log_path(file.path)
                log = EventLog(view.workspace.fs, path, sha256=file.sha256, toc_sha256=file.toc_sha256)
                keys = SortedKeys.of(log.read(_COLUMNS))
            except NotFoundError:
                require_expired(view.workspace, file)
                keys = SortedKeys.of(_NO_KEYS)  # expired meanwhile: nothing of it is stored any more
            # Each costs something, also without a key: the cache is bounded by costs alone.
            self._log_keys.put(name, keys, keys.nbytes + 500)
        return keys


class PreviewedKeys(StoredKeys):
    """The stored keys for a preview: nothing is made durable, and the place of what is added is with `NO_WRITER`."""

    def __init__(self, workspaces: Callable[[], Sequence[Workspace]]) -> None:
        super().__init__(workspaces, NO_WRITER)

    def _trust(self, workspace: Workspace) -> None:
        """A preview changes no file's durability."""


@dataclass(frozen=True, slots=True)
class SortedKeys:
    """The keys of some stored events, sorted by ordinal: 20 bytes an event. What is asked for is found by bisection."""

    nodes: pa.StringArray
    """The sources."""
    ordinals: Column
    codes: npt.NDArray[np.int32]
    """Of each key, the place of its source among them."""
    event_ids: Column

    @classmethod
    def of(cls, table: pa.Table) -> SortedKeys:
        """Return the keys of a table with the columns of keys; events without a key are left out."""
        table = table.filter(pc.and_(pc.is_valid(table["source_node"]), pc.is_valid(table["source_ordinal"])))
        [batch] = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
        nodes, codes, ordinals = _columns_of(batch)
        order = np.argsort(ordinals, kind="stable")
        return cls(pa.array(nodes, pa.string()), ordinals[order], codes[order], np.asarray(batch["event_id"])[order])

    def __len__(self) -> int:
        return len(self.ordinals)

    @property
    def nbytes(self) -> int:
        """Memory that they take."""
        return int(self.nodes.nbytes) + self.ordinals.nbytes + self.codes.nbytes + self.event_ids.nbytes

    def among(self, nodes: pa.StringArray, ordinals: Column) -> pa.Table:
        """Return the keys with one of some sources and one of some ordinals, which are sorted and differ."""
        first, last = (np.searchsorted(self.ordinals, ordinals, side) for side in ("left", "right"))
        places, _ = _places_between(first, last)
        wanted = np.flatnonzero(pc.is_in(self.nodes, value_set=nodes).to_numpy(zero_copy_only=False))
        places = places[is_among(self.codes[places], wanted)]
        columns = [self.event_ids[places], self.nodes.take(pa.array(self.codes[places])), self.ordinals[places]]
        return pa.table(dict(zip(_COLUMNS, columns, strict=True)))

    def at_or_above(self, event_id: int) -> SortedKeys:
        """Return the keys of events with this id or a greater one."""
        rows = self.event_ids >= event_id
        return SortedKeys(self.nodes, self.ordinals[rows], self.codes[rows], self.event_ids[rows])


class SortedRuns:
    """Maps numbers to numbers in sorted columns: 16 bytes an entry, added a batch at a time.

    There are only a few runs, each at least twice as long as the next, but for those that are as long as a run may be.
    A number may be added several times, with other values.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[Column, Column]] = []

    def __len__(self) -> int:
        return sum(len(keys) for keys, _ in self._runs)

    def add(self, numbers: Sequence[int] | Column, values: Sequence[int] | Column) -> None:
        """Add a batch, and merge it with runs that are not much longer."""
        if not len(numbers):
            return
        parts = [(np.array(numbers, np.int64), np.array(values, np.int64))]
        length = len(numbers)
        # As in a log-structured merge tree: few runs to search, and each entry is merged a logarithmic number of
        # times.
        while self._runs and len(self._runs[-1][0]) < min(2 * length, _RUN_LENGTH_MAX):
            parts.insert(0, self._runs.pop())
            length += len(parts[0][0])
        keys = np.concatenate([part[0] for part in parts])
        # Stable, with older runs in front: of equal numbers the oldest is the first.
        order = np.argsort(keys, kind="stable")
        self._runs.append((keys[order], np.concatenate([part[1] for part in parts])[order]))

    def drop_below(self, least: int) -> None:
        """Drop the entries whose values are less than `least`."""
        kept = ((keys[values >= least], values[values >= least]) for keys, values in self._runs)
        self._runs = [run for run in kept if len(run[0])]

    def has(self, numbers: Column) -> npt.NDArray[np.bool_]:
        """Return which numbers were added."""
        found = np.zeros(len(numbers), np.bool_)
        for keys, _ in self._runs:
            places = np.searchsorted(keys, numbers)
            found |= keys[np.minimum(places, len(keys) - 1)] == numbers
        return found

    def find(self, numbers: Sequence[int]) -> dict[int, list[int]]:
        """Return the values of those numbers that were added, those of a number in the order in which they were."""
        searched = distinct(np.array(numbers, np.int64))
        values_by_number: dict[int, list[int]] = defaultdict(list)
        for keys, values in self._runs:
            first, last = (np.searchsorted(keys, searched, side) for side in ("left", "right"))
            places, counts = _places_between(first, last)
            found = zip(np.repeat(searched, counts).tolist(), values[places].tolist(), strict=True)
            for number, value in found:
                values_by_number[number].append(value)
        return dict(values_by_number)


def _places_between(first: Column, last: Column) -> tuple[Column, Column]:
    """Return the places from each first up to, not with, its last one, one behind the other; and how many of each."""
    counts = last - first
    places: Column = np.repeat(last - np.cumsum(counts), counts) + np.arange(counts.sum())
    return places, counts


def repeated_rows(keys: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return which rows repeat an earlier row; `keys` as of `known_rows`."""
    _, codes, ordinals = _columns_of(keys)
    order = np.lexsort((ordinals, codes))  # stable: of equal ones the first comes first
    is_repeated = np.zeros(len(ordinals), np.bool_)
    is_repeated[order[1:]] = (np.diff(codes[order]) == 0) & (np.diff(ordinals[order]) == 0)
    return is_repeated


def _columns_of(keys: pa.RecordBatch) -> tuple[list[str], npt.NDArray[np.int32], Column]:
    """Return the sources of some keys; of each key, the number of its source and its ordinal."""
    sources = keys.column("source_node").dictionary_encode()
    ordinals = keys.column("source_ordinal").to_numpy(zero_copy_only=False)
    return sources.dictionary.to_pylist(), sources.indices.to_numpy(zero_copy_only=False), ordinals


def _rows_by_node(keys: pa.RecordBatch) -> tuple[dict[str, Column], Column]:
    """Return the rows of each source, which go up, and all ordinals."""
    nodes, codes, ordinals = _columns_of(keys)
    if len(nodes) == 1:
        return {nodes[0]: np.arange(len(ordinals))}, ordinals
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(nodes)))
    return dict(zip(nodes, np.split(order, ends[:-1]), strict=True)) if nodes else {}, ordinals


def _ordinals_by_node(keys: Iterable[Key]) -> dict[str, list[int]]:
    by_node: dict[str, list[int]] = defaultdict(list)
    for node, ordinal in keys:
        by_node[node].append(ordinal)
    return by_node


def _keys_of(workspace: Workspace, path: Path) -> SortedKeys:
    """Return the keys in a journal, which is read in pieces, so that the rest of each can go."""
    journal = JournalFile.read(workspace.fs, path)
    pieces = [_copied(piece.select(_COLUMNS)) for piece in journal.tables(_PIECE_BYTES)]
    journal.release_memory()
    return SortedKeys.of(pa.concat_tables([_NO_KEYS, *pieces]))


def _copied(keys: pa.Table) -> pa.Table:
    """Return keys that share no memory with what they were read with."""
    return keys.take(pa.array(np.arange(keys.num_rows)))


def _make_durable(workspace: Workspace) -> None:
    """Make another process's open journals durable: it may have died between its write and its sync.

    An event found there counts as stored, so the copy at hand is not kept; it must not be lost with a power failure.
    """
    for group in workspace.groups():
        for path in group.open:
            try:
                workspace.fs.sync_file(path)
                workspace.fs.sync_directory(path.parent)
            except StorageError as error:
                if error.errno != errno.ENOENT:  # sealed in this moment, by a process that synced it
                    raise
