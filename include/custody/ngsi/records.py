"""Records: what a notification adds to the files, one record for each entity with attributes, with its destination."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from custody.capture.ngsi_notification import Attribute, Entity, Notification
from custody.capture.values import format_time
from custody.errors import InvalidInputError
from custody.model.validation import TIME_MS_MAX
from custody.ngsi.naming import Placed, place
from custody.ngsi.parameters import Parameters
from custody.ngsi.rules import Names

_ALTERATION = "alterationType"
_DELETED = "entityDelete"
_SECONDS_DIGITS_MAX = 11
"""A timestamp of as many digits counts seconds: it is a time before the year 5138; in ms it would be before 1973."""


class ReceiveTime(msgspec.Struct, frozen=True, gc=False):
    """When a notification arrived. `timestamp` is what goes into recvTimeTs, word for word."""

    received_ms: int
    timestamp: str

    @classmethod
    def at(cls, received_ms: int, parameters: Parameters) -> ReceiveTime:
        """Return the arrival at a time of our own clock, in ms since the epoch."""
        unit = parameters.values.recv_time_unit
        return cls(received_ms, str(received_ms if unit == "ms" else received_ms // 1000))

    @classmethod
    def stamped(cls, timestamp: str) -> ReceiveTime:
        """Return the arrival that an event's own timestamp says, in seconds or in ms.

        Raises:
            InvalidInputError: it is no number of either, or lies after the year 9999.
        """
        # The length comes first: a text from outside may have thousands of digits, which `int` refuses with another
        # error.
        number = int(timestamp) if timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 20 else -1
        received_ms = number * 1000 if len(timestamp) <= _SECONDS_DIGITS_MAX else number
        if not 0 <= received_ms <= TIME_MS_MAX:
            raise InvalidInputError(f"timestamp: expected seconds or ms since the epoch, got {timestamp[:40]!r}")
        return cls(received_ms, timestamp)

    @property
    def iso(self) -> str:
        """The time as text, `2016-04-20T07:19:55.801Z`."""
        return format_time(self.received_ms) or ""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One entity of one notification with its destination; attributes have the names that mappings gave them."""

    placed: Placed
    arrival: ReceiveTime
    service: str
    path: str
    entity: Entity
    attributes: tuple[Attribute, ...]
    subscription: str
    notification: str
    """What tells this notification from others; empty if nothing does."""


class Unplaced(msgspec.Struct, frozen=True, gc=False):
    """An entity that has no destination, and why: it is kept apart and never retried."""

    entity: Entity
    reason: str


def records(
    notification: Notification, arrival: ReceiveTime, parameters: Parameters, *, transaction: str = ""
) -> Iterator[Record | Unplaced]:
    """Yield the records of a notification in the order of its entities; an entity without attributes has none.

    `transaction` names the notification where it does not name itself.
    """
    values = parameters.values
    service = notification.service or values.default_service
    for entity in notification.entities:
        attributes = _attributes(entity, keep_alteration=values.keep_alteration_type)
        if not attributes:
            continue
        path = entity.path or values.default_service_path
        try:
            placed = place(Names(service, path, entity.id, entity.type), arrival.received_ms, parameters)
        # An entity without a place costs itself only; the others of the notification are written.
        except InvalidInputError as error:
            yield Unplaced(entity, str(error))
            continue
        yield Record(
            placed=placed,
            arrival=arrival,
            service=service,
            path=path,
            entity=entity,
            attributes=tuple(_mapped(placed, attribute) for attribute in attributes),
            subscription=notification.subscription or "",
            notification=notification.id or notification.correlator or transaction,
        )


def _attributes(entity: Entity, *, keep_alteration: bool) -> tuple[Attribute, ...]:
    if keep_alteration:
        return entity.attributes
    # The broker adds it where the subscription asks for it: it says what happened to the entity and is none of its
    # data.
    alterations = [attribute for attribute in entity.attributes if attribute.name == _ALTERATION]
    if any(attribute.value.plain == _DELETED for attribute in alterations):
        return ()
    return tuple(attribute for attribute in entity.attributes if attribute.name != _ALTERATION)


def _mapped(placed: Placed, attribute: Attribute) -> Attribute:
    if not placed.mapped.attributes:
        return attribute
    name, type = placed.mapped.attribute(attribute.name, attribute.type)
    return msgspec.structs.replace(attribute, name=name, type=type)
