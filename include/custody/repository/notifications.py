"""The notifications of a repository as the sink of NGSI reads them: those in live event logs, with their contents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from custody.capture import ngsi
from custody.eventlog import Damage
from custody.flow.content import Contents
from custody.model import Event, EventType, to_events
from custody.ngsi.source import is_notified
from custody.ngsi.telling import WRITER
from custody.repository.absent import Absence
from custody.repository.reading import get_many, tables
from custody.repository.repository import Repository
from custody.rollover import Workspace
from custody.vfs import FileSystem


class LiveNotifications:
    """The notifications in the live event logs of a repository."""

    def __init__(self, repository: Repository, fs: FileSystem) -> None:
        self._repository = repository
        self._fs = fs
        self.passed_over: list[str] = []
        """Parts of logs that are damaged; custody repair names what is lost."""

    def bounds(self) -> dict[str, int]:
        """Return by writer the event id up to which nothing can become live any more.

        Of a writer with a container that is missing nobody can say: what lies there may become live before others.
        """
        writers = [item for item in self._repository.workspaces() if item.writer != WRITER]
        found = ((item.writer, _bound(item)) for item in writers if all(missing.host for missing in item.missing()))
        return {writer: bound for writer, bound in found if bound}

    def notified(self, writer: str, first: int, bound: int) -> Iterator[Event]:
        """Yield the events of notifications with ids from `first` up to, not with, `bound`, in their order."""
        if first >= bound:
            return
        for table in tables(self._repository.workspace(writer), first, bound - first, self._damaged):
            ids = table.column("event_id")
            chosen = table.filter(pc.and_(pc.less(ids, bound), _is_ours(table)))
            yield from (event for event in to_events(chosen) if is_notified(event))
            if table.num_rows and ids[-1].as_py() >= bound:
                return

    def get(self, writer: str, event_ids: Sequence[int]) -> Sequence[Event]:
        """Return the events with these ids that are still there."""
        return get_many(self._repository.workspace(writer), event_ids, on_damage=self._damaged)

    def contents(self) -> Callable[[Event], bytes]:
        """Return what reads the contents of some events; it raises as `custody.flow.content.Contents.of`."""
        found = Contents(self._fs, self._repository.settings.store)
        return lambda event: found.of(event).read()

    def _damaged(self, damage: Damage) -> None:
        if isinstance(damage, Absence):
            return  # it lies behind the bound
        self.passed_over.append(str(damage))


def _bound(workspace: Workspace) -> int:
    """Return the event id up to which nothing can become live any more: journals that wait come behind it."""
    while True:
        state = workspace.catalog.load()
        waiting = [
            group.first_event_id
            for group in workspace.groups()
            if not workspace.is_committed(state, group.first_event_id)
        ]
        # What became live while the journals were listed would be missed: the two have to be of one moment.
        if workspace.catalog.load().revision == state.revision:
            return min([state.next_event_id, *waiting])


def _is_ours(table: pa.Table) -> pa.ChunkedArray:
    """Return which events received a notification whose body is their content."""
    received = pc.equal(table.column("event_type"), EventType.RECEIVE.value)
    of_ngsi = pc.fill_null(pc.equal(table.column("source_format"), ngsi.SOURCE_FORMAT), fill_value=False)
    return pc.and_(pc.and_(received, of_ngsi), pc.is_valid(table.column("content_claim")))
