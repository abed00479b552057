"""Slots: the writer names that the processes of a repository share, each held by one of them at a time.

A slot is a writer like any other, with a lock, an id sequence and a catalog of its own. A process takes the first free
one, so that there are never more names than processes that write at once; what a dead process left in its slot is
recovered by the next one that takes it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock

from custody.catalog import store_of
from custody.clock import Clock
from custody.config import Settings
from custody.errors import LockedError, StorageError
from custody.flow.content import ContentOptions, ContentWriter, with_content
from custody.journal import Incarnations, JournalOptions, JournalWriter, SyncPolicy, lock_path, unmounted_suspects
from custody.model import Event, require_valid
from custody.quarantine import keep_cut
from custody.vfs import FileSystem

# Who only looks whether a slot is taken holds its lock for an instant: one look proves nothing.
_LOOK_SECONDS = 1.0
_POLL_SECONDS = 0.02


class SlotWriter(JournalWriter):
    """A journal writer that says which slot it holds."""

    def __init__(self, fs: FileSystem, settings: Settings, name: str, clock: Clock) -> None:
        options = journal_options(settings)
        database = settings.repository.database
        super().__init__(
            fs,
            _usable(fs, settings.containers),
            name,
            database,
            clock,
            options,
            incarnations=Incarnations(store_of(settings, fs), name, database),
            keep_cut=partial(keep_cut, fs, settings.quarantine, clock.now_ms()),
        )
        self.name = name
        """The writer name, to which the ids of the appended events belong."""
        self._content: ContentWriter | None = None
        self._make_content = partial(ContentWriter, fs, writer=name, clock=clock, options=content_options(settings))
        self._settings = settings
        self._making = Lock()

    @property
    def content(self) -> ContentWriter:
        """Where contents are stored under this name, before the events that speak of them.

        Raises:
            ConfigurationError: the store is no folder of this machine.
        """
        with self._making:
            if self._content is None:
                self._content = self._make_content(store=self._settings.store)
            return self._content

    def append_with_content(self, events: Sequence[Event], content: bytes | Iterable[bytes]) -> range:
        """Store a content and append the events that speak of it, all of them of the same; return their ids.

        A content in pieces may be larger than memory. The events get its claim, its size and its digest.

        Durability: on return content and events are acknowledged. On raise it is unknown which events are, and none
        is stored without its content.

        Raises:
            InvalidInputError: an event breaks a rule; nothing was stored.
            ClosedError, BackpressureError, StorageError: as of `append`.
        """
        require_valid(events)
        stored = self.content.put(content) if isinstance(content, bytes) else self.content.put_stream(content)
        return self.append([with_content(event, stored) for event in events])

    def close(self) -> None:
        """Seal, end the contents, and let the writer name go."""
        try:
            if self._content is not None:
                self._content.close()
        finally:
            super().close()


def _usable(fs: FileSystem, containers: Sequence[Path]) -> Sequence[Path]:
    """Return the containers without the places where a disk of any writer may not be mounted.

    A writer that never was on the missing one goes on without it: a folder that it made there would be hidden by the
    disk. One that was refuses to start, by what the others know.

    Raises:
        StorageError: the first one is missing, on which the locks lie.
    """
    away = unmounted_suspects(fs, containers)
    if containers[0] in away:
        raise StorageError(str(away[containers[0]]))
    return [root for root in containers if root not in away]


def take_slot(fs: FileSystem, settings: Settings, clock: Clock, wait_seconds: float | None = None) -> SlotWriter:
    """Return a writer for the first free slot, which the caller closes.

    Waits for one as long as `wait_seconds` says, or the setting `repository.writer_wait_seconds`.

    Raises:
        LockedError: live processes hold all slots.
    """
    slots = settings.repository.slots
    wait = settings.repository.writer_wait_seconds if wait_seconds is None else wait_seconds
    if len(slots) == 1 and not wait:
        return SlotWriter(fs, settings, slots[0], clock)  # the lock's own error names the holder
    deadline = time.monotonic() + max(wait, _LOOK_SECONDS)
    while True:
        writer = _take_any(fs, settings, clock, slots)
        if writer is not None:
            return writer
        if time.monotonic() >= deadline:
            raise LockedError(_all_taken(slots))
        time.sleep(_POLL_SECONDS)


def taken_slots(fs: FileSystem, settings: Settings) -> list[str]:
    """Return the slots that live processes hold at this moment."""
    return [name for name in settings.repository.slots if fs.is_locked(lock_path(settings.containers, name))]


def journal_options(settings: Settings) -> JournalOptions:
    """Return how journals are written, as the settings say."""
    chosen = settings.journal
    return JournalOptions(
        journals=chosen.journals,
        sync=SyncPolicy(chosen.sync),
        sync_interval_ms=chosen.sync_interval_ms,
        seal_ms=int(chosen.seal_seconds * 1000),
        seal_bytes=chosen.seal_bytes,
        waiting_bytes_max=chosen.waiting_bytes_max,
        backpressure_seconds=chosen.backpressure_seconds,
    )


def content_options(settings: Settings) -> ContentOptions:
    """Return how contents are written, as the settings say; a policy that may lose events may lose contents."""
    is_synced = SyncPolicy(settings.journal.sync) is not SyncPolicy.NEVER
    return ContentOptions(settings.content.containers, settings.content.claim_bytes, is_synced)


def _take_any(fs: FileSystem, settings: Settings, clock: Clock, slots: Sequence[str]) -> SlotWriter | None:
    """Take the first free slot; None when others were faster with all of them."""
    lost = 0
    while True:
        taken = set(taken_slots(fs, settings))
        free = [name for name in slots if name not in taken]
        if not free:
            return None
        try:
            # Those who lost a race for one slot would meet again at the next one; their process ids part them.
            return SlotWriter(fs, settings, free[os.getpid() % len(free) if lost else 0], clock)
        except LockedError:
            lost += 1


def _all_taken(slots: Sequence[str]) -> str:
    if len(slots) == 1:
        return (
            f"the writer {slots[0]!r} is held by another live process. "
            "Wait until it ends, or raise repository.writer_slots."
        )
    return (
        f"all {len(slots)} writer slots, {slots[0]!r} to {slots[-1]!r}, are held by live processes. "
        "Wait until one of them ends, or raise repository.writer_slots."
    )
