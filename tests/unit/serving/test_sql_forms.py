"""Rows of SQL as JSON lines, CSV and Arrow: the same rows, bounded, and nothing that a table program would run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from custody.repository import Repository
from custody.serving.application import Access
from custody.serving.sql_forms import FirstRows, notices_header
from tests.support import append, event
from tests.unit.serving.test_api_changes import client_of

QUERY = "select event_id, details, updated_attributes from events order by event_id"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    made = Repository.create(tmp_path_factory.mktemp("forms") / "repository")
    append(made, [event(at, details="=1+1", updated_attributes={"filename": f"f-{at}"}) for at in range(5)])
    with client_of(Repository.open(made.settings.root), Access()) as answering:
        yield answering


def test_each_form_has_the_rows_of_the_document(client: TestClient) -> None:
    document = client.post("sql", json={"query": QUERY}).json()
    rows = [dict(zip(document["columns"], row, strict=True)) for row in document["rows"]]
    assert len(rows) == 5
    lines = client.post("sql", json={"query": QUERY, "format": "ndjson"})
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in lines.text.splitlines()] == rows
    arrow = client.post("sql", json={"query": QUERY, "format": "arrow"})
    table = pa.ipc.open_stream(io.BytesIO(arrow.content)).read_all()
    assert table.column("event_id").to_pylist() == [row["event_id"] for row in rows]
    assert [str(field.type) for field in table.schema] == document["types"]
    head, *cells = csv.reader(io.StringIO(client.post("sql", json={"query": QUERY, "format": "csv"}).text))
    assert head == document["columns"]
    assert cells[0] == ["0", "'=1+1", '{"filename":"f-0"}']


@pytest.mark.parametrize("form", ["ndjson", "csv", "arrow"])
def test_more_rows_than_were_asked_for_are_left_out_and_a_header_says_so(client: TestClient, form: str) -> None:
    cut = client.post("sql", json={"query": QUERY, "format": form, "limit": 3})
    assert cut.headers["custody-is-cut"] == "true"
    whole = client.post("sql", json={"query": QUERY, "format": form, "limit": 5})
    assert whole.headers["custody-is-cut"] == "false"
    assert len(whole.content) > len(cut.content)
    empty = client.post("sql", json={"query": "select event_id from events where event_id < 0", "format": form})
    assert (empty.status_code, empty.headers["custody-is-cut"]) == (200, "false")


def test_bounds_and_forms_are_checked(client: TestClient) -> None:
    assert client.post("sql", json={"query": QUERY, "format": "csv", "limit": 100_000}).status_code == 200
    for wrong in ({"limit": 100_001, "format": "csv"}, {"limit": 10_001}, {"format": "xlsx"}):
        assert client.post("sql", json={"query": QUERY, **wrong}).status_code == 400, wrong
    refused = client.post("sql", json={"query": "delete from events", "format": "arrow"})
    assert (refused.status_code, refused.json()["kind"]) == (400, "invalid-input")


def test_rows_beyond_the_bytes_are_left_out() -> None:
    batches = [pa.record_batch({"n": list(range(100))}) for _ in range(3)]
    found = FirstRows.of(batches[0].schema, batches, 1000, batches[0].nbytes * 2)
    assert (found.table.num_rows, found.is_cut) == (200, True)
    assert FirstRows.of(batches[0].schema, batches, 300).is_cut is False


def test_notices_go_into_a_header() -> None:
    assert notices_header([]) == {}
    [(name, text)] = notices_header(["log \u00e9\n" + "x" * 900] * 9).items()
    assert (name, text.isascii(), "\n" in text) == ("Custody-Notices", True, False)
    assert len(json.loads(text)) == 5
