"""A proxy before an S3 server that makes it slow, and answers requests wrongly: a network and a service on a bad day.

It counts what it sees, so that a test can compare the requests that custody counted with those that came.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

Fault = Literal["500", "503", "lost", "hang", "slow", "expired", "dropped"]
"""An error of the server before it did anything, a server that asks to slow down, an answer that is lost after the
request was done, one that never comes though it was done, one that comes late, a refusal of credentials that were
good a moment ago, or a request that never arrives."""
_EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
_SLOW_SECONDS = 1.0
_HANG_SECONDS_MAX = 300
"""After so long a test must have had a bound of its own: AWS_TIMEOUT."""
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "trailer", "upgrade", "proxy-connection"}


class StoreProxy:
    """What the proxy does, which tests change while it runs.

    Args:
        upstream: the server's URL.
        latency_seconds: added to each request, as a round trip takes it.
    """

    def __init__(self, upstream: str, latency_seconds: float = 0.0) -> None:
        self.upstream = urlsplit(upstream)
        self.latency_seconds = latency_seconds
        self.fault: Callable[[int, str], Fault | None] = lambda number, method: None
        """What goes wrong with a request, by its number and its method."""
        self.watch: Callable[[str, str], Fault | None] = lambda method, path: None
        """Is told of each request before it is done, its method and its path, and may say what goes wrong with it."""
        self.watch_done: Callable[[str, str], Fault | None] = lambda method, path: None
        """The same after it was done and before it is answered: `lost` is what may go wrong then."""
        self.is_careless = False
        """Whether a name that is taken is written over, as services without conditional puts do."""
        self.seen: Counter[str] = Counter()
        """Requests by method; of those with a range, RANGE."""
        self.given_up: Counter[str] = Counter()
        """Requests by method that were done and whose answers the client did not wait for."""
        self.url = ""
        self._number = 0
        self._lock = threading.Lock()

    def next_fault(self, method: str, headers: Message) -> Fault | None:
        """Count a request, and say what goes wrong with it."""
        with self._lock:
            self._number += 1
            self.seen["RANGE" if method == "GET" and "Range" in headers else method] += 1
            return self.fault(self._number, method)


@contextmanager
def store_proxy(
    upstream: str | StoreProxy, latency_seconds: float = 0.0, address: tuple[str, int] = ("127.0.0.1", 0)
) -> Iterator[StoreProxy]:
    """Run a proxy, or one that is made already, before a server in threads of this process."""
    proxy = upstream if isinstance(upstream, StoreProxy) else StoreProxy(upstream, latency_seconds)

    class Handler(_Handler):
        pass

    Handler.proxy = proxy
    server = ThreadingHTTPServer(address, Handler)
    server.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    proxy: StoreProxy
    protocol_version = "HTTP/1.1"
    # Head and body leave as two packets: without this the second waits for the answer to the first.
    disable_nagle_algorithm = True
    wbufsize = -1

    def setup(self) -> None:
        super().setup()
        self._upstream = http.client.HTTPConnection(str(self.proxy.upstream.hostname), self.proxy.upstream.port)

    def finish(self) -> None:
        self._upstream.close()
        super().finish()

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.proxy.watch(self.command, self.path) or self.proxy.next_fault(self.command, self.headers)
        time.sleep(self.proxy.latency_seconds + (_SLOW_SECONDS if fault == "slow" else 0.0))
        if fault == "expired":
            head = {"Content-Type": "application/xml", "Content-Length": str(len(_EXPIRED))}
            self._answer(403, "Forbidden", head, b"" if self.command == "HEAD" else _EXPIRED)
            return
        if fault == "dropped":
            self.close_connection = True
            return
        if fault in ("500", "503"):
            self._answer(int(fault), "Bad Day", {"Content-Length": "0"}, b"")
            return
        left_out = _HOP_BY_HOP | ({"if-none-match"} if self.proxy.is_careless else set())
        headers = {name: value for name, value in self.headers.items() if name.lower() not in left_out}
        self._upstream.request(self.command, self.path, body, headers)
        response = self._upstream.getresponse()
        data = response.read()
        fault = self.proxy.watch_done(self.command, self.path) or fault
        if fault in ("lost", "hang"):
            self.close_connection = True
            if fault == "hang" and self._client_leaves():
                self.proxy.given_up[self.command] += 1
            return
        own = {name: value for name, value in response.getheaders() if name.lower() not in _HOP_BY_HOP}
        if self.command != "HEAD":
            own = {name: value for name, value in own.items() if name.lower() != "content-length"}
            own["Content-Length"] = str(len(data))
        self._answer(response.status, response.reason, own, data)

    def _client_leaves(self) -> bool:
        """Wait until the client closes the connection; return whether it did."""
        self.connection.settimeout(_HANG_SECONDS_MAX)
        try:
            return not self.connection.recv(1)
        except TimeoutError:
            return False
        except OSError:
            return True

    def _answer(self, status: int, reason: str, headers: dict[str, str], data: bytes) -> None:
        self.send_response_only(status, reason)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _handle

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
