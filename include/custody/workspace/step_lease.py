"""Leases of steps: one attempt at a time works on a writer's files, and a former one can do no harm any more.

A lease has an epoch, which grows with each attempt. All durable effects of a step go through a file system that refuses
them once a greater epoch is there. The lease of a rollover also puts its epoch into the catalog, unless the attempt
before ended well: that one may still have a commit under way.

Of a repository in an object store the leases lie in the store, so that machines exclude each other that share nothing
else. An executor asks `lease_of_unit` for the lease that its driver holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from custody.catalog import Action, Note, SealedError, store_of, writable_store_of
from custody.clock import Clock, SystemClock
from custody.config import Settings
from custody.errors import CorruptionError, FormatVersionError
from custody.format.names import LEASES, DatabasePaths
from custody.lease import Attempt, Heartbeat, Lease, LeasePlace, take
from custody.store import StoredFiles
from custody.vfs import FileSystem, PosixFileSystem
from custody.workspace.workspace import ROLLOVER_LEASE, Workspace


def lease_place(
    settings: Settings, writer: str, name: str = ROLLOVER_LEASE, fs: FileSystem | None = None
) -> LeasePlace:
    """Return where one of a writer's leases lies: on the disk of the store's folder, or in the object store.

    Raises:
        ConfigurationError: as `store_of`.
    """
    fs = fs or PosixFileSystem()
    database = settings.repository.database
    if settings.is_store_remote:
        files = StoredFiles(store_of(settings, fs))
        return LeasePlace(files, files.path(f"{writer}/{database}/{LEASES}/{name}"))
    return LeasePlace(fs, DatabasePaths(settings.store, writer, database).lease(name))


def lease_of_unit(settings: Settings, writer: str, name: str, epoch: int, fs: FileSystem | None = None) -> Lease:
    """Return the lease that somebody else holds, a driver, for who works under its epoch; nothing is looked at."""
    place = lease_place(settings, writer, name, fs)
    return Lease(place.files, place.folder, epoch)


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
    may_go_back: bool = False,
) -> Lease:
    """Take one of a writer's leases, and wait for it as the settings say; raises as `custody.lease.take`.

    Raises:
        ConfigurationError: as `writable_store_of`.
        EarlierStateError: the catalog is of an earlier moment than one that was seen; not with `may_go_back`.
    """
    fs = fs or PosixFileSystem()
    # Before anything is made in a store that may be away: its folder would be made at the place of its disk.
    if not may_go_back:
        # A catalog that is damaged has errors of its own, by those who read it.
        with suppress(CorruptionError, FormatVersionError):
            workspace = Workspace(settings, writer, fs, clock)
            workspace.require_newest(workspace.newest_state())
    # Without conditional puts two attempts could get one epoch.
    writable_store_of(settings, fs)
    place = lease_place(settings, writer, name, fs)
    return take(
        place.files,
        place.folder,
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
    may_go_back: bool = False,
) -> Lease:
    """Take the lease of the steps of a rollover; the catalog refuses what a former attempt may still commit.

    Raises:
        LockedError: another attempt holds it.
        SupersededError: a later try of the same task has it.
    """
    fs, clock = fs or PosixFileSystem(), clock or SystemClock()
    workspace = Workspace(settings, writer, fs, clock, may_go_back=may_go_back)
    # Above the catalog's epoch even when the folder of leases was lost: an epoch is never given out twice.
    state = workspace.newest_state()
    workspace.require_newest(state)
    floor = state.epoch
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
        may_go_back=True,  # looked at above
    )
    # An attempt that did not end well may be stopped right before its commit, and go on at any time.
    if not lease.clean:
        _fence(Workspace(settings, writer, fs, clock, lease, may_go_back=may_go_back))
    return lease


def take_step_lease(
    settings: Settings,
    writer: str,
    attempt: Attempt,
    name: str,
    *,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    take_over: bool = False,
) -> Lease:
    """Take the lease that a step needs; raises as `take_rollover` does."""
    if name == ROLLOVER_LEASE:
        return take_rollover(settings, writer, attempt, fs=fs, clock=clock, take_over=take_over)
    return take_lease(settings, writer, attempt, name, fs=fs, clock=clock, take_over=take_over)


@contextmanager
def leased(
    workspace: Workspace, attempt: Attempt, name: str, *, wait_seconds: float | None = None
) -> Iterator[Workspace]:
    """Hold one of a writer's leases while the context lasts, with a heartbeat; yield a workspace that is fenced by it.

    Raises:
        LockedError: another attempt holds it.
        SupersededError: another attempt took over.
    """
    fs, clock, settings = workspace.fs, workspace.clock, workspace.settings
    lease = take_lease(
        settings,
        workspace.writer,
        attempt,
        name,
        fs=fs,
        clock=clock,
        wait_seconds=wait_seconds,
        may_go_back=workspace.catalog.may_go_back,
    )
    with _fenced_workspace(workspace, lease) as fenced:
        yield fenced


@contextmanager
def rollover_lease(
    workspace: Workspace, attempt: Attempt, *, take_over: bool = False, wait_seconds: float | None = None
) -> Iterator[Workspace]:
    """Hold the lease of a rollover as `leased` does, to recover under it; raises as `take_rollover` does."""
    lease = take_rollover(
        workspace.settings,
        workspace.writer,
        attempt,
        fs=workspace.fs,
        clock=workspace.clock,
        take_over=take_over,
        wait_seconds=wait_seconds,
        may_go_back=workspace.catalog.may_go_back,
    )
    with _fenced_workspace(workspace, lease, recovered=True) as fenced:
        yield fenced


@contextmanager
def _fenced_workspace(workspace: Workspace, lease: Lease, *, recovered: bool = False) -> Iterator[Workspace]:
    settings = workspace.settings
    # Without signs of life another attempt would take the lease for that of a dead process.
    with Heartbeat([lease], workspace.clock, settings.lease.dead_seconds):
        try:
            may_go_back = workspace.catalog.may_go_back
            yield Workspace(settings, workspace.writer, workspace.fs, workspace.clock, lease, may_go_back=may_go_back)
        except (Exception, GeneratorExit):  # a caller that drops a generator ends the work, too
            lease.release(failed=True)
            raise
    lease.release(recovered=recovered)


def _fence(workspace: Workspace) -> None:
    """Put the epoch into the catalog: a commit is one atomic put, so none of an older epoch can come after it."""
    epoch = workspace.catalog.epoch
    try:
        workspace.catalog.commit([Action(note=Note(kind=Note.FENCED, text=f"epoch {epoch}"))])
    except SealedError:
        return  # nobody commits here any more
