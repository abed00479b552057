"""NiFi's own reporting task, of NiFi 1 and 2: a hundred thousand events, each once, whatever happens meanwhile.

The server is killed at fifty random moments. Over HTTP answers are also dropped and held back until the client gave up.
"""

from __future__ import annotations

import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from custody.repository import Repository
from tests.behaviour.test_killed_site_to_site import Server, served
from tests.services.jars import jars
from tests.services.test_nifi_client import JAVA_2, java
from tests.unit.serving.test_site_to_site_server import certificate

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
EVENTS = 100_000
KILLS = 50
BATCHES = {"HTTP": 500, "RAW": 200}
"""Events of a batch; RAW is so quick that larger ones are over before the server was killed often enough."""
SECONDS_MAX = 2400
TIMEOUT_SECONDS = 3
DROPPED, LATE = 0.02, 0.005
"""Shares of the connections whose answer is lost, or comes when the client gave up."""


class BadNetwork:
    """Passes connections on to a port; the end of some answers is dropped, and some are held back."""

    def __init__(self, port: int, seed: str) -> None:
        self._target = port
        self._dice = random.Random(seed)  # noqa: S311 - a test's chance
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self._listener.getsockname()[1]
        self.dropped = self.late = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        # An accept that waits is not ended by the close of its socket.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        fate = self._dice.random()
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as server:
            asking = threading.Thread(target=self._copy, args=(client, server), daemon=True)
            asking.start()
            while data := server.recv(1 << 16):
                if fate < DROPPED:
                    self.dropped += 1
                    break
                if fate < DROPPED + LATE:
                    self.late += 1
                    time.sleep(TIMEOUT_SECONDS + 1)
                    fate = 1.0
                client.sendall(data)
            # Both ends, so that the other direction ends as well.
            for one in (client, server):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            asking.join()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def kills(server: Server, seed: str) -> Iterator[list[float]]:
    """Kill the server at random moments until the block ends, or it was killed often enough; yields the moments."""
    dice, moments, over = random.Random(seed), list[float](), threading.Event()  # noqa: S311 - a test's chance
    begun = time.monotonic()

    def journaled() -> int:
        return sum(path.stat().st_size for path in server.root.glob("containers/*/main/journals/*"))

    def work() -> None:
        while len(moments) < KILLS and not over.is_set():
            over.wait(dice.random())
            if over.is_set():
                return
            server.kill()
            moments.append(time.monotonic() - begun)
            server.start()
            # A server that is never up proves nothing: something is stored before it is killed again.
            size = journaled()
            while not over.is_set() and journaled() == size:
                time.sleep(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield moments
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(
    ("release", "least", "transport", "is_compressed", "is_tls"),
    [
        ("nifi1-task", 17, "HTTP", False, True),
        ("nifi1-task", 17, "RAW", True, False),
        ("nifi2-task", JAVA_2, "HTTP", True, False),
        ("nifi2-task", JAVA_2, "RAW", False, True),
    ],
)
def test_nifi_s_own_task_delivers_each_event_once_while_the_server_is_killed(
    tmp_path: Path, release: str, least: int, transport: str, is_compressed: bool, is_tls: bool
) -> None:
    program = java(least)
    path = os.pathsep.join(map(str, jars(HERE / f"{release}.jars")))
    seed = f"{release} {transport} {is_compressed} {is_tls}"
    settings, extra = with_certificates(tmp_path) if is_tls else ("", [])
    with served(tmp_path / "r", settings=settings) as server:
        network = BadNetwork(server.port, seed)
        asked = network.port if transport == "HTTP" else server.port
        properties = {
            "Destination URL": f"{'https' if is_tls else 'http'}://127.0.0.1:{asked}/nifi",
            "Input Port Name": "provenance",
            "Instance URL": "http://nifi-1.example:8080/nifi",
            "Transport Protocol": transport,
            "s2s-transport-protocol": transport,
            "Compress Events": str(is_compressed).lower(),
            "Communications Timeout": f"{TIMEOUT_SECONDS} secs",
            "Batch Size": str(BATCHES[transport]),
        }
        command = [
            str(program),
            "-cp",
            path,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            str(HERE / "NifiTask.java"),
        ]
        command += [str(EVENTS), str(SECONDS_MAX), *(f"{name}={value}" for name, value in properties.items()), *extra]
        try:
            with kills(server, seed) as moments:
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX + 60)
        finally:
            network.close()
        sys.stdout.write(f"{seed}: {done.stdout.strip()}; {len(moments)} kills, {network.dropped} answers dropped, ")
        sys.stdout.write(f"{network.late} late\n")
        assert done.stdout.startswith("left=0 "), done.stdout + done.stderr
        assert server.end() == 0
    assert len(moments) >= KILLS * 3 // 4
    failures = int(re.search(r"failures=(\d+)", done.stdout)[1])  # type: ignore[index]
    assert failures > 0
    check_each_once(tmp_path / "r")


def check_each_once(root: Path) -> None:
    with Repository.open(root).writer():
        pass  # the next start recovers
    repository = Repository.open(root)
    counts: Counter[tuple[int, str]] = Counter()
    for table in repository.events(0, 1 << 62).tables():
        counts.update(
            zip(*(table.column(name).to_pylist() for name in ("source_ordinal", "flowfile_uuid")), strict=True)
        )
    expected = {(number, f"{number % 7919:08x}-0195-4000-8000-{number:012x}") for number in range(EVENTS)}
    assert counts.keys() == expected
    assert set(counts.values()) == {1}
    assert [entry.message for entry in repository.quarantine.entries() if not entry.is_stored] == []


def with_certificates(folder: Path) -> tuple[str, list[str]]:
    """Settings that ask for a client's certificate, and what the task is given of its own one."""
    for name in ("server", "client"):
        certificate(folder, name)
    command = ["openssl", "pkcs12", "-export", "-in", "client.pem", "-inkey", "client.key", "-out", "client.p12"]
    subprocess.run([*command, "-passout", "pass:changeit"], cwd=folder, check=True, capture_output=True)
    named = {"tls_certificate": "server.pem", "tls_key": "server.key", "tls_client_ca": "client.pem"}
    settings = "[site_to_site]\n" + "".join(f'{key} = "{folder / file}"\n' for key, file in named.items())
    return settings, ["--tls", str(folder / "server.pem"), str(folder / "client.p12")]
