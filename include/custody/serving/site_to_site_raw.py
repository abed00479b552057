"""The listener of the RAW transport of Site-to-Site: a thread a connection, bounded in number and in silence."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Protocol

from custody.config.sections import ListenerSection, SiteToSiteSection
from custody.errors import CustodyError, StorageError
from custody.serving.http_server import file_of
from custody.site_to_site.protocol import Peer
from custody.site_to_site.raw_protocol import RawSession
from custody.site_to_site.transactions import EndedTransaction, Staging

_LOGGER = logging.getLogger(__name__)
_CONNECTIONS_MAX = 256
"""A connection costs a thread."""
_POLL_SECONDS = 0.05
_BACKLOG = 128
_READ_BYTES = 1 << 16


class ServedPort(Protocol):
    """What the listener asks of the input port; the address is its own matter."""

    def admits(self, port_id: str) -> bool:
        """Whether this is the id of the port."""
        ...

    def is_full(self) -> bool:
        """Whether no transaction can be begun now."""
        ...

    def begin(self, *, is_compressed: bool) -> tuple[str, Staging]:
        """Begin a transaction."""
        ...

    def commit(self, transaction: str, port_id: str) -> EndedTransaction:
        """Store a transaction durably, which came to the port with this id."""
        ...


class RawListener:
    """Listens from its construction on; ended by `close`.

    Args:
        root: the repository's folder.
        listener: address and TLS.
        port: to listen on; 0 takes a free one.
        served: the input port.
        options: how long a transaction lives, and what senders are told.

    Raises:
        StorageError: the address cannot be listened on.
    """

    def __init__(
        self, root: Path, listener: ListenerSection, port: int, served: ServedPort, options: SiteToSiteSection
    ) -> None:
        self._tls = _tls(root, listener)
        self._listener = listener
        self._served = served
        self._options = options
        self._changed = threading.Condition()
        self._connections: dict[_Connection, threading.Thread] = {}
        self._is_closing = False
        self._socket = _listen(listener.host, port)
        self.port: int = self._socket.getsockname()[1]
        """The port that is listened on."""
        self._thread = threading.Thread(target=self._accept, name="custody-raw", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections, close those that wait, and let transactions end; a second call does nothing."""
        with self._changed:
            if self._is_closing:
                return
            self._is_closing = True
        self._thread.join()
        self._socket.close()
        deadline = time.monotonic() + self._listener.stop_seconds
        with self._changed:
            while self._connections:
                for connection in self._connections:
                    if connection.is_idle or time.monotonic() >= deadline:
                        connection.shut()
                self._changed.wait(_POLL_SECONDS)

    def _accept(self) -> None:
        self._socket.settimeout(_POLL_SECONDS)
        while not self._is_closing:
            try:
                accepted, address = self._socket.accept()
            except TimeoutError:
                continue
            except OSError as error:
                _LOGGER.warning("a RAW connection could not be accepted: %s", error)
                time.sleep(_POLL_SECONDS)
                continue
            self._start(_Connection(accepted, str(address[0])))

    def _start(self, connection: _Connection) -> None:
        with self._changed:
            if len(self._connections) >= min(_CONNECTIONS_MAX, self._listener.connections_max):
                connection.end()
                return
            thread = threading.Thread(target=self._serve, args=(connection,), name="custody-raw", daemon=True)
            self._connections[connection] = thread
        thread.start()

    def _serve(self, connection: _Connection) -> None:
        try:
            # All of the greeting has one deadline: a stranger who sends a byte now and then holds a thread no longer.
            connection.deadline = time.monotonic() + self._listener.head_seconds
            connection.secure(self._tls)
            session = RawSession(connection.read, connection.write, _AtAddress(self, self._served))
            session.run(lambda: connection.wait_for_request(float(self._options.transaction_seconds)))
        except (EOFError, OSError) as error:
            if not isinstance(error, CustodyError):
                _LOGGER.info("%s: the RAW connection ended: %s", connection.address, error or "closed in the middle")
            else:
                _LOGGER.warning("%s: %s", connection.address, error)
        except CustodyError as error:
            _LOGGER.warning("%s: %s", connection.address, error)
        finally:
            connection.end()
            with self._changed:
                self._connections.pop(connection, None)
                self._changed.notify_all()

    def peer(self, asked: str) -> Peer:
        """Return the address that a client is told: the configured one, or that at which it asked."""
        options = self._options
        is_secure = options.is_secure(is_served=self._tls is not None)
        return Peer(options.advertised_host or asked or self._listener.host, self.port, is_secure)


class _AtAddress:
    """The input port of one connection, with what its client is told of the address."""

    def __init__(self, listener: RawListener, served: ServedPort) -> None:
        self._served = served
        self._port_id = ""
        self.peer = listener.peer
        self.is_full, self.begin = served.is_full, served.begin

    def admits(self, port_id: str) -> bool:
        self._port_id = port_id
        return self._served.admits(port_id)

    def commit(self, transaction: str) -> EndedTransaction:
        return self._served.commit(transaction, self._port_id)


class _Connection:
    """A socket that blocks, but not for ever."""

    def __init__(self, accepted: socket.socket, address: str) -> None:
        self._socket = accepted
        self._buffer = bytearray()
        self._seconds = 0.0
        self.address = address
        self.deadline: float | None = None
        """Until when all has to have come; None while each piece has its own time."""
        self.is_idle = False
        """Whether it waits for the next request."""

    def secure(self, tls: ssl.SSLContext | None) -> None:
        """Speak TLS from now on, if there is any."""
        if tls is not None:
            self._socket.settimeout(self._remaining())
            self._socket = tls.wrap_socket(self._socket, server_side=True)

    def wait_for_request(self, seconds: float) -> None:
        """Note that the next bytes begin a request; from now on each piece may take so long."""
        self._seconds, self.deadline = seconds, None
        self.is_idle = not self._buffer

    def read(self, length: int) -> bytes:
        """Return exactly so many bytes.

        Raises:
            EOFError: the client closed the connection.
            TimeoutError: they took too long.
        """
        while len(self._buffer) < length:
            self._socket.settimeout(self._remaining())
            piece = self._socket.recv(_READ_BYTES)
            if not piece:
                raise EOFError
            self.is_idle = False
            self._buffer += piece
        data = bytes(self._buffer[:length])
        del self._buffer[:length]
        return data

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._socket.settimeout(self._remaining())
        self._socket.sendall(data)

    def shut(self) -> None:
        """Make a thread that reads or writes here end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Close it."""
        self._socket.close()

    def _remaining(self) -> float:
        if self.deadline is None:
            return self._seconds
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("the greeting took too long (site_to_site.head_seconds)")
        return remaining


def _tls(root: Path, listener: ListenerSection) -> ssl.SSLContext | None:
    certificate = file_of(root, listener.tls_certificate)
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, file_of(root, listener.tls_key))
    authority = file_of(root, listener.tls_client_ca)
    if authority is not None:
        context.load_verify_locations(authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Workers share the port: a conversation is with one of them, from its beginning to its end.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StorageError(f"cannot listen on {host}:{port} (RAW): {error.strerror or error}.") from error
    return listener
