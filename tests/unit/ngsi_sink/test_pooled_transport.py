"""Calls over real sockets to a server on the loopback that does what a test tells it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from custody.errors import ConfigurationError
from custody.ngsi_sink.webhdfs import Call, PooledTransport
from tests.unit.ngsi.notification_records import parameters

Reply = Callable[[BaseHTTPRequestHandler, bytes], tuple[int, dict[str, str], bytes] | None]


class Server(ThreadingHTTPServer):
    """Keeps what was asked; `reply` answers, or returns None to hang up."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply: Reply = lambda handler, body: (200, {}, b"")
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _take(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.command, self.path, headers, body))
        found = self.server.reply(self, body)
        if found is None:
            self.close_connection = True
            return
        status, more, data = found
        self.send_response(status)
        for name, value in {**more, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = _take

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def network(**names: object) -> PooledTransport:
    return PooledTransport(parameters(**names).values)


def test_a_call_goes_as_it_is_and_no_redirect_is_followed(server: Server) -> None:
    server.reply = lambda handler, body: (307, {"Location": "http://elsewhere:1/x"}, b"body")
    target = "/webhdfs/v1/a%20b/%25%23%3F?op=append&user.name=u"
    used = network()
    answer = used.ask(server.place, Call("POST", target, {"X-Auth-Token": "hush"}))
    used.close()
    assert (answer.status, answer.location, answer.body) == (307, "http://elsewhere:1/x", b"body")
    [(method, path, headers, body)] = server.asked
    assert (method, path, headers["x-auth-token"], headers["content-length"], body) == (
        "POST",
        target,
        "hush",
        "0",
        b"",
    )


def test_a_whole_url_is_asked_where_it_points(server: Server) -> None:
    used = network()
    used.ask("nobody.invalid", Call("PUT", f"http://{server.place}/x", {"Content-Type": "a/b"}, b"\0data"))
    used.close()
    assert server.asked[0][3] == b"\0data"
    assert server.asked[0][2]["content-type"] == "a/b"


def test_connections_are_used_again_and_not_more_than_allowed(server: Server) -> None:
    ports, at_once, most = set[int](), [0], [0]
    lock = threading.Lock()

    def reply(handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        with lock:
            ports.add(handler.client_address[1])
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.01)
        with lock:
            at_once[0] -= 1
        return 200, {}, b""

    server.reply = reply
    for names in ({"backend_max_conns": 2}, {"backend_max_conns_per_route": 2}):
        ports.clear()
        most[0] = 0
        used = network(**names)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: used.ask(server.place, Call("GET", "/")), range(24)))  # noqa: B023
        used.close()
        assert most[0] <= 2
        assert len(ports) <= 2


@pytest.mark.parametrize("what", ["hangs up", "is slow", "is not there"])
def test_who_does_not_answer_is_an_oserror_and_asked_once(server: Server, what: str) -> None:
    place = server.place if what != "is not there" else "127.0.0.1:1"
    gone = threading.Event()
    if what == "hangs up":
        server.reply = lambda handler, body: None
    elif what == "is slow":

        def wait(handler: BaseHTTPRequestHandler, body: bytes) -> None:
            gone.wait(10)

        server.reply = wait
    used = network(backend_timeout=0.3)
    with pytest.raises(OSError, match="Error"):
        used.ask(place, Call("POST", "/", {}, b"data"))
    gone.set()
    used.close()
    assert len(server.asked) == (0 if what == "is not there" else 1)


def test_kerberos_is_negotiated_once_and_the_cookie_serves_from_then_on(server: Server) -> None:
    """The token is made up: a real one needs a KDC. What is tried is what is sent when."""

    def reply(handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if handler.headers.get("Cookie") == 'hadoop.auth="u=warden"':
            return 200, {}, b"by cookie"
        if handler.headers.get("Authorization") == "Negotiate dG9rZW4gZm9yIDEyNy4wLjAuMQ==":
            return 200, {"Set-Cookie": 'hadoop.auth="u=warden"; Path=/; HttpOnly'}, b"by token"
        return 401, {"WWW-Authenticate": "Negotiate"}, b""

    server.reply = reply
    used = PooledTransport(parameters().values, negotiate=lambda host: f"token for {host}".encode())
    said = [used.ask(server.place, Call("POST", "/", {}, b"data")).body for _ in range(3)]
    used.close()
    assert said == [b"by token", b"by cookie", b"by cookie"]
    assert [body for _, _, _, body in server.asked] == [b"data"] * 4


def test_threads_that_find_a_cookie_expired_log_in_once(server: Server) -> None:
    accepted = ["first"]

    def reply(handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if handler.headers.get("Cookie") == f"hadoop.auth={accepted[0]}":
            return 200, {}, b""
        if handler.headers.get("Authorization"):
            return 200, {"Set-Cookie": f"hadoop.auth={accepted[0]}; Path=/"}, b""
        time.sleep(0.02)  # so that others find it expired as well
        return 401, {"WWW-Authenticate": "Negotiate", "Set-Cookie": "hadoop.auth=; Path=/; Expires=never"}, b""

    server.reply = reply
    made: list[str] = []

    def negotiate(host: str) -> bytes:
        made.append(host)
        return b"token"

    used = PooledTransport(parameters().values, negotiate=negotiate)
    with ThreadPoolExecutor(8) as pool:
        for times, cookie in enumerate(("first", "second"), 1):
            accepted[0] = cookie
            answers = list(pool.map(lambda _: used.ask(server.place, Call("GET", "/")), range(24)))
            assert {answer.status for answer in answers} == {200}
            assert made == ["127.0.0.1"] * times
    used.close()


def test_a_refused_token_is_an_answer_and_leaves_no_cookie(server: Server) -> None:
    server.reply = lambda handler, body: (401, {"Set-Cookie": 'hadoop.auth=""; Path=/'}, b"")
    used = PooledTransport(parameters().values, negotiate=lambda host: b"token")
    assert [used.ask(server.place, Call("GET", "/")).status for _ in range(2)] == [401, 401]
    used.close()
    assert [headers.get("cookie") for _, _, headers, _ in server.asked] == [None] * 4


def test_kerberos_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody.ngsi_sink.kerberos.find_spec", lambda name: None)  # it may be installed
    with pytest.raises(ConfigurationError, match=r"pip install 'pyspnego\[kerberos\]'"):
        network(krb5_auth=True, krb5_user="u", krb5_password="p")  # noqa: S106
