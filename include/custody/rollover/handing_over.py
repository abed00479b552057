"""Handing over: sealed groups of a writer go to the store, in the order of their ids, before they are rolled over.

In order, so that what is handed over is everything up to an id: a pass may then merge it without the producer's
containers. May be called at any time and by several processes at once, also while the writer appends: of each group
exactly one manifest counts.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator

import msgspec

from custody.catalog import CatalogState, writable_store_of
from custody.errors import ConflictError, SupersededError
from custody.journal import Group, begun_ms, count_pending, holds_group
from custody.workspace.handoff import HandoffFolder, HandoffManifest
from custody.workspace.workspace import Workspace


class HandedOver(msgspec.Struct, frozen=True, kw_only=True):
    """A group that was handed over; bytes are those of its journals."""

    writer: str
    first_event_id: int
    events: int
    journals: int
    bytes: int


class WaitingForHandOver(msgspec.Struct, frozen=True, kw_only=True):
    """What a writer's containers hold and the store does not; journals that still grow included."""

    groups: int
    events: int
    oldest_ms: int | None = None
    """When the oldest of these groups was begun; None where there is none."""


def hand_over(workspace: Workspace) -> Iterator[HandedOver]:
    """Hand over the sealed groups on this machine's containers; yield each that was not handed over before.

    Durability: a group that is yielded survives the loss of all containers.

    Raises:
        ConfigurationError: the store writes over names that are taken.
        StorageError: a container of the writer is missing, which may have journals of these groups; or the store
            refuses.
        ConflictError: other events are handed over, or live, under the same ids.
        SupersededError: another machine claimed the writer's name.
    """
    # Listed before the containers are checked: one that goes away in between is noticed by the check.
    groups = workspace.groups_on_containers()
    if not groups:
        return
    workspace.require_containers()
    # Of two manifests of a group the first counts: a store that writes over names would let the second one win.
    writable_store_of(workspace.settings, workspace.fs)
    state = workspace.catalog.load()
    known = dict(workspace.handoff.manifests())
    for group in groups:
        if workspace.is_committed(state, group.first_event_id):
            continue
        if not group.is_sealed:
            return
        folder = HandoffFolder(group.first_event_id, workspace.incarnation_of_group(group))
        stored = known.get(folder)
        # By their bytes: a copy of this disk on another machine gives the same names to other events.
        if stored is not None and _digests(workspace, group) <= {(item.name, item.sha256) for item in stored.journals}:
            continue
        manifest = _hand_over_group(workspace, folder, group, state, known)
        known[folder] = manifest
        yield HandedOver(
            writer=workspace.writer,
            first_event_id=group.first_event_id,
            events=manifest.events,
            journals=len(manifest.journals),
            bytes=sum(journal.bytes for journal in manifest.journals),
        )


def groups_to_hand_over(workspace: Workspace) -> list[Group]:
    """Return the groups that only this machine's containers hold; those that still grow included."""
    groups = workspace.groups_on_containers()
    if not groups:
        return []
    handed_over = workspace.handed_over()
    committed = workspace.live_groups(workspace.catalog.load())
    return [
        group for group in groups if group.first_event_id not in committed and group.first_event_id not in handed_over
    ]


def waiting_for_hand_over(workspace: Workspace) -> WaitingForHandOver:
    """Return what would be lost with the producer's disks now; raises StorageError as `count_pending`."""
    groups = groups_to_hand_over(workspace)
    return WaitingForHandOver(
        groups=len(groups),
        events=count_pending(workspace.fs, groups).events,
        oldest_ms=begun_ms(workspace.fs, (path for group in groups for path in (*group.sealed, *group.open))),
    )


def _digests(workspace: Workspace, group: Group) -> set[tuple[str, str]]:
    return {(path.name, hashlib.sha256(workspace.fs.view(path)).hexdigest()) for path in group.sealed}


def _hand_over_group(
    workspace: Workspace,
    folder: HandoffFolder,
    group: Group,
    state: CatalogState,
    known: dict[HandoffFolder, HandoffManifest],
) -> HandoffManifest:
    pending = count_pending(workspace.fs, [group])
    next_event_id = max(pending.next_event_id, group.first_event_id)
    _refuse_overlap(workspace, folder, next_event_id, state, known)
    _check_name(workspace, folder)
    journals = [
        workspace.handoff.put_journal(folder, path.name, workspace.fs.view(path)) for path in sorted(group.sealed)
    ]
    # Late: uploads take minutes, and the name may be another machine's by now.
    epoch = _check_name(workspace, folder)
    workspace.check()
    return workspace.handoff.put_manifest(
        folder,
        HandoffManifest(
            writer=workspace.writer,
            database=workspace.database,
            incarnation=folder.incarnation,
            epoch=epoch,
            first_event_id=group.first_event_id,
            next_event_id=next_event_id,
            events=pending.events,
            journals=tuple(journals),
            host=socket.gethostname(),
            handed_over_ms=workspace.clock.now_ms(),
        ),
    )


def _check_name(workspace: Workspace, folder: HandoffFolder) -> int:
    """Return the number of the claim that holds the name; raise SupersededError unless the group belongs to it."""
    claims = workspace.incarnations.claims()
    if not holds_group(claims, folder.incarnation, folder.first_event_id):
        last = claims[-1]
        raise SupersededError(
            f"writer {workspace.writer!r}, group {folder.first_event_id}: the name was claimed from the id "
            f"{last.first_event_id} on, as number {last.number}, on the machine {last.host!r}; nothing is handed over. "
            "The journals stay. Bring them in under another writer name: custody recover --adopt"
        )
    return claims[-1].number if claims else 0


def _refuse_overlap(
    workspace: Workspace,
    folder: HandoffFolder,
    next_event_id: int,
    state: CatalogState,
    known: dict[HandoffFolder, HandoffManifest],
) -> None:
    """Raise ConflictError where other events have ids of a group: a copy of the disk is used on another machine."""
    taken = [
        (f"the group {other} was handed over by the machine {manifest.host!r}", other.first_event_id, manifest)
        for other, manifest in known.items()
        if other != folder
    ]
    ranges = [(what, first, manifest.next_event_id) for what, first, manifest in taken]
    ranges += [(f"{path} is live", file.first_event_id, file.last_event_id + 1) for path, file in state.files.items()]
    for what, first, stop in ranges:
        if first < next_event_id and folder.first_event_id < stop:
            raise ConflictError(
                f"writer {workspace.writer!r}, group {folder.first_event_id}: expected ids of its own, got "
                f"{folder.first_event_id} to {next_event_id - 1}, and {what} with {first} to {stop - 1}. The journals "
                "stay. Give one of the machines a writer name of its own (repository.writer)."
            )
