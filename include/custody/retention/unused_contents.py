"""Unused contents: how much room contents free with which logs, and their deletion.

A resource claim is deleted as a whole, once no journal and no log that a kept revision lists refers to any of its
contents. So the events go first, in their own transaction, then their logs, then the contents. A content that no event
refers to yet is kept for `content.unused_minutes`: its producer may be about to send the event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING

from custody.clock import Clock
from custody.config import Settings
from custody.errors import CustodyError
from custody.flow.content import OPEN_SECONDS_MAX, ClaimPlaces, ResourceClaim
from custody.flowfile_repository import claimed_contents
from custody.maintenance import (
    all_references,
    hold_conditions,
    log_claims,
    open_event_log,
    references_in_journals,
    references_of,
)
from custody.retention.candidates import ExpiryCandidates
from custody.retention.disk_usage import allocated_bytes, allocated_file_bytes
from custody.retention.rules import AgePolicy
from custody.vfs import FileSystem
from custody.workspace import Workspace

if TYPE_CHECKING:
    from custody.flow.content.handed_claims import StoredClaim

_MINUTE_MS = 60_000
_WRITTEN_MS = int(2 * OPEN_SECONDS_MAX * 1000)
"""A live writer appends to no file that is older than half of this."""


class ContentUse:
    """Use counts of contents: how many logs refer to each resource claim. Nothing is read before the first question.

    Args:
        settings: those of the repository.
        fs: where they lie.
        clock: tells which contents are old enough to go.
        writers: all writers, as the plan looks at them.
    """

    def __init__(self, settings: Settings, fs: FileSystem, clock: Clock, writers: Sequence[ExpiryCandidates]) -> None:
        self._settings = settings
        self._fs = fs
        self._clock = clock
        self._writers = writers

    def released(self, writer: str, path: str) -> int:
        """Count a log as gone, and return the bytes of contents that go with it; call it once a log."""
        size = 0
        for resource in self._claims.get((writer, path), ()) if self._removable else ():
            # Contents go with the last log that refers to their file.
            self._logs[resource] -= 1
            if not self._logs[resource]:
                size += self._removable.get(resource, 0)
        return size

    @cached_property
    def unused_bytes(self) -> int:
        """The bytes of contents that no event refers to and that the next pass deletes."""
        return sum(size for resource, size in self._removable.items() if not self._logs[resource])

    @cached_property
    def _removable(self) -> dict[ResourceClaim, int]:
        """Room of the files that may go by their age and the journals; none when that cannot be known."""
        workspaces = [item.workspace for item in self._writers]
        # A container that is not there may hold events that refer to any content.
        if any(workspace.missing() or workspace.earlier_state() for workspace in workspaces):
            return {}
        try:
            pinned = {resource for workspace in workspaces for resource in references_in_journals(workspace)}
            self._logs  # noqa: B018 - may fail too
        except CustodyError:
            return {}
        old = old_claims(workspaces, self._settings, self._clock)
        try:
            with claimed_contents(self._fs, self._settings.flowfiles_home) as claimed:
                free = [item for item in old if item not in pinned and item.text not in claimed]
        except CustodyError:
            return {}
        return {item: _room(self._fs, self._settings, item, old[item]) for item in free}

    @cached_property
    def _claims(self) -> dict[tuple[str, str], frozenset[ResourceClaim]]:
        places = ClaimPlaces(self._fs, self._settings.content_store)
        # Without contents no log has to be read.
        if not any(next(places.listed(item.workspace.writer), None) for item in self._writers):
            return {}
        return {
            (item.workspace.writer, path): frozenset(references_of(log_claims(open_event_log(item.workspace, file))))
            for item in self._writers
            for path, file in item.state.files.items()
        }

    @cached_property
    def _logs(self) -> Counter[ResourceClaim]:
        return Counter(resource for claims in self._claims.values() for resource in claims)


def drop_unused(workspaces: Sequence[Workspace], settings: Settings, fs: FileSystem, clock: Clock) -> tuple[int, int]:
    """Delete the resource claims that no event refers to and that are old enough; return how many, and their bytes.

    From their disks and from the store, with what interrupted hand-overs left of them there.

    Durability: on return the deletions survive power loss. Can be repeated after any crash.

    Raises:
        CustodyError: an event, or the log of FlowFiles, cannot be read, so nobody knows what it refers to; nothing was
            deleted.
    """
    candidates, places = unused_claims(workspaces, settings, clock), ClaimPlaces(fs, settings.content_store)
    # Until the last one is gone no FlowFile, such as a replay, can claim one of them.
    with claimed_contents(fs, settings.flowfiles_home) if candidates else nullcontext(frozenset[str]()) as claimed:
        unused = [resource for resource in candidates if resource.text not in claimed]
        size = sum(_room(fs, settings, resource, candidates[resource]) for resource in unused)
        # Not synced one by one: what comes back after a crash is still unused and goes with the next pass.
        places.remove(unused)
    # All sections are synced: a process that died may have removed files without making that durable.
    for workspace in workspaces:
        places.settle_all(workspace.writer)
    return len(unused), size


def unused_claims(
    workspaces: Sequence[Workspace], settings: Settings, clock: Clock
) -> dict[ResourceClaim, StoredClaim | None]:
    """Return the resource claims that neither an event nor a FlowFile refers to, with what the store has of each.

    Raises as `drop_unused` does.
    """
    old = old_claims(workspaces, settings, clock)
    # Reads the claims of all events, so only when a file is old enough to go.
    if not old:
        return {}
    references = all_references(workspaces)
    with claimed_contents(workspaces[0].fs, settings.flowfiles_home) as claimed:
        return {item: at for item, at in old.items() if item not in references and item.text not in claimed}


def held_contents(settings: Settings, fs: FileSystem, clock: Clock) -> set[str]:
    """Return the resource claims, as texts, of logs that a legal hold means, and of journals while there are holds.

    Raises:
        CustodyError: an event cannot be read, so nobody knows what it refers to.
    """
    workspaces = Workspace.all(settings, fs, clock)
    policy = AgePolicy(clock.now_ms(), settings.retention.age_max_ms, settings.retention.keep_rules)
    held: set[str] = set()
    for workspace in workspaces:
        conditions = hold_conditions(workspace, workspaces)
        if not conditions:
            continue
        candidates = ExpiryCandidates.of(workspace, policy, conditions)
        for file in candidates.state.files.values():
            if candidates.holders(file):
                held.update(resource.text for resource in references_of(log_claims(open_event_log(workspace, file))))
        held.update(resource.text for resource in references_in_journals(workspace))
    return held


def old_claims(
    workspaces: Iterable[Workspace], settings: Settings, clock: Clock
) -> dict[ResourceClaim, StoredClaim | None]:
    """Return the resource claims that nobody appends to, and whose events would have arrived by now.

    Each with what the store has of it; raises StorageError when the store refuses.
    """
    old = {}
    for workspace in workspaces:
        places = ClaimPlaces(workspace.fs, settings.content_store)
        kept_ms = int(settings.content.unused_minutes * _MINUTE_MS)
        # A live writer may still append to younger files than this, whatever the setting says.
        if workspace.is_held():
            kept_ms = max(kept_ms, _WRITTEN_MS)
        before = clock.now_ms() - kept_ms
        for resource, stored in places.listed(workspace.writer):
            written_ms = places.written_ms(resource, stored)
            if written_ms is not None and written_ms <= before:
                old[resource] = stored
    return old


def _room(fs: FileSystem, settings: Settings, resource: ResourceClaim, stored: StoredClaim | None) -> int:
    """Return the room that a claim takes on its disk and in the store."""
    room = allocated_file_bytes(fs, resource.path(settings.content_store))
    return room if stored is None else room + allocated_bytes(stored.size_bytes)
