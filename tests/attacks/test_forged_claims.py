"""An event from outside names a content of custody's own: the content of somebody else would be given out as its own.

The claim of a content is a place in one repository: container, section, file, offset. Each format has its own way to
name one, each door its own way in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from custody.capture import Format
from custody.clock import SystemClock
from custody.model import Event
from custody.repository import Repository
from custody.serving.access import Scope, Tokens
from custody.serving.application import Access, application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from tests.attacks.every_door import ARROW, Body, EveryDoor, every_door
from tests.unit.capture.sample_inputs import any_avro, array, dto, lines, own_event
from tests.unit.serving.events_server import arrow, as_table
from tests.unit.serving.serve_process import token

SECRET = b"the salaries of everybody\n"
DIGEST = hashlib.sha256(SECRET).hexdigest()


@pytest.fixture
def at(tmp_path: Path) -> Iterator[EveryDoor]:
    with every_door(tmp_path / "r") as doors:
        yield doors


def held(at: EveryDoor) -> dict[str, Any]:
    """The claim of a content that somebody else delivered."""
    client = at._client
    assert client.put(f"/contents/{DIGEST}", content=SECRET).status_code == 201
    event = own_event(1, content_sha256=DIGEST, file_size=len(SECRET), source_node="owner", source_ordinal=1)
    assert at.events(Body(lines([event]), Format.CUSTODY, "application/x-ndjson")) == 200
    [stored] = at.stored()
    claim = stored.content_claim
    names = ("container", "section", "identifier", "offset", "size")
    return {name: getattr(claim, name) for name in names}


def rest(claim: dict[str, Any], prefix: str) -> dict[str, Any]:
    document = dto(77)
    for part in ("Container", "Section", "Identifier", "Offset"):
        document[f"{prefix}ContentClaim{part}"] = claim[part.lower()]
    document[f"{prefix}ContentClaimFileSizeBytes"] = claim["size"]
    return document


def bodies(claim: dict[str, Any]) -> dict[str, Body]:
    """The claim in each format that has one, as the content and as the former one."""
    found: dict[str, Body] = {}
    for side, prefix in (("content_claim", "output"), ("previous_content_claim", "input")):
        own = own_event(5, source_node="thief", source_ordinal=5, **{side: claim})
        forged = rest(claim, prefix)
        few, many = [own], [{**own, "source_ordinal": number} for number in range(100)]
        found |= {
            f"{side} of one event": Body(array(few), Format.CUSTODY),
            f"{side} a line": Body(lines(few), Format.CUSTODY, "application/x-ndjson"),
            f"{side} of many events": Body(array(many), Format.CUSTODY),
            f"{side} in columns": Body(_columns(few, side, claim), Format.CUSTODY, ARROW),
            f"{side} of REST": Body(json.dumps(forged).encode(), Format.NIFI_REST),
            f"{side} of a list of REST": Body(
                json.dumps({"provenance": {"results": {"provenanceEvents": [forged] * 2}}}).encode(), Format.NIFI_REST
            ),
            f"{side} in Avro": Body(any_avro([own]), Format.NIFI_AVRO, "avro/binary"),
            f"{side} in much Avro": Body(any_avro(many), Format.NIFI_AVRO, "avro/binary"),
        }
    return found


def _columns(events: list[dict[str, Any]], side: str, claim: dict[str, Any]) -> bytes:
    plain = [{name: value for name, value in event.items() if name != side} for event in events]
    return arrow(as_table(plain).append_column(side, [[claim] * len(events)]))


DOORS = ("events", "spool", "file", "landing", "site-to-site", "site-to-site-packed", "site-to-site-raw")


@pytest.mark.parametrize("door", DOORS)
def test_no_event_that_comes_in_names_a_content_of_somebody_else(at: EveryDoor, door: str) -> None:
    claim = held(at)
    gave_out = []
    for form, body in bodies(claim).items():
        at.doors[door](body)
        gave_out += [form for event in at.stored()[1:] if claim in claims_of(event)]
    assert set(gave_out) == set()
    assert at.repository.content(at.stored()[0]).read() == SECRET, "the owner's event has it still"


def claims_of(event: Event) -> list[dict[str, Any]]:
    names = ("container", "section", "identifier", "offset", "size")
    claims = [claim for claim in (event.content_claim, event.previous_content_claim) if claim is not None]
    return [{name: getattr(claim, name) for name in names} for claim in claims]


def test_a_content_that_somebody_else_delivered_is_not_had_by_its_digest_alone(tmp_path: Path) -> None:
    root = tmp_path / "r"
    Repository.create(root)
    owner, thief = (token(root, name, Scope.APPEND) for name in ("owner", "thief"))
    repository = Repository.open(root)
    services = Services(repository, repository.settings, SystemClock())
    try:
        with open_doors(("events",), services) as doors:
            app = application(repository.settings.serve, doors, Access(Tokens.read(root / "tokens")))
            with TestClient(app, base_url="http://localhost") as client:
                assert client.put(f"/contents/{DIGEST}", content=SECRET, headers=owner).status_code == 201
                assert client.head(f"/contents/{DIGEST}", headers=thief).status_code == 404
                body = lines([own_event(1, content_sha256=DIGEST, source_node="thief", source_ordinal=1)])
                headers = {"content-type": "application/x-ndjson"}
                assert client.post("/events", content=body, headers={**thief, **headers}).status_code == 409
                assert list(repository.events(0, 10)) == []
                assert client.put(f"/contents/{DIGEST}", content=SECRET, headers=thief).status_code == 201
                assert client.post("/events", content=body, headers={**thief, **headers}).status_code == 200
    finally:
        services.close()


@pytest.mark.parametrize("side", ["output", "input"])
def test_a_forged_claim_of_rest_is_refused_and_says_why(at: EveryDoor, side: str) -> None:
    body = Body(json.dumps(rest(held(at), side)).encode(), Format.NIFI_REST)
    assert at.events(body) == 200
    [entry] = at.repository.quarantine.entries()
    assert entry.code == "own-claim"
    assert "claim of custody's own contents" in entry.message


def test_a_claim_of_nifis_own_repository_stays_with_its_event(at: EveryDoor) -> None:
    assert at.events(Body(json.dumps(dto(7)).encode(), Format.NIFI_REST)) == 200
    [event] = at.stored()
    assert event.content_claim.container == "default"


def test_a_claim_that_came_in_forged_is_refused_when_it_is_tried_again(at: EveryDoor) -> None:
    at.events(Body(json.dumps(rest(held(at), "output")).encode(), Format.NIFI_REST))
    [entry] = at.repository.quarantine.entries()
    with Repository.open(at.root).ingest() as ingest:
        report = ingest.resubmit(entry.key)
    assert (report.stored, report.rejected) == (0, 1)
