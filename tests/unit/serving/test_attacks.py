"""Attacks on the whole server: whoever holds connections, or sends much, keeps nobody else waiting."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from custody.repository import Repository
from custody.serving.access import Scope
from tests.unit.capture.sample_inputs import dataset, run_event
from tests.unit.serving.serve_process import Served, served, token

ONE = "/api/v1/lineage"
HEAD = b"POST /api/v1/lineage HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SLOW = [
    b"",
    b"POST /api/v1/li",
    HEAD,
    HEAD + b"Content-Length: 1000000\r\n\r\n{",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
]
"""What slow clients send, and then nothing more."""
DELAY_SECONDS_MAX = 0.1


@contextmanager
def open_files(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"{hard} open files are allowed, {count} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def held(stack: ExitStack, at: Served, count: int) -> list[socket.socket]:
    """Open connections that send the beginning of something."""
    place = urlsplit(at.url)
    connections = []
    for number in range(count):
        connection = stack.enter_context(closing(socket.create_connection((place.hostname or "", place.port or 0), 60)))
        with suppress(ConnectionError):  # it gave way already
            connection.sendall(SLOW[number % len(SLOW)])
        connections.append(connection)
    return connections


def answered_beside_slow_ones(tmp_path: Path, count: int) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    settings = {
        "CUSTODY__SERVE__TOKEN_FILE": "tokens",
        "CUSTODY__SERVE__HEAD_SECONDS": "600",
        "CUSTODY__SERVE__BODY_SECONDS": "600",
        "CUSTODY__SERVE__CONNECTIONS_MAX": "1024",
        "CUSTODY__SERVE__CONNECTIONS_PER_ADDRESS_MAX": "512",
    }
    head = token(root, "producer", Scope.APPEND)
    looker = token(root, "looker", Scope.READ)
    with open_files(count + 500), served(root, "--quiet", **settings) as at, ExitStack() as stack:
        held(stack, at, count)
        codes = [at.post(ONE, json.dumps(run_event("START", number)).encode(), head).status_code for number in range(5)]
        assert codes == [201] * 5
        assert at.get("/healthz").status_code == 200
        # Who brings no token was answered after its head: none of these bodies is waited for.
        refused = sum('reason="token"' in name for name in at.measures(looker))
        assert refused == 1


def test_slow_heads_and_bodies_on_many_connections_leave_the_server_answering(tmp_path: Path) -> None:
    answered_beside_slow_ones(tmp_path, 700)


@pytest.mark.slow
def test_slow_heads_and_bodies_on_five_thousand_connections_leave_the_server_answering(tmp_path: Path) -> None:
    answered_beside_slow_ones(tmp_path, 5_000)


def large(kind: str) -> bytes:
    """A body of nearly 16 MiB: one large event, a batch of many small ones, or no JSON at all."""
    if kind == "one":
        facet = {"fields": [{"name": f"column {number}", "type": "double"} for number in range(250_000)]}
        return json.dumps(run_event("START", 1, outputs=[dataset("tree", schema=facet)])).encode()
    if kind == "many":
        return json.dumps([run_event("START", number) for number in range(9_000)]).encode()
    return b"[" * (12 << 20)


@pytest.mark.slow
@pytest.mark.parametrize("is_zipped", [False, True])
@pytest.mark.parametrize("kind", ["one", "many", "none"])
def test_a_huge_body_delays_others_by_less_than_100_ms(tmp_path: Path, kind: str, is_zipped: bool) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    body = large(kind)
    assert len(body) > 4 << 20
    head = {"content-encoding": "gzip"} if is_zipped else {}
    sent = gzip.compress(body, 1) if is_zipped else body
    added = []
    with served(root, "--quiet") as at, ThreadPoolExecutor(1) as pool:
        assert at.post(ONE, sent, head).status_code in (200, 201, 400), "what starts with the first body has started"
        for _ in range(3):
            alone = delays(at, time.monotonic() + 2)
            huge = pool.submit(at.post, ONE, sent, head)
            beside = delays(at, time.monotonic() + 0.2)
            while not huge.done():
                beside += delays(at, time.monotonic() + 0.2)
            assert huge.result().status_code in (200, 400), huge.result().text
            added.append(max(beside) - max(alone))
    # Other work on the machine only adds to it.
    said = f"{kind}, {len(body)} bytes, zipped {is_zipped}: {[round(each * 1000) for each in added]} ms more at most"
    assert min(added) < DELAY_SECONDS_MAX, said


def delays(at: Served, until: float) -> list[float]:
    """Seconds of questions for the health, one after the other."""
    seconds = []
    with httpx.Client() as client:
        while time.monotonic() < until:
            started = time.monotonic()
            assert client.get(f"{at.url}/healthz", timeout=60).status_code == 200
            seconds.append(time.monotonic() - started)
    return seconds
