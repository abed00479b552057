"""An HTTP server of its own: one process with one event loop, its connections bounded, ended well by SIGTERM.

Beyond this machine it serves only clients that prove who they are, by a token or a certificate (`checked_tokens`).

Connections (`ConnectionSlots`): how many there may be, how long a head may take, and how long it may be. A connection
without a request under way has nothing to lose, so it gives way: where all slots are taken, the one is closed that has
waited longest, of the address that holds most. So silent connections keep nobody out, and no answer is cut off.
"""

from __future__ import annotations

import asyncio
import logging
import re
import resource
import signal
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from custody.config.sections import ListenerSection, ServeSection
from custody.errors import ConfigurationError, StorageError
from custody.freed_memory import keep_freed_memory
from custody.serving.access import Scope as TokenScope
from custody.serving.access import Tokens
from custody.serving.http_requests import is_loopback

_HEAD_END = re.compile(rb"\n\r?\n")
_SUBJECT_CHARACTERS_MAX = 200
_STALLED_SECONDS = 30.0
"""How long a client may leave its answer unread."""
_RETRY_SECONDS = 1
_OTHER_FILES = 256
"""Files that a server may have open besides its connections."""
_LOGGER = logging.getLogger(__name__)


def checked_tokens(root: Path, section: str, options: ListenerSection) -> Tokens | None:
    """Return the tokens that a section of the settings names, None for none, after a check that strangers stay out.

    Args:
        root: the repository's folder.
        section: the name of the section, for messages.
        options: the section.

    Raises:
        ConfigurationError: the service would be open to other machines, or a file is missing or unfit.
    """
    check_certificates(root, section, options)
    needed = TokenScope.READ if section == "swh" else TokenScope.APPEND
    tokens = None if options.token_file is None else Tokens.read(root / options.token_file, needed=needed)
    check_openness(section, options)
    return tokens


def check_certificates(root: Path, section: str, options: ListenerSection) -> None:
    """Refuse files of certificates that are missing, or that mean nothing without another one.

    Raises:
        ConfigurationError: one of them.
    """
    certificate, key, authority = (
        None if path is None else _existing(root, f"{section}.{name}", path)
        for name, path in (
            ("tls_certificate", options.tls_certificate),
            ("tls_key", options.tls_key),
            ("tls_client_ca", options.tls_client_ca),
        )
    )
    if certificate is None and (key is not None or authority is not None):
        raise ConfigurationError(f"{section}.tls_certificate: expected a file, for tls_key or tls_client_ca is set.")


def check_openness(section: str, options: ListenerSection) -> None:
    """Refuse an address that other machines reach where neither tokens nor certificates are asked for.

    Raises:
        ConfigurationError: anybody could come in.
    """
    if not is_loopback(options.host):
        if options.token_file is None and options.tls_client_ca is None:
            raise ConfigurationError(
                f"{section}.host {options.host!r}: expected an address of this machine alone, as neither "
                f"{section}.token_file nor {section}.tls_client_ca is set. Set one, or listen on 127.0.0.1."
            )
        if options.tls_certificate is None:
            _LOGGER.warning(
                "%s: tokens travel in clear text: set %s.tls_certificate, or a proxy before it", section, section
            )


def serve(
    app: FastAPI,
    root: Path,
    options: ListenerSection,
    path: str = "",
    on_started: Callable[[str], None] = lambda url: None,
    *,
    listener: socket.socket | None = None,
    on_loop: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; requests that have begun are answered before it returns.

    Args:
        app: answers the requests.
        root: the repository's folder.
        options: how to listen.
        path: follows the address in the URL that `on_started` gets.
        on_started: called when requests are taken.
        listener: taken instead of one of its own; several processes may share it.
        on_loop: awaited in the server's loop before requests are taken.

    Raises:
        StorageError: the address cannot be listened on.
    """
    keep_freed_memory()
    slots = ConnectionSlots(
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
        http=partial(BoundedProtocol, slots),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # Any sender could write X-Forwarded-For: limits and logs go by the address of the connection.
        proxy_headers=False,
        h11_max_incomplete_event_size=options.header_bytes_max,
        timeout_keep_alive=options.idle_seconds,
        timeout_graceful_shutdown=options.stop_seconds,
        ssl_certfile=file_of(root, options.tls_certificate),
        ssl_keyfile=file_of(root, options.tls_key),
        ssl_ca_certs=file_of(root, options.tls_client_ca),
        ssl_cert_reqs=_certificate_wish(options),
    )
    # Bound before uvicorn starts: a taken port is a StorageError, and the URL names the port that 0 became.
    listener = listener or listen(options.host, options.port)
    url = url_of(listener, options) + path
    with listener, _signals_end_the_server():
        _Server(config, lambda: on_started(url), on_loop).run(sockets=[listener])


def url_of(listener: socket.socket, options: ListenerSection) -> str:
    """Return the URL of an address that is listened on."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'http' if options.tls_certificate is None else 'https'}://{shown}:{port}"


def _certificate_wish(options: ListenerSection) -> ssl.VerifyMode:
    if options.tls_client_ca is None:
        return ssl.CERT_NONE
    is_optional = isinstance(options, ServeSection) and options.client_certificates == "optional"
    return ssl.CERT_OPTIONAL if is_optional else ssl.CERT_REQUIRED


def file_of(root: Path, path: Path | None) -> str | None:
    """Return the path of a file of the settings, None for none."""
    return None if path is None else str(root / path)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server: connections, seconds, bytes."""

    connections: int
    connections_per_address: int
    head_seconds: float
    head_bytes: int


@dataclass(slots=True)
class ConnectionSlots:
    """The open connections, in the order in which they came or ended their last request."""

    limits: Limits
    taken: dict[BoundedProtocol, None] = field(default_factory=dict)
    by_address: Counter[str] = field(default_factory=Counter)

    def take(self, newcomer: BoundedProtocol) -> bool:
        """Take a slot for a connection, perhaps by closing another one; return whether there was one."""
        address = newcomer.address
        # The address's own limit first: its newcomer then displaces one of its own connections, nobody else's.
        if self.by_address[address] >= self.limits.connections_per_address and not self._close_idle(address):
            return False
        if len(self.taken) >= self.limits.connections and not self._close_idle(None):
            return False
        self.taken[newcomer] = None
        self.by_address[address] += 1
        return True

    def touch(self, protocol: BoundedProtocol) -> None:
        """Note that a connection ended a request: it is now the last one to give way."""
        if protocol in self.taken:
            # A dict keeps the order of insertion: what is put in again is the last.
            del self.taken[protocol]
            self.taken[protocol] = None

    def give_back(self, protocol: BoundedProtocol) -> None:
        """Free the slot of a connection that ended; a second call does nothing."""
        if protocol in self.taken:
            del self.taken[protocol]
            self.by_address[protocol.address] -= 1
            if not self.by_address[protocol.address]:
                del self.by_address[protocol.address]

    def _close_idle(self, address: str | None) -> bool:
        """Close the connection that waited longest, of an address or of the one with most; False if none waits."""
        idle = [protocol for protocol in self.taken if protocol.is_idle and address in (None, protocol.address)]
        if not idle:
            return False
        most = max(self.by_address[protocol.address] for protocol in idle)
        chosen = next(protocol for protocol in idle if self.by_address[protocol.address] == most)
        # At once: `connection_lost` comes later in the loop, and the newcomer needs the slot now.
        self.give_back(chosen)
        chosen.transport.abort()
        return True


class BoundedProtocol(H11Protocol):
    """A connection of uvicorn's with bounds: the time and the length of a head, and the time to take an answer."""

    def __init__(self, slots: ConnectionSlots, **options: Any) -> None:  # noqa: ANN401 - what uvicorn gives its protocols
        super().__init__(**options)
        self._slots = slots
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self.address = ""

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way: the connection waits for a head, or for the rest of one."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a slot, or refuse the connection."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        certificate = _certificate_name(transport)
        if certificate is not None:
            self.app = _with_certificate(self.app, certificate)
        if self._slots.take(self):
            self._watch_head()
        else:
            self._refuse(503, "too many connections", f"retry-after: {_RETRY_SECONDS}\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the slot."""
        self._slots.give_back(self)
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; the time of a head begins with its first ones, and later ones do not prolong it."""
        # Bytes of a connection that was refused or displaced may still come; they start nothing any more.
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._watch_head()

    def handle_events(self) -> None:
        """Handle what has come, unless it has a head that is too long, whether that came in one piece or in several."""
        # Counted here, for h11 bounds an incomplete head only: one that comes in one piece is complete when it looks.
        if self.conn.their_state is h11.IDLE:
            data = self.conn.trailing_data[0]
            limit = self._slots.limits.head_bytes
            end = _HEAD_END.search(data, 0, limit + 2) if len(data) > limit else None
            if len(data) > limit and (end is None or end.end() > limit):
                self._refuse(431, f"expected a head of at most {limit} bytes (header_bytes_max)")
                return
        super().handle_events()
        if not self.is_idle and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def on_response_complete(self) -> None:
        """Go on with the next request; if a part of its head has come already, its time begins."""
        self._slots.touch(self)
        super().on_response_complete()
        if self.conn.trailing_data[0]:
            self._watch_head()

    def pause_writing(self) -> None:
        """Wait for a client that reads nothing, but not for ever."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(_STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the client reads again."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _watch_head(self) -> None:
        if self.is_idle and self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self._slots.limits.head_seconds, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.is_idle and not self.transport.is_closing():
            seconds = self._slots.limits.head_seconds
            # A client that sent nothing gets no answer: it may be a connection that was opened in advance.
            if self.conn.trailing_data[0]:
                self._refuse(408, f"the head took more than {seconds:g} s (head_seconds)")
            else:
                self.transport.close()

    def _refuse(self, status: int, reason: str, headers: str = "") -> None:
        """Answer before there is a whole request, and close."""
        body = reason.encode("ascii")
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            "x-content-type-options: nosniff\r\n"
            f"content-length: {len(body)}\r\n{headers}connection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()


def _certificate_name(transport: asyncio.Transport) -> str | None:
    """Return the subject of the certificate that a client showed and that was checked; None without one."""
    ssl_object = transport.get_extra_info("ssl_object")
    certificate = None if ssl_object is None else ssl_object.getpeercert()
    if not certificate:
        return None
    names = [f"{key}={value}" for group in certificate.get("subject", ()) for key, value in group]
    # Logs show it: one word, and nothing that a terminal would obey.
    return ascii(",".join(names))[1:-1].replace(" ", "_")[:_SUBJECT_CHARACTERS_MAX] or "certificate"


def _with_certificate(app: Any, name: str) -> ASGIApp:  # noqa: ANN401 - uvicorn's own type of applications
    """Return the application with the name in the client's certificate, as ASGI's extension `tls` has it."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        extensions = {**scope.get("extensions", {}), "tls": {"client_cert_name": name}}
        await app({**scope, "extensions": extensions}, receive, send)

    return call


class _Server(uvicorn.Server):
    """A server of uvicorn's that calls back when it takes requests."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_started: Callable[[], None],
        on_loop: Callable[[], Awaitable[None]] | None,
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._on_loop = on_loop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._on_loop is not None:
            await self._on_loop()
        await super().startup(sockets)
        self._on_started()


@contextmanager
def _signals_end_the_server() -> Iterator[None]:
    """Let signals end the server only.

    uvicorn raises them once more when it has ended, and the caller still has to close what it holds.
    """
    former = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address.

    Raises:
        StorageError: the address is taken, or not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise StorageError(f"cannot listen on {host}:{port}: {error.strerror or error}.") from error
    return listener


def _existing(root: Path, name: str, path: Path) -> Path:
    file = root / path
    if not file.is_file():
        raise ConfigurationError(f"{name}: expected a file, found none at {file}.")
    return file


def _allowed(connections: int) -> int:
    """Return how many connections this process may have open; it raises its limit of open files as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < files:
        soft = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= files:
        return connections
    # Where the reserve would take almost everything, half of the files are left for connections.
    allowed = max(soft - _OTHER_FILES, soft // 2, 1)
    _LOGGER.warning("connections_max %d: the system allows %d open files, so %d are taken", connections, soft, allowed)
    return allowed
