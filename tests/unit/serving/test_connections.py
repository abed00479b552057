"""The receiver over raw sockets: nobody who holds connections, or dribbles, keeps others out; heads are bounded."""

from __future__ import annotations

import json
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from custody.repository import Repository
from tests.unit.serving.receiver_process import Receiving, notification, receiving

IDLE = 2_100
HEAD_BYTES = 4096
PATIENCE = 60.0
GOOD = notification(1)
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
OWN_HEAD = b"POST /notify HTTP/1.1\r\nHost: localhost\r\n"


def connect(at: Receiving) -> socket.socket:
    place = urlsplit(at.url)
    connection = socket.create_connection((place.hostname or "", place.port or 0), timeout=PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def until_closed(connection: socket.socket) -> bytes:
    """Read until the other side closes."""
    found = b""
    try:
        while piece := connection.recv(65_536):
            found += piece
    except ConnectionError:
        pass
    return found


def statuses(answer: bytes) -> list[int]:
    return [int(piece[:3]) for piece in answer.split(b"HTTP/1.1 ")[1:]]


def head_of(size: int, *, last: bool = True) -> bytes:
    """The head of a question for the health with as many bytes."""
    start = b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + (b"Connection: close\r\n" if last else b"") + b"X-Pad: "
    return start + b"p" * (size - len(start) - 4) + b"\r\n\r\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("connections") / "repository"
    Repository.create(root)
    return root


@pytest.fixture(scope="module")
def at(root: Path) -> Iterator[Receiving]:
    environment = {
        "CUSTODY__RECEIVER__HEAD_SECONDS": "1.5",
        "CUSTODY__RECEIVER__BODY_SECONDS": "1.5",
        "CUSTODY__RECEIVER__HEADER_BYTES_MAX": str(HEAD_BYTES),
        "CUSTODY__NGSI__NOTIFICATION_ENTITIES_MAX": "2000",
    }
    with receiving(root, "--quiet", **environment) as found:
        yield found


def test_idle_connections_give_way(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * IDLE:
        pytest.skip(f"{hard} open files are allowed, {2 * IDLE} are needed")
    Repository.create(tmp_path / "repository")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * IDLE), hard))
    try:
        with (
            receiving(tmp_path / "repository", "--quiet", CUSTODY__RECEIVER__HEAD_SECONDS="600") as at,
            ExitStack() as held,
        ):
            for number in range(IDLE):
                connection = held.enter_context(closing(connect(at)))
                if number % 2:
                    connection.sendall(b"POST /notify HTTP/1.1\r\nHost: localhost\r\n")
            assert at.health()["status"] == "ok"
            assert [at.post(notification(number)).status_code for number in range(3)] == [200] * 3
            open_files = len(list(Path(f"/proc/{at.process.pid}/fd").iterdir()))
            assert 1024 <= open_files < 1024 + 256, "of one address"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_who_is_answered_is_not_cut_off_and_more_are_told_to_come_again(tmp_path: Path) -> None:
    Repository.create(tmp_path / "repository")
    environment = {"CUSTODY__RECEIVER__CONNECTIONS_PER_ADDRESS_MAX": "3"}
    head = b"POST /notify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with receiving(tmp_path / "repository", "--quiet", **environment) as at, ExitStack() as held:
        working = [held.enter_context(closing(connect(at))) for _ in range(3)]
        for connection in working:
            connection.sendall(head.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n") % len(GOOD))
            assert connection.recv(100).startswith(b"HTTP/1.1 100")  # it is taken up
        with closing(connect(at)) as one_more:
            answer = until_closed(one_more)
        assert statuses(answer) == [503]
        assert b"retry-after: " in answer
        for connection in working:
            connection.sendall(GOOD)
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert at.health()["notifications"] == 3


@pytest.mark.parametrize("sent", [b"", OWN_HEAD, HEALTH + b"\r\n", HEALTH + HEALTH[:-1]])
def test_a_head_that_does_not_come_is_not_waited_for(at: Receiving, sent: bytes) -> None:
    with closing(connect(at)) as connection:
        connection.sendall(sent)
        answer = until_closed(connection)
    expected = [200] * sent.count(HEALTH)
    assert statuses(answer) in (expected, [*expected, 408], [*expected, 400])
    assert (408 in statuses(answer)) == (not sent.endswith(b"\r\n\r\n\r\n") and sent != b"")


@pytest.mark.parametrize("before", [b"", HEALTH])
def test_a_head_that_comes_byte_by_byte_has_its_time_too(at: Receiving, before: bytes) -> None:
    with closing(connect(at)) as connection:
        connection.sendall(before)
        connection.settimeout(0.1)
        found = b""
        deadline = time.monotonic() + PATIENCE
        for byte in b"POST /notify HTTP/1.1\r\nX-Slow: " + b"x" * 3000:
            assert time.monotonic() < deadline
            try:
                connection.sendall(bytes([byte]))
                piece = connection.recv(65_536)
                if not piece:
                    break
                found += piece
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert statuses(found)[: bool(before)] == [200] * bool(before)
    assert not before or statuses(found)[1:] in ([], [408])


def test_a_body_in_chunks_that_never_ends_has_its_time(at: Receiving) -> None:
    with closing(connect(at)) as connection:
        connection.sendall(OWN_HEAD + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.settimeout(0.2)
        found = b""
        while True:
            try:
                connection.sendall(b"1\r\n \r\n")
                piece = connection.recv(65_536)
                if not piece:
                    break
                found += piece
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert statuses(found) in ([408], [])
    assert at.health()["answers"]["slow"] >= 1


@pytest.mark.parametrize("pieces", [1, 7])
def test_the_bound_of_a_head_is_kept_to_the_byte(at: Receiving, pieces: int) -> None:
    for size, status in ((HEAD_BYTES, 200), (HEAD_BYTES + 1, 431), (HEAD_BYTES * 12, 431)):
        head = head_of(size)
        assert len(head) == size
        with closing(connect(at)) as connection:
            step = -(-size // pieces)
            try:
                for start in range(0, size, step):
                    connection.sendall(head[start : start + step])
                    time.sleep(0.02 if pieces > 1 else 0)
            except ConnectionError:
                pass  # it is closed before all of it came
            answer = until_closed(connection)
        # What is closed with bytes unread may lose its answer on the way.
        assert statuses(answer) in ([status], [] if status == 431 and size > HEAD_BYTES + 1 else [status])


def test_requests_that_come_together_are_answered_one_after_the_other(at: Receiving) -> None:
    post = (OWN_HEAD + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(GOOD)) + GOOD
    with closing(connect(at)) as connection:
        connection.sendall(post + HEALTH + post + head_of(200))
        assert statuses(until_closed(connection)) == [200] * 4
    with closing(connect(at)) as connection:
        connection.sendall(post + head_of(HEAD_BYTES + 1))
        assert statuses(until_closed(connection)) == [200, 431]


def test_a_length_and_chunks_are_refused(at: Receiving) -> None:
    with closing(connect(at)) as connection:
        connection.sendall(
            b"POST /notify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
            b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        assert statuses(until_closed(connection)) == [400]


def test_others_are_answered_while_a_large_notification_is_taken_apart(at: Receiving) -> None:
    body = json.dumps({"data": [{"id": f"e{number}", "a": {"value": 1}} for number in range(2000)]}).encode()
    with ThreadPoolExecutor(1) as pool, httpx.Client(timeout=PATIENCE) as client:
        large = pool.submit(at.post, body)
        answered = 0
        while not large.done():
            assert client.get(f"{at.root}/health").status_code == 200
            answered += not large.done()
    assert large.result().json()["stored"] == 2000
    assert answered > 2


def test_a_notification_of_very_many_entities_costs_nothing(at: Receiving, root: Path) -> None:
    def size() -> int:
        return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())

    body = json.dumps({"data": [{"id": f"{number}"} for number in range(50_000)]}, separators=(",", ":")).encode()
    assert len(body) < 1 << 20
    before = size()
    answer = at.post(body)
    assert (answer.status_code, answer.json()["error"]) == (413, "entities")
    assert size() == before


def test_what_all_events_have_is_short(at: Receiving) -> None:
    body = json.dumps({"subscriptionId": "s" * 513, "data": [{"id": "e"}]}).encode()
    answer = at.post(body)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad-value")
    assert "subscriptionId: expected at most 512 characters" in answer.json()["message"]
    assert at.post(GOOD, {"host": "h" * 301}).json()["error"] == "host"
