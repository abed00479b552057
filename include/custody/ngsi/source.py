"""From events back to records: the body is their content, what the headers said is in their attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from custody.capture import ngsi
from custody.capture.judge import NOT_JSON
from custody.capture.ngsi_attributes import Shape
from custody.capture.notification import Notification, Version, read_notification
from custody.errors import CorruptionError, InvalidInputError
from custody.model import Event, EventType
from custody.ngsi.arrival import RECEIVED
from custody.ngsi.parameters import Parameters
from custody.ngsi.records import Arrival, Record, Unplaced, records

_DIGITS_MAX = 16
Content = Callable[[Event], bytes]
"""Returns the body that an event received. Raises NotFoundError where there is none."""


def read_events(
    events: Iterable[Event], content: Content, parameters: Parameters
) -> Iterator[tuple[Event, Record | Unplaced]]:
    """Yield the records of those events that received an entity, in their order; other events have none.

    Reading an event again gives the same record, whenever that is.

    Raises:
        CorruptionError: the body is not what the event says that it received.
        CustodyError: as `content` does.
    """
    for event in events:
        if not is_notified(event):
            continue
        notification = _read(event, content(event))
        arrival = Arrival.at(received_ms(event), parameters)
        for record in records(notification, arrival, parameters, transaction=event.flowfile_uuid):
            yield event, record


def is_notified(event: Event) -> bool:
    """Whether an event received an entity."""
    return event.event_type == EventType.RECEIVE and ngsi.ENTITY_INDEX in event.updated_attributes


def received_ms(event: Event) -> int:
    """Return when an event arrived by the receiver's clock, else its own time: the broker's, in ms since the epoch."""
    said = event.updated_attributes.get(RECEIVED) or ""
    return int(said) if said.isascii() and said.isdigit() and len(said) < _DIGITS_MAX else event.event_time


def _read(event: Event, body: bytes) -> Notification:
    """Return the notification as if it had this one entity only."""
    said = event.updated_attributes
    unnamed = (said.get(ngsi.UNNAMED) or "").split(",")
    headers = {
        "fiware-correlator": said.get(ngsi.CORRELATOR),
        "fiware-service": None if ngsi.SERVICE in unnamed else said.get(ngsi.SERVICE),
        "fiware-servicepath": None if ngsi.SERVICE_PATH in unnamed else said.get(ngsi.SERVICE_PATH),
    }
    try:
        found = read_notification(
            body,
            {name: value for name, value in headers.items() if value},
            assumed=Version(said[ngsi.VERSION] or ""),
            shape=Shape(said[ngsi.SHAPE] or ""),
        )
        return found.only(int(said[ngsi.ENTITY_INDEX] or ""))
    except (*NOT_JSON, InvalidInputError, KeyError, ValueError) as error:
        raise CorruptionError(
            f"event {event.event_id}: expected its content to be the notification that it received, got {error}. "
            "custody verify reads content and events."
        ) from error
