"""Custody's own events as JSON: one object an event, its keys the fields of the event model.

What `custody event --json` prints is in this format, so that one repository reads what another one shows. The id of the
other repository is dropped. An event that names no ordinal of its source gets one by its content: the same event again
is a repetition.

`content_sha256` names a content that was delivered before; only the events door knows those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from custody.capture.validate import Accepted, Context, Outcome, Rejected
from custody.errors import InvalidInputError
from custody.format.identifiers import digest_ordinal
from custody.model import UNASSIGNED, Event

SOURCE_FORMAT = "custody"
UNNAMED_NODE = "events"
"""The source of events that name none."""
KEYS = frozenset(field.name for field in msgspec.structs.fields(Event)) - {"details", "extra"}
"""Keys that tell this format from others."""
CONTENT_KEY = "content_sha256"
_HEX_DIGITS = 64
BATCH_EVENTS_MAX = 1 << 16
"""Events that the key of a batch numbers."""


class _Payload(Event, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event as it is delivered."""

    content_sha256: str | None = None


_PAYLOAD = msgspec.json.Decoder(_Payload)


def read_element(raw: bytes, context: Context) -> Sequence[Event]:
    """Return the one event of an element.

    Raises:
        InvalidInputError: a key is unknown or missing, a value is of the wrong type, or it names a content.
        msgspec.DecodeError: the bytes are not JSON.
    """
    event, sha256 = event_and_content(raw, context)
    if sha256 is not None:
        raise InvalidInputError(
            f"{CONTENT_KEY}: expected an event without content, for a file brings none. Deliver it to the events door, "
            "after its content"
        )
    return (event,)


def event_and_content(raw: bytes, context: Context) -> tuple[Event, str | None]:
    """Return the event of an element, and the digest of the content that it names; raises as `read_element`."""
    try:
        payload = _PAYLOAD.decode(raw)
    except msgspec.ValidationError as error:
        raise InvalidInputError(str(error)) from None
    return _named(payload, context)


def event_of_record(record: Mapping[str, object], context: Context) -> tuple[Event, str | None]:
    """Return the event of one record of another encoding, as `event_and_content` does."""
    try:
        # Encodings with a schema spell out what is absent.
        payload = msgspec.convert({key: value for key, value in record.items() if value is not None}, _Payload)
    except msgspec.ValidationError as error:
        raise InvalidInputError(str(error)) from None
    return _named(payload, context)


def is_record(record: Mapping[str, object]) -> bool:
    """Whether a record has custody's keys."""
    return "flowfile_uuid" in record and "event_type" in record


def batch_ordinals(batch_key: str, count: int, producer: str | None) -> range:
    """Return the ordinals of the events of a batch that has a key; the same key of a producer has the same ones.

    Keys of one producer are no matter of another one's; None is whoever has to prove nothing.

    Raises:
        InvalidInputError: it has more events than the key numbers.
    """
    if count > BATCH_EVENTS_MAX:
        raise InvalidInputError(f"expected at most {BATCH_EVENTS_MAX} events in a batch with a key, got {count}")
    # The upper 47 bits are the key's digest. Never change it: a batch sent again would count as a new one.
    first = digest_ordinal(["batch", producer, batch_key], None) & ~(BATCH_EVENTS_MAX - 1)
    return range(first, first + count)


def check_content_name(sha256: str) -> None:
    """Check a digest that names a content.

    Raises:
        InvalidInputError: it is none.
    """
    if len(sha256) != _HEX_DIGITS or not set(sha256) <= set("0123456789abcdef"):
        raise InvalidInputError(f"{CONTENT_KEY}: expected 64 hexadecimal digits in lower case, got {sha256[:80]!r}")


def with_ordinal(outcome: Outcome, ordinal: int) -> Outcome:
    """Return an outcome whose event has this ordinal, if it had none."""
    if isinstance(outcome, Rejected) or outcome.event.source_ordinal is not None:
        return outcome
    event = msgspec.structs.replace(outcome.event, source_ordinal=ordinal)
    return Accepted(event, outcome.place, outcome.raw, outcome.warnings)


def ordinal_name(event: Event, sha256: str | None) -> list[str | None]:
    """Return what identifies an event that has no ordinal: all that it says, and its content."""
    # Part of what is stored: the same event again would count as a new one if this changed.
    return ["event", msgspec.json.encode(event, order="sorted").decode(), sha256]


def _named(payload: _Payload, context: Context) -> tuple[Event, str | None]:
    sha256 = payload.content_sha256
    if sha256 is not None:
        check_content_name(sha256)
        if payload.source_format not in (None, SOURCE_FORMAT):
            raise InvalidInputError(
                f"source_format: expected {SOURCE_FORMAT!r} or none for an event with a content, "
                f"got {payload.source_format!r}"
            )
    fields = {name: getattr(payload, name) for name in Event.__struct_fields__}
    fields["event_id"] = UNASSIGNED
    # Who delivered it elsewhere is no matter of this repository: who brings it here is told by its token alone.
    fields["delivered_by"] = None
    fields["source_format"] = payload.source_format or SOURCE_FORMAT
    fields["source_node"] = payload.source_node or context.node or UNNAMED_NODE
    event = Event(**fields)
    if event.source_ordinal is None and context.is_numbered:
        ordinal = digest_ordinal(ordinal_name(event, sha256), event.event_time)
        event = msgspec.structs.replace(event, source_ordinal=ordinal)
    return event, sha256
