"""The writers of a repository: which live, which were retired, and which of these the archive took up."""

from __future__ import annotations

import msgspec

from custody.catalog import FederatedState, writable_store_of
from custody.clock import Clock, SystemClock
from custody.config import Settings
from custody.config.parsing import is_local
from custody.errors import ConfigurationError, ConflictError, InvalidInputError
from custody.format.names import check_name
from custody.journal import ARCHIVE, purpose_of
from custody.lease import Attempt
from custody.maintenance.absorption import open_archive, plan_absorptions
from custody.maintenance.maintenance_steps import MAINTENANCE_STEPS
from custody.maintenance.retirement import Retirement, require_retirable, retire
from custody.repository.local_pass import LocalUnits, UnitsDone
from custody.store import open_store, require_bucket, require_conditional_puts
from custody.store.placed_writers import PlacedWriters
from custody.vfs import FileSystem, PosixFileSystem
from custody.workspace import StepReport, Workspace, look, rollover_lease, run_step


class WriterEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One writer; sizes in bytes, of live logs."""

    writer: str
    kind: str
    """`writer`; `retired`: nothing is stored under the name any more; `absorbed`: its events are in the archive;
    `archive`."""
    is_held: bool
    """Whether a live process holds the name, as far as can be seen from here."""
    host: str
    """The machine that claimed the name last; empty where nobody did."""
    revision: int
    events: int
    logs: int
    log_bytes: int
    store: str
    """Where its part of the repository lies."""
    groups_waiting: int
    """Groups of journals that are not live yet."""
    reason: str | None = None
    """Why it was retired."""
    archive: str | None = None
    """Who took it up."""
    first_event_id: int | None = None
    """Event N of an absorbed writer is event `first_event_id` + N of the archive."""


def list_writers(settings: Settings, fs: FileSystem | None = None, clock: Clock | None = None) -> list[WriterEntry]:
    """Return the writers by name, read from disk."""
    workspaces = Workspace.all(settings, fs, clock)
    moments = {item.writer: look(item) for item in workspaces}
    states = {writer: moment.state for writer, moment in moments.items()}
    by_name = {item.writer: item for item in workspaces}
    absorbed = FederatedState(settings.repository.database, states, lambda name: by_name[name].state()).absorbed
    archives = {entry.writer: writer for writer, state in states.items() for entry in state.absorbed.values()}
    entries = []
    for item in workspaces:
        state, claims = states[item.writer], item.incarnations.readable_claims()
        taken = absorbed.get(item.writer)
        kind = "archive" if purpose_of(claims) == ARCHIVE else "writer" if state.seal is None else "retired"
        files = list(state.files.values())
        entries.append(
            WriterEntry(
                writer=item.writer,
                kind="absorbed" if taken is not None else kind,
                is_held=item.is_held(),
                host=claims[-1].host if claims else "",
                revision=state.revision,
                events=sum(file.rows for file in files),
                logs=len(files),
                log_bytes=sum(file.size_bytes for file in files),
                store=item.catalog.objects.store.locate(item.writer),
                groups_waiting=len(moments[item.writer].waiting),
                reason=None if state.seal is None else state.seal.reason,
                archive=None if taken is None else archives.get(item.writer),
                first_event_id=None if taken is None else taken.first_event_id,
            )
        )
    return entries


class PlacedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A writer that lies in a store of its own."""

    writer: str
    store: str
    """The URL of the store."""
    is_new: bool
    """Whether it was placed now."""


def place_writer(settings: Settings, writer: str, location: str, fs: FileSystem | None = None) -> PlacedEntry:
    """Let a writer lie in an object store of its own, from its first event on.

    Durability: on return the repository's store says so to every machine.

    Raises:
        ConfigurationError: the repository's store or the other one is no object store, or that one has no such bucket
            or writes over names that are taken.
        InvalidInputError: it is no name of a writer.
        ConflictError: something of the writer is stored already, or it was placed in another store.
    """
    if not settings.is_store_remote:
        raise ConfigurationError(
            f"store {settings.repository.store!r}: writers lie in stores of their own beside an object store alone."
        )
    check_name("writer", writer)
    if is_local(location):
        raise ConfigurationError(f"store {location!r}: expected s3://, gs:// or az:// with a bucket.")
    store = writable_store_of(settings, fs or PosixFileSystem())
    other = open_store(location, PosixFileSystem(), settings.root, can_put_if_absent=settings.catalog.put_if_absent)
    require_bucket(other, location)
    require_conditional_puts(other, location)
    if not isinstance(store, PlacedWriters):
        raise TypeError("expected the store of a repository in an object store")
    if store.placed.get(writer) != location and next(iter(other.keys(f"{writer}/")), None) is not None:
        raise ConflictError(
            f"{other.locate(writer)}: holds objects of a writer of this name, of another repository. "
            "Choose another name, or another prefix."
        )
    return PlacedEntry(writer=writer, store=location, is_new=store.place(writer, location))


def check_retirable(settings: Settings, writer: str, *, is_machine_dead: bool = False) -> WriterEntry:
    """Return a writer that can be retired; raises as `require_retirable`."""
    require_retirable(Workspace(settings, writer), is_machine_dead=is_machine_dead)
    return next(item for item in list_writers(settings) if item.writer == writer)


def retire_writer(
    settings: Settings,
    writer: str,
    reason: str,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    *,
    is_machine_dead: bool = False,
    take_over: bool = False,
) -> Retirement:
    """Retire a writer under the lease of its rollover, so that no step of a pass works beside it.

    The pass of a machine that is dead cannot give the lease back: with `take_over` it is taken from it.

    Durability, and what is raised: as of `retire`; LockedError as well when a pass goes on.
    """
    workspace = Workspace(settings, writer, fs, clock)
    # Before anything is made in the store: the lease of a writer that does not exist would make a folder for it.
    require_retirable(workspace, is_machine_dead=is_machine_dead)
    attempt = Attempt.new("custody-writers-retire")
    with rollover_lease(workspace, attempt, take_over=take_over or is_machine_dead) as leased:
        return retire(leased, reason, is_machine_dead=is_machine_dead)


def absorbable(settings: Settings, archive: str) -> list[WriterEntry]:
    """Return the retired writers that the archive would take up; nothing is changed."""
    workspaces = Workspace.all(settings)
    planned = {item.retired.writer for item in plan_absorptions(Workspace(settings, archive), workspaces)}
    return [item for item in list_writers(settings) if item.writer in planned]


def absorb_retired(
    settings: Settings,
    archive: str,
    *,
    workers: int = 1,
    take_over: bool = False,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    on_units: UnitsDone = lambda _step, _done, _total: None,
) -> StepReport:
    """Let the archive take up all retired writers, in this process; the archive is made if there is none.

    Durability: on return what the report names without an error survives power loss.

    Raises:
        ConfigurationError: the name is that of a writer, or another writer is the archive.
        InvalidInputError: `workers` is not at least 1.
    """
    if workers < 1:
        raise InvalidInputError(f"workers: expected at least 1, got {workers}.")
    fs, clock = fs or PosixFileSystem(), clock or SystemClock()
    open_archive(settings, archive, fs, clock)
    runner = LocalUnits(workers, fs, clock, on_units)
    attempt = Attempt.new("custody-writers-absorb")
    return run_step(MAINTENANCE_STEPS["absorb"], settings, runner, attempt, take_over=take_over, fs=fs, clock=clock)
