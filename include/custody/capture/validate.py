"""What one element of a JSON file is worth: the events that its format's reader finds in it, checked.

What comes out of reading a file of events: accepted ones and rejected pieces, each with its place in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from custody.capture.raw_json import DEPTH_MAX, check_depth
from custody.errors import InvalidInputError
from custody.model import Event, EventProblem, Severity, check_event

PIECE_BYTES_MAX = 64 << 20
"""Of a larger rejected piece only its beginning is kept."""
_SHOWN_BYTES = 40


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file something lies."""

    index: int | None
    """Number of the element in the file, from 0; None when the whole file is meant."""
    offset: int
    """Bytes from the start of the file; of a gzip file, from the start of its decompressed text."""

    def __str__(self) -> str:
        return f"byte {self.offset}" if self.index is None else f"event {self.index} at byte {self.offset}"


@dataclass(frozen=True, slots=True)
class Accepted:
    """An event that can be stored, with the warnings that it earned and its bytes in the file."""

    event: Event
    place: Place
    raw: bytes
    warnings: tuple[EventProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """A piece of a file that cannot be stored, and why; `raw` is the piece as it was."""

    place: Place
    problem: EventProblem
    raw: bytes


Outcome = Accepted | Rejected


def rejected(place: Place, code: str, message: str, raw: bytes) -> Rejected:
    """Return a rejected piece."""
    return Rejected(place, EventProblem(Severity.ERROR, code, message), raw)


def shown(data: bytes) -> str:
    """Return the beginning of some bytes, for a message."""
    head = data[:_SHOWN_BYTES].decode("utf-8", "replace").strip()
    return repr(head) if head else "nothing"


NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Context:
    """What is known of an event from elsewhere than the event."""

    node: str | None = None
    """Names the source of events that do not say it themselves."""
    received_ms: int = 0
    """When the file arrived, for events that carry no time."""


ReadElement = Callable[[bytes, Context], Sequence[Event | EventProblem]]
"""Returns the events of one JSON object, a Problem for each that is none. Raises InvalidInputError for the whole."""


def judge(
    raw: bytes, place: Place, read: ReadElement, context: Context, *, relationship_exported: bool = True
) -> Iterator[Outcome]:
    """Yield the outcomes of one element."""
    try:
        check_depth(raw, DEPTH_MAX + 1)  # of a notification, its envelope is one more
        if not raw.startswith(b"{"):
            msgspec.json.decode(raw)
            yield rejected(place, "not-an-object", f"expected a JSON object, got {shown(raw)}", raw)
            return
        found = read(raw, context)
    except NOT_JSON as error:
        yield rejected(place, "not-json", str(error), raw)
        return
    except InvalidInputError as error:
        yield rejected(place, "bad-value", str(error), raw)
        return
    for item in found:
        if isinstance(item, EventProblem):
            yield Rejected(place, item, raw)
        else:
            yield checked(item, place, raw, relationship_exported=relationship_exported)


def checked(event: Event, place: Place, raw: bytes, *, relationship_exported: bool = True) -> Outcome:
    """Return an event with its warnings, or the first of its errors."""
    problems = check_event(event, relationship_exported=relationship_exported)
    for problem in problems:
        if problem.severity is Severity.ERROR:
            return Rejected(place, problem, raw)
    return Accepted(event, place, raw, tuple(problems))
