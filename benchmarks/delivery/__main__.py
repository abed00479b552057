"""Events a second from many producers over the network: `PYTHONPATH=include python -m benchmarks.delivery`.

A server as users start it, `custody serve`, and producers in processes of their own: by `POST /events`, and as NiFi's
reporting task delivers, by Site-to-Site over HTTP and RAW. Both share the machine. Beside it the library's own append
from as many threads, and the receiving side of NiFi, which takes the same packets from the same producers by RAW.
At the end each event of a batch that was acknowledged has to be there once, and in NiFi's queue each packet; anything
else ends with exit code 1.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import click
import msgspec
import psutil  # type: ignore[import-untyped]
import pyarrow.compute as pc

from benchmarks.append.machine import Machine, load_average
from benchmarks.append.peers.base import PeerUnavailableError
from benchmarks.delivery.nifi_receiver import nifi_receiving
from benchmarks.delivery.producers import DOORS, EVENTS, RAW, SITE_TO_SITE, Delivered, deliver, uuid_of
from benchmarks.environment import LOCAL
from custody.model import Event
from custody.repository import Repository

_PROCESSES = 2
_LOOK_SECONDS = 0.2
_HEADING = (
    "side           producers  events/s   acks/s   p50 ms    p99 ms  refused  CPU us an event  "
    "clients' CPU us  MiB most  in 2/4"
)


@dataclass(frozen=True, slots=True)
class Side:
    """What one way in gave; CPU time of the server, or of the process that appends, and of the producers."""

    name: str
    producers: int
    batch: int
    seconds: float
    batches: int
    refused: int
    p50_ms: float
    p99_ms: float
    cpu_us: float
    client_cpu_us: float
    memory_bytes: int
    """The most that the server had."""
    early_bytes: int
    """The most that it had in the second quarter of the time; in the first one it starts."""
    wrong: int
    """Events of acknowledged batches that are not there once."""

    @property
    def events_per_second(self) -> float:
        """Events acknowledged a second."""
        return self.batches * self.batch / self.seconds


class Watch(threading.Thread):
    """Looks at the memory of a process and its children until it is told to end."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self.sizes: list[int] = []

    def run(self) -> None:
        """Take note of the resident memory again and again."""
        while not self._over.wait(_LOOK_SECONDS):
            try:
                family = [self._process, *self._process.children(recursive=True)]
                self.sizes.append(sum(one.memory_info().rss for one in family))
            except psutil.Error:
                return

    def end(self) -> None:
        """Stop looking."""
        self._over.set()
        self.join()

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process and its children used."""
        family = [self._process, *self._process.children(recursive=True)]
        return float(sum(sum(one.cpu_times()[:2]) for one in family))


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--producers", type=click.IntRange(min=1), default=200)
@click.option("--seconds", type=click.FloatRange(min=0.2), default=120.0, help="Time of each side.")
@click.option("--batch", type=click.IntRange(1, 1000), default=100, help="Events of a batch.")
@click.option("--nifi-batch", type=click.IntRange(1, 1000), default=1000, help="The same of NiFi's task.")
@click.option("--only", multiple=True, type=click.Choice([*DOORS, "append", "nifi"]), help="These sides and no others.")
@click.option("--quick", is_flag=True, help="Four producers for a second: a test of the benchmark.")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk that is measured.")
@click.option("--output", type=click.Path(path_type=Path), default=LOCAL / "delivery", help="Where the results go.")
def main(
    producers: int,
    seconds: float,
    batch: int,
    nifi_batch: int,
    only: tuple[str, ...],
    quick: bool,
    scratch: Path,
    output: Path,
) -> None:
    if quick:
        producers, seconds, batch, nifi_batch = 4, 1.0, 10, 20
    for folder in (scratch, output):
        folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="delivery-", dir=scratch))
    try:
        machine = Machine.look(folder)
        click.echo(
            f"{machine}\nload {load_average()}; {producers} producers, batches of {batch}, {seconds} s\n{_HEADING}"
        )
        sizes = {EVENTS: batch, SITE_TO_SITE: nifi_batch, RAW: nifi_batch}
        sides = [
            _over_the_network(folder / door, door, producers, seconds, sizes[door])
            for door in DOORS
            if door in (only or DOORS)
        ]
        if not only or "append" in only:
            sides.append(_appended(folder / "append", producers, seconds, batch))
        if "nifi" in (only or ("nifi",)):
            sides += _into_nifi(folder, producers, seconds, nifi_batch)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    document = {"machine": machine.document(), "load_after": load_average(), "sides": [asdict(side) for side in sides]}
    (output / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(document)))
    sys.exit(1 if any(side.wrong for side in sides) else 0)


def _over_the_network(root: Path, door: str, producers: int, seconds: float, batch: int) -> Side:
    Repository.create(root)
    with _serving(root, door) as (url, watch):
        side = _delivered(door, url, watch, producers, seconds, batch)
    return _told(side(door, _wrong(root, side.delivered, batch)))


@dataclass(frozen=True, slots=True)
class _Delivered:
    """What producers delivered over the network; called with a name and what is wrong with it, it is a side."""

    delivered: Sequence[Delivered]
    batch: int
    took: float
    used: float
    own: float
    sizes: Sequence[int]

    def __call__(self, name: str, wrong: int) -> Side:
        return _side(name, self.delivered, self.batch, self.took, self.used, self.own, self.sizes, wrong)


def _delivered(door: str, url: str, watch: Watch, producers: int, seconds: float, batch: int) -> _Delivered:
    used, own = watch.cpu_seconds(), sum(psutil.Process().cpu_times()[:4])
    begun = time.time()
    parts = [range(start, producers, _PROCESSES) for start in range(min(_PROCESSES, producers))]
    with ProcessPoolExecutor(len(parts), mp_context=get_context("spawn")) as pool:
        work = [pool.submit(deliver, door, url, part, batch, begun + seconds) for part in parts]
        delivered = [one for future in work for one in future.result()]
    took = time.time() - begun
    used = watch.cpu_seconds() - used
    own = sum(psutil.Process().cpu_times()[:4]) - own
    return _Delivered(delivered, batch, took, used, own, list(watch.sizes))


def _into_nifi(folder: Path, producers: int, seconds: float, batch: int) -> Iterator[Side]:
    """Deliver to NiFi, with the settings that it ships and with those that make it durable, if it can run here."""
    for name, is_synced in (("NiFi, no sync", False), ("NiFi, synced", True)):
        try:
            with nifi_receiving(folder / f"nifi-{is_synced}", is_synced=is_synced) as nifi:
                watch = Watch(nifi.pid)
                watch.start()
                side = _delivered(RAW, nifi.url, watch, producers, seconds, batch)
                watch.end()
                # A packet whose acknowledgement was lost comes again, and NiFi has it twice.
                missing = max(sum(len(one.acknowledged) for one in side.delivered) - nifi.packets(), 0)
        except PeerUnavailableError as error:
            click.echo(f"{name}: {error}", err=True)
            return
        yield _told(side(name, missing * batch))


def _appended(root: Path, producers: int, seconds: float, batch: int) -> Side:
    """Append from as many threads of this process: what the network costs is missing."""
    repository = Repository.create(root)
    watch = Watch(psutil.Process().pid)
    watch.start()
    begun = time.time()
    used = watch.cpu_seconds()

    def work(producer: int) -> Delivered:
        done, number = Delivered(producer), 0
        while time.time() < begun + seconds:
            number += 1
            started = time.monotonic()
            writer.append([_event(producer, number, one) for one in range(batch)])
            done.acknowledged.append(number)
            done.seconds.append(time.monotonic() - started)
        return done

    with repository.writer() as writer, ThreadPoolExecutor(producers) as pool:
        delivered = list(pool.map(work, range(producers)))
        took, used = time.time() - begun, watch.cpu_seconds() - used
    watch.end()
    return _told(_side("append", delivered, batch, took, used, 0.0, watch.sizes, _wrong(root, delivered, batch)))


def _event(producer: int, batch: int, number: int) -> Event:
    return Event(
        event_type="SEND",
        event_time=1_772_409_600_000 + number,
        component_id=f"job.{producer:08x}",
        component_type="Orders",
        flowfile_uuid=uuid_of(producer, batch, number),
        file_size=10 + number,
        transit_uri=f"sftp://shop.example/{batch:012x}/orders.csv",
        updated_attributes={"filename": f"orders-{number}.csv", "order.region": "emea"},
    )


@contextmanager
def _serving(root: Path, door: str) -> Iterator[tuple[str, Watch]]:
    program = str(Path(sys.prefix) / "bin" / "custody")
    command = [program, "-r", str(root), "serve", "--door", door.split()[0], "--port", "0", "--quiet"]
    if door == RAW:
        (root / "custody.toml").write_text("[site_to_site]\nraw_port = 0\n")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        said = ""
        for line in server.stderr or ():
            said += line
            if found := re.search(r"(http://[0-9.]+:[0-9]+)", line):
                break
        else:
            raise RuntimeError(f"the server did not start: {said}")
        watch = Watch(server.pid)
        watch.start()
        try:
            yield found[1], watch
        finally:
            watch.end()
            server.terminate()
            _, rest = server.communicate(timeout=120)
    if server.returncode:
        raise RuntimeError(f"the server ended with {server.returncode}: {rest}")


def _side(
    name: str,
    delivered: Sequence[Delivered],
    batch: int,
    took: float,
    used: float,
    own: float,
    sizes: Sequence[int],
    wrong: int,
) -> Side:
    waits = sorted(1000 * seconds for one in delivered for seconds in one.seconds)
    events = len(waits) * batch
    return Side(
        name=name,
        producers=len(delivered),
        batch=batch,
        seconds=took,
        batches=len(waits),
        refused=sum(one.refused for one in delivered),
        p50_ms=statistics.median(waits),
        p99_ms=waits[int((len(waits) - 1) * 0.99)],
        cpu_us=used / events * 1e6,
        client_cpu_us=own / events * 1e6,
        memory_bytes=max(sizes),
        early_bytes=max(sizes[len(sizes) // 4 : max(len(sizes) // 2, 1)]),
        wrong=wrong,
    )


def _told(side: Side) -> Side:
    rates = f"{side.events_per_second:9.0f} {side.batches / side.seconds:8.0f}"
    click.echo(
        f"{side.name:16} {side.producers:7} {rates} {side.p50_ms:8.1f} {side.p99_ms:9.1f} {side.refused:8}"
        f" {side.cpu_us:16.1f} {side.client_cpu_us:16.1f} {side.memory_bytes >> 20:9} {side.early_bytes >> 20:7}"
    )
    if side.wrong:
        click.echo(f"{side.name}: {side.wrong} events of acknowledged batches are not there once", err=True)
    return side


def _wrong(root: Path, delivered: Sequence[Delivered], batch: int) -> int:
    """Return how many events of acknowledged batches are missing, or there more than once."""
    counts: dict[str, int] = {}
    for table in Repository.open(root).events(0, 1 << 62).tables():
        counted = pc.value_counts(table.column("flowfile_uuid"))
        for uuid, count in zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True):
            counts[uuid] = counts.get(uuid, 0) + count
    return sum(
        counts.get(uuid_of(one.producer, number, event), 0) != 1
        for one in delivered
        for number in one.acknowledged
        for event in range(batch)
    )


if __name__ == "__main__":
    main()
