"""Events acknowledged a second over HTTP: `PYTHONPATH=include python -m benchmarks.events` in the project.

`custody serve --door events` as users start it, in a process of its own; producers are threads of this process, each
with a connection that stays open. Beside it the library's own append, called by as many threads. Both share the
machine. At the end every event that was acknowledged is looked for; a missing one, or one that is there twice, ends
with exit code 1.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec
import numpy as np
import psutil  # type: ignore[import-untyped]
import pyarrow as pa

from benchmarks.append.machine import Machine, load_average
from benchmarks.environment import LOCAL
from custody.model import Event
from custody.repository import Repository
from tests.unit.serving.serve_process import served

_HEAD = "POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n"
_NUMBERS = 10_000_000
"""So many events a producer may number."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way on which one producer stores events."""

    prepare: Callable[[int, int, int], bytes]
    """Returns the body of a call: by producer, first number, events. Not measured."""
    post: Callable[[bytes, int], object]
    """Stores it; raises unless all of it was acknowledged."""
    close: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """What one way gave."""

    name: str
    producers: int
    events: int
    """Of one call."""
    calls: int
    seconds: float
    p50_ms: float
    p99_ms: float
    memory_mib: float | None
    """Most of the server's own memory; None where there is no server."""

    @property
    def events_per_second(self) -> float:
        """Acknowledged events a second."""
        return self.calls * self.events / self.seconds

    def __str__(self) -> str:
        memory = "-" if self.memory_mib is None else f"{self.memory_mib:.0f}"
        return (
            f"{self.name:14} {self.producers:9} {self.events:7} {self.events_per_second:10.0f} "
            f"{self.p50_ms:8.1f} {self.p99_ms:8.1f} {memory:>8}"
        )


def one_event(producer: int, number: int) -> dict[str, object]:
    """An event as a till would send it."""
    return {
        "event_type": "SEND",
        "event_time": 1_772_409_600_000 + number,
        "component_id": f"till.{producer}",
        "component_type": "Till",
        "flowfile_uuid": f"00000000-0000-4000-8000-{number:012d}",
        "file_size": 1000 + number % 1000,
        "transit_uri": "https://shop.example/receipts",
        "updated_attributes": {"filename": f"receipt-{number}.json", "mime.type": "application/json"},
        "source_node": f"till-{producer}",
        "source_ordinal": number,
    }


class _Connection:
    """A producer's connection, which is made anew when the server has closed it."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._address = (place.hostname or "", place.port or 0)
        self._socket: socket.socket | None = None

    def answer(self, request: bytes) -> tuple[bytes, bytes]:
        """Send a request until there is an answer; return its status line and its body."""
        while True:
            # A connection that waited for its producer for too long was closed by the server.
            if self._socket is None:
                self._socket = socket.create_connection(self._address)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                self._socket.sendall(request)
                status, body = _answer(self._socket)
            except ConnectionError:
                status, body = b"", b""
            if status:
                return status, body
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


@contextmanager
def _http(url: str, *, is_arrow: bool) -> Iterator[Callable[[], Way]]:
    kind = "application/vnd.apache.arrow.stream" if is_arrow else "application/x-ndjson"

    def prepare(producer: int, number: int, events: int) -> bytes:
        if is_arrow:
            return _arrow(producer, number, events)
        return b"\n".join(msgspec.json.encode(one_event(producer, number + add)) for add in range(events))

    def connect() -> Way:
        connection = _Connection(url)

        def post(body: bytes, events: int) -> None:
            status, answer = connection.answer(_HEAD.format(kind, len(body)).encode() + body)
            report = json.loads(answer)
            if b" 200 " not in status or report["stored"] + report["repeated"] != events:
                raise RuntimeError(f"expected {events} stored, got {status!r} {answer[:300]!r}")

        return Way(prepare, post, connection.close)

    yield connect


def _answer(connection: socket.socket) -> tuple[bytes, bytes]:
    with connection.makefile("rb") as stream:
        status, length = stream.readline(), 0
        while (line := stream.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return status, stream.read(length)


def _arrow(producer: int, number: int, events: int) -> bytes:
    columns: dict[str, pa.Array] = {}
    numbers = np.arange(number, number + events)
    for name, value in one_event(producer, number).items():
        if isinstance(value, dict):
            kind = pa.map_(pa.string(), pa.string())
            columns[name] = pa.array([[("filename", f"receipt-{n}.json")] for n in numbers], kind)
        else:
            columns[name] = pa.repeat(value, events)
    columns["source_ordinal"] = pa.array(numbers)
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def measure(
    name: str,
    producers: int,
    events: int,
    seconds: float,
    first: int,
    connect: Callable[[], Way],
    pid: int | None,
) -> tuple[Cell, list[tuple[int, int]]]:
    """Let producers store events for a time; return the figures, and (producer, number) of each acknowledged call."""
    until = time.monotonic() + seconds

    def produce(producer: int) -> list[tuple[float, int]]:
        way = connect()
        calls = []
        number = first
        try:
            while time.monotonic() < until:
                body = way.prepare(producer, number, events)
                begun = time.monotonic()
                way.post(body, events)
                calls.append((time.monotonic() - begun, number))
                number += events
        finally:
            way.close()
        return calls

    memory = 0
    begun = time.monotonic()
    with ThreadPoolExecutor(producers) as pool:
        work = [pool.submit(produce, producer) for producer in range(producers)]
        while pid is not None and not all(future.done() for future in work):
            memory = max(memory, psutil.Process(pid).memory_info().rss)
            time.sleep(0.2)
        calls = [(producer, call) for producer, future in enumerate(work) for call in future.result()]
    took = time.monotonic() - begun
    waits = sorted(wait * 1000 for _, (wait, _) in calls)
    cell = Cell(
        name,
        producers,
        events,
        len(calls),
        took,
        statistics.median(waits),
        waits[int((len(waits) - 1) * 0.99)],
        None if pid is None else memory / (1 << 20),
    )
    return cell, [(producer, number) for producer, (_, number) in calls]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--seconds", type=click.FloatRange(min=0.05), default=20.0, help="Time of one cell.")
@click.option("--producers", type=click.IntRange(1, 1000), default=200, help="At once.")
@click.option("--quick", is_flag=True, help="Two producers for 0.3 s: a test of the benchmark.")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk that is measured.")
@click.option("--output", type=click.Path(path_type=Path), help="Where the results go, too, as JSON.")
def main(seconds: float, producers: int, quick: bool, scratch: Path, output: Path | None) -> None:
    """Measure acknowledged events a second, through the server and by the library."""
    if quick:
        seconds, producers = 0.3, 2
    scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="events-", dir=scratch))
    try:
        machine = Machine.look(folder)
        click.echo(f"half of the syncs take at most {machine.disk.sync_p50_ms} ms; load {load_average()}")
        click.echo("way            producers  a call   events/s   p50 ms   p99 ms      MiB")
        root = folder / "repository"
        Repository.create(root)
        acknowledged: list[tuple[int, int, int]] = []
        cells: list[Cell] = []
        with served(root, "--door", "events", "--quiet") as at:
            ways = [("http", 1, False), ("http 100", 100, False), ("arrow 1000", 1000, True)]
            for turn, (name, events, is_arrow) in enumerate(ways):
                with _http(at.url, is_arrow=is_arrow) as connect:
                    first = turn * _NUMBERS
                    cell, calls = measure(name, producers, events, seconds, first, connect, at.process.pid)
                click.echo(str(cell))
                cells.append(cell)
                acknowledged += [(producer, number, events) for producer, number in calls]
        cells.append(_by_library(folder / "library", producers, seconds))
        wrong = _wrong(root, acknowledged)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if output is not None:
        by_way = {cell.name: asdict(cell) | {"events_per_second": cell.events_per_second} for cell in cells}
        document = {"machine": machine.document(), "load_after": load_average(), "ways": by_way}
        output.write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(1 if wrong else 0)


def _by_library(root: Path, producers: int, seconds: float) -> Cell:
    with Repository.create(root).writer() as writer:

        def connect() -> Way:
            return Way(
                lambda producer, number, _: msgspec.json.encode(one_event(producer, number)),
                lambda body, _: writer.append([msgspec.json.decode(body, type=Event)]),
                lambda: None,
            )

        cell, _ = measure("library", producers, 1, seconds, 0, connect, None)
        click.echo(str(cell))
        return cell


def _wrong(root: Path, acknowledged: list[tuple[int, int, int]]) -> int:
    """Return how many acknowledged events are missing or there twice."""
    expected = {(f"till-{p}", number + add) for p, number, events in acknowledged for add in range(events)}
    stored = [(event.source_node, event.source_ordinal) for event in Repository.open(root).events(0, 1 << 40)]
    missing, twice = len(expected - {*stored}), len(stored) - len({*stored})
    click.echo(f"{len(expected)} acknowledged, {missing} of them missing, {twice} stored twice")
    return missing + twice


if __name__ == "__main__":
    main()
