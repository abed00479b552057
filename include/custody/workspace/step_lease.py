"""Taking a lease for a step, and removing what no transaction lists so that no other attempt loses by it."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from custody.catalog import Action, Note, SealedError, open_catalog
from custody.clock import Clock, SystemClock
from custody.config import Settings
from custody.errors import StorageError, SupersededError
from custody.format.names import REMOVING_PREFIX, DatabasePaths
from custody.lease import Attempt, FencedFileSystem, Heartbeat, Lease, take
from custody.vfs import FileSystem, PosixFileSystem
from custody.workspace.workspace import ROLLOVER_LEASE, Workspace

_HEX_DIGITS = 32


def lease_folder(settings: Settings, writer: str, name: str = ROLLOVER_LEASE) -> Path:
    """Return the folder of one of a writer's leases."""
    return DatabasePaths(settings.store, writer, settings.repository.database).lease(name)


def take_lease(
    settings: Settings,
    writer: str,
    attempt: Attempt,
    name: str,
    *,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    floor: int = 0,
    take_over: bool = False,
    wait_seconds: float | None = None,
) -> Lease:
    """Take one of a writer's leases, with the patience that the settings ask for; raises as `custody.lease.take`."""
    return take(
        fs or PosixFileSystem(),
        lease_folder(settings, writer, name),
        writer,
        attempt,
        clock or SystemClock(),
        wait_seconds=settings.lease.wait_seconds if wait_seconds is None else wait_seconds,
        dead_seconds=settings.lease.dead_seconds,
        floor=floor,
        take_over=take_over,
    )


def take_rollover(
    settings: Settings,
    writer: str,
    attempt: Attempt,
    *,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    take_over: bool = False,
    wait_seconds: float | None = None,
) -> Lease:
    """Take the lease of the steps of a rollover; the catalog refuses what an attempt before it may still commit.

    Raises:
        LockedError: another attempt holds it.
        SupersededError: a later try of the same task has it.
    """
    fs, clock = fs or PosixFileSystem(), clock or SystemClock()
    floor = open_catalog(settings, writer, fs, clock).load().epoch
    lease = take_lease(
        settings,
        writer,
        attempt,
        ROLLOVER_LEASE,
        fs=fs,
        clock=clock,
        floor=floor,
        take_over=take_over,
        wait_seconds=wait_seconds,
    )
    if not lease.clean:
        _fence(Workspace(settings, writer, fs, clock, lease))
    return lease


def take_step_lease(settings: Settings, writer: str, attempt: Attempt, name: str, *, take_over: bool = False) -> Lease:
    """Take the lease that a step works under; raises as `take_rollover` does."""
    if name == ROLLOVER_LEASE:
        return take_rollover(settings, writer, attempt, take_over=take_over)
    return take_lease(settings, writer, attempt, name, take_over=take_over)


@contextmanager
def leased(
    workspace: Workspace, attempt: Attempt, name: str, *, wait_seconds: float | None = None
) -> Iterator[Workspace]:
    """Hold one of a writer's leases for as long as the context lasts, with signs of life; yield its fenced files.

    Raises:
        LockedError: another attempt holds it.
        SupersededError: another attempt took over.
    """
    fs, clock, settings = workspace.fs, workspace.clock, workspace.settings
    lease = take_lease(settings, workspace.writer, attempt, name, fs=fs, clock=clock, wait_seconds=wait_seconds)
    with _held(workspace, lease) as fenced:
        yield fenced


@contextmanager
def rollover_lease(
    workspace: Workspace, attempt: Attempt, *, take_over: bool = False, wait_seconds: float | None = None
) -> Iterator[Workspace]:
    """Hold the lease of the steps of a rollover, as `leased` does and `take_rollover` says, to recover under it."""
    lease = take_rollover(
        workspace.settings,
        workspace.writer,
        attempt,
        fs=workspace.fs,
        clock=workspace.clock,
        take_over=take_over,
        wait_seconds=wait_seconds,
    )
    with _held(workspace, lease, recovered=True) as fenced:
        yield fenced


@contextmanager
def _held(workspace: Workspace, lease: Lease, *, recovered: bool = False) -> Iterator[Workspace]:
    settings = workspace.settings
    with Heartbeat([lease], workspace.clock, settings.lease.dead_seconds):
        try:
            yield Workspace(settings, workspace.writer, workspace.fs, workspace.clock, lease)
        except (Exception, GeneratorExit):  # a caller that wants no more of a generator ends its work, too
            lease.release(failed=True)
            raise
    lease.release(recovered=recovered)


def _fence(workspace: Workspace) -> None:
    """Put the epoch into the catalog: a commit is one atomic put, so none of an older epoch can come behind it."""
    epoch = workspace.catalog.epoch
    try:
        workspace.catalog.commit([Action(note=Note(kind=Note.FENCED, text=f"epoch {epoch}"))])
    except SealedError:
        return  # nobody commits here any more


def removal_name(path: Path) -> Path:
    """Return the name that a file or folder has while it is removed."""
    return path.with_name(f"{REMOVING_PREFIX}{path.name}-{uuid.uuid4().hex}")


def name_before_removal(name: str) -> str:
    """Return the name that something had before it was set aside."""
    return name.removeprefix(REMOVING_PREFIX)[: -_HEX_DIGITS - 1]


def discard(workspace: Workspace, path: Path) -> None:
    """Remove a file or a folder that no transaction lists; one that is gone is no error.

    It gets out of the way first. Then the lease is checked again: if it still stands, no other attempt has begun since,
    and none can come to list what has lost its name. If not, another attempt may have listed it: it gets its name back.

    Durability: on return it is gone for good, or recovery finds the rest.

    Raises:
        SupersededError: another attempt took over.
    """
    aside = removal_name(path)
    try:
        workspace.fs.rename(path, aside)
    except StorageError as error:
        if error.errno == errno.ENOENT:
            return
        raise
    try:
        workspace.check()
    except SupersededError:
        put_back(workspace, aside, path)
        raise
    workspace.fs.sync_directory(path.parent)
    remove(workspace.fs, aside)
    workspace.fs.sync_directory(path.parent)


def put_back(workspace: Workspace, aside: Path, path: Path) -> None:
    """Give what was set aside its name again, unless there is something of that name.

    Durability: on return the name survives power loss.
    """
    fs = workspace.fs.plain if isinstance(workspace.fs, FencedFileSystem) else workspace.fs
    if fs.is_directory(aside):
        try:
            fs.rename(aside, path)
        except StorageError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    else:
        fs.link(aside, path)
    fs.sync_directory(path.parent)


def remove(fs: FileSystem, path: Path) -> None:
    """Remove a file, or a folder with all in it."""
    if fs.is_directory(path):
        fs.remove_tree(path)
    else:
        fs.remove(path)
