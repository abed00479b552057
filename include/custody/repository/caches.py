"""What reading keeps between calls, within the bounds that the settings give: open logs, blocks, decoded journals."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from custody.catalog import AddFile, CatalogState, live_groups
from custody.eventlog import BoundedCache, EventLog
from custody.repository.tail import TailCache
from custody.rollover import Workspace
from custody.vfs import FileSystem


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
