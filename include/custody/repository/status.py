"""The status of a repository: derived from disk each time, so that no other record can get out of step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from custody.catalog import AddFile
from custody.clock import Clock
from custody.config import Settings
from custody.errors import CorruptionError, CustodyError
from custody.flow.content import ContentContainers
from custody.format.names import ContainerPaths, split_stripe
from custody.ingest.slots import taken_slots
from custody.journal import ROOM_BYTES_MIN, PendingEvents, begun_ms, count_pending
from custody.maintenance.findings import damages
from custody.maintenance.scrub import is_scrub_behind, read_scrub
from custody.quarantine import Quarantine
from custody.read.results import Notices, report_absent
from custody.recovery.foreign_journals import list_foreign_journals
from custody.retention import measure_disk, standing_holds, waiting_bytes
from custody.rollover import Pending, pending
from custody.vfs import FileSystem
from custody.workspace import Moment, Workspace, look, read_at_one_moment

if TYPE_CHECKING:
    from custody.flowfile_repository import QueueStatus


class WriterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One writer; sizes in bytes, times in ms since the epoch."""

    writer: str
    is_held: bool
    """Whether a live process holds the name."""
    database: str
    events_live: int
    events_waiting: int
    events_lost: int
    """How many events the catalog knows to be lost."""
    next_event_id: int
    logs: int
    log_bytes: int
    shards: int
    shard_bytes: int
    revision: int
    last_commit_ms: int | None
    transactions_since_checkpoint: int
    missing_containers: tuple[str, ...] = ()
    """Where containers of the writer were last seen that are not there: what waits on them is not counted."""
    journals_of_others: int = 0
    """Journals of other incarnations of the name, whose events no answer has."""
    journals_waiting: int = 0
    """Journals whose events are not live yet, open ones included."""
    waiting_since_ms: int | None = None
    """When the oldest of them was begun; None where none waits."""
    uncertain_times: str | None = None
    """Which revisions are stamped ahead of a clock that was read later, so that a time does not tell whether they were
    there; None where no clock was wrong."""


class ScrubStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of the scrub, and how much it knows to be damaged; times in ms since the epoch, sizes in bytes."""

    round: int
    pieces: int
    bytes: int
    last_run_ms: int | None
    last_round_ms: int | None
    """When the last whole round ended."""
    is_behind: bool
    damaged: int


class DiskStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One disk: a container or the store; bytes are None where they are unknown."""

    folder: str
    state: str
    """`ok`, `read-only`, `full` (less than a journal's worth of room), `missing`, or `new`: made on first use."""
    total_bytes: int | None
    free_bytes: int | None


class StripeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One stripe; sizes in bytes, those of the disk None where they are unknown."""

    name: str
    folder: str
    """Empty where the settings do not name it."""
    state: str
    """As of a disk; `missing` also where another disk is in its place, `new` until the first log is put there."""
    is_retired: bool
    logs: int
    log_bytes: int
    total_bytes: int | None
    free_bytes: int | None


class ContentContainerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One content container of a writer; sizes of its disk in bytes, None where they are unknown."""

    writer: str
    name: str
    folder: str
    state: str
    """As of a disk; `missing` also where another disk is in its place."""
    total_bytes: int | None
    free_bytes: int | None


class BudgetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The room that everything takes; `waiting_bytes` of it are not live any more and will be deleted."""

    used_bytes: int
    kinds: dict[str, int]
    waiting_bytes: int
    limit_bytes: int | None
    holds: int


class ContentsNotHandedOver(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a writer's contents that would be lost with this machine's disks, those in use included."""

    writer: str
    claims: int
    bytes: int


class RepositoryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A whole repository."""

    root: str
    slots: int
    slots_taken: int
    pending: Pending
    quarantined: int
    budget: BudgetStatus
    disks: tuple[DiskStatus, ...]
    writers: tuple[WriterStatus, ...]
    scrub: ScrubStatus | None = None
    """None when the scrub never ran, or its file is damaged."""
    stripes: tuple[StripeStatus, ...] = ()
    """The stripes of the settings, and those that have live logs."""
    content_containers: tuple[ContentContainerStatus, ...] = ()
    """The content containers that were taken into use."""
    contents_not_handed_over: tuple[ContentsNotHandedOver, ...] = ()
    """What this machine's disks alone hold, by writer, where contents are handed over."""
    queues: tuple[QueueStatus, ...] = ()
    """The queues of FlowFiles, where there are some."""
    notices: tuple[str, ...] = ()
    """What is not counted, as it is out of reach."""


def repository_status(
    settings: Settings, fs: FileSystem, workspaces: Sequence[Workspace], quarantine: Quarantine, clock: Clock
) -> RepositoryStatus:
    """Return the status, from one look at everything."""
    writers = tuple(_writer_status(workspace) for workspace in workspaces)
    used = _used_folders(settings, fs, writers)
    folders = dict.fromkeys((*settings.containers, settings.store))
    queues, unread = _queues(settings, fs, clock)
    return RepositoryStatus(
        root=str(settings.root),
        slots=len(settings.repository.slots),
        slots_taken=len(taken_slots(fs, settings)),
        pending=pending(settings, fs),
        quarantined=sum(1 for _ in quarantine.known_keys()),
        budget=_budget(settings, fs, workspaces),
        disks=tuple(disk_status(fs, folder, is_used=folder in used) for folder in folders),
        writers=writers,
        scrub=_scrub_status(settings, fs, clock),
        stripes=tuple(_stripes(settings, fs, workspaces)),
        content_containers=tuple(_content_containers(settings, fs, workspaces)),
        contents_not_handed_over=tuple(_contents_not_handed_over(workspaces)),
        queues=queues,
        notices=(*_notices(workspaces), *_missing_disks(workspaces), *unread),
    )


def _queues(settings: Settings, fs: FileSystem, clock: Clock) -> tuple[tuple[QueueStatus, ...], list[str]]:
    """Return the queues of FlowFiles, and a notice where they cannot be read."""
    # Most repositories have none, and need nothing of what the look imports.
    if not fs.exists(settings.flowfiles_home):
        return (), []
    from custody.flowfile_repository import FlowFileLook

    try:
        return tuple(FlowFileLook(fs, settings.flowfiles_home, clock.now_ms()).queues()), []
    # The rest of the status is worth showing all the same.
    except CustodyError as error:
        return (), [f"the queues of FlowFiles cannot be read: {error}"]


def _stripes(settings: Settings, fs: FileSystem, workspaces: Sequence[Workspace]) -> Iterator[StripeStatus]:
    files: dict[str, list[AddFile]] = {name: [] for name in settings.stripes}
    missing: set[str] = set()
    used: set[str] = set()
    for workspace in workspaces:
        data_files, state = workspace.catalog.objects.files, workspace.catalog.load()
        missing.update(name for name, _ in data_files.missing())
        used.update([] if data_files.stripes is None else data_files.stripes.in_use())
        for path in state.files:
            name = split_stripe(path)[0]
            if name:
                files.setdefault(name, []).append(state.files[path])
    for name in sorted({*files, *used}):
        folder = settings.stripes.get(name)
        disk = None if folder is None or name in missing else disk_status(fs, folder, is_used=True)
        yield StripeStatus(
            name=name,
            folder="" if folder is None else str(folder),
            state="missing" if disk is None else disk.state if name in used or disk.state == "missing" else "new",
            is_retired=name in settings.repository.stripes_retired,
            logs=len(files.get(name, ())),
            log_bytes=sum(file.size_bytes for file in files.get(name, ())),
            total_bytes=None if disk is None else disk.total_bytes,
            free_bytes=None if disk is None else disk.free_bytes,
        )


def _content_containers(
    settings: Settings, fs: FileSystem, workspaces: Sequence[Workspace]
) -> Iterator[ContentContainerStatus]:
    for workspace in workspaces:
        containers = ContentContainers(fs, settings.content_store, workspace.writer)
        for name in containers.names():
            folder = containers.get(name).folder
            disk = None if containers.why_missing(name) else disk_status(fs, folder)
            yield ContentContainerStatus(
                writer=workspace.writer,
                name=name,
                folder=str(folder),
                state="missing" if disk is None else disk.state,
                total_bytes=None if disk is None else disk.total_bytes,
                free_bytes=None if disk is None else disk.free_bytes,
            )


def _contents_not_handed_over(workspaces: Sequence[Workspace]) -> Iterator[ContentsNotHandedOver]:
    for workspace in workspaces:
        if workspace.hands_contents_over:
            # Imported here: most repositories do without.
            from custody.rollover.handing_over_contents import contents_waiting

            waiting = contents_waiting(workspace)
            yield ContentsNotHandedOver(writer=workspace.writer, claims=waiting.claims, bytes=waiting.bytes)


def _missing_disks(workspaces: Sequence[Workspace]) -> Iterator[str]:
    """Yield why stripes and content containers are out of reach."""
    for workspace in workspaces:
        yield from (str(error) for _, error in workspace.catalog.objects.files.missing())
        contents = ContentContainers(workspace.fs, workspace.settings.content_store, workspace.writer)
        yield from (str(error) for _, error in contents.missing())


def _notices(workspaces: Sequence[Workspace]) -> Notices:
    notices = Notices(strict=False)
    for workspace in workspaces:
        report_absent(workspace, look(workspace), notices)
    return notices


def _scrub_status(settings: Settings, fs: FileSystem, clock: Clock) -> ScrubStatus | None:
    try:
        scrub = read_scrub(settings, fs)
    # The rest of the status is worth showing all the same.
    except CorruptionError:
        return None
    if scrub.last_run_ms is None:
        return None
    return ScrubStatus(
        round=scrub.current.number,
        pieces=scrub.current.pieces,
        bytes=scrub.current.bytes,
        last_run_ms=scrub.last_run_ms,
        last_round_ms=None if scrub.former is None else scrub.former.finished_ms,
        is_behind=is_scrub_behind(settings, scrub, clock.now_ms()),
        damaged=len(damages(scrub.latest())),
    )


def _used_folders(settings: Settings, fs: FileSystem, writers: Sequence[WriterStatus]) -> set[Path]:
    """Return the folders that must be there: containers since the first event, the store since the first rollover."""
    # Before first use a folder may be absent: it is made when it is needed, and counts as new rather than missing.
    used = set(settings.containers) if writers else set()
    # Where the store is gone, shards and ids that do not wait any more show that something was live once.
    if any(writer.revision >= 0 or writer.next_event_id > writer.events_waiting for writer in writers) or any(
        fs.list(ContainerPaths(container, writer.writer).index)
        for container in settings.containers
        for writer in writers
    ):
        used.add(settings.store)
    return used


def disk_status(fs: FileSystem, folder: Path, *, is_used: bool = True) -> DiskStatus:
    """Return the status of the disk that holds a folder; a folder that was not used yet need not be there."""
    space = fs.space(folder)
    if space is None and not is_used and not fs.exists(folder):
        state = "new"
    elif space is None:
        state = "ok" if fs.exists(folder) else "missing"
    elif space.is_read_only:
        state = "read-only"
    else:
        state = "full" if space.free_bytes < ROOM_BYTES_MIN else "ok"
    total, free = (None, None) if space is None else (space.total_bytes, space.free_bytes)
    return DiskStatus(folder=str(folder), state=state, total_bytes=total, free_bytes=free)


def _budget(settings: Settings, fs: FileSystem, workspaces: Sequence[Workspace]) -> BudgetStatus:
    use = measure_disk(settings, fs)
    return BudgetStatus(
        used_bytes=use.total_bytes,
        kinds=use.kinds,
        waiting_bytes=sum(waiting_bytes(workspace, workspace.clock.now_ms()) for workspace in workspaces),
        limit_bytes=settings.retention.bytes_max,
        holds=len(standing_holds(workspaces)),
    )


def _writer_status(workspace: Workspace) -> WriterStatus:
    def waiting_at(moment: Moment) -> tuple[PendingEvents, list[Path]]:
        paths = [path for group in moment.waiting for path in (*group.sealed, *group.open)]
        return count_pending(workspace.fs, moment.waiting), paths

    state, (waiting, journals) = read_at_one_moment(workspace, waiting_at)
    uncertain = workspace.catalog.uncertain_now()
    return WriterStatus(
        writer=workspace.writer,
        is_held=workspace.is_held(),
        database=workspace.database,
        events_live=sum(file.rows for file in state.files.values()),
        events_waiting=waiting.events,
        events_lost=sum(loss.events for loss in state.losses.values()),
        next_event_id=max(state.next_event_id, waiting.next_event_id),
        logs=len(state.files),
        log_bytes=sum(file.size_bytes for file in state.files.values()),
        shards=len(state.shards),
        shard_bytes=sum(shard.size_bytes for shard in state.shards.values()),
        revision=state.revision,
        last_commit_ms=state.commit_time_ms if state.revision >= 0 else None,
        transactions_since_checkpoint=workspace.catalog.checkpoint_age(),
        missing_containers=tuple(str(missing.place) for missing in workspace.missing() if not missing.host),
        journals_of_others=sum(1 for _ in list_foreign_journals(workspace, state)),
        journals_waiting=len(journals),
        waiting_since_ms=begun_ms(workspace.fs, journals),
        uncertain_times=None if uncertain is None else str(uncertain),
    )
