"""Deduplication: finds the events of a source that are stored already.

An event is known by its key, the source node and the node's own number of the event. All writers of the repository are
searched, not only the slots of this process: an event is stored once however it came in, also when slots were renamed
or their number was changed. Of logs only the columns of the key are read, and only where the bounds that the catalog
keeps for each source overlap the question.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import AddFile, erased_among
from custody.errors import NotFoundError, StorageError
from custody.eventlog import BoundedCache, EventLog
from custody.journal import JournalFile
from custody.model import EVENT_SCHEMA, Event
from custody.read.cache import require_expired
from custody.workspace import Moment, Workspace, read_at_one_moment

Column = npt.NDArray[np.int64]

Key = tuple[str, int]
_COLUMNS = ["event_id", "source_node", "source_ordinal"]
_NO_KEYS = EVENT_SCHEMA.empty_table().select(_COLUMNS)
# Counted in logs: of each, only three columns are held.
_LOGS_CACHED = 16
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
    sealed: dict[Path, pa.Table]
    """By sealed journal: such a file never changes, so it is read once."""
    tail: pa.Table


def key_of(event: Event) -> Key | None:
    """Return the key of an event at its source, None for an event that has none."""
    if event.source_node is None or event.source_ordinal is None:
        return None
    return event.source_node, event.source_ordinal


class StoredKeys:
    """Finds stored events by their keys.

    Args:
        workspaces: returns the writers of the repository, looked up anew each time.
        writer: the one whose events are added here; other writers' journals are made durable before they are trusted.
    """

    def __init__(self, workspaces: Callable[[], Sequence[Workspace]], writer: str) -> None:
        self._workspaces = workspaces
        self._writer = writer
        self._views: list[_View] = []
        self._log_keys: BoundedCache[tuple[str, str], pa.Table] = BoundedCache(_LOGS_CACHED)
        self._added: dict[str, SortedRuns] = {}

    def refresh(self) -> None:
        """Read what the writers have stored until now; of the own one only what was there before the first `add`.

        Durability: on return the events that `find` finds survive power loss, whoever appended them.

        Raises:
            CorruptionError: a journal or a catalog is damaged.
            StorageError: a container of a writer is missing, which may hold events of any source.
        """
        former = {view.workspace.writer: view for view in self._views}
        views = []
        for workspace in self._workspaces():
            view = former.get(workspace.writer)
            # The own writer's events since the first look were added one by one; only others' have to be read again.
            if view is None or workspace.writer != self._writer:
                view = self._read_view(workspace if view is None else view.workspace, view)
            views.append(view)
        # A missing container may hold events of any source, so nothing may be stored without it.
        for view in views:
            view.workspace.require_containers()  # after the reading: what went away meanwhile was not read
        self._views = views

    def forget(self) -> None:
        """Drop everything; it has to be read anew."""
        self._views, self._added = [], {}

    def workspace(self, writer: str) -> Workspace:
        """Return the files of a writer that `find` named."""
        return next(view.workspace for view in self._views if view.workspace.writer == writer)

    def add(self, events: Sequence[Event], event_ids: range) -> None:
        """Note events that were just appended."""
        by_node: dict[str, tuple[list[int], list[int]]] = {}
        for event, event_id in zip(events, event_ids, strict=True):
            key = key_of(event)
            if key is not None:
                ordinals, ids = by_node.setdefault(key[0], ([], []))
                ordinals.append(key[1])
                ids.append(event_id)
        for node, (ordinals, ids) in by_node.items():
            self._added.setdefault(node, SortedRuns()).add(ordinals, ids)

    def find(self, events: Iterable[Event]) -> dict[Key, StoredAt]:
        """Return where the events with these keys are stored."""
        by_node = _ordinals_by_node(events)
        places: dict[Key, StoredAt] = {}
        if not by_node:
            return places
        wanted = {node: set(ordinals) for node, ordinals in by_node.items()}
        for writer, matches in self._matches(by_node):
            columns = (matches.column(name).to_pylist() for name in _COLUMNS)
            for event_id, node, ordinal in zip(*columns, strict=True):
                if ordinal in wanted[node]:
                    places[node, ordinal] = StoredAt(writer, event_id)
        for node, ordinals in by_node.items():
            if node in self._added:
                added = self._added[node].find(ordinals)
                places.update(
                    ((node, ordinal), StoredAt(self._writer, event_id)) for ordinal, event_id in added.items()
                )
        return places

    def known_rows(self, keys: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return which rows are no new events: stored ones, forgotten ones, and those that repeat an earlier row.

        Args:
            keys: the columns source_node and source_ordinal, without nulls.
        """
        nodes, codes, ordinals = _columns_of(keys)
        known = repeated_rows(keys)
        by_node = {node: ordinals[codes == code] for code, node in enumerate(nodes)}
        stored: dict[str, list[Column]] = {node: [] for node in nodes}
        for _, matches in self._matches({node: values.tolist() for node, values in by_node.items()}):
            for node in matches.column("source_node").unique().to_pylist():
                of_node = matches.filter(pc.equal(matches.column("source_node"), node))
                stored[node].append(of_node.column("source_ordinal").to_numpy())
        for code, (node, values) in enumerate(by_node.items()):
            former = [*stored[node], np.array(self._gone(node, values.tolist()), np.int64)]
            if node in self._added:
                former.append(np.array(list(self._added[node].find(values)), np.int64))
            known |= (codes == code) & np.isin(ordinals, np.concatenate(former))
        return known

    def erased(self, events: Iterable[Event]) -> set[Key]:
        """Return which keys belong to events that were forgotten and erased: only tombstones know them."""
        by_node = _ordinals_by_node(events)
        keys: set[Key] = set()
        for view in self._views:
            # Newer than the view, so that what its logs do not hold any more is found here.
            stones = view.workspace.catalog.load().tombstones.values()
            for node, ordinals in by_node.items():
                keys.update((node, ordinal) for ordinal in erased_among(stones, node, ordinals))
        return keys

    def add_columns(self, keys: pa.RecordBatch, event_ids: range) -> None:
        """Note events that were just appended as columns."""
        nodes, codes, ordinals = _columns_of(keys)
        ids = np.arange(event_ids.start, event_ids.stop)
        for code, node in enumerate(nodes):
            self._added.setdefault(node, SortedRuns()).add(ordinals[codes == code], ids[codes == code])

    def _gone(self, node: str, ordinals: list[int]) -> list[int]:
        """Return which ordinals of a source belong to events that were forgotten and erased."""
        return [
            ordinal
            for view in self._views
            for ordinal in erased_among(view.workspace.catalog.load().tombstones.values(), node, ordinals)
        ]

    def _read_view(self, workspace: Workspace, former: _View | None) -> _View:
        self._trust(workspace)
        former_sealed = former.sealed if former else {}

        def read(moment: Moment) -> _View:
            paths = [path for group in moment.waiting for path in group.sealed]
            # Open journals grow, so they are read again each time. Those of groups that became live meanwhile drop out.
            sealed = {path: former_sealed.get(path) or _keys_of(workspace, path) for path in paths}
            growing = [_keys_of(workspace, path) for group in moment.waiting for path in group.open]
            tail = pa.concat_tables([_NO_KEYS, *sealed.values(), *growing])
            return _View(workspace, tuple(moment.state.files.values()), sealed, tail)

        return read_at_one_moment(workspace, read)[1]

    def _trust(self, workspace: Workspace) -> None:
        """Make what a writer's journals hold durable, where it is another's."""
        if workspace.writer != self._writer:
            _make_durable(workspace)

    def _matches(self, by_node: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, pa.Table]]:
        """Yield (writer, keys) of stored events whose source and ordinal are both asked for, if not always together."""
        nodes = pa.array(by_node, pa.string())
        searched = pa.array(set().union(*by_node.values()), pa.int64())
        spans = {node: (min(ordinals), max(ordinals)) for node, ordinals in by_node.items()}
        # One pass over a table for all sources: there may be hundreds in what is stored at once.
        for writer, table in self._tables(spans):
            yield (
                writer,
                table.filter(
                    pc.and_(
                        pc.is_in(table["source_ordinal"], value_set=searched),
                        pc.is_in(table["source_node"], value_set=nodes),
                    )
                ),
            )

    def _tables(self, spans: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, pa.Table]]:
        for view in self._views:
            writer = view.workspace.writer
            # The catalog has the bounds of each source's ordinals in each log, so most logs stay unread.
            for file in view.logs:
                asked = ((spans.get(s.node), s) for s in file.sources)
                if any(span and s.first_ordinal <= span[1] and span[0] <= s.last_ordinal for span, s in asked):
                    yield writer, self._keys(view, file)
            yield writer, view.tail

    def _keys(self, view: _View, file: AddFile) -> pa.Table:
        name = view.workspace.writer, file.path
        table = self._log_keys.get(name)
        if table is None:
            try:
                table = EventLog(view.workspace.fs, view.workspace.log_path(file.path)).read(_COLUMNS)
            except NotFoundError:
                require_expired(view.workspace, file)
                table = _NO_KEYS  # expired meanwhile: nothing of it is stored any more
            self._log_keys.put(name, table, 1)
        return table


class PreviewedKeys(StoredKeys):
    """The stored keys for a preview: nothing is made durable, and what is added is stored nowhere.

    An added event can be read from nowhere, as one that was erased.
    """

    def __init__(self, workspaces: Callable[[], Sequence[Workspace]]) -> None:
        super().__init__(workspaces, NO_WRITER)

    def find(self, events: Iterable[Event]) -> dict[Key, StoredAt]:
        """Return where the events with these keys are stored, without those that were added."""
        return {key: place for key, place in super().find(events).items() if place.writer != NO_WRITER}

    def erased(self, events: Iterable[Event]) -> set[Key]:
        """Return which keys belong to events that cannot be read: erased ones, and those that were added."""
        events = list(events)
        keys = super().erased(events)
        for node, ordinals in _ordinals_by_node(events).items():
            if node in self._added:
                keys.update((node, ordinal) for ordinal in self._added[node].find(ordinals))
        return keys

    def _trust(self, workspace: Workspace) -> None:
        """A preview changes no file's durability."""


class SortedRuns:
    """Maps numbers to numbers in sorted columns: 16 bytes an entry, added a batch at a time.

    There are only a few runs, each at least twice as long as the next. Of a number that was added again, the newer
    value holds.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[Column, Column]] = []

    def add(self, numbers: Sequence[int] | Column, values: Sequence[int] | Column) -> None:
        """Add a batch, and merge it with runs that are not much longer."""
        if not len(numbers):
            return
        parts = [(np.array(numbers, np.int64), np.array(values, np.int64))]
        length = len(numbers)
        # As in a log-structured merge tree: few runs to search, and each entry is merged a logarithmic number of
        # times.
        while self._runs and len(self._runs[-1][0]) < 2 * length:
            parts.insert(0, self._runs.pop())
            length += len(parts[0][0])
        keys = np.concatenate([part[0] for part in parts])
        # Stable, with older runs in front: of equal numbers the newest is the last, which `find` takes.
        order = np.argsort(keys, kind="stable")
        self._runs.append((keys[order], np.concatenate([part[1] for part in parts])[order]))

    def find(self, numbers: Sequence[int] | Column) -> dict[int, int]:
        """Return the values of those numbers that were added."""
        searched = np.array(numbers, np.int64)
        values_by_number: dict[int, int] = {}
        # The oldest run first, so that a newer value replaces an older one.
        for keys, values in self._runs:
            places = np.searchsorted(keys, searched, side="right") - 1  # the newest of equal ones
            # A number below all keys has place -1, which would mean the last key: so it is excluded first.
            hits = (places >= 0) & (keys[places] == searched)
            values_by_number.update(zip(searched[hits].tolist(), values[places[hits]].tolist(), strict=True))
        return values_by_number


def repeated_rows(keys: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return which rows repeat an earlier row; `keys` as of `known_rows`."""
    _, codes, ordinals = _columns_of(keys)
    order = np.lexsort((np.arange(len(ordinals)), ordinals, codes))
    is_repeated = np.zeros(len(ordinals), np.bool_)
    is_repeated[order[1:]] = (np.diff(codes[order]) == 0) & (np.diff(ordinals[order]) == 0)
    return is_repeated


def _columns_of(keys: pa.RecordBatch) -> tuple[list[str], npt.NDArray[np.int32], Column]:
    """Return the sources of some keys; of each key, the number of its source and its ordinal."""
    sources = keys.column("source_node").dictionary_encode()
    ordinals = keys.column("source_ordinal").to_numpy(zero_copy_only=False)
    return sources.dictionary.to_pylist(), sources.indices.to_numpy(zero_copy_only=False), ordinals


def _ordinals_by_node(events: Iterable[Event]) -> dict[str, list[int]]:
    by_node: dict[str, list[int]] = {}
    for key in filter(None, map(key_of, events)):
        by_node.setdefault(key[0], []).append(key[1])
    return by_node


def _keys_of(workspace: Workspace, path: Path) -> pa.Table:
    """Return the keys in a journal; filtering copies them, so that the rest of the file can go."""
    table = JournalFile.read(workspace.fs, path).table().select(_COLUMNS)
    return table.filter(pc.and_(pc.is_valid(table["source_node"]), pc.is_valid(table["source_ordinal"])))


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
