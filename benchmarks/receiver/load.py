"""Clients that post Orion's notifications over connections that stay open, and what became of them."""

from __future__ import annotations

import json
import re
import socket
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped]

from tests.unit.serving.receiver_process import Receiving

_HEAD = (
    "POST /notify HTTP/1.1\r\nHost: localhost\r\nUser-Agent: orion/4.7.0\r\nFiware-Service: vehicles\r\n"
    "Fiware-ServicePath: /4wheels\r\nFiware-Correlator: {}\r\nNgsiv2-AttrsFormat: normalized\r\n"
    "Content-Type: application/json; charset=utf-8\r\nContent-Length: {}\r\n\r\n"
)
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_NAMES = ("speed", "oil_level", "rpm", "latitude", "longitude", "temperature")
_NUMBERS = 10_000_000
"""So many notifications a client may number."""


@dataclass(frozen=True, slots=True)
class Posted:
    """One notification that was answered with 200."""

    seconds: float
    event_id: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Round:
    """What one cell of the grid gave in one round."""

    clients: int
    entities: int
    seconds: float
    notifications: int
    p50_ms: float
    p99_ms: float
    per_batch: float | None
    """Notifications that were stored in one go; None where nothing is stored."""
    cpu_ms: float
    """CPU time of the receiver for each notification."""
    client_cpu_ms: float
    """CPU time of this process for each notification: the clients share the machine."""

    @property
    def per_second(self) -> float:
        """Notifications acknowledged a second."""
        return self.notifications / self.seconds


def body(number: int, entities: int) -> bytes:
    """Return a notification of entities with six attributes each, as vehicles would send them."""
    data = []
    for index in range(entities):
        values = {name: {"type": "Number", "value": number / 7 + at, "metadata": {}} for at, name in enumerate(_NAMES)}
        data.append({"id": f"urn:car:{number}:{index}", "type": "Car", **values})
    return json.dumps({"subscriptionId": "57458eb60962ef754e7c0998", "data": data}).encode()


def measure(at: Receiving, clients: int, entities: int, seconds: float, first: int) -> tuple[Round, list[Posted]]:
    """Post from so many clients for a time; notifications are numbered from `first` on.

    Raises:
        RuntimeError: one was not answered with 200.
    """
    before, used, own = at.health(), _cpu_seconds(at.process.pid), time.process_time()
    begun = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        work = [
            pool.submit(lambda at_number: list(_post(at, at_number, entities, begun + seconds)), first + n * _NUMBERS)
            for n in range(clients)
        ]
        posted = [item for future in work for item in future.result()]
    took = time.monotonic() - begun
    used, own = _cpu_seconds(at.process.pid) - used, time.process_time() - own
    after = at.health()
    waits = sorted(item.seconds * 1000 for item in posted)
    batches = after.get("batches", 0) - before.get("batches", 0)
    result = Round(
        clients=clients,
        entities=entities,
        seconds=took,
        notifications=len(posted),
        p50_ms=statistics.median(waits),
        p99_ms=waits[int((len(waits) - 1) * 0.99)],
        per_batch=len(posted) / batches if batches else None,
        cpu_ms=used / len(posted) * 1000,
        client_cpu_ms=own / len(posted) * 1000,
    )
    return result, posted


def _post(at: Receiving, number: int, entities: int, until: float) -> Iterator[Posted]:
    place = urlsplit(at.url)
    with socket.create_connection((place.hostname or "", place.port or 0)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb")
        while True:
            number += 1
            sent = body(number, entities)
            request = _HEAD.format(number, len(sent)).encode() + sent
            begun = time.monotonic()
            connection.sendall(request)
            status, length = stream.readline(), 0
            while (line := stream.readline()) not in (b"\r\n", b""):
                match = _LENGTH.match(line)
                length = int(match[1]) if match else length
            answer = stream.read(length)
            if b" 200 " not in status:
                raise RuntimeError(f"expected 200, got {status!r} {answer!r}")
            yield Posted(time.monotonic() - begun, json.loads(answer)["first_event_id"], sent)
            if time.monotonic() >= until:
                return


def _cpu_seconds(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)
