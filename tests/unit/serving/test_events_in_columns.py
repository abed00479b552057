"""Bodies of the events door and of OpenLineage's: as columns they are answered and stored as they are as rows."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from starlette.testclient import TestClient

from custody.capture import Outcome
from custody.clock import SystemClock
from custody.ingest import ingest
from custody.repository import Repository
from custody.serving import event_body, openlineage_door
from custody.serving.application import application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from custody.serving.lineage_body import BodyProcess, LineageBody
from tests.unit.capture.json_documents import document
from tests.unit.capture.sample_inputs import avro_file, entity, lines, notification, own_event, payloads, run_event
from tests.unit.serving.events_server import ndjson

NDJSON, PLAIN, AVRO = "application/x-ndjson", "application/json", "avro/binary"


@contextmanager
def doors(root: Path) -> Iterator[TestClient]:
    repository = Repository.open(root) if root.exists() else Repository.create(root)
    services = Services(repository, repository.settings, SystemClock())
    try:
        with (
            open_doors(["events", "openlineage"], services) as opened,
            TestClient(
                application(repository.settings.serve, opened),
                base_url="http://localhost",
                raise_server_exceptions=False,
            ) as client,
        ):
            yield client
    finally:
        services.close()


def some_request(random: Random) -> tuple[str, bytes, dict[str, str]]:
    """A request with many events, some of which are bad, repeated, warned of or contradict others."""
    count = random.choice((0, 1, 3, 70, 150, 600))
    numbers = [random.randrange(2 * count + 1) for _ in range(count)]
    bad = [random.random() < 0.02 for _ in numbers]
    kind = random.randrange(6)
    if kind == 0:
        events = [
            own_event(n, source_node="shop", source_ordinal=n, transit_uri=None if n % 37 == 0 else "x:y", file_size=s)
            for n, s in zip(numbers, [-1 if is_bad else 7 for is_bad in bad], strict=True)
        ]
        headers = {"content-type": NDJSON}
        if random.random() < 0.2:
            headers["prefer"] = "handling=strict"
        return "/events", ndjson(events) or b"[]", headers
    if kind == 1:
        events = [own_event(n, file_size=-1 if is_bad else 7) for n, is_bad in zip(numbers, bad, strict=True)]
        headers = {"content-type": PLAIN, "content-encoding": "gzip"}
        if random.random() < 0.5:
            headers["idempotency-key"] = f"key {random.randrange(3)}"
        return f"/events?node=n{random.randrange(2)}", gzip.compress(json.dumps(events).encode(), mtime=0), headers
    if kind == 2:
        items = [document("SEND", eventOrdinal=n, entitySize=-1 if is_bad else 9) for n, is_bad in zip(numbers, bad)]  # noqa: B905
        return "/events", json.dumps(items).encode(), {"content-type": PLAIN}
    if kind == 3:
        return "/events", avro_file(payloads(count), block=50), {"content-type": AVRO}
    if kind == 4:
        notes = [notification(entity(n), entity(n + 1)) for n in numbers]
        return "/events?format=ngsi", lines(notes) or b"[]", {"content-type": NDJSON}
    runs = [7 if is_bad else run_event("START", n) for n, is_bad in zip(numbers, bad, strict=True)]
    return random.choice(("/api/v1/lineage/batch", "/api/v1/lineage")), json.dumps(runs).encode(), {}


WAYS = {
    "columns": {"_COLUMNS_FROM": 1, "_ALONE_FROM": 4, "COLUMN_BYTES": 0, "_SHORT_BYTES": 0},
    "usual": {},
    "rows": {"_COLUMNS_FROM": 1 << 30, "_ALONE_FROM": 1 << 30, "COLUMN_BYTES": 1 << 30, "_SHORT_BYTES": 1 << 30},
}


@pytest.mark.parametrize("seed", range(6))
def test_any_body_is_answered_and_stored_as_rows_are(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    modules: dict[str, Any] = {
        "_COLUMNS_FROM": ingest,
        "_ALONE_FROM": ingest,
        "COLUMN_BYTES": event_body,
        "_SHORT_BYTES": openlineage_door,
    }
    for way, values in WAYS.items():
        with monkeypatch.context() as patched:
            for name, value in values.items():
                patched.setattr(modules[name], name, value)
            random = Random(seed)  # noqa: S311 - no secret
            answers = []
            with doors(tmp_path / way) as client:
                for _ in range(12):
                    path, body, headers = some_request(random)
                    answer = client.post(path, content=body, headers=headers)
                    assert answer.status_code in (200, 201, 202, 400, 422), answer.text
                    answers.append((answer.status_code, answer.json()))
        repository = Repository.open(tmp_path / way)
        entries = [(entry.key, entry.severity, entry.message) for entry in repository.quarantine.entries()]
        found.append((answers, list(repository.events(0, 100_000)), sorted(entries)))
    assert any(status == 200 for status, _ in found[0][0])
    assert found[0] == found[2]
    assert found[1] == found[2]


def test_a_content_is_named_however_its_key_is_written(tmp_path: Path) -> None:
    events = [own_event(number, content_sha256="0" * 64) for number in range(100)]
    escaped = ndjson(events).replace(b"content_sha256", b"content\\u005fsha25\\u0036")
    with doors(tmp_path / "r") as client:
        for body in (ndjson(events), escaped):
            answer = client.post("/events", content=body, headers={"content-type": NDJSON})
            assert (answer.status_code, answer.json()["missing"]) == (409, ["0" * 64])
    assert list(Repository.open(tmp_path / "r").events(0, 10)) == []


@pytest.mark.parametrize("length", [300, 300_000])
def test_a_large_event_is_read_in_a_process_and_many_small_ones_are_not(
    tmp_path: Path, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    read = BodyProcess.read

    def noted(process: BodyProcess, body: LineageBody) -> list[Outcome]:
        asked.append(len(body.raw))
        return read(process, body)

    monkeypatch.setattr(BodyProcess, "read", noted)
    runs = [run_event("START", number) for number in range(700)]
    runs[3]["producer"] = "p" * length
    with doors(tmp_path / "r") as client:
        answer = client.post("/api/v1/lineage/batch", content=json.dumps(runs).encode())
        assert answer.json()["summary"]["stored"] == 700, answer.text
    assert bool(asked) == (length > 1000)
