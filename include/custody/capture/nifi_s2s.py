"""A file of NiFi's Site-to-Site provenance reporting task: one JSON array of events.

A pure function from bytes to outcomes. A bad element costs itself only; where the JSON itself breaks off, the
elements before the break are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec

from custody.capture.nifi_json import event_from_json
from custody.capture.outcome import Accepted, Outcome, Place, Rejected
from custody.errors import InvalidInputError
from custody.model import Problem, Severity, check_event

_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_ANY = msgspec.json.Decoder()
_SHOWN_BYTES = 40


def read_file(data: bytes, *, event_bytes_max: int, node: str | None = None) -> Iterator[Outcome]:
    """Yield what a file holds, in its order; `event_bytes_max` bounds one event's JSON."""
    try:
        elements = _ARRAY.decode(data)
    except msgspec.ValidationError:
        yield _reject_file(data, "not-an-array", f"expected a JSON array of events, got {_shown(data)}")
        return
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        yield from _salvage(data, str(error), event_bytes_max, node)
        return
    end = 0
    for index, element in enumerate(elements):
        raw = bytes(element)
        offset = data.find(raw, end)
        end = offset + len(raw)
        yield read_element(raw, Place(index, offset), event_bytes_max=event_bytes_max, node=node)


def read_element(raw: bytes, place: Place, *, event_bytes_max: int, node: str | None = None) -> Outcome:
    """Return what one element of the array is worth."""
    if len(raw) > event_bytes_max:
        message = f"expected at most {event_bytes_max} bytes (capture.event_bytes_max), got {len(raw)}"
        return Rejected(place, _error("event-too-large", message), raw)
    try:
        document = _ANY.decode(raw)
        if not isinstance(document, dict):
            return Rejected(place, _error("not-an-object", f"expected a JSON object, got {_shown(raw)}"), raw)
        event = event_from_json(document, node)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Rejected(place, _error("not-json", str(error)), raw)
    except InvalidInputError as error:
        return Rejected(place, _error("bad-value", str(error)), raw)
    problems = check_event(event, relationship_exported=False)
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    if errors:
        return Rejected(place, errors[0], raw)
    return Accepted(event, place, raw, tuple(problems))


def _salvage(data: bytes, cause: str, event_bytes_max: int, node: str | None) -> Iterator[Outcome]:
    """Read a file whose JSON breaks off: the whole elements first, then the rest as one rejected piece."""
    text = data.decode("utf-8", "surrogateescape")
    decoder = json.JSONDecoder()
    position = _skip_space(text, 0)
    if not text.startswith("[", position):
        yield _reject_file(data, "not-json", f"expected a JSON array of events, got {_shown(data)} ({cause})")
        return
    position, offset, index = position + 1, len(_encode(text[: position + 1])), 0
    while True:
        start = _skip_space(text, position)
        offset += start - position
        try:
            _, position = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):  # ValueError: also a number of thousands of digits
            break
        raw = _encode(text[start:position])
        yield read_element(raw, Place(index, offset), event_bytes_max=event_bytes_max, node=node)
        index, offset = index + 1, offset + len(raw)
        comma = _skip_space(text, position)
        offset += comma - position
        start = position = comma
        if not text.startswith(",", comma):
            break
        position, offset = comma + 1, offset + 1
    message = f"expected whole events up to the closing bracket, the JSON breaks off here ({cause})"
    yield Rejected(Place(index, offset), _error("not-json", message), _encode(text[start:]))


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _reject_file(data: bytes, code: str, message: str) -> Rejected:
    return Rejected(Place(None, 0), _error(code, message), data)


def _shown(data: bytes) -> str:
    head = data[:_SHOWN_BYTES].decode("utf-8", "replace").strip()
    return repr(head) if head else "nothing"


def _error(code: str, message: str) -> Problem:
    return Problem(Severity.ERROR, code, message)
