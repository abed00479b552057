"""The events door: what is answered, what is stored once, what goes to the quarantine, in each encoding."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from custody.clock import ManualClock
from custody.errors import StorageError
from custody.ingest.ingest import Ingest
from custody.model import Event
from custody.repository import Repository
from tests.support import run_steps
from tests.unit.capture.sample_inputs import own_event, payloads
from tests.unit.serving.events_server import EventsServer, arrow, as_table, events_server, ndjson, numbered

ARROW = {"content_type": "application/vnd.apache.arrow.stream"}
CONTENT = b"id,amount\n1,9.90\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
AVRO_SCHEMA = {
    "type": "record",
    "name": "event",
    "fields": [
        {"name": "event_type", "type": "string"},
        {"name": "event_time", "type": "long"},
        {"name": "component_id", "type": "string"},
        {"name": "component_type", "type": "string"},
        {"name": "flowfile_uuid", "type": "string"},
        {"name": "file_size", "type": "long"},
        {"name": "transit_uri", "type": ["null", "string"]},
        {"name": "updated_attributes", "type": {"type": "map", "values": ["null", "string"]}},
    ],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    Repository.create(root)
    return root


@pytest.fixture
def server(root: Path) -> Iterator[EventsServer]:
    with events_server(root) as at:
        yield at


def stored(root: Path) -> list[Event]:
    return list(Repository.open(root).events(0, 100_000))


def counts(answer: Any) -> tuple[int, int, int]:
    assert answer.status_code == 200, answer.text
    document = answer.json()
    return document["stored"], document["repeated"], document["rejected"]


def avro(events: list[dict[str, object]]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, AVRO_SCHEMA, events)
    return out.getvalue()


@pytest.mark.parametrize("encoding", ["array", "ndjson", "gzip", "arrow", "avro"])
def test_each_event_is_durable_when_it_is_answered_and_stored_once(
    server: EventsServer, root: Path, encoding: str
) -> None:
    events = [own_event(number) for number in range(5)] if encoding == "avro" else numbered(range(5))
    body, headers = {
        "array": (json.dumps(events).encode(), {"content_type": "application/json"}),
        "ndjson": (ndjson(events), {}),
        "gzip": (gzip.compress(ndjson(events)), {"content_encoding": "gzip"}),
        "arrow": (arrow(as_table(events)), ARROW),
        "avro": (avro(events), {"content_type": "avro/binary"}),
    }[encoding]
    answer = server.post(body, **headers)
    assert counts(answer) == (5, 0, 0)
    assert [event.file_size for event in stored(root)] == [10, 11, 12, 13, 14]
    assert [event.event_id for event in stored(root)] == [answer.json()["first_event_id"] + add for add in range(5)]
    assert {event.source_format for event in stored(root)} == {"custody"}
    assert counts(server.post(body, **headers)) == (0, 5, 0)
    assert len(stored(root)) == 5


def test_an_event_without_a_number_is_known_by_its_content(server: EventsServer, root: Path) -> None:
    body = ndjson([own_event(1), own_event(2)])
    assert counts(server.post(body)) == (2, 0, 0)
    shuffled = dict(reversed(own_event(1).items()))
    assert counts(server.post(ndjson([shuffled, own_event(3)]))) == (1, 1, 0)
    assert {event.source_node for event in stored(root)} == {"events"}


def test_equal_events_of_a_batch_with_a_key_are_all_stored_and_once(server: EventsServer, root: Path) -> None:
    body = ndjson([own_event(1)] * 3)
    assert counts(server.post(body, "?node=shop", idempotency_key="night-7")) == (3, 0, 0)
    assert counts(server.post(body, "?node=shop", idempotency_key="night-7")) == (0, 3, 0)
    columns = arrow(as_table([own_event(1)] * 3))
    assert counts(server.post(columns, "?node=shop", **ARROW, idempotency_key="night-7")) == (0, 3, 0)
    assert counts(server.post(body, "?node=shop", idempotency_key="night-8")) == (3, 0, 0)
    changed = ndjson([own_event(1), own_event(1, file_size=2), own_event(1)])
    changed = server.post(changed, "?node=shop", idempotency_key="night-7")
    assert counts(changed) == (0, 2, 1)
    [refused] = changed.json()["refused"]
    assert (refused["index"], refused["code"]) == (1, "contradiction")
    assert len(stored(root)) == 6


def test_other_events_under_a_key_that_was_used_are_stored_once(server: EventsServer, root: Path) -> None:
    """A producer that was set up anew counts its batches from the start again."""
    assert counts(server.post(ndjson([own_event(1), own_event(2)]), idempotency_key="batch-1")) == (2, 0, 0)
    others = ndjson([own_event(3), own_event(4)])
    assert counts(server.post(others, idempotency_key="batch-1")) == (2, 0, 0)
    assert counts(server.post(others, idempotency_key="batch-1")) == (0, 2, 0)
    assert len(stored(root)) == 4


def test_columns_without_numbers_need_a_key(server: EventsServer, root: Path) -> None:
    answer = server.post(arrow(as_table([own_event(1)])), **ARROW)
    assert (answer.status_code, answer.json()["error"]) == (422, "bad-body")
    assert "Idempotency-Key" in answer.json()["message"]
    assert stored(root) == []


@pytest.mark.parametrize("is_columns", [False, True])
def test_bad_pieces_are_named_by_position_and_kept_and_the_others_stored(
    server: EventsServer, root: Path, *, is_columns: bool
) -> None:
    events = numbered(range(40))
    events[7]["file_size"] = -1
    events[30]["flowfile_uuid"] = ""
    body, headers = (arrow(as_table(events)), ARROW) if is_columns else (ndjson(events), {})
    answer = server.post(body, **headers)
    assert counts(answer) == (38, 0, 2)
    assert [piece["index"] for piece in answer.json()["refused"]] == [7, 30]
    assert "file_size" in answer.json()["refused"][0]["message"]
    room = Repository.open(root).quarantine
    kept = [json.loads(room.raw(piece["quarantine"])) for piece in answer.json()["refused"]]
    assert (kept[0]["file_size"], kept[1]["flowfile_uuid"], kept[1]["source_ordinal"]) == (-1, "", 30)
    assert [event.source_ordinal for event in stored(root)] == [n for n in range(40) if n not in (7, 30)]
    # All of it again: nothing is stored twice, and the bad ones are the same entries.
    again = server.post(body, **headers)
    assert counts(again) == (0, 38, 2)
    assert len(list(room.entries())) == 2


def test_a_strict_body_is_stored_as_a_whole_or_not_at_all(server: EventsServer, root: Path) -> None:
    events = numbered(range(3))
    events[1]["event_time"] = "noon"
    answer = server.post(ndjson(events), prefer="handling=strict")
    assert answer.status_code == 422
    assert [piece["index"] for piece in answer.json()["rejected"]] == [1]
    assert stored(root) == []
    assert list(Repository.open(root).quarantine.entries()) == []


@pytest.mark.parametrize("is_columns", [False, True])
def test_an_event_that_says_something_else_is_a_contradiction_and_is_reported(
    server: EventsServer, root: Path, *, is_columns: bool
) -> None:
    first, second = numbered(range(6)), [*numbered(range(3, 6), details="else"), *numbered(range(6, 9))]
    for events, expected in ((first, (6, 0, 0)), (second, (3, 0, 3))):
        body, headers = (arrow(as_table(events)), ARROW) if is_columns else (ndjson(events), {})
        answer = server.post(body, **headers)
        assert counts(answer) == expected
    assert [piece["index"] for piece in answer.json()["refused"]] == [0, 1, 2]
    assert {piece["code"] for piece in answer.json()["refused"]} == {"contradiction"}
    assert [event.details for event in stored(root)] == [None] * 9


@pytest.mark.parametrize("is_columns", [False, True])
def test_a_source_that_numbers_from_the_start_again_is_stored_whole_and_once(
    server: EventsServer, root: Path, *, is_columns: bool
) -> None:
    first = numbered(range(6))
    second = numbered(range(6), flowfile_uuid="another", event_time=1_772_500_000_000)
    for events, expected in ((first, (6, 0, 0)), (second, (6, 0, 0)), (second, (0, 6, 0)), (first, (0, 6, 0))):
        body, headers = (arrow(as_table(events)), ARROW) if is_columns else (ndjson(events), {})
        assert counts(server.post(body, **headers)) == expected
    assert len(stored(root)) == 12


def test_columns_that_repeat_one_another_are_stored_once(server: EventsServer, root: Path) -> None:
    events = [*numbered([1, 2]), *numbered([2, 3]), *numbered([3], details="else")]
    answer = server.post(arrow(as_table(events)), **ARROW)
    assert counts(answer) == (3, 1, 1)
    assert answer.json()["refused"][0]["index"] == 4
    assert [event.source_ordinal for event in stored(root)] == [1, 2, 3]


def test_what_was_stored_before_a_restart_and_a_rollover_is_known(root: Path) -> None:
    with events_server(root) as at:
        assert counts(at.post(arrow(as_table(numbered(range(50)))), **ARROW)) == (50, 0, 0)
    run_steps(Repository.open(root).settings)
    with events_server(root) as at:
        assert counts(at.post(arrow(as_table(numbered(range(25, 75)))), **ARROW)) == (25, 25, 0)
        assert counts(at.post(ndjson(numbered(range(76))))) == (1, 75, 0)


def test_a_content_comes_first_and_its_event_has_it(server: EventsServer, root: Path) -> None:
    event = own_event(1, content_sha256=DIGEST)
    missing = server.post(ndjson([event, own_event(2)]))
    assert (missing.status_code, missing.json()["missing"]) == (409, [DIGEST])
    assert stored(root) == []
    path = f"/contents/{DIGEST}"
    assert server.client.get(path).status_code == 404
    assert server.client.put(path, content=CONTENT).status_code == 201
    assert server.client.put(path, content=CONTENT).status_code == 200
    assert server.client.head(path).status_code == 200
    assert counts(server.post(ndjson([event, own_event(2)]))) == (2, 0, 0)
    repository = Repository.open(root)
    [with_it, _] = stored(root)
    assert repository.content(with_it).read() == CONTENT
    assert with_it.file_size == len(CONTENT)
    assert counts(server.post(ndjson([event]))) == (0, 1, 0)
    columns = as_table(numbered([8, 9])).append_column("content_sha256", [[None, DIGEST]])
    assert counts(server.post(arrow(columns), **ARROW)) == (2, 0, 0)
    assert counts(server.post(arrow(columns), **ARROW)) == (0, 2, 0)
    last = next(item for item in stored(root) if item.source_ordinal == 9)
    assert repository.content(last).read() == CONTENT


def test_a_content_that_is_not_what_its_name_says_leaves_nothing(server: EventsServer, root: Path) -> None:
    answer = server.client.put(f"/contents/{DIGEST}", content=b"something else")
    assert (answer.status_code, answer.json()["error"]) == (422, "digest")
    assert list((root / "uploads").iterdir()) == []
    for name in ("x", "..%2f..%2fcustody.toml", DIGEST.upper()):
        assert server.client.put(f"/contents/{name}", content=CONTENT).status_code in (400, 404)


def test_contents_are_bounded_and_leave_when_no_event_came(root: Path) -> None:
    clock = ManualClock(1_772_409_600_000)
    with events_server(root, clock, content_bytes_max=100, uploads_bytes_max=20_000, upload_hours=1.0) as at:
        first, second = b"a" * 90, b"b" * 90
        large = at.client.put(f"/contents/{DIGEST}", content=iter([b"x" * 60] * 3))
        assert large.status_code == 413
        assert at.client.put(f"/contents/{hashlib.sha256(first).hexdigest()}", content=first).status_code == 201
        refused = at.client.put(f"/contents/{hashlib.sha256(second).hexdigest()}", content=second)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    for path in (root / "uploads").iterdir():
        os.utime(path, (clock.now_ms() / 1000 - 7200,) * 2)
    with events_server(root, clock, content_bytes_max=100, uploads_bytes_max=20_000, upload_hours=1.0) as at:
        assert at.client.put(f"/contents/{hashlib.sha256(second).hexdigest()}", content=second).status_code == 201
    assert [path.name[:64] for path in (root / "uploads").iterdir()] == [hashlib.sha256(second).hexdigest()]


def test_claims_on_contents_of_the_repository_are_refused(server: EventsServer, root: Path) -> None:
    claim = {"container": "custody:main/1", "section": "1", "identifier": "x", "offset": 0, "size": 1}
    assert counts(server.post(ndjson([own_event(1, content_claim=claim)]))) == (0, 0, 1)
    table = as_table(numbered([1])).append_column("content_claim", [[claim]])
    assert counts(server.post(arrow(table), **ARROW)) == (0, 0, 1)
    assert stored(root) == []


def test_other_formats_are_taken_by_their_keys_or_by_name(server: EventsServer, root: Path) -> None:
    body = json.dumps(payloads(3)).encode()
    assert counts(server.post(body, content_type="application/json")) == (3, 0, 0)
    assert counts(server.post(body, "?format=nifi", content_type="application/json")) == (0, 3, 0)
    assert {event.source_format for event in stored(root)} == {"nifi-s2s"}


@pytest.mark.parametrize(
    ("body", "query", "headers", "status", "code"),
    [
        (b"", "", {}, 400, "empty"),
        (b"{}", "", {"content_type": "text/html"}, 415, "content-type"),
        (b"{}", "", {"content_encoding": "br"}, 415, "content-encoding"),
        (b"\x1f\x8b broken", "", {"content_encoding": "gzip"}, 400, "bad-gzip"),
        (gzip.compress(b"x" * 100, mtime=0)[:-9], "", {"content_encoding": "gzip"}, 400, "bad-gzip"),
        (b"{}", "?format=xml", {}, 400, "format"),
        (b"{}", "?as=nifi", {}, 400, "query"),
        (b"{}", "?node=a&node=b", {}, 400, "query"),
        (b"{}", "", {"idempotency_key": "k" * 256}, 400, "name"),
        (b"x" * 5000, "", {}, 413, "too-large"),
        (gzip.compress(b"x" * 1_000_000, mtime=0), "", {"content_encoding": "gzip"}, 413, "too-large"),
        (b"no arrow", "", ARROW, 422, "bad-body"),
        (arrow(as_table([{"colour": "red"}])), "", ARROW, 422, "bad-body"),
        (arrow(as_table(numbered([1], event_time="noon"))), "", ARROW, 422, "bad-body"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_and_nothing_is_stored(
    root: Path, body: bytes, query: str, headers: dict[str, str], status: int, code: str
) -> None:
    with events_server(root, capture={"body_bytes_max": 4096}) as at:
        answer = at.post(body, query, **headers)
    assert (answer.status_code, answer.json()["error"]) == (status, code)
    assert stored(root) == []


def test_the_server_says_when_to_come_again_where_too_much_waits_or_the_disk_refuses(
    server: EventsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise StorageError("cannot write /secret/place: no space")

    monkeypatch.setattr(Ingest, "deliveries", refuses)
    answer = server.post(ndjson([own_event(1)]))
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert "/secret" not in answer.text
    assert server.client.get("/readyz").status_code == 503
