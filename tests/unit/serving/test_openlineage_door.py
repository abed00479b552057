"""OpenLineage over HTTP: each event once, durable before the answer, and nothing dropped that can be kept."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from custody.capture import Accepted, Format, former_ordinal
from custody.model import Event
from custody.repository import Repository
from tests.unit.capture.sample_inputs import dataset, read, run_event
from tests.unit.serving.serve_process import Served, served

ONE = "/api/v1/lineage"
BATCH = "/api/v1/lineage/batch"
LIMIT = 1 << 20
PRODUCER = "https://example.org/producer"
DATASET_EVENT = {
    "eventTime": "2026-11-01T10:00:00.123456+01:00",
    "producer": PRODUCER,
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetEvent",
    "dataset": {
        "namespace": "lake://east",
        "name": "tree_v2",
        "facets": {
            "lifecycleStateChange": {
                "_producer": PRODUCER,
                "_schemaURL": "https://openlineage.io/spec/facets/1-0-1/LifecycleStateChangeDatasetFacet.json",
                "lifecycleStateChange": "RENAME",
                "previousIdentifier": {"namespace": "lake://east", "name": "tree"},
            }
        },
    },
}
JOB_EVENT = {
    "eventTime": "2026-11-01T10:00:01Z",
    "producer": PRODUCER,
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent",
    "job": {"namespace": "garden", "name": "grow"},
    "inputs": [dataset("seed")],
    "outputs": [dataset("tree")],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("openlineage") / "repository"
    Repository.create(root)
    return root


@pytest.fixture(scope="module")
def at(root: Path) -> Iterator[Served]:
    limits = {"CUSTODY__CAPTURE__BODY_BYTES_MAX": str(LIMIT), "CUSTODY__CAPTURE__BODY_EVENTS_MAX": "500"}
    with served(root, "--quiet", **limits) as server:
        yield server


def stored(root: Path) -> list[Event]:
    return list(Repository.open(root).events())


def post(at: Served, document: object, path: str = ONE, **headers: str) -> Any:
    return at.post(path, json.dumps(document).encode(), headers)


@pytest.mark.parametrize("number", range(3))
def test_each_kind_of_event_is_stored_once_however_often_and_in_whatever_order_of_keys_it_comes(
    at: Served, root: Path, number: int
) -> None:
    document = [run_event("START", 100), DATASET_EVENT, JOB_EVENT][number]
    before = len(stored(root))
    first = post(at, document)
    assert (first.status_code, first.json()) == (201, {"stored": 1, "repeated": 0})
    kept = stored(root)[before:]
    assert [json.loads(event.extra or "")["openlineage"] for event in kept] == [document]
    for again in (json.dumps(document), json.dumps(document, sort_keys=True, indent=2)):
        answer = at.post(ONE, again.encode())
        assert (answer.status_code, answer.json()) == (200, {"stored": 0, "repeated": 1})
    assert len(stored(root)) == before + 1


def test_two_observations_of_one_run_type_and_moment_are_both_stored(at: Served, root: Path) -> None:
    one, other = (run_event("RUNNING", 200, outputs=[dataset(name)]) for name in ("tree", "wood"))
    before = len(stored(root))
    assert [post(at, document).status_code for document in (one, other, one, other)] == [201, 201, 200, 200]
    assert len(stored(root)) == before + 2
    text = json.dumps(run_event("RUNNING", 201, rows=0))
    numbers = [text.replace('"rows": 0', f'"rows": {number}').encode() for number in ("1.0", "1.00", "1.0")]
    assert [at.post(ONE, body).status_code for body in numbers] == [201, 201, 200], "a number is what is written"


def test_what_an_older_custody_stored_is_known_and_what_it_would_have_refused_is_stored(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    repository = Repository.create(root)
    document = run_event("START", 300)
    [outcome] = read(json.dumps(document).encode(), Format.OPENLINEAGE)
    assert isinstance(outcome, Accepted)
    former = msgspec.structs.replace(outcome.event, source_ordinal=former_ordinal(outcome.event))
    assert former.source_ordinal not in (None, outcome.event.source_ordinal)
    repository.append([former])
    with served(root, "--quiet") as at:
        assert post(at, document).status_code == 200
        assert post(at, {**document, "outputs": [dataset("elsewhere")]}).status_code == 201
    assert len(stored(root)) == 2


def test_the_paths_of_every_client_are_answered(at: Served) -> None:
    for number, path in enumerate((ONE, "/openlineage", "/openlineage/", "/openlineage/api/v1/lineage")):
        assert post(at, run_event("START", 400 + number), path).status_code == 201, path
    assert post(at, [run_event("START", 410)], "/openlineage/api/v1/lineage/batch").status_code == 200
    for path in ("/api/v1/lineage/", "/api/v1/other", "/openlineage/../etc/passwd", "/openlineage/%2e%2e/%2e%2e/x"):
        assert post(at, run_event("START", 411), path).status_code == 404, path
    assert at.get(ONE).status_code == 405


def test_gzip_is_read_in_all_its_members_and_a_part_of_one_is_kept(at: Served, root: Path) -> None:
    text = json.dumps(run_event("COMPLETE", 500, inputs=[dataset("seed")])).encode()
    whole = {"content-encoding": "gzip", "content-type": "application/json; charset=UTF-8"}
    assert at.post(ONE, gzip.compress(text), whole).status_code == 201
    assert at.post(ONE, gzip.compress(text[:50]) + gzip.compress(text[50:]), whole).status_code == 200
    part = gzip.compress(text)[:-20]
    cut = at.post(ONE, part, whole)
    assert (cut.status_code, cut.json()["error"]) == (400, "bad-gzip")
    assert Repository.open(root).quarantine.raw(cut.json()["quarantine"]) == part
    assert at.post(ONE, text, {"content-encoding": "br"}).status_code == 415
    assert at.post(ONE, text, {"content-encoding": "gzip"}).json()["error"] == "bad-gzip"


def test_a_body_that_is_too_large_is_refused_whether_before_or_after_it_is_unzipped(at: Served) -> None:
    bomb = gzip.compress(b'{"run":"' + b" " * (400 << 20), 9)
    assert len(bomb) < LIMIT
    assert at.post(ONE, bomb, {"content-encoding": "gzip"}).status_code == 413, "what unzips it runs from here on"
    started = time.monotonic()
    answer = at.post(ONE, bomb, {"content-encoding": "gzip"})
    assert (answer.status_code, answer.json()["error"]) == (413, "too-large")
    assert time.monotonic() - started < 5, "no more than the limit is unzipped"
    assert at.post(ONE, b" " * (LIMIT + 1)).status_code == 413
    answer = at.post(BATCH, b"[" + b",".join([b"{}"] * 501) + b"]")
    assert (answer.status_code, answer.json()["error"]) == (413, "events")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{nonsense", 400, "not-json"),
        (b"", 400, "not-json"),
        (b"\xff\xfe", 400, "not-json"),
        (b'"text"', 400, "not-json"),
        (b"{}", 202, "bad-value"),
        (json.dumps(run_event("LATER", 600)).encode(), 202, "bad-value"),
        (json.dumps({**run_event("START", 601), "eventTime": "yesterday"}).encode(), 202, "bad-value"),
        (json.dumps({**JOB_EVENT, "job": {"name": "x"}}).encode(), 202, "bad-value"),
        (json.dumps({**DATASET_EVENT, "dataset": []}).encode(), 202, "bad-value"),
        (b'{"run":' + b"[" * 5000 + b"]" * 5000 + b"}", 202, "bad-value"),
    ],
)
def test_what_is_no_event_is_kept_and_never_answered_with_what_loses_it(
    at: Served, root: Path, body: bytes, status: int, code: str
) -> None:
    answer = at.post(ONE, body)
    assert (answer.status_code, answer.json()["error"]) == (status, code)
    entry = Repository.open(root).quarantine.get(answer.json()["quarantine"])
    assert (entry.format, entry.file) == ("openlineage", ONE)


def test_of_a_batch_the_good_ones_are_stored_and_the_bad_ones_are_named_with_their_places(
    at: Served, root: Path
) -> None:
    documents = [run_event("START", 700), {"eventType": "START"}, run_event("START", 701), 7, run_event("START", 700)]
    body = json.dumps(documents)
    before = len(stored(root))
    answer = at.post(BATCH, body.encode())
    assert answer.status_code == 200
    said = answer.json()
    assert said["status"] == "partial_success"
    counts = {"received": 5, "successful": 3, "failed": 2, "retriable": 0, "non_retriable": 2}
    assert said["summary"] == {**counts, "stored": 2, "repeated": 1}
    assert [item["index"] for item in said["failed_events"]] == [1, 3]
    assert [body[item["offset"] :][:1] for item in said["failed_events"]] == ["{", "7"]
    assert len(stored(root)) == before + 2
    lines = "\n".join(json.dumps(run_event("START", number)) for number in (702, 703))
    assert at.post(BATCH, lines.encode()).json()["summary"]["stored"] == 2
    assert at.post(BATCH, b"[]").json()["summary"]["failed"] == 1


def test_many_at_once_share_syncs_and_each_is_stored_once(at: Served, root: Path) -> None:
    before = len(stored(root))
    documents = [run_event("START", 1000 + number % 60) for number in range(120)]
    with ThreadPoolExecutor(16) as pool:
        codes = list(pool.map(lambda document: post(at, document).status_code, documents))
    assert sorted(codes) == [200] * 60 + [201] * 60
    assert len(stored(root)) == before + 60


def test_what_finds_no_room_is_answered_with_503_and_is_stored_when_it_comes_again(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    full = {"CUSTODY__REPOSITORY__QUARANTINE_BYTES_MAX": str(1 << 16)}
    with served(root, "--quiet", **full) as at:
        batch = [run_event("START", 800), {"bad": "x" * (1 << 16)}]
        answer = post(at, batch, BATCH)
        assert (answer.status_code, answer.json()["error"]) == (503, "backpressure")
        assert int(answer.headers["retry-after"]) > 0
        assert str(root) not in answer.text
        assert post(at, batch[:1], BATCH).json()["summary"]["successful"] == 1
    assert len(stored(root)) == 1
    waiting = {
        "CUSTODY__JOURNAL__WAITING_BYTES_MAX": "30000",
        "CUSTODY__JOURNAL__BACKPRESSURE_SECONDS": "0",
        "CUSTODY__JOURNAL__SEAL_BYTES": "8192",
    }
    with served(root, "--quiet", **waiting) as at:
        answers = [post(at, run_event("START", 810 + number)) for number in range(30)]
        assert {answer.status_code for answer in answers} == {201, 503}
        assert {answer.json()["error"] for answer in answers if answer.status_code == 503} == {"backpressure"}
    assert len(stored(root)) == 1 + sum(answer.status_code == 201 for answer in answers)
