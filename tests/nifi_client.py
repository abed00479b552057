"""A twin of NiFi's Site-to-Site client and of its provenance reporting task, written from what they were seen to do.

It shares no code with custody, so that a mistake in one is not hidden by the same mistake in the other. As NiFi's own:
discovery, then a peer, then transactions of one packet each; an answer that is lost to DELETE is asked for again three
times; anything else that is lost ends the transaction, and the task sends the same events in a new one later.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import ssl
import struct
import sys
import threading
import time
import uuid
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

Json = dict[str, Any]
CHUNK = 65_536
DELETE_TRIES = 4
RESULT_KEYS = {"flowFileSent", "responseCode", "message"}


class SendError(Exception):
    """A transaction that failed: the events have to be sent again."""


def attributes(kind: str = "SiteToSiteProvenanceReportingTask") -> dict[str, str]:
    """What a reporting task says of its packet."""
    return {
        "reporting.task.transaction.id": str(uuid.uuid4()),
        "reporting.task.name": "twin",
        "reporting.task.uuid": "0c0ffee0-0000-4000-8000-000000000009",
        "reporting.task.type": kind,
        "mime.type": "application/json",
    }


def packed(names: dict[str, str], content: bytes) -> bytes:
    """A packet, as NiFi's codec writes it."""
    texts = [text.encode() for pair in names.items() for text in pair]
    parts = [struct.pack(">i", len(text)) + text for text in texts]
    return b"".join([struct.pack(">i", len(names)), *parts, struct.pack(">q", len(content)), content])


def compressed(packet: bytes, chunk: int = CHUNK) -> bytes:
    """A packet in chunks, as NiFi's compressing stream writes it."""
    parts = []
    for start in range(0, len(packet), chunk):
        plain = packet[start : start + chunk]
        data = zlib.compress(plain, 1)
        parts.append((b"\x01" if start else b"") + b"SYNC" + struct.pack(">ii", len(plain), len(data)) + data)
    return b"".join(parts) + b"\x00"


class Sender(Protocol):
    """Sends packets, each in one transaction."""

    def send(self, packets: Sequence[bytes]) -> None:
        """Send packets in one transaction; raises SendError."""
        ...

    def close(self) -> None:
        """Close what is kept open."""
        ...


@dataclass
class HttpSender:
    """The client over HTTP, which opens connections for each transaction.

    `lost` is the share of answers to DELETE that do not arrive, `late` that of those that come when the client gave up.
    """

    url: str
    port_name: str = "provenance"
    is_compressed: bool = False
    timeout: float = 30.0
    lost: float = 0.0
    late: float = 0.0
    dice: random.Random = field(default_factory=lambda: random.Random(0))
    tls: ssl.SSLContext | None = None
    pause: float = 0.0
    """Seconds to wait within the body."""
    extended: int = 0
    repeated: int = 0

    def close(self) -> None:
        """Nothing is kept open."""

    def headers(self) -> dict[str, str]:
        names = {
            "x-nifi-site-to-site-protocol-version": "1",
            "x-nifi-site-to-site-request-expiration": "30000",
            "Accept": "application/json",
        }
        return {**names, "x-nifi-site-to-site-use-compression": "true"} if self.is_compressed else names

    def connect(self, host: str, port: int, is_secure: bool, timeout: float) -> http.client.HTTPConnection:
        if is_secure:
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self.tls)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def discover(self) -> tuple[str, str, int, bool]:
        """Port id, and host, port and TLS of the peer."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        path = parts.path.rstrip("/")
        path = path + "-api" if path.endswith("/nifi") else path + "/nifi-api"
        controller = self.get(parts.hostname, parts.port or 80, parts.scheme == "https", f"{path}/site-to-site")[
            "controller"
        ]
        assert controller["outputPorts"] == []
        ids = [port["id"] for port in controller["inputPorts"] if port["name"] == self.port_name]
        if not ids:
            raise SendError(f"no port {self.port_name!r}")
        secure = controller["siteToSiteSecure"]
        asked = controller["remoteSiteHttpListeningPort"]
        [peer] = self.get(parts.hostname, asked, secure, "/nifi-api/site-to-site/peers")["peers"]
        return ids[0], peer["hostname"], peer["port"], peer["secure"]

    def get(self, host: str, port: int, is_secure: bool, path: str) -> Json:
        try:
            with closing(self.connect(host, port, is_secure, self.timeout)) as connection:
                connection.request("GET", path, headers=self.headers())
                answer = connection.getresponse()
                body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise SendError(f"GET {path}: {error}") from error
        if answer.status != 200:
            raise SendError(f"GET {path}: {answer.status} {body.decode()}")
        return dict(json.loads(body))

    def send(self, packets: Sequence[bytes]) -> None:
        port_id, host, port, is_secure = self.discover()
        try:
            with closing(self.connect(host, port, is_secure, self.timeout)) as connection:
                location = self._begin(connection, port_id)
                checksum = self._body(connection, host, port, is_secure, location, packets)
        except (OSError, http.client.HTTPException) as error:
            raise SendError(f"not sent: {error}") from error
        plain = 0
        for packet in packets:
            plain = zlib.crc32(packet, plain)
        code = 12 if checksum == str(plain) else 19
        answer = self.end(host, port, is_secure, location, code)
        if code == 19:
            raise SendError(f"checksum {checksum} of {plain}")
        if answer["responseCode"] != 13 or answer["flowFileSent"] != len(packets):
            raise SendError(f"not finished: {answer}")

    def _begin(self, connection: http.client.HTTPConnection, port_id: str) -> str:
        path = f"/nifi-api/data-transfer/input-ports/{port_id}/transactions"
        connection.request("POST", path, body=iter(()), headers=self.headers(), encode_chunked=True)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 201:
            raise SendError(f"POST: {answer.status} {body.decode()}")
        # Each of these headers the client insists on.
        assert answer.headers["x-location-uri-intent"] == "transaction-url"
        assert answer.headers["x-nifi-site-to-site-protocol-version"] == "1"
        self.seconds = int(answer.headers["x-nifi-site-to-site-server-transaction-ttl"])
        assert self.seconds >= 2
        location = answer.headers["Location"]
        return location if location.startswith("/nifi-api") else f"/nifi-api{location}"

    def _body(
        self,
        connection: http.client.HTTPConnection,
        host: str,
        port: int,
        is_secure: bool,
        location: str,
        packets: Sequence[bytes],
    ) -> str:
        ended = threading.Event()

        def extend() -> None:
            while not ended.wait(self.seconds // 2):
                with closing(self.connect(host, port, is_secure, self.timeout)) as other:
                    other.request("PUT", location, headers=self.headers())
                    assert other.getresponse().status == 200
                    self.extended += 1

        thread = threading.Thread(target=extend)
        thread.start()
        try:
            headers = {**self.headers(), "Accept": "text/plain", "Content-Type": "application/octet-stream"}
            connection.request(
                "POST", f"{location}/flow-files", body=self._pieces(packets), headers=headers, encode_chunked=True
            )
        finally:
            ended.set()
            thread.join()
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 202:
            raise SendError(f"POST flow-files: {answer.status} {body.decode()}")
        return body.decode()

    def _pieces(self, packets: Sequence[bytes]) -> Iterator[bytes]:
        for number, packet in enumerate(packets):
            data = compressed(packet) if self.is_compressed else packet
            for start in range(0, len(data), 16_384):
                if self.pause and not start and not number:
                    yield data[:7]
                    time.sleep(self.pause)
                    yield data[7:16_384]
                    continue
                yield data[start : start + 16_384]

    def end(self, host: str, port: int, is_secure: bool, location: str, code: int) -> Json:
        """DELETE: repeated at once while the connection ends without an answer, but not when the answer is late."""
        fate = self.dice.random()
        path = f"{location}?responseCode={code}"
        for _ in range(DELETE_TRIES):
            try:
                with closing(self.connect(host, port, is_secure, self.timeout)) as connection:
                    connection.request("DELETE", path, headers=self.headers())
                    if fate < self.lost:
                        fate = 1.0
                        self.repeated += 1
                        continue  # what came on this connection is never seen
                    if fate < self.lost + self.late:
                        time.sleep(0.01)
                        raise SendError("the answer to DELETE is late: not known whether it was processed")
                    answer = connection.getresponse()
                    body = answer.read()
            except (ConnectionError, http.client.RemoteDisconnected):
                self.repeated += 1
                continue
            except (OSError, http.client.HTTPException) as error:
                raise SendError(f"DELETE: {error}") from error
            document = dict(json.loads(body))
            assert set(document) <= RESULT_KEYS, document  # clients before 2.7 take one more key for a failure
            if answer.status not in (200, 400):
                raise SendError(f"DELETE: {answer.status} {document}")
            return document
        raise SendError("DELETE: no answer")


class RawSender:
    """The client over a socket, which keeps its connection for later transactions."""

    def __init__(
        self, url: str, *, is_compressed: bool = False, lost: float = 0.0, dice: random.Random | None = None
    ) -> None:
        self.finder = HttpSender(url)
        self.is_compressed = is_compressed
        self.lost = lost
        self.dice = dice or random.Random(0)
        self.socket: socket.socket | None = None
        self.version = 6
        self.tls: ssl.SSLContext | None = None

    def discovered(self) -> tuple[str, int, str]:
        """Host and port of the socket, and the id of the input port."""
        controller_host = urlsplit(self.finder.url)
        host = controller_host.hostname
        assert host is not None
        document = self.finder.get(host, controller_host.port or 80, False, "/nifi-api/site-to-site")["controller"]
        return host, document["remoteSiteListeningPort"], document["inputPorts"][0]["id"]

    def connect(self, host: str, port: int, port_id: str | None, is_secure: bool = False) -> None:
        plain = socket.create_connection((host, port), timeout=30)
        self.socket = plain
        if is_secure:
            assert self.tls is not None
            self.socket = self.tls.wrap_socket(plain, server_hostname=host)
        self.socket.sendall(b"NiFi")
        self.negotiate("SocketFlowFileProtocol", self.version)
        properties = {"GZIP": str(self.is_compressed).lower(), "REQUEST_EXPIRATION_MILLIS": "30000"}
        if port_id is not None:
            properties["PORT_IDENTIFIER"] = port_id
        self.say(str(uuid.uuid4()), f"nifi://{host}:{port}")
        self.socket.sendall(struct.pack(">i", len(properties)))
        for pair in properties.items():
            self.say(*pair)
        code, message = self.code()
        if code != 1:
            self.close()
            raise SendError(f"handshake: {code} {message}")

    def negotiate(self, name: str, version: int) -> None:
        assert self.socket is not None
        while True:
            self.say(name)
            self.socket.sendall(struct.pack(">i", version))
            [status] = self.exactly(1)
            if status == 20:
                return
            if status != 21:
                raise SendError(f"{name}: {status} {self.text()}")
            [version] = struct.unpack(">i", self.exactly(4))

    def peers(self) -> list[tuple[str, int, bool, int]]:
        self.say("REQUEST_PEER_LIST")
        [count] = struct.unpack(">i", self.exactly(4))
        return [(self.text(), *struct.unpack(">i?i", self.exactly(9))) for _ in range(count)]

    def send(self, packets: Sequence[bytes]) -> None:
        try:
            self._send(packets)
        except (OSError, EOFError) as error:
            self.close()
            raise SendError(f"RAW: {error}") from error
        except SendError:
            self.close()
            raise

    def _send(self, packets: Sequence[bytes]) -> None:
        if self.socket is None:
            self.connect(*self.discovered())
            self.say("NEGOTIATE_FLOWFILE_CODEC")
            self.negotiate("StandardFlowFileCodec", 1)
        assert self.socket is not None
        self.say("SEND_FLOWFILES")
        plain = 0
        for number, packet in enumerate(packets):
            plain = zlib.crc32(packet, plain)
            data = compressed(packet) if self.is_compressed else packet
            self.socket.sendall(data + (b"RC\x0b" if number == len(packets) - 1 else b"RC\x0a"))
        code, checksum = self.code()
        if (code, checksum) != (12, str(plain)):
            self.socket.sendall(b"RC\x13")
            raise SendError(f"checksum {code} {checksum}")
        self.socket.sendall(b"RC\x0c\x00\x00")
        if self.dice.random() < self.lost:
            raise SendError("the answer is lost")
        code, message = self.code()
        if code not in (13, 14):
            raise SendError(f"not finished: {code} {message}")

    def code(self) -> tuple[int, str]:
        mark = self.exactly(3)
        assert mark[:2] == b"RC", mark
        return mark[2], self.text() if mark[2] in (12, 15, 201, 230, 231, 232, 240, 250) else ""

    def say(self, *texts: str) -> None:
        assert self.socket is not None
        for text in texts:
            self.socket.sendall(struct.pack(">H", len(text.encode())) + text.encode())

    def text(self) -> str:
        [length] = struct.unpack(">H", self.exactly(2))
        return self.exactly(length).decode() if length else ""

    def exactly(self, length: int) -> bytes:
        assert self.socket is not None
        data = b""
        while len(data) < length:
            piece = self.socket.recv(length - len(data))
            if not piece:
                raise EOFError("closed")
            data += piece
        return data

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None


@dataclass
class ReportingTask:
    """The reporting task: from the event that its state names, batch by batch, until one fails.

    What NiFi looks up when it sends is another text in each try: a user renames components meanwhile.
    """

    events: list[Json]
    sender: Sender
    batch: int = 1000
    state: int = 0
    tries: int = 0
    failures: int = 0

    def trigger(self) -> bool:
        """Send what is there; return whether all was sent."""
        while self.state < len(self.events):
            self.tries += 1
            chosen = self.events[self.state : self.state + self.batch]
            told = [
                {**item, "eventId": str(uuid.uuid4()), "componentName": f"name {self.tries}", "processGroupName": None}
                for item in chosen
            ]
            try:
                self.sender.send([packed(attributes(), json.dumps(told).encode())])
            except SendError:
                self.failures += 1
                return False
            self.state += len(chosen)
        return True


def main() -> int:
    """Deliver files, one a transaction: `python -m tests.nifi_client URL PORT HTTP|RAW true|false SECONDS FILE...`.

    The arguments, and the line at the end, are those of `tests/services/NifiSender.java`.
    """
    url, port_name, transport, is_compressed, seconds, *files = sys.argv[1:]
    deadline = time.monotonic() + float(seconds)
    sender: Sender = HttpSender(url, port_name, is_compressed == "true")
    if transport == "RAW":
        sender = RawSender(url, is_compressed=is_compressed == "true")
    tries = failures = 0
    waiting = deque(files)
    while waiting and time.monotonic() < deadline:
        tries += 1
        try:
            sender.send([packed(attributes(), Path(waiting[0]).read_bytes())])
            waiting.popleft()
        except SendError:
            failures += 1
            time.sleep(0.1)
    sender.close()
    sys.stdout.write(f"left={len(waiting)} tries={tries} failures={failures}\n")
    return 1 if waiting else 0


if __name__ == "__main__":
    sys.exit(main())
