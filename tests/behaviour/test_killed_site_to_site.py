"""The input port for NiFi under kills: NiFi's tasks deliver until all is sent, and each event is stored once."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import sys
import threading
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from custody.repository import Repository
from custody.sample import SampleOptions, sample_files
from tests import forks
from tests.nifi_client import HttpSender, RawSender, ReportingTask, Sender
from tests.parts import seed_of_run
from tests.support import INCLUDE

EVENTS = 10_000
KILLS = 4
SECONDS_MAX = 180


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """The server as users start it, on fixed ports, so that it is found again after a kill."""

    def __init__(self, root: Path, *arguments: str) -> None:
        self.root = root
        self.port, self.raw_port = free_port(), free_port()
        self.arguments = arguments
        self.url = f"http://127.0.0.1:{self.port}/nifi"
        self.start()

    def start(self) -> None:
        code = "from custody.cli.main import main; main()"
        ports = ["--port", str(self.port), "--raw-port", str(self.raw_port), *self.arguments]
        self.process = forks.Popen(
            [sys.executable, "-c", code, "-r", str(self.root), "site-to-site", "serve", "--quiet", *ports],
            stderr=forks.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(INCLUDE)},
        )
        assert self.process.stderr is not None
        said = ""
        for line in self.process.stderr:
            said += line
            if re.search(r"taken at (\S+)", line):
                # Read to the end: a pipe that nobody reads would hold the server up.
                self.reader = threading.Thread(target=self.process.stderr.read, daemon=True)
                self.reader.start()
                return
        raise AssertionError(f"the server did not start: {said}")

    def kill(self) -> None:
        self.process.kill()
        self._wait()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        code = self.process.wait(60)
        self.reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@contextmanager
def served(root: Path, *arguments: str, settings: str = "") -> Iterator[Server]:
    Repository.create(root)
    (root / "custody.toml").write_text(settings)
    server = Server(root, *arguments)
    try:
        yield server
    finally:
        if server.process.returncode is None:
            server.kill()


def by_node(count: int, nodes: int) -> dict[str, list[dict[str, Any]]]:
    """Sample events as NiFi's nodes send them, in the order of their ordinals."""
    events: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, data in sample_files(SampleOptions(events=count, nodes=nodes)):
        events[name.split("-")[1]] += json.loads(data)
    return {node: sorted(items, key=lambda item: item["eventOrdinal"]) for node, items in events.items()}


def deliver(task: ReportingTask, deadline: float) -> None:
    while not task.trigger():
        assert time.monotonic() < deadline, f"{task.state} of {len(task.events)} events after {task.tries} tries"
        time.sleep(0.05)


def check_each_event_once(root: Path, events: dict[str, list[dict[str, Any]]]) -> None:
    with Repository.open(root).writer():
        pass  # the next start recovers
    repository = Repository.open(root)
    counts = Counter((item.source_ordinal, item.flowfile_uuid) for item in repository.events(0, 2 * EVENTS))
    expected = Counter((item["eventOrdinal"], item["entityId"]) for items in events.values() for item in items)
    assert counts == expected
    wrong = [entry.message for entry in repository.quarantine.entries() if not entry.is_stored]
    assert wrong == []


@pytest.mark.in_parts(4)
def test_each_event_is_stored_once_whoever_is_killed_and_whatever_answer_is_lost(tmp_path: Path) -> None:
    seed = zlib.crc32(seed_of_run().encode())  # printed at the start of the run
    dice = random.Random(seed)
    events = by_node(EVENTS, 3)
    deadline = time.monotonic() + SECONDS_MAX
    with served(tmp_path / "r") as server:
        senders: list[Sender] = [
            HttpSender(server.url, lost=0.1, late=0.1, dice=random.Random(seed)),
            HttpSender(server.url, is_compressed=True, lost=0.1, late=0.1, dice=random.Random(seed + 1)),
            RawSender(server.url, is_compressed=True, lost=0.1, dice=random.Random(seed + 2)),
        ]
        tasks = [
            ReportingTask(items, sender, batch=250) for items, sender in zip(events.values(), senders, strict=True)
        ]
        threads = [threading.Thread(target=deliver, args=(task, deadline)) for task in tasks]
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            sent = sum(task.state for task in tasks)
            # Only where something was acknowledged since the last one: a server that is never up proves nothing.
            while sum(task.state for task in tasks) == sent and any(thread.is_alive() for thread in threads):
                time.sleep(0.01)
            time.sleep(dice.random() * 0.3)
            server.kill()
            server.start()
        for thread in threads:
            thread.join()
        assert [task.state for task in tasks] == [len(task.events) for task in tasks]
        assert sum(task.failures for task in tasks) > 0
        for sender in senders:
            sender.close()
        assert server.end() == 0
    check_each_event_once(tmp_path / "r", events)
