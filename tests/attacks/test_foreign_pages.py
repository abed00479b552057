"""Pages of other sites: what they make a browser send to a server on the reader's own machine, and what they read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from custody.clock import SystemClock
from custody.config.sections import DoorName
from custody.repository import Repository
from custody.serving.access import Scope, Tokens, add_token
from custody.serving.application import Access, application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from custody.serving.serving_access import hosts_of
from custody.vfs import PosixFileSystem
from tests.unit.capture.sample_inputs import own_event, run_event

DOORS: tuple[DoorName, ...] = ("api", "openlineage", "events", "ngsi", "site-to-site")
LINEAGE, EVENTS, SEARCH = "/api/v1/lineage", "/events", "/api/v1/events"
FOREIGN = (
    {"origin": "http://evil.example", "sec-fetch-site": "cross-site"},
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "origin": "http://localhost:9999"},
)
TARGET = "/nifi-api/data-transfer/input-ports/{}/transactions"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An open server, as `custody serve` without settings is."""
    repository = Repository.create(tmp_path_factory.mktemp("open") / "repository")
    services = Services(repository, repository.settings, SystemClock())
    try:
        with open_doors(DOORS, services) as doors:
            app = application(repository.settings.serve, doors, Access())
            with TestClient(app, base_url="http://localhost:5080", raise_server_exceptions=False) as client:
                yield client
    finally:
        services.close()


def sent(number: int) -> tuple[tuple[str, bytes], ...]:
    """What a page could send, for each door that stores."""
    return (
        (LINEAGE, json.dumps(run_event("START", number)).encode()),
        (EVENTS, json.dumps([own_event(number)]).encode()),
        ("/custody/ngsi/notify", b'{"subscriptionId": "1", "data": [{"id": "a", "type": "B"}]}'),
    )


def total(client: TestClient) -> int:
    return int(client.get(SEARCH).json()["total"])


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("kind", ["text/plain", "application/json", None])
def test_no_page_of_another_site_stores_an_event(client: TestClient, headers: dict[str, str], kind: str | None) -> None:
    before = total(client)
    for path, body in sent(1):
        own = headers if kind is None else {**headers, "content-type": kind}
        answer = client.post(path, content=body, headers=own)
        assert (answer.status_code, answer.json()["error"]) == (403, "foreign-page"), (path, answer.text)
    port = client.get("/nifi-api/site-to-site").json()["controller"]["inputPorts"][0]["id"]
    version = {"x-nifi-site-to-site-protocol-version": "1"}
    assert client.post(TARGET.format(port), headers={**headers, **version}).status_code == 403
    assert total(client) == before


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_no_event_of_openlineage_is_taken_in_the_type_of_a_form(client: TestClient, kind: str) -> None:
    before = total(client)
    answer = client.post(LINEAGE, content=sent(2)[0][1], headers={"content-type": f"{kind}; charset=utf-8"})
    assert (answer.status_code, answer.json()["error"]) == (415, "content-type")
    assert total(client) == before


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:5080", "localhost.evil.example", "", "[", "192.0.2.1:5080"]
)
def test_an_open_server_answers_no_name_that_was_led_to_it(client: TestClient, host: str) -> None:
    client.post(LINEAGE, content=sent(3)[0][1], headers={"content-type": "application/json"})
    before = total(client)
    assert before
    # The page has this name itself, so that a browser takes it for the server's own.
    own = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
    for path in (SEARCH, "/api/v1/sql", "/metrics", "/healthz", "/nifi-api/site-to-site", "/nowhere"):
        answer = client.get(path, headers=own)
        assert (answer.status_code, answer.json()["error"]) == (421, "host"), (path, answer.text)
    for path, body in sent(4):
        answer = client.post(path, content=body, headers={**own, "content-type": "application/json"})
        assert answer.status_code == 421, (path, answer.text)
    assert total(client) == before


@pytest.mark.parametrize("host", ["localhost:5080", "127.0.0.1:5080", "127.1.2.3", "[::1]:5080", "LOCALHOST"])
def test_names_of_this_machine_are_answered(client: TestClient, host: str) -> None:
    assert client.get(SEARCH, headers={"host": host}).status_code == 200
    answer = client.post(LINEAGE, content=sent(5)[0][1], headers={"host": host, "content-type": "application/json"})
    assert answer.status_code in (200, 201)
    own = {"host": host, "origin": f"http://{host}", "content-type": "application/json"}
    assert client.post(LINEAGE, content=sent(5)[0][1], headers=own).status_code in (200, 201)


def test_names_that_are_set_are_answered_and_no_others(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    made = add_token(PosixFileSystem(), root / "tokens", "reader", frozenset({Scope.READ}), "")
    (root / "custody.toml").write_text('[serve]\nallowed_hosts = ["custody.example"]\n')
    repository = Repository.open(root)
    services = Services(repository, repository.settings, SystemClock())
    token = {"authorization": f"Bearer {made}"}
    with open_doors(("api",), services) as doors:
        names = hosts_of(repository.settings)
        for access in (Access(allowed_hosts=names), Access(Tokens.read(root / "tokens"), allowed_hosts=names)):
            app = application(repository.settings.serve, doors, access)
            client = TestClient(app, base_url="http://localhost")
            for host, status in (("custody.example:80", 200), ("localhost", 200), ("evil.example", 421)):
                assert client.get(SEARCH, headers={**token, "host": host}).status_code == status
        access = Access(Tokens.read(root / "tokens"))
        client = TestClient(application(repository.settings.serve, doors, access), base_url="http://any.example")
        assert client.get(SEARCH, headers=token).status_code == 200, "a token is what a stranger's page does not have"


def test_every_answer_forbids_a_browser_to_guess_its_type(client: TestClient) -> None:
    for method, path in (
        *(("GET", path) for path in (SEARCH, "/healthz", "/readyz", "/metrics", "/nowhere", "/api/v1/nowhere")),
        *(("GET", path) for path in ("/api/v1/lineage/export?event=main:0", "/events", "/nifi-api/site-to-site")),
        *(("POST", path) for path in (LINEAGE, EVENTS, "/custody/ngsi/notify", "/api/v1/sql")),
    ):
        answer = client.request(method, path)
        assert answer.headers["x-content-type-options"] == "nosniff", (path, answer.status_code)
        assert client.get(path, headers={"host": "evil.example"}).headers["x-content-type-options"] == "nosniff"
