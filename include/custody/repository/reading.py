"""Reading events of one writer by id: live logs first, then the journals that are not live yet."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import AddFile, CatalogState
from custody.errors import ConflictError, CorruptionError, NotFoundError, StorageError
from custody.eventlog import EventLog
from custody.journal import JournalFile
from custody.model import EVENT_SCHEMA, INT64_MAX, Event, to_events
from custody.rollover import Workspace

_SNAPSHOT_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One writer's events at one moment: what is live, and the acknowledged events of its journals."""

    state: CatalogState
    tail: pa.Table

    @property
    def next_event_id(self) -> int:
        """One more than the greatest id that was given out."""
        last = pc.max(self.tail.column("event_id")).as_py()
        return max(self.state.next_event_id, 0 if last is None else last + 1)


def snapshot(workspace: Workspace) -> Snapshot:
    """Take a snapshot. Journals are listed before the catalog is read, so that no event falls in between.

    Raises:
        CorruptionError: a journal or the catalog is damaged; ids are not given out on a guess.
    """
    for _ in range(_SNAPSHOT_ATTEMPTS):
        groups = workspace.groups()
        state = workspace.catalog.load()
        waiting = [group for group in groups if not workspace.is_committed(state, group.first_event_id)]
        try:
            tables = [
                JournalFile.read(workspace.fs, path).table()
                for group in waiting
                for path in (*group.sealed, *group.open)
            ]
        except StorageError as error:
            if error.errno == errno.ENOENT:
                continue  # sealed or swept in this moment: look again
            raise
        tail = pa.concat_tables([EVENT_SCHEMA.empty_table(), *tables], promote_options="default")
        return Snapshot(state, tail.sort_by("event_id"))
    raise ConflictError(f"writer {workspace.writer!r}: its journals change too fast to be read. Try again.")


def get_many(workspace: Workspace, event_ids: Sequence[int], view: Snapshot | None = None) -> list[Event]:
    """Return the events with these ids, in id order; ids that do not exist are left out."""
    view = view or snapshot(workspace)
    wanted = sorted({event_id for event_id in event_ids if event_id <= INT64_MAX})
    tables = []
    for file in _logs(view.state):
        inside = [event_id for event_id in wanted if file.first_event_id <= event_id <= file.last_event_id]
        if inside:
            tables.append(_from_log(workspace, file, inside))
    tables.append(view.tail.filter(pc.is_in(view.tail.column("event_id"), pa.array(wanted, pa.int64()))))
    return [event for table in tables for event in to_events(table)]


def events(workspace: Workspace, first_event_id: int, count: int) -> Iterator[Event]:
    """Yield up to `count` events from an id on, in id order; a block of a log is in memory at a time."""
    if count < 1 or first_event_id > INT64_MAX:
        return
    view = snapshot(workspace)
    left = count
    for table in _tables_from(workspace, view, first_event_id):
        chosen = table.filter(pc.greater_equal(table.column("event_id"), first_event_id)).slice(0, left)
        left -= chosen.num_rows
        yield from to_events(chosen)
        if left == 0:
            return


def _tables_from(workspace: Workspace, view: Snapshot, first_event_id: int) -> Iterator[pa.Table]:
    for file in _logs(view.state):
        if file.last_event_id < first_event_id:
            continue
        try:
            log = EventLog(workspace.fs, workspace.paths.home / file.path)
            for number in range(log.toc.block_of(first_event_id) or 0, len(log.toc.blocks)):
                yield log.block(number)
        except NotFoundError:
            require_expired(workspace, file)
    yield view.tail


def _logs(state: CatalogState) -> list[AddFile]:
    return sorted(state.files.values(), key=lambda file: file.first_event_id)


def _from_log(workspace: Workspace, file: AddFile, event_ids: list[int]) -> pa.Table:
    try:
        return EventLog(workspace.fs, workspace.paths.home / file.path).get_many(event_ids)
    except NotFoundError:
        require_expired(workspace, file)
        return EVENT_SCHEMA.empty_table()


def require_expired(workspace: Workspace, file: AddFile) -> None:
    """Raise CorruptionError unless a log that is gone was expired since the catalog was read."""
    if file.path in workspace.catalog.load().files:
        path = workspace.paths.home / file.path
        raise CorruptionError(f"{path}: expected a live event log, found no file. Bring it back from a backup.")
