"""Notifications as the sink reads them back: events in logs and journals, their contents, and the records in those.

`LiveNotifications` yields the events of a repository that received a notification: those in live event logs, and if
asked to, those that were acknowledged and still lie in journals. `NotificationReader` makes records of them: the body
is the content of the event, and the headers that matter are in its attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from custody.capture import ngsi_notification
from custody.capture.ngsi_notification import NgsiVersion, Notification, OpenedNotification, Shape, open_notification
from custody.capture.validate import NOT_JSON
from custody.errors import ConflictError, CorruptionError, InvalidInputError, NotFoundError
from custody.eventlog import Damage, refuse
from custody.flow.content import DIGEST_ATTRIBUTE, ContentContainers, ContentReader
from custody.model import ContentClaim, Event, EventType, to_events
from custody.model.plain_arrays import array_of
from custody.ngsi.http_notification import RECEIVED
from custody.ngsi.parameters import Parameters
from custody.ngsi.records import ReceiveTime, Record, Unplaced, records
from custody.ngsi_sink.batch_file import WRITER
from custody.read.reader import get_many, tables_from
from custody.read.results import Absence, NewerColumns
from custody.read.settled import settled_bound
from custody.repository.repository import Repository
from custody.vfs import FileSystem
from custody.workspace import Moment, Workspace, look_undisturbed, without_archives

_DIGITS_MAX = 16
Content = Callable[[Event], bytes]
"""Returns the body that an event received. Raises NotFoundError where it is gone, CorruptionError where damaged."""


class NotificationReader:
    """Reads the records of events; a content that neighbours share is read and parsed once.

    A notification with a thousand entities is a thousand events, each of which has the whole body as its content.
    """

    def __init__(self, content: Content, parameters: Parameters) -> None:
        self._content = content
        self._parameters = parameters
        self._claim: tuple[ContentClaim | None, str | None] = (None, None)
        self._body: bytes | NotFoundError | CorruptionError = b""
        self._opened: dict[NgsiVersion, OpenedNotification] = {}

    def body(self, event: Event) -> bytes:
        """Return the body that an event received; raises as `Content`."""
        claim = event.content_claim, event.updated_attributes.get(DIGEST_ATTRIBUTE)
        # Only the last content is kept: events of one notification follow each other, and memory holds one body.
        if event.content_claim is None or claim != self._claim:
            self._opened = {}
            try:
                self._body = self._content(event)
            # Kept as well, so that a damaged body is not read again for each of its events.
            except (NotFoundError, CorruptionError) as error:
                self._body = error
            self._claim = claim
        if isinstance(self._body, bytes):
            return self._body
        # One error is raised for many events: without this its traceback would grow each time.
        raise self._body.with_traceback(None)

    def records(self, event: Event) -> Iterator[Record | Unplaced]:
        """Yield the records of an event that received an entity; any other event has none.

        Reading an event again gives the same record, whenever that is.

        Raises:
            CorruptionError: the body is damaged, or is not what the event says that it received.
            NotFoundError: the body is gone.
        """
        if not is_notified(event):
            return
        body = self.body(event)
        try:
            version = NgsiVersion(event.updated_attributes[ngsi_notification.VERSION] or "")
            if version not in self._opened:
                self._opened[version] = open_notification(body, assumed=version)
            notification = _only(event, self._opened[version])
        # It was a notification when it was received, so whatever is wrong with it now is damage.
        except (*NOT_JSON, InvalidInputError, KeyError, ValueError) as error:
            raise CorruptionError(
                f"event {event.event_id}: expected its content to be the notification that it received, got {error}. "
                "custody verify reads content and events."
            ) from error
        arrival = ReceiveTime.at(received_ms(event), self._parameters)
        yield from records(notification, arrival, self._parameters, transaction=event.flowfile_uuid)


def is_notified(event: Event) -> bool:
    """Whether an event received an entity."""
    return event.event_type == EventType.RECEIVE and ngsi_notification.ENTITY_INDEX in event.updated_attributes


def received_ms(event: Event) -> int:
    """Return when an event arrived by the receiver's clock, else its own time: the broker's, in ms since the epoch."""
    stamp = event.updated_attributes.get(RECEIVED) or ""
    # An attribute comes from outside too, by a file of events: it may hold anything.
    return int(stamp) if stamp.isascii() and stamp.isdigit() and len(stamp) < _DIGITS_MAX else event.event_time


def _only(event: Event, opened: OpenedNotification) -> Notification:
    """Return the notification of an event as if it had this one entity only."""
    attributes = event.updated_attributes
    unnamed = (attributes.get(ngsi_notification.UNNAMED) or "").split(",")
    headers = {
        "fiware-correlator": attributes.get(ngsi_notification.CORRELATOR),
        "fiware-service": None if ngsi_notification.SERVICE in unnamed else attributes.get(ngsi_notification.SERVICE),
        "fiware-servicepath": None
        if ngsi_notification.SERVICE_PATH in unnamed
        else attributes.get(ngsi_notification.SERVICE_PATH),
    }
    notification = opened.read(
        {name: value for name, value in headers.items() if value},
        shape=Shape(attributes[ngsi_notification.SHAPE] or ""),
        only=int(attributes[ngsi_notification.ENTITY_INDEX] or ""),
    )
    if notification.broken:
        raise InvalidInputError(notification.broken[0].reason)
    return notification


class LiveNotifications:
    """The notifications of a repository: in live event logs and, `with_journals`, in journals that are not live yet.

    From journals only events are taken that cannot change any more: they are synced here once more, for a reader sees a
    record before the writer's own sync ends, and all smaller ids are there, for threads append side by side and an
    earlier id may come later. What fails that waits for the rollover.
    """

    def __init__(self, repository: Repository, fs: FileSystem, *, with_journals: bool = False) -> None:
        self._repository = repository
        self._fs = fs
        self._with_journals = with_journals
        self._settled: dict[str, int] = {}
        """By writer, the greatest bound so far: below it nothing changes, so that it need not be looked at again."""
        self.passed_over: list[str] = []
        """Parts of logs that are damaged; custody repair names what is lost."""

    def bounds(self, cursors: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return by writer the event id up to which nothing can come any more, or change.

        A writer with a missing container or stripe, of journals, logs or contents, has no bound: events that lie there
        come before others. Nor has one of an earlier moment. `cursors` are ids below which nothing is asked for;
        journals with nothing else are not read.
        """
        # Not the sink's own writer, which has SEND events only. Of the archive all was notified under the names
        # of the writers that it took up, which are still there.
        writers = without_archives(item for item in self._repository.workspaces() if item.writer != WRITER)
        known = cursors or {}
        bounds = (
            (item.writer, self._bound(item, known.get(item.writer, 0)))
            for item in writers
            if all(missing.host for missing in item.missing())
            and item.earlier_state() is None
            and not item.catalog.objects.files.missing()
            and not any(ContentContainers(self._fs, self._repository.settings.content_store, item.writer).missing())
        )
        return {writer: bound for writer, bound in bounds if bound}

    def notified(self, writer: str, first: int, bound: int) -> Iterator[Event]:
        """Yield the events of notifications with ids from `first` up to, not with, `bound`, in their order."""
        if first >= bound:
            return
        for table in tables_from(self._repository.workspace(writer), first, bound - first, self._damaged):
            ids = table.column("event_id")
            chosen = table.filter(pc.and_(pc.less(ids, array_of([bound], pa.int64())[0]), _is_ours(table)))
            yield from (event for event in to_events(chosen) if is_notified(event))
            # Ids may have gaps, so as many events as asked for may reach beyond the bound; ids ascend, so this was the
            # last.
            if table.num_rows and ids[-1].as_py() >= bound:
                return

    def get(self, writer: str, event_ids: Sequence[int]) -> Sequence[Event]:
        """Return the events with these ids that still exist."""
        return get_many(self._repository.workspace(writer), event_ids, on_damage=self._damaged)

    def contents(self) -> Callable[[Event], bytes]:
        """Return a function that reads the content of an event; it raises as `custody.flow.content.Contents.of`."""
        contents = ContentReader(self._fs, self._repository.settings.content_store)
        return lambda event: contents.of(event).read()

    def _bound(self, workspace: Workspace, cursor: int) -> int:
        # What lies on another machine cannot be looked at, so only what is live counts.
        if self._with_journals and not workspace.missing():
            known = max(self._settled.get(workspace.writer, 0), cursor)
            try:
                self._settled[workspace.writer] = settled_bound(workspace, refuse, known)
            # What is damaged waits for the rollover, which reports it; what moves too fast waits for the next look.
            except (CorruptionError, ConflictError):
                pass
            else:
                return self._settled[workspace.writer]
        # The catalog and the groups that wait, of one moment: a commit between two looks would mix two states.
        return _live_bound(look_undisturbed(workspace))

    def _damaged(self, damage: Damage) -> None:
        if isinstance(damage, Absence | NewerColumns):
            return  # it lies behind the bound, so the sink does not read it
        if damage.is_away:
            refuse(damage)  # the disk went away since the bound was found: its events wait, and those behind them
        self.passed_over.append(str(damage))


def _live_bound(moment: Moment) -> int:
    """Return the event id up to which nothing can become live any more: journals that wait come behind it."""
    return min([moment.state.next_event_id, *(group.first_event_id for group in moment.waiting)])


def _is_ours(table: pa.Table) -> pa.ChunkedArray:
    """Return which events received a notification whose body is their content; null, as a filter takes it, is no."""
    # Made of buffers: Arrow would import pandas to see what the two texts are.
    received, of_ngsi = array_of([EventType.RECEIVE.value, ngsi_notification.SOURCE_FORMAT], pa.string())
    is_received = pc.equal(table.column("event_type"), received)
    is_of_ngsi = pc.equal(table.column("source_format"), of_ngsi)
    return pc.and_(pc.and_(is_received, is_of_ngsi), pc.is_valid(table.column("content_claim")))
