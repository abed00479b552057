"""Receivers of exports as real servers on the loopback: one that takes POST, one that speaks Site-to-Site."""

from __future__ import annotations

import json
import struct
import threading
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Inbox:
    """What a server was sent, and what it answers."""

    url: str = ""
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    """Method, path, headers with names in lower case, body."""
    answer: Callable[[str, str, bytes], Answer] = lambda *_: (204, {}, b"")

    def events(self) -> list[dict[str, Any]]:
        """The events of all arrays, in the order in which they came."""
        return [event for _, _, _, body in self.requests for event in json.loads(body)]


@contextmanager
def http_inbox(answer: Callable[[str, str, bytes], Answer] | None = None) -> Iterator[Inbox]:
    """A server that keeps what it is sent."""
    inbox = Inbox()
    if answer is not None:
        inbox.answer = answer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 5

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            inbox.requests.append((self.command, self.path, headers, body))
            status, extra, content = inbox.answer(self.command, self.path, body)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **extra}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET = do_PUT = do_DELETE = _any

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    inbox.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield inbox
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class NifiPort:
    """A NiFi with one input port, as far as a sender sees it: transactions count once they were confirmed."""

    port: str = "provenance"
    id: str = "5a1f6c1e-0000-4000-8000-000000000001"
    open: dict[str, bytes] = field(default_factory=dict)
    packets: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    """Attributes and content of what was committed."""
    checksum_error: int = 0
    """By how much the next checksums are wrong."""
    at_begin: tuple[int, int] | None = None
    """Status and code with which transactions are refused."""
    peers_url: str = ""
    results: ClassVar[dict[int, int]] = {12: 13, 15: 15, 19: 15}

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """Answer one request."""
        bare, _, query = path.partition("?")
        begin = f"/nifi-api/data-transfer/input-ports/{self.id}/transactions"
        if (method, bare) == ("GET", "/nifi-api/site-to-site"):
            return self._discovery()
        if (method, bare) == ("GET", "/nifi-api/site-to-site/peers"):
            port = int(self.peers_url.rpartition(":")[2])
            peer = {"hostname": "127.0.0.1", "port": port, "secure": False, "flowFileCount": 0}
            return 200, {}, json.dumps({"peers": [peer]}).encode()
        if (method, bare) == ("POST", begin):
            return self._begun()
        identity = bare.removeprefix(f"{begin}/").partition("/")[0]
        if identity not in self.open:
            return 404, {}, b'{"flowFileSent":0,"responseCode":250,"message":"unknown"}'
        if method == "POST":
            self.open[identity] = body
            return 202, {}, str(zlib.crc32(body) + self.checksum_error).encode()
        code = int(query.removeprefix("responseCode="))
        packet = self.open.pop(identity)
        if code == 12:
            self.packets.append(decode_packet(packet))
        return 200, {}, json.dumps({"flowFileSent": 1, "responseCode": self.results[code], "message": ""}).encode()

    def _discovery(self) -> Answer:
        controller = {
            "remoteSiteHttpListeningPort": int(self.peers_url.rpartition(":")[2]),
            "siteToSiteSecure": False,
            "inputPorts": [{"id": self.id, "name": self.port, "state": "RUNNING"}],
            "outputPorts": [],
        }
        return 200, {}, json.dumps({"controller": controller}).encode()

    def _begun(self) -> Answer:
        if self.at_begin is not None:
            status, code = self.at_begin
            return status, {}, json.dumps({"flowFileSent": 0, "responseCode": code, "message": "no"}).encode()
        identity = str(uuid.uuid4())
        self.open[identity] = b""
        location = f"/data-transfer/input-ports/{self.id}/transactions/{identity}"
        headers = {
            "Location": location,
            "x-location-uri-intent": "transaction-url",
            "x-nifi-site-to-site-protocol-version": "1",
            "x-nifi-site-to-site-server-transaction-ttl": "30",
        }
        return 201, headers, b""


def decode_packet(packet: bytes) -> tuple[dict[str, str], bytes]:
    """Attributes and content of a packet, which must be nothing but one."""
    (count,), place, texts = struct.unpack_from(">i", packet), 4, []
    for _ in range(2 * count):
        (length,) = struct.unpack_from(">i", packet, place)
        texts.append(packet[place + 4 : place + 4 + length].decode())
        place += 4 + length
    (length,) = struct.unpack_from(">q", packet, place)
    content = packet[place + 8 :]
    assert len(content) == length
    return dict(zip(texts[::2], texts[1::2], strict=True)), content
