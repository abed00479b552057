"""Retiring a writer: nothing is appended or committed under its name any more; what it stored stays readable.

Two things say so, in this order. A claim of the name for nobody (`custody.journal.incarnations`) refuses processes: one
that starts, and one that goes on, with its next group. The seal, the catalog's last transaction, refuses commits.
Between the two a crash leaves a name that nobody can use and a catalog that is not sealed; done again, it is.

A writer that lives is refused by its lock, one whose journals wait has to be rolled over first. The lock of another
machine cannot be seen from here: a writer whose name that machine claimed is retired only if a person says that the
machine is dead. Should it come back, its journals are still there, and are adopted under another name.
"""

from __future__ import annotations

import msgspec

from custody.catalog import seal
from custody.errors import ConfigurationError, ConflictError, LockedError, NotFoundError
from custody.journal import ARCHIVE, RETIRED, Claim, check_containers, lock_path, purpose_of
from custody.journal.incarnations import ContainerEvidence
from custody.model import require_text
from custody.workspace import Workspace, look


class Retirement(msgspec.Struct, frozen=True, kw_only=True):
    """A writer that was retired: the last revision of its catalog, and its live events and logs."""

    writer: str
    revision: int
    events: int
    logs: int
    reason: str


def require_retirable(workspace: Workspace, *, is_machine_dead: bool = False, is_locked_here: bool = False) -> None:
    """Raise unless a writer can be retired now; one that was is no error. `is_locked_here`: the caller has the lock.

    Raises:
        NotFoundError: there is no such writer.
        ConfigurationError: the name belongs to another machine, or is that of the archive.
        LockedError: the writer lives.
        ConflictError: events wait to be rolled over.
        StorageError: a container of the writer is missing.
    """
    writer, claims = workspace.writer, workspace.incarnations.claims()
    state = workspace.state()
    if state.revision < 0 and not claims and not workspace.has_anything():
        raise NotFoundError(f"there is no writer {writer!r}. See: custody writers list")
    if purpose_of(claims) == ARCHIVE:
        raise ConfigurationError(f"writer {writer!r}: is the archive, which takes up others and is not retired.")
    if state.seal is not None:
        return
    is_elsewhere = bool(claims) and not purpose_of(claims) and not _is_ours(workspace, claims[-1])
    if is_elsewhere and not is_machine_dead:
        raise ConfigurationError(
            f"writer {writer!r}: its name belongs to the machine {claims[-1].host!r}, with the containers "
            f"{', '.join(claims[-1].containers.values()) or 'none'}. Retire it there. If that machine is dead, "
            f"custody writers retire {writer} --dead: what it acknowledged and did not make live waits on its disks."
        )
    if workspace.is_held() and not is_locked_here:
        raise LockedError(f"writer {writer!r}: is held by a live process, also if it is stopped. End that process.")
    # What lies on the disks of a dead machine is not waited for.
    if not is_elsewhere:
        workspace.require_containers()
    waiting = [group.first_event_id for group in look(workspace).waiting]
    live = workspace.live_groups(workspace.state())
    staged = [manifest for manifest in workspace.manifests() if not live.issuperset(manifest.groups)]
    if waiting or staged:
        raise ConflictError(
            f"writer {writer!r}: expected nothing that waits, got {len(waiting)} groups of journals and "
            f"{len(staged)} staged units. Run a pass first: custody run all"
        )


def retire(workspace: Workspace, reason: str, *, is_machine_dead: bool = False) -> Retirement:
    """Retire a writer; the caller holds the lease of its rollover. Done again, it changes nothing.

    With `is_machine_dead`, a writer of another machine too, whose lock cannot be seen here.

    Durability: on return it stays retired after a power loss.

    Raises:
        InvalidInputError: the reason is no valid Unicode.
        LockedError: the writer lives.
        NotFoundError, ConfigurationError, ConflictError, StorageError: as `require_retirable`.
    """
    require_text(reason=reason)
    fs, writer = workspace.fs, workspace.writer
    require_retirable(workspace, is_machine_dead=is_machine_dead)
    lock = lock_path(workspace.settings.containers, writer)
    fs.make_directory(lock.parent)
    # A writer that lives on this machine holds its lock, also while it is stopped.
    with fs.lock(lock):
        # Looked at again under the lock: what was appended until now has to be live.
        require_retirable(workspace, is_machine_dead=is_machine_dead, is_locked_here=True)
        state = workspace.catalog.settle()
        staged = [log.last_event_id + 1 for manifest in workspace.manifests() for log in manifest.logs]
        # Before the seal: a process elsewhere that opens a group after the seal would acknowledge events for nothing.
        workspace.incarnations.claim_for_nobody(RETIRED, reason, max([state.next_event_id, *staged]), workspace.clock)
        if state.seal is None:
            state = seal(workspace.catalog, reason)
    events = sum(file.rows for file in state.files.values())
    said = state.seal.reason if state.seal is not None else reason
    return Retirement(writer=writer, revision=state.revision, events=events, logs=len(state.files), reason=said)


def _is_ours(workspace: Workspace, claim: Claim) -> bool:
    states = check_containers(workspace.fs, workspace.settings.containers, workspace.writer)
    return ContainerEvidence(tuple(states.values())).is_of(claim)
