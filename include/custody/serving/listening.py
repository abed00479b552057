"""Serving an application on its own: a process with one event loop, which ends well on SIGTERM.

Beyond this machine it is served only to who is known: by a token, or by a client certificate.
"""

from __future__ import annotations

import ipaddress
import logging
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from custody.config.listening import ListenerSection
from custody.errors import ConfigurationError, StorageError
from custody.serving.connections import BoundedProtocol, Limits, Places
from custody.serving.tokens import Tokens

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
