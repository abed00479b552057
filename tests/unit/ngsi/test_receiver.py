"""The receiver over real HTTP: what is answered, what is stored, what is kept in the quarantine."""

import json
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from custody.errors import ConfigurationError
from custody.ngsi.serve import checked_tokens, is_loopback
from custody.repository import Repository
from tests.unit.ngsi.receiving import JSON, Receiving, notification, receiving

V1 = json.dumps(
    {
        "subscriptionId": "51c0ac9ed714fb3b37d7d5a8",
        "originator": "localhost",
        "contextResponses": [
            {
                "contextElement": {
                    "id": "car1",
                    "type": "car",
                    "isPattern": "false",
                    "attributes": [{"name": "speed", "type": "float", "value": "112.9"}],
                },
                "statusCode": {"code": "200", "reasonPhrase": "OK"},
            }
        ],
    }
).encode()
LINKED = json.dumps(
    {
        "id": "urn:ngsi-ld:Notification:7f1a",
        "type": "Notification",
        "subscriptionId": "urn:ngsi-ld:Subscription:1",
        "notifiedAt": "2026-03-02T00:00:00.123Z",
        "data": [{"id": "urn:ngsi-ld:Car:1", "type": "Car", "speed": {"type": "Property", "value": 55}}],
    }
).encode()
SERVICE = {"fiware-service": "vehicles", "fiware-servicepath": "/4wheels"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("receiver") / "repository"
    Repository.create(root)
    return root


@pytest.fixture(scope="module")
def at(root: Path) -> Iterator[Receiving]:
    with receiving(root, CUSTODY__NGSI__NOTIFICATION_BYTES_MAX="65536", CUSTODY__RECEIVER__BODY_SECONDS="1") as found:
        yield found


def test_a_notification_is_on_disk_with_its_body_when_it_is_answered(at: Receiving, root: Path) -> None:
    body = notification(1)
    answer = at.post(body + b"\n", {**SERVICE, "fiware-correlator": "aaaa-1; cbnotif=2"})
    assert (answer.status_code, answer.headers["fiware-correlator"]) == (200, "aaaa-1; cbnotif=2")
    told = answer.json()
    assert (told["writer"], told["stored"], told["rejected"]) == ("main", 1, 0)
    repository = Repository.open(root)
    event = repository.get(told["first_event_id"])
    assert repository.content(event).read() == body + b"\n"
    assert (event.event_type, event.transit_uri, event.source_host) == ("RECEIVE", at.url, "127.0.0.1")
    assert event.file_size == len(body) + 1
    shown = event.attributes
    assert shown["ngsi.service"] == "vehicles"
    assert shown["ngsi.service_path"] == "/4wheels"
    assert shown["ngsi.entity.id"] == "car1-0"
    assert shown["ngsi.correlator"] == "aaaa-1; cbnotif=2"
    assert shown["mime.type"] == "application/json"


@pytest.mark.parametrize(
    ("body", "headers", "version"),
    [
        (notification(2), {}, "ngsi-v2"),
        (V1, {}, "ngsi-v1"),
        (V1, {"ngsiv2-attrsformat": "legacy"}, "ngsi-v1"),
        (LINKED, {"content-type": "application/ld+json"}, "ngsi-ld"),
        (LINKED, {"ngsild-attribute-format": "Normalized", "ngsild-tenant": "t1"}, "ngsi-ld"),
        (notification(3), {"content-type": "application/json"}, "ngsi-v2"),
        (notification(3), {"content-type": "Application/JSON; Charset=UTF-8"}, "ngsi-v2"),
        (notification(4), {"fiware-servicepath": "/a, /b", "x-entities": "2"}, "ngsi-v2"),
    ],
)
def test_every_version_is_taken(at: Receiving, root: Path, body: bytes, headers: dict[str, str], version: str) -> None:
    if headers.pop("x-entities", None):
        body = notification(4, entities=2)
    answer = at.post(body, headers)
    assert answer.status_code == 200, answer.text
    repository = Repository.open(root)
    events = repository.get_many(range(answer.json()["first_event_id"], answer.json()["first_event_id"] + 2))
    assert events[0].attributes["ngsi.version"] == version
    assert {repository.content(event).read() for event in events[: answer.json()["stored"]]} == {body}


def test_two_notifications_without_a_correlator_are_two(at: Receiving, root: Path) -> None:
    answers = [at.post(notification(5)) for _ in range(2)]
    ids = [answer.json()["first_event_id"] for answer in answers]
    events = [Repository.open(root).get(number) for number in ids]
    assert events[0].flowfile_uuid != events[1].flowfile_uuid
    assert answers[0].headers["fiware-correlator"] != answers[1].headers["fiware-correlator"]


BROKEN = {
    "an empty body": (b"", {}, 400, "empty", False),
    "no JSON": (b"{nonsense", {}, 400, "not-json", True),
    "no object": (b"[1, 2]", {}, 400, "bad-value", True),
    "no notification": (b'{"a": 1}', {}, 400, "bad-value", True),
    "no entity": (b'{"subscriptionId": "s", "data": []}', {}, 400, "empty", False),
    "no text": (b'{"data": [{"id": "\xff\xfe"}]}', {}, 400, "not-json", True),
    "a body that ends the envelope": (
        b'{"data":[]},"headers":{"fiware-service":"other"},"body":{"id":"x"}',
        {},
        400,
        "not-json",
        True,
    ),
    "an envelope of its own": (b'{"headers":{},"body":{"id":"x"}}', {}, 400, "bad-value", True),
    "no content type": (notification(6), {"content-type": ""}, 415, "content-type", False),
    "another content type": (notification(6), {"content-type": "text/plain"}, 415, "content-type", False),
    "another charset": (
        notification(6),
        {"content-type": "application/json; charset=latin1"},
        415,
        "content-type",
        False,
    ),
    "a long service": (notification(6), {"fiware-service": "x" * 51}, 400, "service", False),
    "a path without a slash": (notification(6), {"fiware-servicepath": "a"}, 400, "service-path", False),
    "a long level": (notification(6), {"fiware-servicepath": "/" + "x" * 51}, 400, "service-path", False),
    "eleven levels": (notification(6), {"fiware-servicepath": "/a" * 11}, 400, "service-path", False),
    "two paths for three entities": (
        notification(6, entities=3),
        {"fiware-servicepath": "/a,/b"},
        400,
        "bad-value",
        True,
    ),
    "blanks": (b" \r\n\t", {}, 400, "empty", False),
    "keyValues that only the body shows": (notification(6, speed=5), {}, 400, "format", False),
    "keyValues": (notification(6), {"ngsiv2-attrsformat": "keyValues"}, 400, "format", False),
    "simplified": (LINKED, {"ngsild-attribute-format": "Simplified"}, 400, "format", False),
    "too much": (notification(6, pad="x" * 70_000), {}, 413, "too-large", False),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_notification_is_answered_with_the_reason(at: Receiving, root: Path, name: str) -> None:
    body, headers, status, code, is_kept = BROKEN[name]
    quarantine = Repository.open(root).quarantine
    before = {entry.key for entry in quarantine.entries()}
    answer = at.post(body, headers)
    assert (answer.status_code, answer.json()["error"]) == (status, code), answer.text
    new = [entry for entry in quarantine.entries() if entry.key not in before]
    assert bool(new) == is_kept
    for entry in new:
        assert body in quarantine.raw(entry.key)
        assert entry.format == "ngsi"
    assert at.health()["answers"][code] >= 1


def test_an_entity_that_is_none_is_kept_and_the_others_are_stored(at: Receiving, root: Path) -> None:
    document = json.loads(notification(7, entities=2))
    del document["data"][0]["id"]
    answer = at.post(json.dumps(document).encode())
    assert answer.status_code == 200
    assert (answer.json()["stored"], answer.json()["rejected"]) == (1, 1)
    [entry] = [item for item in Repository.open(root).quarantine.entries() if "entity 0" in item.message]
    assert json.loads(Repository.open(root).quarantine.raw(entry.key))["body"] == document


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/notify", 405), ("PUT", "/notify", 405)])
def test_another_method_is_told_which_one_is_right(at: Receiving, method: str, path: str, status: int) -> None:
    answer = httpx.request(method, at.root + path, timeout=60)
    assert (answer.status_code, answer.headers["allow"]) == (status, "POST")


def test_only_the_path_counts(at: Receiving) -> None:
    assert httpx.post(f"{at.root}/other", content=notification(8), timeout=60).status_code == 404
    assert httpx.get(f"{at.root}/docs", timeout=60).status_code == 404
    with_query = httpx.post(
        f"{at.url}?subscriptionId=urn:x", content=LINKED, headers={"content-type": "application/json"}, timeout=60
    )
    assert with_query.status_code == 200
    assert at.post(notification(8)).status_code == 200
    assert httpx.post(f"{at.url}/", content=notification(8), headers=JSON, timeout=60).status_code == 404


def test_many_at_once_are_stored_with_fewer_syncs_and_each_as_it_was(at: Receiving, root: Path) -> None:
    before = at.health()

    def work(thread: int) -> list[tuple[bytes, int]]:
        with httpx.Client(timeout=60) as client:
            found = []
            for number in range(10):
                body = notification(1000 + thread * 100 + number, entities=1 + number % 3)
                answer = client.post(at.url, content=body, headers={"content-type": "application/json"})
                found += [(body, answer.json()["first_event_id"] + index) for index in range(answer.json()["stored"])]
            return found

    with ThreadPoolExecutor(8) as pool:
        told = [pair for pairs in pool.map(work, range(8)) for pair in pairs]
    assert len({number for _, number in told}) == len(told) == 8 * (1 + 2 + 3) * 3 + 8
    repository = Repository.open(root)
    events = {event.event_id: event for event in repository.get_many([number for _, number in told])}
    assert all(repository.content(events[number]).read() == body for body, number in told)
    after = at.health()
    assert after["notifications"] - before["notifications"] == 80
    assert after["batches"] - before["batches"] < 80


def _raw(at: Receiving, sent: bytes, *, seconds: float = 30) -> bytes:
    place = urlsplit(at.url)
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=seconds) as connection:
        connection.sendall(sent)
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
        return answer


def test_a_head_that_does_not_end_is_refused(at: Receiving) -> None:
    answer = _raw(at, b"POST /notify HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 40_000)
    assert answer.split(b" ")[1] in (b"400", b"431")


def test_a_body_that_does_not_come_is_not_waited_for(at: Receiving) -> None:
    head = b"POST /notify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    assert _raw(at, head).split(b" ")[1] == b"408"


def test_chunks_are_counted(at: Receiving) -> None:
    with httpx.Client(timeout=60) as client:
        found = client.post(
            at.url, content=(b"x" * 10_000 for _ in range(10)), headers={"content-type": "application/json"}
        )
    assert found.status_code == 413


def test_only_clients_with_a_certificate_are_heard_and_sigterm_answers_what_has_begun(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    certificate, key = _self_signed(root)
    environment = {
        "CUSTODY__RECEIVER__TLS_CERTIFICATE": "cert.pem",
        "CUSTODY__RECEIVER__TLS_KEY": "key.pem",
        "CUSTODY__RECEIVER__TLS_CLIENT_CA": "cert.pem",
    }
    with receiving(root, **environment) as at, ThreadPoolExecutor(4) as pool:
        assert at.url.startswith("https://127.0.0.1:")
        trust = ssl.create_default_context(cafile=str(certificate))
        with pytest.raises(httpx.TransportError):
            at.post(notification(1), verify=trust)
        trust = ssl.create_default_context(cafile=str(certificate))
        trust.load_cert_chain(certificate, key)
        done = [pool.submit(at.post, notification(number), verify=trust) for number in range(20)]
        assert done[0].result().status_code == 200
        at.process.send_signal(signal.SIGTERM)
        answers = []
        for future in done:
            try:
                answers.append(future.result())
            except httpx.TransportError:
                continue  # it came after the end
        assert at.process.wait(30) == 0
    told = [answer.json()["first_event_id"] for answer in answers if answer.status_code == 200]
    assert told
    assert {event.event_id for event in Repository.open(root).get_many(told)} == set(told)
    assert {path.suffix for path in root.glob("containers/1/main/journals/*")} == {".sealed"}


def _self_signed(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=custody"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"host": "0.0.0.0"}, "expected an address of this machine alone"),  # noqa: S104
        ({"host": "receiver.example"}, "expected an address of this machine alone"),
        ({"token_file": "gone"}, "expected a file with a token a line"),
        ({"token_file": "open"}, "its owner alone"),
        ({"token_file": "short"}, "16 or more characters"),
        ({"tls_client_ca": "short"}, "receiver.tls_certificate"),
        ({"tls_certificate": "gone"}, "expected a file, found none"),
    ],
)
def test_a_receiver_that_would_be_open_does_not_start(tmp_path: Path, values: dict[str, str], said: str) -> None:
    settings = Repository.create(tmp_path / "repository").settings
    for name, text, mode in (("open", "x" * 20, 0o644), ("short", "abc", 0o600)):
        (settings.root / name).write_text(text)
        (settings.root / name).chmod(mode)
    update = {name: value if name == "host" else Path(value) for name, value in values.items()}
    chosen = settings.model_copy(update={"receiver": settings.receiver.model_copy(update=update)})
    with pytest.raises(ConfigurationError, match=said):
        checked_tokens(chosen)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],  # noqa: S104
)
def test_only_this_machine_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
