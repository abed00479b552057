"""Holds, forgetting and removal over the API are those of the command line; consent names how much is meant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from custody.catalog.difference_summary import difference_summary
from custody.cli.main import cli
from custody.repository import EventSelection, Repository
from custody.serving.access import Scope, Tokens
from custody.serving.application import Access
from custody.serving.rights import Rights
from tests.support import append, event, run_steps
from tests.unit.serving.test_api_changes import client_of, ordered, quarantined, tokens_of

CUSTOMER: dict[str, Any] = {"attributes": {"customer": "acme-4711"}}


def of(customer: str, first: int, last: int) -> list[Any]:
    return [event(number, updated_attributes={"customer": customer}) for number in range(first, last)]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Ten events of two customers are live, two more wait."""
    repository = Repository.create(tmp_path / "repository")
    append(repository, [*of("acme-4711", 0, 5), *of("12", 5, 10)])
    run_steps(repository.settings)
    append(repository, [*of("acme-4711", 10, 11), *of("12", 11, 12)])
    return Repository.open(repository.settings.root)


@pytest.fixture
def client(repository: Repository) -> Iterator[TestClient]:
    with client_of(repository, Access()) as client:
        yield client


def forget_plan(client: TestClient, **meant: object) -> Any:
    job = ordered(client, "forget-plans", meant)
    assert job["state"] == "succeeded", job
    return job


def test_what_a_plan_counted_is_forgotten_and_nothing_that_came_since(
    client: TestClient, repository: Repository
) -> None:
    plan = forget_plan(client, **CUSTOMER)
    assert (plan["result"]["events"], plan["result"]["writers"], plan["result"]["held"]) == (6, {"main": 6}, {})
    assert repository.search("").total == 12
    append(repository, of("acme-4711", 12, 13))
    order = {"events": 6, "reason": "request of 2026-03-02"}
    job = ordered(client, f"forget-plans/{plan['id']}/runs", order)
    assert (job["state"], job["result"]["events"]) == ("succeeded", 6)
    left = Repository.open(repository.settings.root).search("")
    assert (left.total, {one.event.updated_attributes["customer"] for one in left.events}) == (7, {"12", "acme-4711"})
    catalog = repository.workspace("main").catalog
    [stone] = difference_summary(catalog.difference(0, catalog.load().revision)).tombstones_added
    assert (stone.reason, stone.who) == ("request of 2026-03-02", job["user"])


def test_what_a_plan_selected_by_goes_with_its_events(client: TestClient) -> None:
    plan = forget_plan(client, **CUSTOMER)
    order = {"events": 6, "reason": "a request"}
    ordered(client, f"forget-plans/{plan['id']}/runs", order)
    assert "acme-4711" not in client.get("jobs").text
    assert client.get(f"jobs/{plan['id']}").json()["result"]["run"] is True
    again = client.post(f"forget-plans/{plan['id']}/runs", json=order)
    assert (again.status_code, again.json()["kind"]) == (410, "gone")


def test_consent_to_another_number_forgets_nothing(client: TestClient, repository: Repository) -> None:
    plan = forget_plan(client, **CUSTOMER)
    path = f"forget-plans/{plan['id']}/runs"
    for order, status in (
        ({"events": 5, "reason": "a request"}, 409),
        ({"events": 6, "reason": "  "}, 400),
        ({"events": 6}, 400),
        ({"events": 6, "reason": "a request", "force": True}, 400),
    ):
        assert client.post(path, json=order).status_code == status, order
    nothing = forget_plan(client, attributes={"customer": "nobody"})
    assert client.post(f"forget-plans/{nothing['id']}/runs", json={"events": 0, "reason": "?"}).status_code == 400
    assert client.post("forget-plans/1772409600000-00112233445566ff/runs", json=order).status_code == 400
    order = {"events": 6, "reason": "a request"}
    assert client.post("forget-plans/1772409600000-00112233445566ff/runs", json=order).status_code == 404
    assert repository.search("").total == 12


@pytest.mark.parametrize(
    ("meant", "status"),
    [
        ({}, 400),
        ({"since": "2026-03-02", "until": "2026-03-01"}, 400),
        ({"event_ids": [1]}, 400),
        ({"event_ids": [-1], "writer": "main"}, 400),
        ({"event_ids": [1 << 63], "writer": "main"}, 400),
        ({"event_ids": [1], "writer": "nobody"}, 404),
        ({"event_ids": [1], "writer": "../main"}, 404),
        ({"since": "no time"}, 400),
        ({"flowfile_uuids": ["x"] * 1001}, 400),
        ({"query": "*"}, 400),
    ],
)
def test_what_means_nothing_or_everything_is_refused(
    client: TestClient, repository: Repository, meant: dict[str, object], status: int
) -> None:
    answer = client.post("forget-plans", json=meant, params={"wait": 10})
    assert answer.status_code == status, answer.text
    assert client.get("jobs").json()["total"] == 0
    assert repository.search("").total == 12


def test_events_of_a_time_and_by_their_ids(client: TestClient, repository: Repository) -> None:
    times = sorted(one.event.event_time for one in repository.search("").events)
    [first, last] = (datetime.fromtimestamp(ms / 1000, UTC).isoformat() for ms in (times[2], times[5]))
    assert forget_plan(client, since="2000-01-01")["result"]["events"] == 12
    assert forget_plan(client, until="1990-01-01")["result"]["events"] == 0
    assert forget_plan(client, event_ids=[0, 3, 99], writer="main")["result"]["events"] == 2
    among = sum(times[2] <= one <= times[5] for one in times)
    assert forget_plan(client, since=first, until=last)["result"]["events"] == among


def test_a_hold_keeps_what_it_means_and_a_plan_says_what_is_held(client: TestClient, repository: Repository) -> None:
    name = "case/17 <script>"
    answer = client.post("holds", json={"name": name, "reason": "court order", **CUSTOMER})
    assert answer.status_code == 201, answer.text
    [hold] = Repository.open(repository.settings.root).holds()
    assert (hold.name, hold.reason, hold.attributes, hold.who) == (
        name,
        "court order",
        {"customer": "acme-4711"},
        answer.json()["who"],
    )
    assert [one["name"] for one in client.get("holds").json()["items"]] == [name]
    # The same again changes nothing; another one of its name is refused.
    assert client.post("holds", json={"name": name, "reason": "court order", **CUSTOMER}).status_code == 201
    assert client.post("holds", json={"name": name, "reason": "x", "event_types": ["SEND"]}).status_code == 409
    counted = ordered(client, "hold-counts", {"name": name})
    assert (counted["result"]["events"], counted["result"]["writers"]) == (6, {"main": 6})
    assert forget_plan(client, event_ids=[0, 5], writer="main")["result"]["held"] == {name: 1}
    released = client.post("hold-releases", json={"name": name, "reason": "case closed"})
    assert (released.status_code, released.json()) == (200, {"name": name, "writers": ["main"]})
    assert client.get("holds").json()["items"] == []
    for path in ("hold-releases", "hold-counts"):
        body = {"name": name} if path == "hold-counts" else {"name": name, "reason": "again"}
        assert client.post(path, json=body).status_code == 404


@pytest.mark.parametrize("order", [{"name": ""}, {"name": "x" * 201}, {"reason": " "}, {"attributes": {}}])
def test_a_hold_without_name_reason_or_condition_is_refused(client: TestClient, order: dict[str, object]) -> None:
    answer = client.post("holds", json={"name": "case", "reason": "why", **CUSTOMER, **order})
    assert (answer.status_code, client.get("holds").json()["items"]) == (400, [])


def test_pieces_of_the_quarantine_go_for_good_where_their_number_is_named(
    client: TestClient, repository: Repository
) -> None:
    keys = [quarantined(repository, text) for text in (b"no event", b"nor this one", b"nor that")]
    assert client.post("quarantine/removals", json={"keys": keys[:1], "pieces": 2}).status_code == 409
    assert client.post("quarantine/removals", json={"keys": ["none"], "pieces": 1}).status_code == 404
    assert client.post("quarantine/removals", json={"everything": True, "pieces": 2}).status_code == 409
    assert ordered(client, "quarantine/removals", {"keys": keys[:1], "pieces": 1})["result"]["removed"] == 1
    assert [entry["key"] in keys[1:] for entry in client.get("quarantine").json()["items"]] == [True, True]
    assert ordered(client, "quarantine/removals", {"everything": True, "pieces": 2})["result"]["removed"] == 2
    assert client.get("quarantine").json()["total"] == 0


PATHS: list[tuple[str, dict[str, Any]]] = [
    ("forget-plans", CUSTOMER),
    ("forget-plans/1772409600000-00112233445566ff/runs", {"events": 6, "reason": "why"}),
    ("holds", {"name": "case", "reason": "why", **CUSTOMER}),
    ("hold-counts", {"name": "case"}),
    ("hold-releases", {"name": "case", "reason": "why"}),
    ("quarantine/removals", {"everything": True, "pieces": 1}),
]


def test_it_takes_manage_and_the_sight_of_everything(repository: Repository) -> None:
    tokens = tokens_of(repository, alice=Scope.REPLAY, bob=Scope.MANAGE, carol=Scope.MANAGE, dave=Scope.MANAGE)
    rules = repository.settings.root / "rules.toml"
    rules.write_text(
        '[[rule]]\nwho = ["alice", "bob"]\nsee = "everything"\n'
        '[[rule]]\nwho = ["carol"]\nsee = [{component_type = "GenerateFlowFile"}]\n'
        '[[rule]]\nwho = ["dave"]\nsee = "everything"\nmask = ["customer"]\n'
    )
    quarantined(repository, b"no event")
    access = Access(Tokens.read(repository.settings.root / "tokens"), rights=Rights(rules))
    with client_of(repository, access) as client:
        for name, expected in (("alice", {403}), ("carol", {403}), ("dave", {403}), ("bob", {200, 201, 202, 404})):
            client.headers["Authorization"] = f"Bearer {tokens[name]}"
            for path, body in PATHS:
                answer = client.post(path, json=body, params={"wait": 10} if "hold" not in path else {})
                assert answer.status_code in expected, (name, path, answer.text)
            assert len(repository.holds()) == 0
        client.headers.pop("Authorization")
        assert {client.post(path, json=body).status_code for path, body in PATHS} == {401}
        client.headers["Authorization"] = f"Bearer {tokens['bob']}"
        for path, body in PATHS:
            assert client.post(path, json=body, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
            assert client.post(path, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415


def test_what_is_masked_for_everybody_is_not_counted_by_its_value(repository: Repository) -> None:
    (repository.settings.root / "custody.toml").write_text('[query]\nmask_attributes = ["custom*"]\n')
    opened = Repository.open(repository.settings.root)
    with client_of(opened, Access()) as client:
        for path, body in PATHS[0], PATHS[2]:
            answer = client.post(path, json=body)
            assert (answer.status_code, "masked" in answer.text) == (400, True)
        plan = forget_plan(client, event_ids=[0], writer="main")
        ordered(client, f"forget-plans/{plan['id']}/runs", {"events": 1, "reason": "why"})
    assert Repository.open(repository.settings.root).search("").total == 11


def test_a_beginning_without_an_end_is_a_condition(repository: Repository) -> None:
    uuids = [one.event.flowfile_uuid for one in repository.search("").events]
    times = sorted(one.event.event_time for one in repository.search("").events)
    selection = EventSelection(flowfile_uuids=uuids, from_ms=times[-1])
    assert sum(repository.plan_forget(selection).events.values()) == times.count(times[-1])
    repository.forget(selection, "only the last one")
    assert repository.search("").total == len(times) - times.count(times[-1])


def test_a_plan_is_that_of_the_library(repository: Repository) -> None:
    selection = EventSelection(attributes={"customer": "acme-4711"})
    plan = repository.plan_forget(selection)
    assert (plan.events, plan.before, dict(repository.count_selected(selection))) == (
        {"main": 6},
        {"main": 12},
        {"main": 6},
    )


def test_the_timeline_says_who_forgot_what_and_why(client: TestClient, repository: Repository) -> None:
    repository.hold("case", EventSelection(event_ids=[7]), "court order", "carol", writer="main")
    repository.forget(EventSelection(event_ids=[1, 2]), "request of 2026-03-02", "main", who="alice")
    repository.release("case", "closed", "dave")
    path: str | None = "timeline/main?reasons=true&limit=1&since=1%20day%20ago"
    told = []
    while path is not None:
        page = client.get(path).json()
        told += [reason for item in page["items"] for reason in item["reasons"]]
        path = page["next"]
    assert [(one["kind"], one["reason"], one["who"], one["events"]) for one in told] == [
        ("released", "closed", "dave", None),
        ("forgotten", "request of 2026-03-02", "alice", 2),
        ("held", "court order", "carol", 1),
    ]
    assert client.get("timeline/main?since=2100-01-01").json()["items"] == []
    root = str(repository.settings.root)
    shown = CliRunner().invoke(cli, ["-r", root, "catalog", "log", "--reasons", "--from", "7 days ago"])
    assert [word in shown.output for word in ("alice", "carol", "dave")] == [True] * 3
    listed = json.loads(CliRunner().invoke(cli, ["-r", root, "catalog", "log", "--reasons", "--json"]).output)
    assert [reason for row in listed for reason in row["reasons"]] == told[::-1]


def test_the_timeline_says_how_long_events_waited_and_what_they_take(client: TestClient) -> None:
    first, *_ = [item for item in client.get("timeline/main").json()["items"] if item["events_added"]]
    assert first["bytes_added"] > 0
    assert 0 <= first["waited_ms"] < 60_000


def test_retention_lets_go_what_its_plan_names_and_only_that(repository: Repository) -> None:
    root = repository.settings.root
    (root / "custody.toml").write_text('[retention]\nage_max = "30 days"\n')
    with client_of(Repository.open(root), Access()) as client:
        plan = client.get("retention/plan").json()
        events = sum(log["events"] for log in plan["expiring"])
        assert events == 10
        for wrong in (0, events - 1, events + 1):
            job = ordered(client, "retention/runs", {"events": wrong})
            assert (job["state"], job["problem"]["kind"]) == ("failed", "conflict"), job
            assert f"{events}, got {wrong}" in job["problem"]["detail"]
        assert Repository.open(root).search("").total == 12
        job = ordered(client, "retention/runs", {"events": events})
        assert job["state"] == "succeeded"
        assert (job["result"]["events"], job["result"]["logs"]) == (10, len(plan["expiring"]))
        assert client.get("retention/plan").json()["expiring"] == []
        assert client.get("events").json()["total"] == 2
        [gone] = client.get("timeline/main", params={"reasons": "true"}).json()["items"]
        assert [one["kind"] for one in gone["reasons"]] == ["expired"]


def test_retention_is_refused_to_who_may_not_manage_or_sees_some_events_only(repository: Repository) -> None:
    root = repository.settings.root
    tokens = tokens_of(repository, reader=Scope.REPLAY, keeper=Scope.MANAGE, clerk=Scope.MANAGE)
    rules = '[[rule]]\nwho = ["reader", "keeper"]\nsee = "everything"\n'
    (root / "rights.toml").write_text(f'{rules}[[rule]]\nwho = ["clerk"]\nsee = [{{component_type = "*"}}]\n')
    access = Access(Tokens.read(root / "tokens"), rights=Rights(root / "rights.toml"))
    with client_of(repository, access) as client:
        for name, status in (("reader", 403), ("clerk", 403), ("keeper", 202)):
            headers = {"Authorization": f"Bearer {tokens[name]}"}
            assert client.post("retention/runs", json={"events": 0}, headers=headers).status_code == status, name
