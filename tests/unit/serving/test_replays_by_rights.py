"""Whom rules show some events only may replay those, and learns of the others neither by a plan nor by a job."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from custody.errors import ConflictError
from custody.model.visibility import EventCondition, Visibility
from custody.repository import Repository
from custody.repository.local_pass import PASSES, run_locally
from custody.serving.access import Scope, Tokens, add_token
from custody.serving.application import Access
from custody.serving.rights import Rights
from custody.vfs import PosixFileSystem
from tests.support import append
from tests.unit.serving.test_api_changes import LOAD, SORT, client_of, ordered, planned, waiting

OURS, THEIRS = 3, 4
SECRET = "swordfish"  # noqa: S105 - what must be in no answer
RULES = """
[[rule]]
who = ["admin"]
see = "everything"

[[rule]]
who = ["clerk", "colleague", "other"]
see = [{"attribute.tenant" = "ours"}]
mask = ["filename"]

[[rule]]
who = ["other"]
hide = [{"event_type" = "CREATE"}]
"""
CLERK = Visibility((EventCondition.of({"attribute.tenant": "ours"}),), (), ("filename",))


def flowed(root: Path, tenants: list[str]) -> Repository:
    """A repository whose flow took an order of each tenant out of a queue; its events are live."""
    repository = Repository.create(root)
    with repository.flowfiles() as flow:
        flow.connect("orders", consumer="sort_orders")
        with flow.session(LOAD) as session:
            for number, tenant in enumerate(tenants):
                name = SECRET if tenant == "theirs" else f"orders-{number}.csv"
                order = session.create({"filename": name, "tenant": tenant})
                session.write_bytes(order, b"17,late" * (number + 1))
                session.transfer(order, "orders")
        with flow.session(SORT) as session:
            for _ in tenants:
                taken = session.get("orders")
                assert taken is not None
                session.remove(taken)
    run_locally(PASSES["all"], repository.settings)
    return repository


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    # In turns, so that ids of both lie side by side.
    tenants = ["theirs", *["ours", "theirs"] * OURS]
    root = flowed(tmp_path_factory.mktemp("rights") / "repository", tenants).settings.root
    scopes = frozenset({Scope.READ, Scope.REPLAY})
    names = ("admin", "clerk", "colleague", "other")
    tokens = {name: add_token(PosixFileSystem(), root / "tokens", name, scopes, "") for name in names}
    (root / "rights.toml").write_text(RULES)
    return root, tokens


@pytest.fixture
def repository(kept: tuple[Path, dict[str, str]], tmp_path: Path) -> Repository:
    root = tmp_path / "repository"
    shutil.copytree(kept[0], root)
    return Repository.open(root)


@pytest.fixture
def client(repository: Repository) -> Iterator[TestClient]:
    root = repository.settings.root
    with client_of(repository, Access(Tokens.read(root / "tokens"), rights=Rights(root / "rights.toml"))) as client:
        yield client


def as_(client: TestClient, kept: tuple[Path, dict[str, str]], name: str) -> TestClient:
    client.headers["Authorization"] = f"Bearer {kept[1][name]}"
    return client


def test_a_plan_and_its_run_are_those_of_a_repository_without_what_is_hidden(
    client: TestClient, repository: Repository, kept: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    alone = flowed(tmp_path / "alone", ["ours"] * OURS).plan_replay("")
    plan = planned(as_(client, kept, "clerk"), query="")
    assert (plan["events"], plan["queues"], plan["revisions"]) == (OURS, {"orders": OURS}, {})
    assert plan["refused_by_code"] == {code.value: count for code, count in alone.refused_by_code.items()}
    assert plan["notices"] == alone.notices
    assert client.get(f"{plan['href']}/check").json()["left"] == OURS
    job = ordered(client, f"{plan['href']}/runs", {})
    assert (job["state"], job["result"]["replayed"], job["total"]) == ("succeeded", OURS, OURS)
    assert waiting(repository) == OURS
    # Sent on with the values that are masked for who sent it.
    names = {item.flowfile.attributes["filename"] for item in repository.queues().flowfiles("orders", 100)}
    assert names == {"orders-1.csv", "orders-3.csv", "orders-5.csv"}
    told = json.dumps([plan, job, client.get("jobs").json(), client.get("replay-plans").json()])
    assert SECRET not in told
    assert "orders-1.csv" not in told
    # Who sees everything sends the rest.
    assert planned(as_(client, kept, "admin"), query="component_id:dag.sort")["events"] == OURS + THEIRS


def test_a_hidden_event_is_refused_as_one_that_there_never_was(
    client: TestClient, repository: Repository, kept: tuple[Path, dict[str, str]]
) -> None:
    seen = {one.event.event_id for one in repository.answering().seen_by(CLERK).search("", limit=100).events}
    everything = [one.event.event_id for one in repository.search("", limit=100).events]
    hidden = [event_id for event_id in everything if event_id not in seen]
    assert len(hidden) >= 2 * THEIRS
    as_(client, kept, "clerk")
    words = set()
    for event_id in (*hidden, 999_999):
        plan = planned(client, event_ids=[event_id], writer="main")
        assert (plan["events"], plan["bytes"], list(plan["refused_by_code"])) == (0, 0, ["unknown-event"])
        words.add(plan["refused"][0]["message"].replace(str(event_id), "N"))
    assert len(words) == 1
    total = client.post("replay-plans", json={"query": ""}, params={"wait": 10}).json()
    assert total["done"] == len(seen)


def test_plans_and_jobs_of_others_are_not_there(client: TestClient, kept: tuple[Path, dict[str, str]]) -> None:
    plan = planned(as_(client, kept, "admin"), query="component_id:dag.sort")
    job = client.get("jobs").json()["items"][0]["id"]
    own = planned(as_(client, kept, "clerk"), query="component_id:dag.sort")
    begun = client.get("jobs").json()
    assert (begun["total"], [one["user"] for one in begun["items"]]) == (1, ["clerk"])
    assert all("visibility" not in one for one in begun["items"])
    assert [one["href"] for one in client.get("replay-plans").json()["items"]] == [own["href"]]
    for name in ("clerk", "other"):
        as_(client, kept, name)
        for method, path in (
            ("GET", plan["href"]),
            ("GET", f"{plan['href']}/check"),
            ("POST", f"{plan['href']}/runs"),
            ("GET", f"jobs/{job}"),
            ("DELETE", f"jobs/{job}"),
        ):
            answer = client.request(method, path, json={} if method == "POST" else None)
            assert answer.status_code == 404, (name, path, answer.text)
    # Who is shown more, or less, has other plans; who is shown the same may go on with it.
    assert client.get(own["href"]).status_code == 404
    assert client.get("jobs").json() == {"items": [], "total": 0}
    as_(client, kept, "colleague")
    assert client.get(own["href"]).json()["events"] == OURS
    assert client.get("jobs").json()["total"] == 1
    as_(client, kept, "admin")
    assert client.get(own["href"]).json()["events"] == OURS
    assert client.get("jobs").json()["total"] == 2


def test_a_plan_of_other_rules_cannot_be_run(
    client: TestClient, repository: Repository, kept: tuple[Path, dict[str, str]]
) -> None:
    plan = planned(as_(client, kept, "clerk"), query="component_id:dag.sort")
    narrower = Visibility(CLERK.see, (EventCondition.of({"attribute.filename": "orders-3.csv"}),))
    [path] = (repository.settings.replays).glob("*.plan")
    check = repository.check_replay(path, visibility=narrower)
    assert (check.left, [one.code.value for one in check.changed]) == (OURS - 1, ["unknown-event"])
    with pytest.raises(ConflictError, match="forgotten, has expired, or cannot be read"):
        repository.replay(path, visibility=narrower)
    assert repository.replay(path, visibility=narrower, skip_changed=True).replayed == OURS - 1
    as_(client, kept, "other")
    assert client.post(f"{plan['href']}/runs", json={}).status_code == 404


def test_a_full_queue_does_not_say_what_others_have_in_it(
    client: TestClient, repository: Repository, kept: tuple[Path, dict[str, str]]
) -> None:
    plan = planned(as_(client, kept, "clerk"), query="component_id:dag.sort")
    with repository.flowfiles() as flow:
        flow.connect("orders", count_max=1)
        with flow.session(LOAD) as session:
            order = session.create({"tenant": "theirs"})
            session.write_bytes(order, bytes(77_777))
            session.transfer(order, "orders")
    job = ordered(client, f"{plan['href']}/runs", {})
    assert (job["state"], job["problem"]["kind"]) == ("failed", "backpressure")
    assert "Run the plan again" in job["problem"]["detail"]
    assert "77,777" not in json.dumps(job)


def test_a_repeated_event_tells_nothing_of_a_masked_value(repository: Repository) -> None:
    """Who may append events could put a guess beside a masked value, and ask whether both are the same."""
    one = next(
        each.event
        for each in repository.search("component_id:dag.sort", limit=100).events
        if each.event.attributes["tenant"] == "ours"
    )
    answers: list[Any] = []
    for guess in (one.attributes["filename"], "something-else.csv"):
        before = {**one.previous_attributes, "filename": guess}
        copy = msgspec.structs.replace(one, previous_attributes=before, updated_attributes={}, source_ordinal=None)
        append(repository, [msgspec.structs.replace(copy, source_node=None)])
        [*_, last] = repository.events(0, 1 << 40)
        plan = repository.plan_replay(event_ids=[one.event_id, last.event_id], writer="main", visibility=CLERK)
        answers.append((len(plan.events), [each.code.value for each in plan.refused]))
    assert answers == [(1, ["repeated"])] * 2
    # Who sees the value is told the truth.
    plan = repository.plan_replay(event_ids=[one.event_id, last.event_id], writer="main")
    assert len(plan.events) == 2
