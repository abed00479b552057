"""Notifications acknowledged a second: `PYTHONPATH=.:include python -m tests.benchmarks.receiver [FOLDER]`.

A receiver as users start it, in a process of its own; clients are threads of this process that post Orion's
notifications over connections that stay open. Both share the machine, so the clients' work counts too. At the end every
content that was acknowledged is compared with what was sent.
"""

from __future__ import annotations

import json
import re
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped]

from custody.repository import Repository
from tests.unit.ngsi.receiving import Receiving, receiving

CLIENTS = (1, 4, 16, 64)
SECONDS = 5.0
_HEAD = (
    "POST /notify HTTP/1.1\r\nHost: localhost\r\nUser-Agent: orion/4.7.0\r\nFiware-Service: vehicles\r\n"
    "Fiware-ServicePath: /4wheels\r\nFiware-Correlator: {}\r\nNgsiv2-AttrsFormat: normalized\r\n"
    "Content-Type: application/json; charset=utf-8\r\nContent-Length: {}\r\n\r\n"
)
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def body(number: int) -> bytes:
    """One entity with six attributes, as a vehicle would send."""
    names = ("speed", "oil_level", "rpm", "latitude", "longitude", "temperature")
    values = {name: {"type": "Number", "value": number / 7 + at, "metadata": {}} for at, name in enumerate(names)}
    data = [{"id": f"urn:car:{number}", "type": "Car", **values}]
    return json.dumps({"subscriptionId": "57458eb60962ef754e7c0998", "data": data}).encode()


def post(at: Receiving, client: int, until: float) -> Iterator[tuple[float, int, bytes]]:
    """Post until a time; yield seconds, event id and body of each notification that was answered with 200."""
    place = urlsplit(at.url)
    with socket.create_connection((place.hostname or "", place.port or 0)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb")
        number = client * 10_000_000
        while time.monotonic() < until:
            number += 1
            sent = body(number)
            begun = time.monotonic()
            connection.sendall(_HEAD.format(number, len(sent)).encode() + sent)
            status, length = stream.readline(), 0
            while (line := stream.readline()) != b"\r\n":
                found = _LENGTH.match(line)
                length = int(found[1]) if found else length
            answer = stream.read(length)
            if b" 200 " not in status:
                raise RuntimeError(f"{status!r} {answer!r}")
            yield time.monotonic() - begun, json.loads(answer)["first_event_id"], sent


def _posted(at: Receiving, client: int, until: float) -> list[tuple[float, int, bytes]]:
    return list(post(at, client, until))


def cpu_seconds(at: Receiving) -> float:
    """Return the CPU time that the receiver has taken."""
    used = psutil.Process(at.process.pid).cpu_times()
    return float(used.user + used.system)


def measure(at: Receiving, clients: int) -> tuple[str, list[tuple[int, bytes]]]:
    """Return a row of the report, and what was acknowledged."""
    before, used = at.health(), cpu_seconds(at)
    begun = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        work = [pool.submit(_posted, at, number, begun + SECONDS) for number in range(clients)]
        told = [item for future in work for item in future.result()]
    seconds = time.monotonic() - begun
    used = cpu_seconds(at) - used
    after = at.health()
    times = sorted(item[0] * 1000 for item in told)
    batch = len(told) / max(after["batches"] - before["batches"], 1)
    p99 = times[int(len(times) * 0.99)]
    row = f"{clients:7} {len(told) / seconds:10.0f} {statistics.median(times):8.2f} {p99:8.2f} {batch:10.1f}"
    row += f" {used / len(told) * 1000:13.2f}"
    return row, [(number, sent) for _, number, sent in told]


def syncs_per_second(folder: Path) -> float:
    """Return how many small writes a second the disk takes with a sync each."""
    import os

    path = folder / "probe"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    begun, count = time.monotonic(), 0
    while time.monotonic() - begun < 1:
        os.write(descriptor, b"x" * 600)
        os.fdatasync(descriptor)
        count += 1
    os.close(descriptor)
    path.unlink()
    return count / (time.monotonic() - begun)


def main(folder: Path) -> None:
    """Measure, print, and compare what was stored."""
    print(f"the disk takes {syncs_per_second(folder):.0f} syncs a second")  # noqa: T201
    root = folder / "repository"
    Repository.create(root)
    told: list[tuple[int, bytes]] = []
    print("clients   acks/s   p50 ms   p99 ms   per batch   CPU ms each")  # noqa: T201
    with receiving(root, "--quiet") as at:
        for clients in CLIENTS:
            row, stored = measure(at, clients)
            told += stored
            print(row, flush=True)  # noqa: T201
    repository = Repository.open(root)
    events = {event.event_id: event for event in repository.get_many([number for number, _ in told])}
    wrong = sum(repository.content(events[number]).read() != sent for number, sent in told)
    print(f"{len(told)} acknowledged, {wrong} of them not as they were sent")  # noqa: T201


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
