"""The explicit way on from a writer's earlier state: it counts as the newest one, whatever was seen before.

No event id that was given out is given out again, and nothing is removed: the logs of the states that are lost stay
where they are, for `custody repair` to list them again.
"""

from __future__ import annotations

import msgspec

from custody.errors import ConflictError
from custody.journal import WriterContainers, lock_path
from custody.recovery.leftovers import unexplained_logs
from custody.workspace import Workspace


def accept_earlier(workspace: Workspace) -> str | None:
    """Let the state of a writer's catalog and claims count as the newest; return what it was, None if it was no other.

    The workspace may go back, and the caller holds the lease of the rollover.

    Durability: on return a witness of it survives power loss.

    Raises:
        ConflictError: logs are there that the catalog does not list; listed again they are not lost.
        LockedError: a process appends under the writer's name.
        StorageError: a disk refuses, or a container of the writer is missing.
    """
    earlier, witnesses = workspace.earlier_state(), workspace.catalog.witnesses
    if earlier is None or witnesses is None:
        return None
    logs = [str(path) for path in unexplained_logs(workspace)]
    if logs:
        raise ConflictError(
            f"writer {workspace.writer!r}: {len(logs)} logs hold events that the catalog does not list, the first is "
            f"{logs[0]}. List them again: custody repair. What was accepted then needs no other way on."
        )
    fs, containers = workspace.fs, workspace.settings.containers
    fs.make_directory(lock_path(containers, workspace.writer).parent)
    with fs.lock(lock_path(containers, workspace.writer)):
        # The ids first: after a crash in between the state is still the earlier one.
        members = WriterContainers(fs, containers, workspace.writer)
        members.raise_floor(max(earlier.next_event_id, witnesses.seen().next_event_id))
        found = workspace.catalog.witness_of(workspace.catalog.settle())
        claims = len(workspace.incarnations.objects())
        witnesses.accept(msgspec.structs.replace(found, claim=claims, containers=members.sealed))
    return str(earlier)
