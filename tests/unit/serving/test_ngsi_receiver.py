"""The receiver over real HTTP: what is answered, what is stored, what is kept in the quarantine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from custody.repository import Repository
from tests.unit.serving.receiver_process import JSON, Receiving, notification, receiving

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
