"""Measurements throughout the soak: room on disk, journals written, memory of producers, and what catalogs say."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from custody.catalog import EXPIRED
from custody.repository import Repository
from custody_local.processes import ProcessId

_SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class Sample:
    """One look; bytes, and seconds from the beginning."""

    at: float
    used_bytes: int
    """What `du` counts below containers and store."""
    journal_bytes: int
    """Written to journals since the beginning, as far as was seen."""
    memory_bytes: dict[int, int]
    """Resident memory by producer."""
    live_logs: int
    load: float
    """The machine's load of the last minute, others' work included."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A log that became live."""

    writer: str
    first_event_id: int
    last_event_id: int
    commit_ms: int


@dataclass
class Watcher:
    """Looks again each time it is asked to."""

    repository: Repository
    processes: Callable[[], dict[int, ProcessId]]
    started: float
    samples: list[Sample] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    expired_logs: int = 0
    _journals: dict[Path, int] = field(default_factory=dict)
    _revisions: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        """Take a sample and follow the catalogs."""
        settings = self.repository.settings
        folders = [*settings.containers, settings.store]
        used = 0
        for folder in folders:
            for path, size, room in _walk(folder):
                used += room
                if path.parent.name == "journals":
                    key = path.with_suffix("")
                    self._journals[key] = max(self._journals.get(key, 0), size)
        for workspace in self.repository.workspaces():
            self._follow(workspace.writer)
        self.samples.append(
            Sample(
                at=time.monotonic() - self.started,
                used_bytes=used,
                journal_bytes=sum(self._journals.values()),
                memory_bytes=dict(self._memory()),
                load=os.getloadavg()[0],
                live_logs=sum(len(item.catalog.load().files) for item in self.repository.workspaces()),
            )
        )

    def _follow(self, writer: str) -> None:
        """Note what transactions since the last look did."""
        catalog = self.repository.workspace(writer).catalog
        if catalog.load().revision <= self._revisions.get(writer, -1):
            return
        for transaction in catalog.timeline():
            if transaction.revision <= self._revisions.get(writer, -1):
                continue
            self._revisions[writer] = transaction.revision
            for action in transaction.actions:
                if action.HasField("add_file"):
                    file, ms = action.add_file, transaction.commit_time_ms
                    self.committed.append(Committed(writer, file.first_event_id, file.last_event_id, ms))
                elif action.HasField("remove_file") and action.remove_file.reason == EXPIRED:
                    self.expired_logs += 1

    def _memory(self) -> Iterator[tuple[int, int]]:
        for number, process in self.processes().items():
            try:
                yield number, int(psutil.Process(process.pid).memory_info().rss)
            except psutil.Error:
                continue


def _walk(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """Yield all below a folder with its size and its room; what vanishes meanwhile is passed over."""
    waiting = [str(folder)]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    yield Path(entry.path), status.st_size, status.st_blocks * _SECTOR_BYTES
        except FileNotFoundError:
            continue
