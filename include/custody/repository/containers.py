"""The containers of a repository's writers: which are there, which are missing, and forgetting one that is lost."""

from __future__ import annotations

from pathlib import Path

import msgspec

from custody.clock import Clock, SystemClock
from custody.config import Settings
from custody.errors import ConfigurationError, CorruptionError, NotFoundError
from custody.format.names import ContainerPaths
from custody.journal import (
    ARCHIVE,
    Claim,
    WriterContainers,
    check_containers,
    drop_container,
    groups,
    lock_path,
    purpose_of,
    writer_states,
    writers,
)
from custody.journal.incarnations import ContainerEvidence
from custody.vfs import FileSystem, PosixFileSystem
from custody.workspace import Workspace


class ContainerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One container as one writer knows it; sizes in bytes."""

    writer: str
    container: str
    """Its identity: 32 hexadecimal digits."""
    path: str
    """Where it is, or where it was last seen."""
    is_missing: bool
    journals: int
    journal_bytes: int


def container_statuses(settings: Settings, fs: FileSystem | None = None) -> list[ContainerStatus]:
    """Return the containers of all writers, by writer and path."""
    fs = fs or PosixFileSystem()
    statuses = []
    for writer in writers(fs, settings.containers):
        states = writer_states(fs, settings.containers, writer)
        here = {state.container: root for root, state in states.items()}
        places = {identity: place for state in states.values() for identity, place in state.containers.items()}
        # A container that is here counts with its present place; only of missing ones the last known place is shown.
        places |= {identity: str(root) for identity, root in here.items()}
        for identity, place in sorted(places.items(), key=lambda item: item[1]):
            root = here.get(identity)
            sizes = _journal_sizes(fs, root, writer) if root is not None else []
            statuses.append(
                ContainerStatus(
                    writer=writer,
                    container=identity,
                    path=place,
                    is_missing=root is None,
                    journals=len(sizes),
                    journal_bytes=sum(sizes),
                )
            )
    return statuses


def forget_container(settings: Settings, identity: str, fs: FileSystem | None = None) -> list[str]:
    """Forget a container that is lost for good; return the writers that knew it.

    Events of its journals that were not rolled over are lost with it; their ids are not given out again.

    Raises:
        NotFoundError: no writer knows it.
        CorruptionError: it is there; only a missing one can be forgotten.
        LockedError: a writer that knows it is alive.
    """
    fs = fs or PosixFileSystem()
    statuses = [status for status in container_statuses(settings, fs) if status.container == identity]
    if not statuses:
        raise NotFoundError(f"no writer knows a container {identity}. See: custody containers list")
    for status in statuses:
        if not status.is_missing:
            raise CorruptionError(
                f"container {identity} of writer {status.writer!r}: expected a missing one, got it at {status.path}. "
                "To stop using it, take its folder out of repository.containers once its journals are swept."
            )
    for status in statuses:
        # The states of the containers belong to the writer while it lives.
        with fs.lock(lock_path(settings.containers, status.writer)):
            drop_container(fs, settings.containers, status.writer, identity)
    return [status.writer for status in statuses]


def claim_writer_name(
    settings: Settings,
    writer: str,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    *,
    ids_taken_below: int = 0,
) -> Claim:
    """Claim a writer's name for the containers of this repository; return the claim.

    No id below `ids_taken_below` is given out: somebody read events with such ids in journals that never became live.

    The former holder of the name appends nothing more: a process that starts is refused, one that lives ends with its
    next group; and none of its attempts commits behind this. What is in the store stays the writer's. What is not, and
    lies on other containers, waits there for `custody recover --adopt`.

    Durability: on return the claim survives power loss.

    Raises:
        LockedError: the writer lives.
        SealedError: the writer was retired.
        ConfigurationError: the name is that of the archive.
        StorageError: a container that these know is missing.
    """
    fs, clock = fs or PosixFileSystem(), clock or SystemClock()
    workspace = Workspace(settings, writer, fs, clock)
    roots = settings.containers
    states = check_containers(fs, roots, writer)
    workspace.require_newest()
    fs.make_directory(lock_path(roots, writer).parent)
    # No process of this machine starts under the name meanwhile.
    with fs.lock(lock_path(roots, writer)):
        for root in roots:
            # The folder is what makes a container without a state recognisable as the writer's.
            fs.make_directory(ContainerPaths(root, writer).journals)
        members = WriterContainers(fs, roots, writer)
        try:
            return workspace.incarnations.claim(members, ContainerEvidence(tuple(states.values())), clock)
        except ConfigurationError:
            pass  # the name is another's: taken over below
        if purpose_of(workspace.incarnations.claims()) == ARCHIVE:
            raise ConfigurationError(f"writer {writer!r}: is the archive, whose ids no process gives out.")
        # First the epoch, which refuses the other machine's commits: only then the greatest id is final.
        if workspace.catalog.load().revision >= 0:
            workspace.catalog.begin_epoch()
        # Units that wait become live later: their ids lie above those of the catalog.
        staged = [log.last_event_id + 1 for manifest in workspace.manifests() for log in manifest.logs]
        # So do the groups that were handed over by the former holder.
        handed_over = [manifest.next_event_id for manifest in workspace.handed_over().values()]
        first = max([ids_taken_below, workspace.catalog.load().next_event_id, *staged, *handed_over])
        return workspace.incarnations.claim_anew(members, first, clock)


def _journal_sizes(fs: FileSystem, root: Path, writer: str) -> list[int]:
    folder = ContainerPaths(root, writer).journals
    return [
        fs.size(folder / path.name)
        for group in groups(fs, [root], writer)
        for path in (*group.sealed, *group.open)
        if fs.exists(path)
    ]
