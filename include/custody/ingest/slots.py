"""Slots: the writer names that the processes of a repository share, each held by one of them at a time.

A slot is a writer like any other, with a lock, an id sequence and a catalog of its own. A process takes the first free
one, so there are never more names than processes that write at once. What a dead process left in its slot is recovered
by the next one that takes it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock

import msgspec

from custody.catalog import writable_store_of
from custody.clock import Clock
from custody.config import Settings
from custody.errors import ConfigurationError, LockedError, StorageError
from custody.flow.content import ContentOptions, ContentWriter, with_content
from custody.journal import Incarnations, JournalOptions, JournalWriter, lock_path, purpose_of, unmounted_suspects
from custody.model import Event, require_valid
from custody.quarantine import keep_cut
from custody.vfs import FileSystem
from custody.workspace import Workspace

# A process that only checks whether a slot is taken holds its lock for an instant: one check proves nothing.
_CHECK_SECONDS = 1.0
_POLL_SECONDS = 0.02


class SlotWriter(JournalWriter):
    """A journal writer that holds a slot, and gives out ids above all that were seen.

    Args:
        fs: where the containers lie.
        settings: of the repository.
        name: the writer name.
        clock: as of `JournalWriter`.
        workspace: the writer's files, where they are open already.

    Raises:
        EarlierStateError: the writer's catalog or claims are of an earlier moment than one that was seen, or away.
        LockedError, ConfigurationError, StorageError: as `JournalWriter`.
        CorruptionError: the catalog is damaged.
    """

    def __init__(
        self, fs: FileSystem, settings: Settings, name: str, clock: Clock, workspace: Workspace | None = None
    ) -> None:
        options = JournalOptions.of(settings)
        database = settings.repository.database
        usable = _usable(fs, settings.containers)
        workspace = workspace or Workspace(settings, name, fs, clock)
        # Before the name is claimed: a store that is away has no claim either.
        workspace.require_newest()
        incarnations = _incarnations(fs, settings, name)
        super().__init__(
            fs,
            usable,
            name,
            database,
            clock,
            options,
            incarnations=incarnations,
            witnesses=workspace.catalog.witnesses,
            keep_cut=partial(keep_cut, fs, settings.quarantine, clock.now_ms()),
        )
        self.name = name
        """The writer name, to which the ids of the appended events belong."""
        try:
            self._begin_behind(workspace, len(incarnations.objects()))
        except BaseException:
            super().close()  # the caller never gets the object
            raise
        self._content: ContentWriter | None = None
        self._make_content = partial(ContentWriter, fs, writer=name, clock=clock)
        self._settings = settings
        # Threads share a slot; its content writer is made once, by the first that stores a content.
        self._making = Lock()

    def _begin_behind(self, workspace: Workspace, claims: int) -> None:
        """Give out no id that the catalog or a witness knows, and let all containers know claims and catalog."""
        # Journals know the ids that wait; those that are live, whose journals are swept, only the catalog knows.
        state, witnesses = workspace.catalog.load(), workspace.catalog.witnesses
        seen = state.next_event_id if witnesses is None else witnesses.seen().next_event_id
        self.begin(max(state.next_event_id, seen))
        if witnesses is not None:
            seen_here = workspace.catalog.witness_of(state)
            witnesses.note(msgspec.structs.replace(seen_here, claim=claims, containers=self.sealed))

    @property
    def content(self) -> ContentWriter:
        """The writer of contents under this name; a content is stored before the events that refer to it.

        Raises:
            ConfigurationError: the store is no folder of this machine.
        """
        with self._making:
            if self._content is None:
                self._content = self._make_content(
                    store=self._settings.content_store, options=ContentOptions.of(self._settings)
                )
            return self._content

    def append_with_content(self, events: Sequence[Event], content: bytes | Iterable[bytes]) -> range:
        """Store a content and append the events that refer to it; return their ids.

        A content in pieces may be larger than memory. The events get its claim, its size and its digest.

        Durability: on return content and events are acknowledged. On raise it is unknown which events are, and none
        is stored without its content.

        Raises:
            InvalidInputError: an event breaks a rule; nothing was stored.
            ClosedError, BackpressureError, StorageError: as of `append`.
        """
        # Before the content is stored, so that a refused event leaves none behind.
        require_valid(events)
        # The content first. A crash in between leaves a content that no event refers to, which retention removes, and
        # never an event without its content.
        stored = self.content.put(content) if isinstance(content, bytes) else self.content.put_stream(content)
        return self.append([with_content(event, stored) for event in events])

    def close(self) -> None:
        """Seal the journals, close the contents, and release the writer name."""
        try:
            if self._content is not None:
                self._content.close()
        finally:
            # The name is released whatever becomes of the contents: a slot that stays taken would block others.
            super().close()


def _usable(fs: FileSystem, containers: Sequence[Path]) -> Sequence[Path]:
    """Return the containers without those whose disk may not be mounted, as any writer knows it.

    A writer that never was on the missing disk goes on without it: a folder that it made there would be hidden by the
    disk. One that was refuses to start, by the states on the other containers.

    Raises:
        StorageError: the first container is missing, on which the locks lie.
    """
    missing = unmounted_suspects(fs, containers)
    if containers[0] in missing:
        raise StorageError(str(missing[containers[0]]))
    return [root for root in containers if root not in missing]


def take_slot(
    fs: FileSystem,
    settings: Settings,
    clock: Clock,
    wait_seconds: float | None = None,
    workspace_of: Callable[[str], Workspace | None] = lambda name: None,
) -> SlotWriter:
    """Return a writer for the first free slot, which the caller closes; `workspace_of` returns files that are open.

    Waits for one as long as `wait_seconds` says, or the setting `repository.writer_wait_seconds`. Slots of retired
    writers are passed over.

    Raises:
        LockedError: live processes hold all slots that are not retired.
        ConfigurationError: all of them are retired, or a slot is claimed by other containers.
    """
    slots = settings.repository.slots
    wait = settings.repository.writer_wait_seconds if wait_seconds is None else wait_seconds
    if len(slots) == 1 and not wait:
        # The lock's own error names the holder.
        return SlotWriter(fs, settings, slots[0], clock, workspace_of(slots[0]))
    deadline = time.monotonic() + max(wait, _CHECK_SECONDS)
    retired: dict[str, ConfigurationError] = {}
    while True:
        writer = _take_any(fs, settings, clock, slots, retired, workspace_of)
        if writer is not None:
            return writer
        if time.monotonic() >= deadline:
            raise LockedError(_all_taken([name for name in slots if name not in retired]))
        time.sleep(_POLL_SECONDS)


def retired_slots(fs: FileSystem, settings: Settings) -> list[str]:
    """Return the slots whose writers were retired: no process takes them any more."""
    return [name for name in settings.repository.slots if _is_retired(fs, settings, name)]


def _is_retired(fs: FileSystem, settings: Settings, name: str) -> bool:
    return bool(purpose_of(_incarnations(fs, settings, name).claims()))


def _incarnations(fs: FileSystem, settings: Settings, name: str) -> Incarnations:
    return Incarnations(writable_store_of(settings, fs), name, settings.repository.database)


def taken_slots(fs: FileSystem, settings: Settings) -> list[str]:
    """Return the slots that live processes hold now."""
    return [name for name in settings.repository.slots if fs.is_locked(lock_path(settings.containers, name))]


def _take_any(
    fs: FileSystem,
    settings: Settings,
    clock: Clock,
    slots: Sequence[str],
    retired: dict[str, ConfigurationError],
    workspace_of: Callable[[str], Workspace | None],
) -> SlotWriter | None:
    """Take the first free slot; None when others were faster with all of them. Retired slots that it meets are added.

    Raises:
        ConfigurationError: all slots are retired, or one is claimed by other containers.
    """
    lost = 0
    while True:
        if len(retired) == len(slots):
            raise retired[slots[-1]]
        # Checked before they are locked: a lock waits up to a second for processes that only check.
        occupied = {*taken_slots(fs, settings), *retired}
        free = [name for name in slots if name not in occupied]
        if not free:
            return None
        # Processes that lost a race for one slot would meet again at the next one; their process ids part them.
        name = free[os.getpid() % len(free) if lost else 0]
        try:
            return SlotWriter(fs, settings, name, clock, workspace_of(name))
        except LockedError:
            lost += 1
        except ConfigurationError as error:
            # Asked behind the refusal alone: a retired slot is rare, and each question is a request to a store.
            if not _is_retired(fs, settings, name):
                raise
            retired[name] = error


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
