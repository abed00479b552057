"""The API gives what the library gives, and every error is a problem document."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from custody.clock import SystemClock
from custody.config.sections import ListenerSection
from custody.model import to_events
from custody.repository import EventSelection, Repository
from custody.serving.access import Scope, Tokens, add_token
from custody.serving.api_door import PREFIX, ApiDoor
from custody.serving.application import Access, application
from custody.serving.door import Door, Services
from custody.serving.event_document import event_document
from custody.serving.openlineage_door import OpenLineageDoor
from custody.vfs import PosixFileSystem
from tests.support import append, event, run_steps

CONTENT = bytes(range(256)) * 40
EVENTS = 250


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    root = tmp_path_factory.mktemp("api") / "repository"
    Repository.create(root)
    (root / "custody.toml").write_text('[index]\nattributes = ["note"]\n')
    opened = Repository.open(root)
    append(opened, [event(n, updated_attributes={"note": f"n{n % 3}", "filename": f"f{n}"}) for n in range(EVENTS)])
    run_steps(opened.settings)
    opened.append_with_content([event(EVENTS, source_ordinal=(1 << 62) + 1, details="=1+1")], CONTENT)
    return Repository.open(root)


@pytest.fixture(scope="module")
def client(repository: Repository) -> Iterator[TestClient]:
    with client_of(repository, Access()) as client:
        yield client


def client_of(repository: Repository, access: Access) -> TestClient:
    door = ApiDoor(Services(repository, repository.settings, SystemClock()))
    app = application(ListenerSection(), [door], access)
    return TestClient(app, base_url=f"http://localhost{PREFIX}/", raise_server_exceptions=False)


def get(client: TestClient, path: str, status: int = 200, **parameters: Any) -> Any:
    answer = client.get(path, params=parameters or None)
    assert answer.status_code == status, answer.text
    kind = "application/json" if status < 400 else "application/problem+json"
    assert answer.headers["content-type"] == kind
    return answer.json()


def test_pages_give_each_event_once_and_an_exact_total(client: TestClient, repository: Repository) -> None:
    seen: list[int] = []
    path: str | None = "events?limit=70&q=event_type:*"
    while path is not None:
        page = get(client, path)
        assert page["total"] == EVENTS + 1
        assert page["notices"] == []
        seen += [item["event"]["event_id"] for item in page["items"]]
        path = page["next"]
    assert seen == list(range(EVENTS, -1, -1))


def test_an_event_is_that_of_the_library_and_its_ordinal_is_text(client: TestClient, repository: Repository) -> None:
    shown = get(client, f"events/main/{EVENTS}")
    expected = repository.get(EVENTS)
    assert shown["event"] == json.loads(json.dumps(event_document(expected)))
    assert shown["event"]["source_ordinal"] == str((1 << 62) + 1)
    assert shown["attributes"] == expected.attributes
    assert shown["content"] == {
        "availability": "available",
        "size": len(CONTENT),
        "href": f"events/main/{EVENTS}/content",
    }
    assert shown["previous_content"] is None
    assert get(client, shown["links"]["lineage"])["nodes"][0]["uuid"] == expected.flowfile_uuid
    assert get(client, shown["links"]["nifi"])["eventType"] == expected.event_type


@pytest.mark.parametrize("buckets", [1, 7, 60, 500])
def test_a_histogram_counts_each_event_once_and_each_span_as_a_search_does(
    client: TestClient, repository: Repository, buckets: int
) -> None:
    question = "NOT attribute.note:n1"
    since, until = "2026-03-02T00:00:10Z", "2026-03-02T00:03:20.499Z"
    shown = get(client, "events/histogram", since=since, until=until, q=question, buckets=buckets)
    spans = [(one["first_ms"], one["last_ms"]) for one in shown["buckets"]]
    assert len(spans) == buckets
    assert (spans[0][0], spans[-1][1]) == (1_772_409_610_000, 1_772_409_800_499)
    assert all(before[1] + 1 == after[0] for before, after in pairwise(spans))
    times = [one.event.event_time for one in repository.search(question, limit=1000).events]
    assert [one["events"] for one in shown["buckets"]] == [
        sum(first <= time <= last for time in times) for first, last in spans
    ]
    assert shown["total"] == repository.search(f"{question} AND event_time:[{since} TO {until}]").total > 100


def test_a_histogram_of_no_time_or_the_wrong_way_round_is_refused(client: TestClient) -> None:
    assert (
        "expected a time span" in get(client, "events/histogram", 400, since="2026-03-02", until="2026-03-01")["detail"]
    )
    get(client, "events/histogram", 400)
    get(client, "events/histogram", 400, since="2026-03-02", buckets=501)


@pytest.mark.parametrize(
    ("wanted", "first", "stop"),
    [("bytes=0-9", 0, 10), ("bytes=300-", 300, None), ("bytes=-7", -7, None), ("bytes=10000-99999", 10000, None)],
)
def test_a_range_of_a_content_is_those_bytes(client: TestClient, wanted: str, first: int, stop: int | None) -> None:
    answer = client.get(f"events/main/{EVENTS}/content", headers={"Range": wanted})
    assert answer.status_code == 206
    assert answer.content == CONTENT[first:stop]
    start = first % len(CONTENT)
    assert answer.headers["content-range"] == f"bytes {start}-{start + len(answer.content) - 1}/{len(CONTENT)}"


def test_a_whole_content_is_checked_bytes_that_no_browser_runs(client: TestClient) -> None:
    answer = client.get(f"events/main/{EVENTS}/content")
    assert answer.content == CONTENT
    assert answer.headers["etag"] == f'"{hashlib.sha256(CONTENT).hexdigest()}"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == "attachment"
    assert "sandbox" in answer.headers["content-security-policy"]
    head = client.head(f"events/main/{EVENTS}/content")
    assert (head.content, head.headers["content-length"]) == (b"", str(len(CONTENT)))
    beyond = client.get(f"events/main/{EVENTS}/content", headers={"Range": "bytes=99999-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(CONTENT)}")
    changed = client.get(f"events/main/{EVENTS}/content", headers={"Range": "bytes=0-1", "If-Range": '"other"'})
    assert (changed.status_code, changed.content) == (200, CONTENT)


def test_facets_and_fields_are_those_of_the_library(client: TestClient, repository: Repository) -> None:
    counted = get(client, "events/facets", field=["event_type", "attribute.note"], q="filename:f*")
    expected, _ = repository.facets("filename:f*", ["event_type", "attribute.note"])
    assert counted["facets"] == {name: dict(values.most_common()) for name, values in expected.items()}
    fields = get(client, "fields")
    assert "attribute.note" in fields["facets"]
    assert "SEND" in fields["event_types"]


def test_every_form_of_an_export_has_every_event(client: TestClient, repository: Repository) -> None:
    expected = [(stored.writer, stored.event) for stored in repository.search("", limit=1000, oldest_first=True).events]
    lines = client.get("events/export").content.splitlines(keepends=True)
    end = json.loads(lines[-1])
    assert end["digest"] == f"sha-256:{hashlib.sha256(b''.join(lines[:-1])).hexdigest()}"
    assert (end["events"], len(lines) - 1) == (len(expected), len(expected))
    assert [json.loads(line)["event"]["event_id"] for line in lines[:-1]] == [item.event_id for _, item in expected]
    table = pa.ipc.open_stream(client.get("events/export?format=arrow").content).read_all()
    assert to_events(table.drop_columns("writer")) == [item for _, item in expected]
    rows = list(csv.DictReader(io.StringIO(client.get("events/export?format=csv").text)))
    assert len(rows) == len(expected)
    assert rows[-1]["details"] == "'=1+1"


def test_an_export_of_a_time_has_the_events_of_that_time(client: TestClient, repository: Repository) -> None:
    times = sorted(stored.event.event_time for stored in repository.search("", limit=1000).events)
    parameters = {"since": "1970-01-01", "until": "1970-01-01", "q": "event_type:SEND OR event_type:*"}
    lines = client.get("events/export", params=parameters).content.splitlines()
    assert json.loads(lines[-1])["events"] == sum(1 for time in times if 0 <= time < 86_400_000)
    lines = client.get("events/export", params={"since": "2000-01-01"}).content.splitlines()
    assert json.loads(lines[-1])["events"] == sum(1 for time in times if time >= 946_684_800_000)


def test_a_timeline_goes_back_to_the_first_transaction(client: TestClient, repository: Repository) -> None:
    expected = [transaction.revision for transaction in repository.timeline()]
    revisions: list[int] = []
    path: str | None = "timeline/main?limit=1"
    while path is not None:
        page = get(client, path)
        revisions += [item["revision"] for item in page["items"]]
        path = page["next"]
    assert revisions == expected[::-1]


def test_sql_gives_rows_and_says_when_there_are_more(client: TestClient) -> None:
    question = {"query": "select event_id, event_type from events order by event_id", "limit": 5}
    answer = client.post("sql", json=question)
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert document["columns"] == ["event_id", "event_type"]
    assert [row[0] for row in document["rows"]] == [0, 1, 2, 3, 4]
    assert document["is_cut"]
    assert client.post("sql", json={"query": "delete from events"}).json()["kind"] == "invalid-input"


def test_a_long_query_goes_in_a_body(client: TestClient, repository: Repository) -> None:
    question: dict[str, object] = {"or": [{"field": "filename", "equals": f"f{number}"} for number in range(EVENTS)]}
    answer = client.post("events/search", json={"query": question, "limit": 3})
    assert answer.json()["total"] == repository.search(question).total == EVENTS


@pytest.mark.parametrize("path", ["status", "quarantine", "holds", "retention/plan", "", "fields"])
def test_each_look_answers(client: TestClient, path: str) -> None:
    assert get(client, path)


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("events?q=nothing:1", 400, "invalid-input"),
        ("events?cursor=AAAA", 400, "invalid-input"),
        ("events?queri=x", 400, "invalid-input"),
        ("events?limit=0", 400, "invalid-input"),
        ("events?limit=1001", 400, "invalid-input"),
        ("events?as_of=somewhen", 400, "invalid-input"),
        ("events?writer=..%2F..", 404, "not-found"),
        ("events?as_of=99", 404, "not-found"),
        ("events/main/999999", 404, "not-found"),
        ("events/main/-1", 404, "not-found"),
        ("events/main/99999999999999999999", 404, "not-found"),
        ("events/%2E%2E/1", 404, "not-found"),
        ("events/other/1", 404, "not-found"),
        ("events/main/x", 400, "invalid-input"),
        ("events/main/1/content", 404, "not-found"),
        ("events/facets", 400, "invalid-input"),
        ("events/facets?field=nothing", 400, "invalid-input"),
        ("lineage", 400, "invalid-input"),
        ("lineage?flowfile=none", 404, "not-found"),
        ("timeline/other", 404, "not-found"),
        ("nothing", 404, "no-route"),
        ("events/export?format=xml", 400, "invalid-input"),
        ("dag-runs?dag_id=a&limit=1&limit=2", 400, "invalid-input"),
        ("events?q=a&q=", 400, "invalid-input"),
        ("events/export?q=nothing:1", 400, "invalid-input"),
    ],
)
def test_every_error_is_a_problem_that_names_no_folder(
    client: TestClient, repository: Repository, path: str, status: int, kind: str
) -> None:
    problem = get(client, path, status)
    assert (problem["status"], problem["kind"], problem["type"]) == (status, kind, f"/problems/{kind}")
    assert str(repository.settings.root) not in json.dumps(problem)


@pytest.mark.parametrize(
    "body", [b"", b"[", b'{"quer": 1}', b'{"limit": "x"}', b"[" * 100_000, b"\xff", b'{"limit": 0}']
)
def test_a_body_that_is_none_is_a_problem(client: TestClient, body: bytes) -> None:
    answer = client.post("events/search", content=body)
    assert (answer.status_code, answer.json()["kind"]) == (400, "invalid-input")


def test_each_operation_needs_its_scope(repository: Repository, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    by_scope = {scope: add_token(PosixFileSystem(), path, str(scope), frozenset({scope}), "") for scope in Scope}
    with client_of(repository, Access(Tokens.read(path))) as client:
        assert get(client, "events", 401)["kind"] == "token"
        for scope, token in by_scope.items():
            headers = {"Authorization": f"Bearer {token}"}
            assert client.get("events", headers=headers).status_code == (200 if scope == Scope.READ else 403)
            content = client.get(f"events/main/{EVENTS}/content", headers=headers)
            assert content.status_code == (200 if scope == Scope.CONTENT else 403)
            if scope == Scope.READ:
                assert client.get("", headers=headers).json()["can"] == ["read"]


def test_what_was_forgotten_is_in_no_answer(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    opened = Repository.create(root)
    append(opened, [event(number) for number in range(10)])
    run_steps(opened.settings)
    with client_of(Repository.open(root), Access()) as client:
        page = get(client, "events?limit=3")
        Repository.open(root).forget(EventSelection(event_ids=(5, 6)), "asked", "main")
        assert get(client, "events")["total"] == 8
        assert [item["event"]["event_id"] for item in get(client, page["next"])["items"]] == [4, 3, 2]
        assert get(client, "events/main/5", 404)["kind"] == "not-found"
        lines = client.get("events/export").content.splitlines()
        assert json.loads(lines[-1])["events"] == 8


def test_another_door_keeps_its_own_path_below_that_of_the_api(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    services = Services(repository, repository.settings, SystemClock())
    doors: list[Door] = [ApiDoor(services), OpenLineageDoor(services)]
    try:
        with TestClient(
            application(ListenerSection(), doors), base_url="http://localhost", raise_server_exceptions=False
        ) as client:
            taken = client.post("/api/v1/lineage", content=b"[")
            assert (taken.status_code, taken.json()["error"]) == (400, "not-json"), taken.text
            asked = client.get("/api/v1/lineage?flowfile=none")
            assert (asked.status_code, asked.json()["kind"]) == (404, "not-found")
    finally:
        for door in doors:
            door.close()
        services.close()


def test_an_explained_search_says_what_it_asked_of_an_object_store(client: TestClient, tmp_path: Path) -> None:
    assert get(client, "events", explain="true")["store"] is None, "a folder is asked for nothing"
    (tmp_path / "custody.toml").write_text(f'[repository]\nstore = "memory://{uuid4().hex}"\n')
    stored = Repository.open(tmp_path)
    append(stored, [event(number) for number in range(5)])
    run_steps(stored.settings)
    with client_of(stored, Access()) as of_store:
        assert get(of_store, "events")["store"] is None, "only where it is asked for"
        answer = get(of_store, "events", explain="true")
    assert answer["total"] == 5
    assert answer["store"]["requests"]["get"] == 2
