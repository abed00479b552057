"""Requests to object stores, counted by kind, with the bytes that they brought and took.

What a block of code asks for is counted by `counted`, also in the threads that it hands work to by `carried`. Requests
that a client repeats by itself count once; a listing counts once for each thousand of its keys, as services bill it.
"""

from __future__ import annotations

import contextvars
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Literal, ParamSpec, TypeVar

import msgspec

from custody.made_types import made_at_import

Kind = Literal["get", "range", "put", "list", "head", "copy", "delete"]
LISTED_AT_ONCE = 1000
P = ParamSpec("P")
R = TypeVar("R")


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of object stores; `requests` by kind, only kinds that occurred."""

    requests: dict[str, int] = {}
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def count(self) -> int:
        """All requests."""
        return sum(self.requests.values())

    def __add__(self, other: Traffic) -> Traffic:
        requests = Counter(self.requests)
        requests.update(other.requests)
        return Traffic(
            requests=dict(sorted(requests.items())),
            bytes_read=self.bytes_read + other.bytes_read,
            bytes_written=self.bytes_written + other.bytes_written,
        )


made_at_import(Traffic)


class TrafficCounter:
    """Adds requests up, from any thread."""

    def __init__(self) -> None:
        self._traffic = Traffic()
        self._lock = Lock()
        self.refusal = ""
        """Why a store refused a request, the last time that one did; empty where none did."""

    @property
    def traffic(self) -> Traffic:
        """What was counted so far."""
        return self._traffic

    def add(self, traffic: Traffic) -> None:
        """Count requests."""
        with self._lock:
            self._traffic += traffic


PROCESS = TrafficCounter()
"""All requests of this process."""
_COUNTERS: contextvars.ContextVar[tuple[TrafficCounter, ...]] = contextvars.ContextVar("_COUNTERS", default=(PROCESS,))


def note_requests(kind: Kind, number: int = 1, *, read: int = 0, written: int = 0) -> None:
    """Count requests of one kind, in bytes what they brought and took."""
    traffic = Traffic(requests={kind: number}, bytes_read=read, bytes_written=written)
    for counter in _COUNTERS.get():
        counter.add(traffic)


def note_refusal(reason: str) -> None:
    """Note that a store refused a request: for want of rights, or for the state of an object."""
    for counter in _COUNTERS.get():
        counter.refusal = reason


@contextmanager
def counted() -> Iterator[TrafficCounter]:
    """Count what the block asks of object stores, with what blocks within it count themselves."""
    counter = TrafficCounter()
    token = _COUNTERS.set((*_COUNTERS.get(), counter))
    try:
        yield counter
    finally:
        _COUNTERS.reset(token)


def carried(work: Callable[P, R]) -> Callable[P, R]:
    """Return the same function for threads of a pool: what it asks for is counted where this was called."""
    context = contextvars.copy_context()

    def within(*args: P.args, **kwargs: P.kwargs) -> R:
        # A copy for each call: one context cannot be entered by two threads at once.
        return context.copy().run(work, *args, **kwargs)

    return within
