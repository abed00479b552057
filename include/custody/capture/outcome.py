"""What comes out of reading a file of events: accepted ones and rejected pieces, each with its place in the file."""

from __future__ import annotations

from dataclasses import dataclass

from custody.model import Event, Problem, Severity

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
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """A piece of a file that cannot be stored, and why; `raw` is the piece as it was."""

    place: Place
    problem: Problem
    raw: bytes


Outcome = Accepted | Rejected


def rejected(place: Place, code: str, message: str, raw: bytes) -> Rejected:
    """Return a rejected piece."""
    return Rejected(place, Problem(Severity.ERROR, code, message), raw)


def shown(data: bytes) -> str:
    """Return the beginning of some bytes, for a message."""
    head = data[:_SHOWN_BYTES].decode("utf-8", "replace").strip()
    return repr(head) if head else "nothing"
