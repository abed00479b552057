"""The connections of a server: how many there may be, how long a head may take, and how long it may be.

A connection without a request under way costs whoever holds it nothing, so it is what gives way: where all places are
taken, that one is closed which has waited longest, of the address that holds most. So nobody keeps others out with
connections that say nothing, and who is answered is not cut off.

Serving an application on its own: a process with one event loop, which ends well on SIGTERM.

Beyond this machine it is served only to who is known: by a token, or by a client certificate.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import resource
import signal
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from custody.config.sections import ListenerSection
from custody.errors import ConfigurationError, StorageError
from custody.serving.http_requests import Tokens

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


_LOGGER = logging.getLogger(__name__)
_OTHER_FILES = 256
"""Files that a server has open besides its connections, or may have."""


def checked_tokens(root: Path, section: str, options: ListenerSection) -> Tokens | None:
    """Return the tokens that a section of the settings names, None for none, once it is sure that strangers stay out.

    Args:
        root: the repository's folder.
        section: the name of the section, for messages.
        options: the section.

    Raises:
        ConfigurationError: the service would be open to other machines, or a file does not fit.
    """
    certificate, key, authority = (
        None if path is None else _found(root, f"{section}.{name}", path)
        for name, path in (
            ("tls_certificate", options.tls_certificate),
            ("tls_key", options.tls_key),
            ("tls_client_ca", options.tls_client_ca),
        )
    )
    if certificate is None and (key is not None or authority is not None):
        raise ConfigurationError(f"{section}.tls_certificate: expected a file, for tls_key or tls_client_ca is set.")
    tokens = None if options.token_file is None else Tokens.read(root / options.token_file)
    if not is_loopback(options.host):
        if tokens is None and authority is None:
            raise ConfigurationError(
                f"{section}.host {options.host!r}: expected an address of this machine alone, as neither "
                f"{section}.token_file nor {section}.tls_client_ca is set. Set one, or listen on 127.0.0.1."
            )
        if certificate is None:
            _LOGGER.warning(
                "%s: tokens travel in clear text: set %s.tls_certificate, or a proxy before it", section, section
            )
    return tokens


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    app: FastAPI,
    root: Path,
    options: ListenerSection,
    path: str = "",
    on_started: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGTERM or SIGINT; requests that have begun are answered before it returns.

    Args:
        app: what answers.
        root: the repository's folder.
        options: how to listen.
        path: what follows the address in the URL that `on_started` is told.
        on_started: called when requests are taken.

    Raises:
        StorageError: the address cannot be listened on.
    """
    places = Places(
        Limits(
            connections=_allowed(options.connections_max),
            connections_per_address=options.connections_per_address_max,
            head_seconds=options.head_seconds,
            head_bytes=options.header_bytes_max,
        )
    )
    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        # uvicorn calls it with keywords, as it would its own protocols.
        http=partial(BoundedProtocol, places),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=options.header_bytes_max,
        timeout_keep_alive=options.idle_seconds,
        timeout_graceful_shutdown=options.stop_seconds,
        ssl_certfile=file_of(root, options.tls_certificate),
        ssl_keyfile=file_of(root, options.tls_key),
        ssl_ca_certs=file_of(root, options.tls_client_ca),
        ssl_cert_reqs=ssl.CERT_NONE if options.tls_client_ca is None else ssl.CERT_REQUIRED,
    )
    listener = _listen(options.host, options.port)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    url = f"{'http' if options.tls_certificate is None else 'https'}://{shown}:{port}{path}"
    with listener, _signals_end_the_server():
        _Server(config, lambda: on_started(url)).run(sockets=[listener])


def _allowed(connections: int) -> int:
    """Return how many of some connections this process may have open; it asks the system for all of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    allowed = max(soft - _OTHER_FILES, soft // 2, 1)
    _LOGGER.warning("connections_max %d: the system allows %d open files, so %d are taken", connections, soft, allowed)
    return allowed


def file_of(root: Path, path: Path | None) -> str | None:
    """Return where a file of the settings is, None for none."""
    return None if path is None else str(root / path)


class _Server(uvicorn.Server):
    """Tells when requests are taken."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()


@contextmanager
def _signals_end_the_server() -> Iterator[None]:
    """Let signals end the server alone: it raises them once more when it has ended, and the caller is yet to close."""
    former = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise StorageError(f"cannot listen on {host}:{port}: {error.strerror or error}.") from error
    return listener


def _found(root: Path, name: str, path: Path) -> Path:
    found = root / path
    if not found.is_file():
        raise ConfigurationError(f"{name}: expected a file, found none at {found}.")
    return found
