"""How far everything has come: derived from disk each time, there is no other status to get out of step."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from custody.config import Settings
from custody.quarantine import Quarantine
from custody.repository.reading import snapshot
from custody.repository.slots import taken_slots
from custody.rollover import Pending, Workspace, pending
from custody.rollover.pending import is_live
from custody.vfs import FileSystem


class WriterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One writer; sizes in bytes, times in ms since the epoch."""

    writer: str
    is_held: bool
    """Whether a live process holds the name."""
    database: str
    events_live: int
    events_waiting: int
    next_event_id: int
    logs: int
    log_bytes: int
    shards: int
    shard_bytes: int
    revision: int
    last_commit_ms: int | None
    transactions_since_checkpoint: int


class RepositoryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A whole repository."""

    root: str
    slots: int
    slots_taken: int
    pending: Pending
    quarantined: int
    writers: tuple[WriterStatus, ...]


def repository_status(
    settings: Settings, fs: FileSystem, workspaces: Sequence[Workspace], quarantine: Quarantine
) -> RepositoryStatus:
    """Look at everything once."""
    return RepositoryStatus(
        root=str(settings.root),
        slots=len(settings.repository.slots),
        slots_taken=len(taken_slots(fs, settings)),
        pending=pending(settings, fs),
        quarantined=sum(1 for _ in quarantine.known_keys()),
        writers=tuple(_writer_status(workspace) for workspace in workspaces),
    )


def _writer_status(workspace: Workspace) -> WriterStatus:
    view = snapshot(workspace)
    state = view.state
    return WriterStatus(
        writer=workspace.writer,
        is_held=is_live(workspace.fs, workspace.settings, workspace.writer),
        database=workspace.database,
        events_live=sum(file.rows for file in state.files.values()),
        events_waiting=view.tail.num_rows,
        next_event_id=view.next_event_id,
        logs=len(state.files),
        log_bytes=sum(file.size_bytes for file in state.files.values()),
        shards=len(state.shards),
        shard_bytes=sum(shard.size_bytes for shard in state.shards.values()),
        revision=state.revision,
        last_commit_ms=state.commit_time_ms if state.revision >= 0 else None,
        transactions_since_checkpoint=workspace.catalog.checkpoint_age(),
    )
