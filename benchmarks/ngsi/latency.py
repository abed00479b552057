"""Seconds from an acknowledgement to the line: `PYTHONPATH=include python -m benchmarks.ngsi.latency` in the project.

A receiver and a follower run as users start them, each a process of its own. Notifications are posted at a steady rate
over one connection each; a watcher reads the files as they grow. In the end every value that was acknowledged has to be
there once; a difference ends with exit code 1.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import click
import httpx
import msgspec

from benchmarks.append.machine import Machine, load_average
from benchmarks.environment import LOCAL
from custody.repository import Repository

_WATCH_SECONDS = 0.002
_CLI = (sys.executable, "-c", "from custody.cli.main import main; main()")
_SETTINGS = """
[repository]
writer_slots = 2
[ngsi]
hdfs_username = "warden"
hive = false
batch_size = {size}
batch_timeout = {timeout}
"""


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured: seconds from the acknowledgement of a notification to its line, of all notifications."""

    batch_size: int
    batch_timeout: int
    rate: float
    notifications: int
    destinations: int
    p50: float
    p99: float
    longest: float

    def __str__(self) -> str:
        return (
            f"batch_size {self.batch_size}, batch_timeout {self.batch_timeout} s, {self.rate:g}/s to "
            f"{self.destinations} files, {self.notifications} notifications: "
            f"p50 {self.p50:.3f} s, p99 {self.p99:.3f} s, longest {self.longest:.3f} s"
        )


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--rate", type=click.FloatRange(min=0.1), default=50.0, help="Notifications a second.")
@click.option("--seconds", type=click.FloatRange(min=0.5), default=20.0, help="How long they are posted.")
@click.option("--destinations", type=click.IntRange(min=1), default=10, help="Entities, each with a file.")
@click.option("--batch-size", type=click.IntRange(min=1), default=1)
@click.option("--batch-timeout", type=click.IntRange(min=1), default=30)
@click.option("--poll", type=float, default=0.2, help="Seconds between two looks of the follower.")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk that is measured.")
def main(
    rate: float, seconds: float, destinations: int, batch_size: int, batch_timeout: int, poll: float, scratch: Path
) -> None:
    """Measure how long an acknowledged notification waits for its line."""
    scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="latency-", dir=scratch))
    try:
        click.echo(f"{Machine.look(folder)}\nload {load_average()}")
        click.echo(str(measure(folder, rate, seconds, destinations, batch_size, batch_timeout, poll)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(
    folder: Path, rate: float, seconds: float, destinations: int, size: int, timeout: int, poll: float = 0.2
) -> Latency:
    """Return the latencies of one run; ends the process where a value is missing or there twice."""
    root = folder / "repository"
    Repository.create(root)
    (root / "custody.toml").write_text(_SETTINGS.format(size=size, timeout=timeout))
    count = max(int(rate * seconds), 1)
    watcher = Watcher(root / "hdfs/user/warden/parks/north")
    with (
        process(root, ("ngsi", "serve", "--port", "0", "--quiet"), r"taken at (\S+)") as url,
        process(root, ("ngsi", "persist", "--follow", "--poll", str(poll)), "the sink is open"),
        watcher.watching(),
    ):
        acknowledged = post(url, count, rate, destinations)
        watcher.wait_for(count, timeout + 60)
    twice = [value for value, lines in watcher.lines.items() if lines > 1]
    missing = [value for value in acknowledged if value not in watcher.seen]
    if twice or missing:
        sys.exit(f"twice: {twice[:5]}, missing: {missing[:5]}")
    waits = sorted(watcher.seen[value] - at for value, at in acknowledged.items())
    return Latency(
        batch_size=size,
        batch_timeout=timeout,
        rate=rate,
        notifications=count,
        destinations=destinations,
        p50=waits[len(waits) // 2],
        p99=waits[min(len(waits) * 99 // 100, len(waits) - 1)],
        longest=waits[-1],
    )


def post(url: str, count: int, rate: float, destinations: int) -> dict[str, float]:
    """Post notifications at a steady rate; return by value when each was acknowledged."""
    acknowledged: dict[str, float] = {}
    headers = {"content-type": "application/json", "fiware-service": "parks", "fiware-servicepath": "/north"}

    def one(client: httpx.Client, number: int) -> None:
        entity = {"id": f"Bench{number % destinations}", "type": "Bench"}
        value = {"seats": {"type": "Number", "value": number, "metadata": {}}}
        client.post(
            url, json={"subscriptionId": "1", "data": [{**entity, **value}]}, headers=headers
        ).raise_for_status()
        acknowledged[str(number)] = time.monotonic()

    begun = time.monotonic()
    with httpx.Client(timeout=60) as client, ThreadPoolExecutor(8) as pool:
        posted = []
        for number in range(count):
            # By the clock and not by pauses: a slow answer must not slow down what comes after it.
            time.sleep(max(begun + number / rate - time.monotonic(), 0.0))
            posted.append(pool.submit(one, client, number))
        for future in posted:
            future.result()
    return acknowledged


class Watcher:
    """Reads files as they grow, and notes when each value was there first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._ended = threading.Event()
        self.seen: dict[str, float] = {}
        self.lines: Counter[str] = Counter()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Read in a thread as long as the context lasts."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def wait_for(self, count: int, seconds: float) -> None:
        """Wait until so many values were seen, or the time is over."""
        deadline = time.monotonic() + seconds
        while len(self.seen) < count and time.monotonic() < deadline:
            time.sleep(0.05)

    def _run(self) -> None:
        while not self._ended.wait(_WATCH_SECONDS):
            self._look()
        self._look()

    def _look(self) -> None:
        for path in self._folder.glob("*/*.txt"):
            first = self._read.get(path, 0)
            if path.stat().st_size == first:
                continue
            data = path.read_bytes()[first:]
            now = time.monotonic()
            # A last line without its end is still being written.
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = first + len(whole)
            for line in whole.splitlines():
                value = json.loads(line)["attrValue"]
                self.seen.setdefault(value, now)
                self.lines[value] += 1


@contextmanager
def process(root: Path, arguments: tuple[str, ...], ready: str) -> Iterator[str]:
    """Start a command and end it with SIGTERM; yield what it says when it is ready."""
    command = [*_CLI, "-r", str(root), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "include")}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
    ) as run:
        assert run.stderr is not None
        said = ""
        for line in run.stderr:
            said += line
            if match := re.search(ready, said):
                break
        else:
            sys.exit(f"{' '.join(arguments)}: it did not start: {said}")
        # A pipe that nobody reads would hold it up.
        reader = threading.Thread(target=run.stderr.read)
        reader.start()
        try:
            yield match[1] if match.groups() else match[0]
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait(60)
            reader.join()


if __name__ == "__main__":
    main()
