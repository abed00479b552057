"""Broken input of each kind, as the table of docs/receiver.md has it: what is answered, kept and stored."""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from custody.repository import Repository
from tests.docs.pages import read, table
from tests.unit.serving.receiver_process import Receiving, notification, receiving
from tests.unit.serving.serve_process import authorities

ROWS = table(read("receiver.md"), "what comes | status | error | kept")
TOKEN = {"authorization": "Bearer a-token-for-this-test"}
BODY_BYTES_MAX = 65_536


class Sent:
    """A request that is posted with a token and, unless told otherwise, with what a good one has."""

    def __init__(
        self,
        body: Any = b"",
        *,
        method: str = "POST",
        path: str = "",
        more: Sequence[tuple[str, str]] = (),
        **headers: str,
    ) -> None:
        self.body = body
        self.method = method
        self.path = path
        given = {"content-type": "application/json", **TOKEN, **{k.replace("_", "-"): v for k, v in headers.items()}}
        self.headers = {name: value for name, value in given.items() if value}
        self.more = more

    def __call__(self, at: Receiving) -> tuple[int | None, str | None]:
        url = at.root + self.path if self.path else at.url
        body = self.body() if callable(self.body) else self.body
        headers = [*self.headers.items(), *self.more]
        answer = httpx.request(self.method, url, content=body, headers=headers, timeout=60, verify=authorities())
        return answer.status_code, answer.json().get("error")


class Raw:
    """Bytes on a connection; `ends` closes it behind them, otherwise the answer is waited for."""

    def __init__(self, head: bytes, *, ends: bool = False) -> None:
        self.head = head
        self.ends = ends

    def __call__(self, at: Receiving) -> tuple[int | None, str | None]:
        place = urlsplit(at.url)
        with socket.create_connection((place.hostname or "", place.port or 0), timeout=30) as connection:
            connection.sendall(self.head)
            if self.ends:
                return None, None
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        error = json.loads(body)["error"] if body.startswith(b"{") else None
        return int(head.split(b" ")[1]), error


def data(*entities: object) -> bytes:
    return json.dumps({"subscriptionId": "57458eb60962ef754e7c0998", "data": entities}).encode()


def attribute(value: object) -> bytes:
    return data({"id": "car1", "type": "Car", "speed": value})


GOOD = notification(1)
HALF = (
    b"POST /notify HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-token-for-this-test\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
)
TWO_LENGTHS = (
    b"POST /notify HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-token-for-this-test\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} "
)
V1 = {"contextResponses": [{"contextElement": {"id": "car1", "attributes": [{"value": "1"}]}}]}
LINKED = {"type": "Notification", "notifiedAt": "noon", "data": [{"id": "urn:x:1", "type": "Car"}]}
SENT: dict[str, Callable[[Receiving], tuple[int | None, str | None]]] = {
    "no token, or a wrong one": Sent(GOOD, authorization="Bearer another-token-of-nobody"),
    "another path": Sent(GOOD, path="/other"),
    "another method": Sent(GOOD, method="PUT"),
    "no Content-Type": Sent(GOOD, content_type=""),
    "another Content-Type": Sent(GOOD, content_type="text/plain"),
    "another charset": Sent(GOOD, content_type="application/json; charset=latin1"),
    "a service of 51 characters": Sent(GOOD, fiware_service="s" * 51),
    "a tenant of 51 characters": Sent(GOOD, ngsild_tenant="t" * 51),
    "two services": Sent(GOOD, more=[("fiware-service", "a"), ("fiware-service", "b")]),
    "two service paths": Sent(GOOD, more=[("fiware-servicepath", "/a"), ("fiware-servicepath", "/a")]),
    "two correlators": Sent(GOOD, more=[("fiware-correlator", "a"), ("fiware-correlator", "b")]),
    "two lengths": Raw(TWO_LENGTHS),
    "a correlator of 257 characters": Sent(GOOD, fiware_correlator="c" * 257),
    "a host of 301 characters": Sent(GOOD, host="h" * 301),
    "a service path without a slash": Sent(GOOD, fiware_servicepath="a"),
    "a service path of 11 levels": Sent(GOOD, fiware_servicepath="/a" * 11),
    "a level of 51 characters": Sent(GOOD, fiware_servicepath="/" + "p" * 51),
    "an empty level": Sent(GOOD, fiware_servicepath="/a//b"),
    "a format that is not taken, by its header": Sent(GOOD, ngsiv2_attrsformat="keyValues"),
    "a format that is not taken, by its body": Sent(attribute(5)),
    "a format that nobody knows": Sent(GOOD, ngsiv2_attrsformat="new"),
    "an empty body": Sent(),
    "blanks": Sent(b" \r\n\t"),
    "a notification of no entity": Sent(data()),
    "more entities than are taken": Sent(data(*({"id": str(number)} for number in range(1001)))),
    "a subscription of 513 characters": Sent(json.dumps({"subscriptionId": "s" * 513, "data": [{"id": "a"}]}).encode()),
    "a body that is too large": Sent(notification(1, pad="x" * BODY_BYTES_MAX)),
    "a body in chunks that is too large": Sent(lambda: iter([b"x" * 10_000] * 10)),
    "a body that does not come in time": Raw(HALF),
    "a body that breaks off": Raw(HALF, ends=True),
    "a body that ends within its JSON": Sent(GOOD[:-10]),
    "a body that is no JSON": Sent(b"{nonsense"),
    "a body that is no UTF-8": Sent(b'{"data": [{"id": "\xff\xfe"}]}'),
    "a body with a byte order mark": Sent(b"\xef\xbb\xbf" + GOOD),
    "a compressed body": Sent(gzip.compress(GOOD, mtime=0), content_encoding="gzip"),
    "half of a surrogate pair": Sent(rb'{"data":[{"id":"\ud800","type":"Car"}]}'),
    "a body that is nested too deep": Sent(b'{"data":' + b"[" * 5000 + b"]" * 5000 + b"}"),
    "a body of 101 levels": Sent(attribute({"value": json.loads("[" * 97 + "]" * 97)})),
    "a body that would end its envelope": Sent(b'{"data":[]},"headers":{"fiware-service":"x"},"body":{"id":"x"}'),
    "an array": Sent(b"[1, 2]"),
    "an object that is no notification": Sent(b'{"a": 1}'),
    "data that is no array of objects": Sent(b'{"data": [1]}'),
    "more service paths than entities": Sent(GOOD, fiware_servicepath="/a,/b"),
    "a time that is none": Sent(json.dumps(LINKED).encode()),
    "entities without id only": Sent(data({"type": "Car"}, {"type": "Car"})),
    "an attribute that is no object": Sent(attribute(5), ngsiv2_attrsformat="normalized"),
    "an attribute of NGSIv1 without a name": Sent(json.dumps(V1).encode()),
    "an entity without id among others": Sent(data({"type": "Car"}, {"id": "car2", "type": "Car"})),
    "a head that is too long": Raw(b"POST /notify HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 40_000),
    "a head in one piece that is too long": Raw(
        b"POST /notify HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 20_000 + b"\r\n\r\n"
    ),
    "no HTTP": Raw(b"hello, is anybody there?\r\n\r\n"),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("broken") / "repository"
    Repository.create(root)
    (root / "tokens").write_text("a-token-for-this-test\n")
    (root / "tokens").chmod(0o600)
    return root


@pytest.fixture(scope="module")
def at(root: Path) -> Iterator[Receiving]:
    environment = {
        "CUSTODY__NGSI__NOTIFICATION_BYTES_MAX": str(BODY_BYTES_MAX),
        "CUSTODY__RECEIVER__BODY_SECONDS": "1",
        "CUSTODY__RECEIVER__TOKEN_FILE": "tokens",
    }
    with receiving(root, "--quiet", **environment) as found:
        yield found


def test_every_kind_of_the_page_is_sent() -> None:
    assert [row[0] for row in ROWS] == list(SENT)


@pytest.mark.parametrize(("name", "status", "error", "kept"), ROWS)
def test_each_kind_is_answered_and_kept_as_the_page_says(
    at: Receiving, root: Path, name: str, status: str, error: str, kept: str
) -> None:
    quarantine = Repository.open(root).quarantine
    keys, before = set(quarantine.known_keys()), at.health()
    got = SENT[name](at)
    if error == "broken-off":  # nobody is there to read the answer
        assert got == (None, None)
        wait_for(at, before, error)
    else:
        assert got == (int(status), None if error == "–" else error)
    after = at.health()
    if error != "–":
        assert after["answers"].get(error, 0) == before["answers"].get(error, 0) + 1
    is_stored = kept.endswith("the others are stored")
    assert after["notifications"] - before["notifications"] == is_stored
    new = [quarantine.get(key) for key in quarantine.known_keys() if key not in keys]
    assert len(new) == (kept != "nothing")
    for entry in new:
        sent = SENT[name]
        assert isinstance(sent, Sent)
        raw = quarantine.raw(entry.key)
        assert (entry.file, entry.format, entry.node) == (at.url, "ngsi", None)
        assert entry.code == ("bad-value" if is_stored else error)
        if kept == "the body":
            assert raw == sent.body
        else:
            document = json.loads(raw)
            assert document["body"] == json.loads(sent.body)
            assert document["headers"].items() >= {(k, v) for k, v in sent.headers.items() if k.startswith("fiware")}
            assert "authorization" not in document["headers"]


def wait_for(at: Receiving, before: dict[str, Any], error: str) -> None:
    """Wait until an answer was counted that nobody gets."""
    deadline = time.monotonic() + 30
    while at.health()["answers"].get(error, 0) == before["answers"].get(error, 0):
        assert time.monotonic() < deadline
        time.sleep(0.02)
