"""What the metrics say of the repository itself: what waits to become live, for how long, and the quarantine."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import Lock

from custody.clock import Clock
from custody.errors import CustodyError
from custody.journal import begun_ms
from custody.repository import Repository
from custody.serving.door import Measure
from custody.vfs import FileSystem
from custody.workspace import Workspace

_AGAIN_SECONDS = 5.0
"""It reads folders and heads of files: however often it is asked, it looks no more often than this."""
_LIST_AGAIN_SECONDS = 60.0
_LOGGER = logging.getLogger(__name__)


class RepositoryMeasures:
    """Counts what waits in a repository, for any number of threads.

    Args:
        repository: whose writers are looked at, those of other processes included.
        fs: holds it.
        clock: tells how long events have waited.
        now: tells seconds.
    """

    def __init__(
        self, repository: Repository, fs: FileSystem, clock: Clock, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._repository = repository
        self._fs = fs
        self._clock = clock
        self._now = now
        self._lock = Lock()
        self._looked: float | None = None
        self._last: Sequence[Measure] = ()
        self._listed: float | None = None
        self._contents = (0, 0)

    def __call__(self) -> Sequence[Measure]:
        """Return the numbers, at most some seconds old; those of before where the repository cannot be read."""
        with self._lock:
            if self._looked is None or self._now() - self._looked > _AGAIN_SECONDS:
                self._looked = self._now()
                try:
                    self._last = self._measured()
                except CustodyError as error:
                    _LOGGER.warning("the repository cannot be measured: %s", error)
            return self._last

    def _measured(self) -> Sequence[Measure]:
        sizes, oldest = 0, None
        for workspace in self._repository.workspaces():
            size, created_ms = self._waiting(workspace)
            sizes += size
            if created_ms is not None:
                oldest = created_ms if oldest is None else min(oldest, created_ms)
        lag = 0.0 if oldest is None else max(0, self._clock.now_ms() - oldest) / 1000
        kept = sum(1 for _ in self._repository.quarantine.known_keys())
        return [
            Measure(
                "live_lag_seconds",
                "gauge",
                "Age of the oldest journal whose events are acknowledged and not live yet; 0 where all are live.",
                lag,
            ),
            Measure("waiting_bytes", "gauge", "Bytes of journals whose events are not live yet.", sizes),
            Measure("quarantine_entries", "gauge", "Pieces of input in the quarantine.", kept),
            *self._not_handed_over(),
            *self._contents_not_handed_over(),
        ]

    def _not_handed_over(self) -> Iterator[Measure]:
        """Yield what this machine's disks alone hold; nothing where nothing is handed over."""
        if self._repository.settings.journal.handoff != "store":
            return
        waiting = self._repository.not_handed_over().values()
        for name, count in (
            ("groups", sum(item.groups for item in waiting)),
            ("events", sum(item.events for item in waiting)),
        ):
            help_ = f"{name.capitalize()} that this machine's disks alone hold: they are not handed over yet."
            yield Measure(f"{name}_not_handed_over", "gauge", help_, count)

    def _contents_not_handed_over(self) -> Iterator[Measure]:
        """Yield what this machine's disks alone hold of contents; nothing where none are handed over."""
        if self._repository.settings.content.handoff != "store":
            return
        # Disks and store are listed for it, which takes a request for every five hundred files.
        if self._listed is None or self._now() - self._listed > _LIST_AGAIN_SECONDS:
            waiting = self._repository.contents_not_handed_over().values()
            self._listed = self._now()
            self._contents = sum(item.claims for item in waiting), sum(item.bytes for item in waiting)
        for name, what, count in zip(("files", "bytes"), ("Files", "Bytes"), self._contents, strict=True):
            help_ = f"{what} of contents that this machine's disks alone hold: they are not handed over yet."
            yield Measure(f"content_{name}_not_handed_over", "gauge", help_, count)

    def _waiting(self, workspace: Workspace) -> tuple[int, int | None]:
        """Return the bytes of a writer's journals that are not live, and when the oldest of them was made."""
        next_live = workspace.catalog.load().next_event_id
        size, oldest = 0, None
        for group in workspace.groups():
            if group.first_event_id < next_live:
                continue  # live, and swept soon
            for path in (*group.sealed, *group.open):
                with suppress(CustodyError):  # sealed or swept in this moment
                    size += self._fs.size(path)
            begun = begun_ms(self._fs, (*group.sealed, *group.open))
            if begun is not None:
                oldest = begun if oldest is None else min(oldest, begun)
        return size, oldest
