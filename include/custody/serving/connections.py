"""The connections of a server: how many there may be, how long a head may take, and how long it may be.

A connection without a request under way costs whoever holds it nothing, so it is what gives way: where all places are
taken, that one is closed which has waited longest, of the address that holds most. So nobody keeps others out with
connections that say nothing, and who is answered is not cut off.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_HEAD_END = re.compile(rb"\n\r?\n")
_STALLED_SECONDS = 30.0
"""How long a client may take nothing of what it is sent."""
_RETRY_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one server: numbers of connections, seconds, bytes."""

    connections: int
    connections_per_address: int
    head_seconds: float
    head_bytes: int


@dataclass(slots=True)
class Places:
    """Who is connected, in the order in which they came or ended their last request."""

    limits: Limits
    taken: dict[BoundedProtocol, None] = field(default_factory=dict)
    by_address: Counter[str] = field(default_factory=Counter)

    def take(self, newcomer: BoundedProtocol) -> bool:
        """Make room for a connection; return whether there is some, perhaps after another one was closed."""
        address = newcomer.address
        if self.by_address[address] >= self.limits.connections_per_address and not self._close_idle(address):
            return False
        if len(self.taken) >= self.limits.connections and not self._close_idle(None):
            return False
        self.taken[newcomer] = None
        self.by_address[address] += 1
        return True

    def touch(self, protocol: BoundedProtocol) -> None:
        """Note that a connection ended a request: it is the last one now to give way."""
        if protocol in self.taken:
            del self.taken[protocol]
            self.taken[protocol] = None

    def give_back(self, protocol: BoundedProtocol) -> None:
        """Forget a connection that ended; a second call does nothing."""
        if protocol in self.taken:
            del self.taken[protocol]
            self.by_address[protocol.address] -= 1
            if not self.by_address[protocol.address]:
                del self.by_address[protocol.address]

    def _close_idle(self, address: str | None) -> bool:
        """Close the connection that waited longest, of an address or of that which holds most; False if none waits."""
        idle = [protocol for protocol in self.taken if protocol.is_idle and address in (None, protocol.address)]
        if not idle:
            return False
        most = max(self.by_address[protocol.address] for protocol in idle)
        chosen = next(protocol for protocol in idle if self.by_address[protocol.address] == most)
        self.give_back(chosen)
        chosen.transport.abort()
        return True


class BoundedProtocol(H11Protocol):
    """A connection of uvicorn's whose head has a time and a length, and whose answer has to be taken."""

    def __init__(self, places: Places, **given: Any) -> None:  # noqa: ANN401 - what uvicorn gives its protocols
        super().__init__(**given)
        self._places = places
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self.address = ""

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way: a head is waited for, or has not come whole."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place, or say that there is none."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if self._places.take(self):
            self._watch_head()
        else:
            self._refuse(503, "too many connections", f"retry-after: {_RETRY_SECONDS}\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._places.give_back(self)
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; the first ones of a head let its time begin, the others do not prolong it."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._watch_head()

    def handle_events(self) -> None:
        """Take what has come, unless a head of it is too long; it need not have come in pieces for that."""
        if self.conn.their_state is h11.IDLE:
            held = self.conn.trailing_data[0]
            most = self._places.limits.head_bytes
            found = _HEAD_END.search(held, 0, most + 2) if len(held) > most else None
            if len(held) > most and (found is None or found.end() > most):
                self._refuse(431, f"expected a head of at most {most} bytes (header_bytes_max)")
                return
        super().handle_events()
        if not self.is_idle and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def on_response_complete(self) -> None:
        """Go on with the next request; what has come of its head already is watched."""
        self._places.touch(self)
        super().on_response_complete()
        if self.conn.trailing_data[0]:
            self._watch_head()

    def pause_writing(self) -> None:
        """Wait for a client that takes nothing, but not for ever."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(_STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the client takes again."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _watch_head(self) -> None:
        if self.is_idle and self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self._places.limits.head_seconds, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.is_idle and not self.transport.is_closing():
            seconds = self._places.limits.head_seconds
            # Who has said nothing is told nothing.
            if self.conn.trailing_data[0]:
                self._refuse(408, f"the head took more than {seconds:g} s (head_seconds)")
            else:
                self.transport.close()

    def _refuse(self, status: int, reason: str, headers: str = "") -> None:
        """Answer what is no request yet, and close."""
        body = reason.encode("ascii")
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(body)}\r\n{headers}connection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()
