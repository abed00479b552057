"""Outcomes of reading: accepted events and rejected pieces, each with its place in the file.

`validate_element` turns one JSON element into outcomes: the reader of its format finds its events, `validate_event`
checks each against the rules of the event model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from custody.capture.own_claims import own_claim_problem
from custody.capture.raw_json import DEPTH_MAX, check_depth
from custody.errors import InvalidInputError
from custody.made_types import made_at_import
from custody.model import Event, EventProblem, Severity, check_event

PIECE_BYTES_MAX = 64 << 20
"""Of a larger rejected piece only its beginning is kept."""
_SHOWN_BYTES = 40


class InputPlace(msgspec.Struct, frozen=True, gc=False):
    """A place in an input file."""

    index: int | None
    """Number of the element in the file, from 0; None for the whole file."""
    offset: int
    """Bytes from the start of the file; of a gzip file, from the start of its decompressed text."""

    def __str__(self) -> str:
        return f"byte {self.offset}" if self.index is None else f"event {self.index} at byte {self.offset}"


@dataclass(frozen=True, slots=True)
class Accepted:
    """An event that can be stored, with its warnings and its bytes in the file."""

    event: Event
    place: InputPlace
    raw: bytes
    warnings: tuple[EventProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """A piece of a file that cannot be stored, and why; `raw` is the piece as it was."""

    place: InputPlace
    problem: EventProblem
    raw: bytes


made_at_import(Accepted, Rejected)


Outcome = Accepted | Rejected


def rejected(place: InputPlace, code: str, message: str, raw: bytes) -> Rejected:
    """Return a rejected piece with an error of this code."""
    return Rejected(place, EventProblem(Severity.ERROR, code, message), raw)


def excerpt(data: bytes) -> str:
    """Return the beginning of some bytes, quoted for a message."""
    head = data[:_SHOWN_BYTES].decode("utf-8", "replace").strip()
    return repr(head) if head else "nothing"


NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Context:
    """Facts about events that their own bytes do not tell."""

    node: str | None = None
    """Names the source of events that do not name it themselves."""
    received_ms: int = 0
    """When the file arrived, for events that carry no time."""
    zone: str | None = None
    """Of the clock in which NiFi's REST interface shows times; a name of the IANA database."""
    is_numbered: bool = True
    """Whether events without an ordinal get one by their content; if not, the caller numbers them."""


ElementReader = Callable[[bytes, Context], Sequence[Event | EventProblem]]
"""Returns the events of one JSON object, and a Problem for each part that is no event.

Raises InvalidInputError when the object as a whole cannot be read.
"""


def validate_element(
    raw: bytes, place: InputPlace, read: ElementReader, context: Context, *, relationship_exported: bool = True
) -> Iterator[Outcome]:
    """Yield the outcomes of one element."""
    try:
        check_depth(raw, DEPTH_MAX + 1)  # the envelope of a notification adds a level
        if not raw.startswith(b"{"):
            # Raises for what is no JSON at all, which is another problem than a value that is no object.
            msgspec.json.decode(raw)
            yield rejected(place, "not-an-object", f"expected a JSON object, got {excerpt(raw)}", raw)
            return
        events = read(raw, context)
    except NOT_JSON as error:
        yield rejected(place, "not-json", str(error), raw)
        return
    except InvalidInputError as error:
        yield rejected(place, "bad-value", str(error), raw)
        return
    for item in events:
        if isinstance(item, EventProblem):
            yield Rejected(place, item, raw)
        else:
            yield validate_event(item, place, raw, relationship_exported=relationship_exported)


def validate_event(event: Event, place: InputPlace, raw: bytes, *, relationship_exported: bool = True) -> Outcome:
    """Return an accepted event with its warnings, or its rejection for the first of its errors."""
    problems = check_event(event, relationship_exported=relationship_exported)
    if event.content_claim is not None or event.previous_content_claim is not None:
        problem = own_claim_problem(event)
        problems += () if problem is None else (problem,)
    for problem in problems:
        if problem.severity is Severity.ERROR:
            return Rejected(place, problem, raw)
    return Accepted(event, place, raw, tuple(problems))
