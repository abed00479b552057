"""Texts that lie beside events: what a server keeps of a person is gone after an erasure."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from starlette.testclient import TestClient

from custody.clock import SystemClock
from custody.repository import EventSelection, Repository
from custody.serving.api_door import PREFIX
from custody.serving.application import Access, application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from tests.behaviour.retained import pass_of
from tests.unit.capture.sample_inputs import own_event
from tests.unit.serving.events_server import ndjson

PERSON = "Wilhelmina Example"
CONTENT = f"{PERSON} paid 3 EUR".encode()


def test_no_uploaded_content_and_no_job_names_a_person_who_was_erased(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    (root / "custody.toml").write_text('[retention]\ngrace = "0 seconds"\n')
    repository = Repository.open(root)
    services = Services(repository, repository.settings, SystemClock())
    digest = sha256(CONTENT).hexdigest()
    named = own_event(1, content_sha256=digest, updated_attributes={"customer": PERSON})
    try:
        with open_doors(("api", "events"), services) as doors:
            client = TestClient(application(repository.settings.serve, doors, Access()), base_url="http://localhost")
            assert client.put(f"/contents/{digest}", content=CONTENT).status_code == 201
            answer = client.post("/events", content=ndjson([named]), headers={"content-type": "application/x-ndjson"})
            assert answer.json()["stored"] == 1
            counted = client.post(
                f"{PREFIX}/forget-plans", params={"wait": 10}, json={"attributes": {"customer": PERSON}}
            )
            assert counted.json()["state"] == "succeeded", counted.text
    finally:
        services.close()
    kept = [path for folder in ("uploads", "jobs") for path in (root / folder).rglob("*") if path.is_file()]
    before = [path for path in kept if PERSON.encode() in path.read_bytes()]
    assert {path.parent.name for path in before} == {"uploads", "jobs"}
    erase(root)
    assert not [path for path in before if path.exists()]


def erase(root: Path) -> None:
    repository = Repository.open(root)
    erasure = repository.erase(EventSelection(attributes={"customer": PERSON}), "she asked for it", who="operator")
    pass_of(repository)
    repository.continue_erasure(erasure.id)
