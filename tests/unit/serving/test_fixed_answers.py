"""An answer names the revisions that it is made of; asked for by them it stays the same, but for what is forgotten.

And a document has a tag, by which who has it already gets nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from custody.errors import InvalidInputError
from custody.read.time_travel import as_of_text, parse_as_of, parse_revisions
from custody.repository import EventSelection, Repository
from custody.serving.application import Access
from tests.support import append, event, run_steps
from tests.unit.cli.test_commands import run as command
from tests.unit.serving.test_api_changes import client_of

FORK = "the-fork"
QUESTIONS: dict[str, dict[str, Any]] = {
    "events": {"q": "event_type:SEND OR event_type:FORK", "limit": 100},
    "events/facets": {"field": ["event_type", "day"]},
    "events/histogram": {"since": "2026-01-01", "until": "2027-01-01", "buckets": 7},
    "events/export": {"format": "ndjson"},
    "lineage": {"flowfile": FORK, "depth": 3},
    "events/main/2": {},
}


def _more(first: int) -> list[Any]:
    children = (f"child-{first}",)
    fork = event(first, flowfile_uuid=FORK, event_type="FORK", parent_uuids=(FORK,), child_uuids=children)
    return [fork, *(event(number) for number in range(first + 1, first + 5))]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Events of two writers, of which the second one has a revision less."""
    root = tmp_path / "repository"
    root.mkdir()
    (root / "custody.toml").write_text("[repository]\nwriter_slots = 2\n", encoding="utf-8")
    made = Repository.open(root)
    with made.writer() as first:
        first.append(_more(0))
        with made.writer() as second:
            second.append(_more(100))
    run_steps(made.settings)
    return Repository.open(made.settings.root)


@pytest.fixture
def client(repository: Repository) -> Iterator[TestClient]:
    with client_of(Repository.open(repository.settings.root), Access()) as answering:
        yield answering


def _asked(client: TestClient, as_of: str | None) -> dict[str, Any]:
    named = {} if as_of is None else {"as_of": as_of}
    answers = {path: client.get(path, params={**question, **named}) for path, question in QUESTIONS.items()}
    assert [answer.status_code for answer in answers.values()] == [200] * len(answers)
    return {path: _told(answer) for path, answer in answers.items()}


def _told(answer: Any) -> Any:
    if answer.headers["content-type"] == "application/x-ndjson":
        return [json.loads(line) for line in answer.text.splitlines()]
    document = answer.json()
    # Addresses name the question.
    return {name: value for name, value in document.items() if name not in ("links", "next")}


def _later(repository: Repository, first: int) -> None:
    append(repository, _more(first))
    run_steps(repository.settings)


def test_the_fixed_answer_stays_the_same_after_more_commits(repository: Repository, client: TestClient) -> None:
    today = _asked(client, None)
    revisions = today["events"]["as_of"]
    assert sorted(revisions) == [one.writer for one in repository.workspaces()]
    assert len(revisions) == 2
    assert today["lineage"]["as_of"] == today["events/export"][-1]["as_of"] == revisions
    assert today["events/main/2"]["as_of"] == {"main": revisions["main"]}
    fixed = ",".join(f"{writer}:{revision}" for writer, revision in revisions.items())
    assert _asked(client, fixed) == today
    for first in (200, 300):
        _later(repository, first)
        assert _asked(client, fixed) == today
    # What waits in a journal is in no revision, and what was live stays.
    append(repository, _more(400))
    assert _asked(client, fixed) == today
    changed = _asked(client, None)
    assert all(changed[path] != today[path] for path in QUESTIONS)
    assert changed["events"]["total"] > today["events"]["total"]
    newest = client.get("events", params={"limit": 1}).json()["items"][0]
    waiting = client.get(f"events/{newest['writer']}/{newest['event']['event_id']}").json()
    assert waiting["as_of"] == {}


def test_what_is_forgotten_is_in_no_fixed_answer(repository: Repository, client: TestClient) -> None:
    revisions = client.get("events").json()["as_of"]
    fixed = as_of_text(revisions)
    before = client.get("events", params={"as_of": fixed}).json()
    repository.forget(EventSelection(event_ids=[2]), "a test", "main")
    after = client.get("events", params={"as_of": fixed}).json()
    assert after["as_of"] == before["as_of"]
    gone = [item for item in before["items"] if item not in after["items"]]
    assert [(item["writer"], item["event"]["event_id"]) for item in gone] == [("main", 2)]
    assert client.get("events/main/2", params={"as_of": fixed}).status_code == 404


def test_a_writer_that_is_not_named_is_not_meant_and_one_that_is_not_there_is_refused(
    repository: Repository, client: TestClient
) -> None:
    revisions = client.get("events").json()["as_of"]
    own = client.get("events", params={"writer": "main"}).json()
    assert client.get("events", params={"as_of": f"main:{revisions['main']}"}).json()["items"] == own["items"]
    missing = client.get("events", params={"as_of": "main:0,nobody:3"})
    assert (missing.status_code, "nobody" in missing.json()["detail"]) == (404, True)
    twice = client.get("events", params={"as_of": "main:0,main:1"})
    assert (twice.status_code, "twice" in twice.json()["detail"]) == (400, True)
    late = client.get("events", params={"as_of": "main:999"})
    assert late.status_code == 404


def test_the_command_line_takes_and_names_the_same_revisions(repository: Repository, client: TestClient) -> None:
    revisions = client.get("events").json()["as_of"]
    fixed = as_of_text(revisions)
    _later(repository, 200)
    root = repository.settings.root
    page = client.get("events", params={"as_of": fixed, "limit": 100}).json()
    said = json.loads(command(root, "search", "-n", 100, "--as-of", fixed, "--json").stdout)
    assert (said["total"], said["as_of"]) == (page["total"], revisions)
    traced = json.loads(command(root, "lineage", FORK, "--as-of", fixed, "--json").stdout)
    assert traced["as_of"] == revisions
    counted = json.loads(command(root, "sql", "SELECT count(*) AS n FROM events", "--as-of", fixed, "--json").stdout)
    assert counted["n"] == page["total"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("main:3", {"main": 3}),
        ("main:3,w-2:0", {"main": 3, "w-2": 0}),
        ("12:30", None),
        ("2026-03-01T12:00", None),
        ("17", None),
        ("main:", None),
        ("main:3,", None),
        ("Main:3", None),
    ],
)
def test_revisions_are_told_from_times(text: str, meant: dict[str, int] | None) -> None:
    assert parse_revisions(text) == meant
    if meant is not None:
        assert parse_as_of(as_of_text(meant)) == meant


def test_other_forms_mean_what_they_meant() -> None:
    assert parse_as_of("17") == 17
    assert parse_as_of("2026-03-01T12:00Z") == datetime(2026, 3, 1, 12, tzinfo=UTC)
    with pytest.raises(InvalidInputError):
        parse_as_of("main:x")


def test_a_document_that_is_known_is_not_sent_again(repository: Repository, client: TestClient) -> None:
    first = client.get("events", params={"q": "event_type:FORK"})
    tag = first.headers["etag"]
    assert tag.startswith('W/"')
    for known in (tag, f'"other", {tag}', "*"):
        again = client.get("events", params={"q": "event_type:FORK"}, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert again.headers["cache-control"] == "private, no-cache"
    assert client.get("events", headers={"If-None-Match": tag}).status_code == 200
    # What was forgotten is another answer.
    repository.forget(EventSelection(event_ids=[0]), "a test", "main")
    after = client.get("events", params={"q": "event_type:FORK"}, headers={"If-None-Match": tag})
    assert after.status_code == 200
    assert client.get("events/main/99", headers={"If-None-Match": "*"}).status_code == 404


def test_the_chain_is_checked_and_its_newest_digest_is_told(repository: Repository, client: TestClient) -> None:
    state = repository.workspace("main").state()
    found = client.get("timeline/main/chain").json()
    assert (found["revision"], found["digest"]) == (state.revision, state.digest.hex())
    assert (found["revisions"], found["defects"]) == (state.revision + 1, [])
    # The successor names the same digest.
    _later(repository, 200)
    newest = client.get("timeline/main", params={"limit": 1}).json()["items"][0]
    assert newest["previous_digest"] == found["digest"]
    [transaction] = repository.settings.root.glob(f"store/main/*/transactions/{state.revision:020d}/*.txn")
    data = bytearray(transaction.read_bytes())
    data[-1] ^= 1
    transaction.write_bytes(data)
    with client_of(Repository.open(repository.settings.root), Access()) as anew:
        damaged = anew.get("timeline/main/chain").json()
    assert damaged["defects"]
    assert str(repository.settings.root) not in "".join(damaged["defects"])
