"""Which events of a source are stored already: the key is (source node, the source's own number of the event)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import AddFile
from custody.errors import NotFoundError
from custody.eventlog import EventLog
from custody.model import Event
from custody.repository.reading import Snapshot, require_expired
from custody.repository.runs import Runs
from custody.rollover import Workspace

Key = tuple[str, int]
_COLUMNS = ["event_id", "source_node", "source_ordinal"]
_LOGS_CACHED = 16


def key_of(event: Event) -> Key | None:
    """Return what identifies an event at its source, None for an event that has no such thing."""
    if event.source_node is None or event.source_ordinal is None:
        return None
    return event.source_node, event.source_ordinal


class KnownSources:
    """Finds stored events by key. Only logs whose bounds overlap a question are read, and only three columns."""

    def __init__(self, workspace: Workspace, view: Snapshot) -> None:
        self._workspace = workspace
        self._logs = list(view.state.files.values())
        self._tail = view.tail.select(_COLUMNS)
        self._cache: OrderedDict[str, pa.Table] = OrderedDict()
        self._added: dict[str, Runs] = {}

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
            self._added.setdefault(node, Runs()).add(ordinals, ids)

    def find(self, events: Iterable[Event]) -> dict[Key, int]:
        """Return the event ids of the keys that are stored."""
        by_node: dict[str, list[int]] = {}
        for key in filter(None, map(key_of, events)):
            by_node.setdefault(key[0], []).append(key[1])
        found: dict[Key, int] = {}
        for node, ordinals in by_node.items():
            wanted = pa.array(ordinals, pa.int64())
            for table in self._tables(node, min(ordinals), max(ordinals)):
                matches = table.filter(
                    pc.and_(pc.equal(table["source_node"], node), pc.is_in(table["source_ordinal"], wanted))
                )
                for event_id, _, ordinal in zip(*(column.to_pylist() for column in matches.columns), strict=True):
                    found[node, ordinal] = event_id
            if node in self._added:
                added = self._added[node].find(ordinals)
                found.update(((node, ordinal), event_id) for ordinal, event_id in added.items())
        return found

    def _tables(self, node: str, first: int, last: int) -> Iterable[pa.Table]:
        for file in self._logs:
            if any(s.node == node and s.first_ordinal <= last and first <= s.last_ordinal for s in file.sources):
                yield self._keys(file)
        yield self._tail

    def _keys(self, file: AddFile) -> pa.Table:
        table = self._cache.pop(file.path, None)
        if table is None:
            try:
                table = EventLog(self._workspace.fs, self._workspace.paths.home / file.path).read(_COLUMNS)
            except NotFoundError:
                require_expired(self._workspace, file)
                table = self._tail.slice(0, 0)
        self._cache[file.path] = table
        if len(self._cache) > _LOGS_CACHED:
            self._cache.popitem(last=False)
        return table
