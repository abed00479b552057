"""From events back to records: the body is their content, what the headers said is in their attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from custody.capture import ngsi
from custody.capture.judge import NOT_JSON
from custody.capture.ngsi_attributes import Shape
from custody.capture.notification import Notification, Opened, Version, open_notification
from custody.errors import CorruptionError, InvalidInputError, NotFoundError
from custody.flow.content import DIGEST_ATTRIBUTE
from custody.model import ContentClaim, Event, EventType
from custody.ngsi.arrival import RECEIVED
from custody.ngsi.parameters import Parameters
from custody.ngsi.records import Arrival, Record, Unplaced, records

_DIGITS_MAX = 16
Content = Callable[[Event], bytes]
"""Returns the body that an event received. Raises NotFoundError where there is none."""


class Bodies:
    """Reads what events received; what neighbours have in common is read and taken apart once.

    A notification with a thousand entities is a thousand events, each of which has all of it as its content.
    """

    def __init__(self, content: Content, parameters: Parameters) -> None:
        self._content = content
        self._parameters = parameters
        self._held: tuple[ContentClaim | None, str | None] = (None, None)
        self._body: bytes | NotFoundError | CorruptionError = b""
        self._opened: dict[Version, Opened] = {}

    def body(self, event: Event) -> bytes:
        """Return what an event received; raises as the content that this reads."""
        wanted = event.content_claim, event.updated_attributes.get(DIGEST_ATTRIBUTE)
        if event.content_claim is None or wanted != self._held:
            self._opened = {}
            try:
                self._body = self._content(event)
            except (NotFoundError, CorruptionError) as error:
                self._body = error
            self._held = wanted
        if isinstance(self._body, bytes):
            return self._body
        raise self._body.with_traceback(None)

    def records(self, event: Event) -> Iterator[Record | Unplaced]:
        """Yield the records of an event that received an entity; any other event has none.

        Reading an event again gives the same record, whenever that is.

        Raises:
            CorruptionError: the body is not what the event says that it received.
            CustodyError: as the content that this reads.
        """
        if not is_notified(event):
            return
        body = self.body(event)
        try:
            version = Version(event.updated_attributes[ngsi.VERSION] or "")
            if version not in self._opened:
                self._opened[version] = open_notification(body, assumed=version)
            notification = _only(event, self._opened[version])
        except (*NOT_JSON, InvalidInputError, KeyError, ValueError) as error:
            raise CorruptionError(
                f"event {event.event_id}: expected its content to be the notification that it received, got {error}. "
                "custody verify reads content and events."
            ) from error
        arrival = Arrival.at(received_ms(event), self._parameters)
        yield from records(notification, arrival, self._parameters, transaction=event.flowfile_uuid)


def read_events(
    events: Iterable[Event], content: Content, parameters: Parameters
) -> Iterator[tuple[Event, Record | Unplaced]]:
    """Yield the records of those events that received an entity, in their order; raises as `Bodies.records`."""
    bodies = Bodies(content, parameters)
    for event in events:
        for record in bodies.records(event):
            yield event, record


def is_notified(event: Event) -> bool:
    """Whether an event received an entity."""
    return event.event_type == EventType.RECEIVE and ngsi.ENTITY_INDEX in event.updated_attributes


def received_ms(event: Event) -> int:
    """Return when an event arrived by the receiver's clock, else its own time: the broker's, in ms since the epoch."""
    said = event.updated_attributes.get(RECEIVED) or ""
    return int(said) if said.isascii() and said.isdigit() and len(said) < _DIGITS_MAX else event.event_time


def _only(event: Event, opened: Opened) -> Notification:
    """Return the notification of an event as if it had this one entity only."""
    said = event.updated_attributes
    unnamed = (said.get(ngsi.UNNAMED) or "").split(",")
    headers = {
        "fiware-correlator": said.get(ngsi.CORRELATOR),
        "fiware-service": None if ngsi.SERVICE in unnamed else said.get(ngsi.SERVICE),
        "fiware-servicepath": None if ngsi.SERVICE_PATH in unnamed else said.get(ngsi.SERVICE_PATH),
    }
    found = opened.read(
        {name: value for name, value in headers.items() if value},
        shape=Shape(said[ngsi.SHAPE] or ""),
        only=int(said[ngsi.ENTITY_INDEX] or ""),
    )
    if found.broken:
        raise InvalidInputError(found.broken[0].reason)
    return found
