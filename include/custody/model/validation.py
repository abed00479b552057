"""The rules that make an event acceptable, whatever format it came in.

Types come first: each value must be exactly what its column holds. Text must be valid Unicode, which Arrow, Parquet,
JSON and Protocol Buffers all require; Python also has strings that are not, as `os.listdir` gives names whose bytes are
no UTF-8 with lone surrogates. Such text is refused before anything is stored; NUL and every other character is kept.

Of the rules of event types, an error makes an event unusable: it is rejected. A warning says that it breaks a rule of
its type: it is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from custody.errors import InvalidInputError
from custody.made_types import made_at_import
from custody.model.event import ContentClaim, Event, EventType

_INT64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Claim(msgspec.Struct):
    container: str | None = None
    section: str | None = None
    identifier: str | None = None
    offset: _INT64 | None = None
    size: _INT64 | None = None


def _checked_type(kind: Any) -> Any:  # noqa: ANN401 - a type annotation, whatever it is
    # Python's numbers have no bounds, the columns hold 64 bits.
    named = {
        int: _INT64,
        int | None: _INT64 | None,
        ContentClaim | None: _Claim | None,
    }
    return named.get(kind, kind)


# The fields of Event with tighter types: msgspec checks all of them in one call.
_CHECKED = msgspec.defstruct(
    "_Checked", [(field.name, _checked_type(field.type)) for field in msgspec.structs.fields(Event)]
)
made_at_import(_CHECKED)


def require_types(event: Event) -> None:
    """Refuse an event with a value of another type than its field has.

    Neither Arrow nor MessagePack refuses by itself all that cannot be read back as it was: Arrow takes 1.5 for 1 and
    None for a number, MessagePack takes bytes for a text.

    Raises:
        InvalidInputError: a value has another type, or a number has more than 64 bits; the message names the field.
    """
    try:
        msgspec.convert(event, _CHECKED, from_attributes=True)
    except (msgspec.ValidationError, TypeError, OverflowError) as error:
        raise InvalidInputError(f"{error}. Nothing was stored.") from error


_ENCODER = msgspec.msgpack.Encoder()
_OF_BYTES = range(0xDC80, 0xDD00)  # Python's stand-ins for single bytes (PEP 383)


def text_problem(name: str, text: str) -> str | None:
    """Return what keeps a text, called `name`, from being stored; None for one that can be."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ord(text[error.start])
        meant = f", for the byte 0x{half - 0xDC00:02X} of what is no UTF-8" if half in _OF_BYTES else ""
        return (
            f"{name}, character {error.start}: expected valid Unicode, got the lone surrogate U+{half:04X}{meant}; "
            "custody.format.names.name_as_text writes such names as text, and they can be read back"
        )
    return None


def require_text(**texts: str | None) -> None:
    """Refuse texts that are no valid Unicode.

    Raises:
        InvalidInputError: one is not; the message names it, and the place in it.
    """
    for name, text in texts.items():
        problem = None if text is None else text_problem(name, text)
        if problem is not None:
            raise InvalidInputError(f"{problem}. Nothing was stored.")


def text_problems(event: Event) -> Iterator[str]:
    """Yield what keeps the texts of an event from being stored; the usual event costs a microsecond."""
    try:
        # One pass over all texts in C; only an event that fails is searched text by text.
        _ENCODER.encode(event)
    except (UnicodeEncodeError, OverflowError, TypeError):  # what is no text is refused elsewhere
        for field in event.__struct_fields__:
            for name, text in _texts(field, getattr(event, field)):
                problem = text_problem(name, text)
                if problem is not None:
                    yield problem


def _texts(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of every text in the value of a field."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, tuple | list):
        for number, item in enumerate(value):
            yield from _texts(f"{name}[{number}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(f"{name}: a name", key)
            yield from _texts(f"{name}[{key!r}]", item)
    elif isinstance(value, ContentClaim):
        for field in value.__struct_fields__:
            yield from _texts(f"{name}.{field}", getattr(value, field))


TIME_MS_MAX = 253_402_300_799_999  # the last millisecond of the year 9999
INT64_MAX = (1 << 63) - 1

TEXTS_NEEDED = ("event_type", "flowfile_uuid", "component_id", "component_type")
"""Fields that must not be empty."""

KNOWN_TYPES = frozenset(EventType)
NEED_TRANSIT_URI = {EventType.RECEIVE, EventType.FETCH, EventType.SEND, EventType.UPLOAD}
NEED_RELATIVES = {EventType.FORK, EventType.JOIN, EventType.CLONE}
# Of these a rule of the type may be broken; of others none can be.
_DEMANDING = {*NEED_TRANSIT_URI, *NEED_RELATIVES, EventType.ADDINFO, EventType.ROUTE}
_NO_CLAIMS = (None, None)


class Severity(StrEnum):
    """The weight of a problem: an error rejects the event, a warning keeps it."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class EventProblem:
    """One broken rule: the field in the words of the source format, and what was expected."""

    severity: Severity
    code: str
    message: str


made_at_import(EventProblem)


def check_event(event: Event, *, relationship_exported: bool = True) -> list[EventProblem]:
    """Return what is wrong with an event; an empty list is a good event.

    `relationship_exported` is False for formats that never carry the relationship of a ROUTE.
    """
    if _is_usual(event):
        is_demanding = event.event_type in _DEMANDING or event.event_type not in KNOWN_TYPES
        return list(_type_problems(event, relationship_exported)) if is_demanding else []
    return [*_text_problems(event), *_value_problems(event), *_type_problems(event, relationship_exported)]


def _is_usual(event: Event) -> bool:
    """Whether no text or value breaks a rule, as far as a look at each tells; most events need no more than that."""
    claims = (event.content_claim, event.previous_content_claim)
    try:
        _ENCODER.encode(event)
        return bool(
            event.event_type
            and event.flowfile_uuid
            and event.component_id
            and event.component_type
            and 0 <= event.file_size <= INT64_MAX
            and 0 <= (event.previous_file_size or 0) <= INT64_MAX
            and 0 <= (event.source_ordinal or 0) <= INT64_MAX
            and 0 <= event.event_time <= TIME_MS_MAX
            and 0 <= (event.flowfile_entry_date or 0) <= TIME_MS_MAX
            and 0 <= (event.lineage_start_date or 0) <= TIME_MS_MAX
            and -1 <= event.event_duration <= INT64_MAX
            and (claims == _NO_CLAIMS or all(map(_is_good_claim, claims)))
        )
    except (UnicodeEncodeError, OverflowError, TypeError):
        return False


def _is_good_claim(claim: ContentClaim | None) -> bool:
    return claim is None or all(0 <= (value or 0) <= INT64_MAX for value in (claim.offset, claim.size))


def require_valid(events: Iterable[Event]) -> None:
    """Refuse events that have an error; what only earns a warning passes.

    Raises:
        InvalidInputError: an event has an error; the message says which one and why.
    """
    for number, event in enumerate(events):
        try:
            require_types(event)
        except InvalidInputError as error:
            raise InvalidInputError(f"event {number} of the batch: {error}") from error
        for problem in check_event(event):
            if problem.severity is Severity.ERROR:
                kind = event.event_type.encode(errors="backslashreplace").decode() or "no type"
                raise InvalidInputError(f"event {number} of the batch ({kind}): {problem.message}. Nothing was stored.")


def _text_problems(event: Event) -> Iterator[EventProblem]:
    for name in TEXTS_NEEDED:
        if not getattr(event, name):
            yield _error("empty-text", f"{name}: expected text, got an empty string")
    for problem in text_problems(event):
        yield _error("bad-text", problem)


def _value_problems(event: Event) -> Iterator[EventProblem]:
    for name in ("file_size", "previous_file_size", "source_ordinal"):
        value = getattr(event, name)
        if value is not None and not 0 <= value <= INT64_MAX:
            yield _error("number-range", f"{name}: expected 0 to 2^63-1, got {value}")
    for name in ("event_time", "flowfile_entry_date", "lineage_start_date"):
        value = getattr(event, name)
        if value is not None and not 0 <= value <= TIME_MS_MAX:
            yield _error(
                "time-range",
                f"{name}: expected ms since the epoch before the year 10000, got {value}",
            )
    for name in ("content_claim", "previous_content_claim"):
        claim = getattr(event, name)
        if not _is_good_claim(claim):
            yield _error("number-range", f"{name}: expected offset and size from 0 to 2^63-1, got {claim}")
    if not -1 <= event.event_duration <= INT64_MAX:
        yield _error(
            "number-range",
            f"event_duration: expected -1 (unset) or more, got {event.event_duration}",
        )


def _type_problems(event: Event, relationship_exported: bool) -> Iterator[EventProblem]:
    kind = event.event_type
    if kind not in KNOWN_TYPES:
        yield _warning(
            "unknown-type",
            f"event type {kind[:64]!r} is not one that custody knows; it is kept as it is",
        )
    if kind in NEED_TRANSIT_URI and not event.transit_uri:
        yield _warning("no-transit-uri", f"a {kind} event should name its transit URI")
    if kind in NEED_RELATIVES and not (event.parent_uuids or event.child_uuids):
        yield _warning("no-relatives", f"a {kind} event should name parents or children")
    if kind == EventType.ADDINFO and not event.alternate_identifier_uri:
        yield _warning("no-alternate-identifier", "an ADDINFO event should name its alternate identifier")
    if kind == EventType.ROUTE and relationship_exported and not event.relationship:
        yield _warning("no-relationship", "a ROUTE event should name its relationship")


def _error(code: str, message: str) -> EventProblem:
    return EventProblem(Severity.ERROR, code, message)


def _warning(code: str, message: str) -> EventProblem:
    return EventProblem(Severity.WARNING, code, message)
