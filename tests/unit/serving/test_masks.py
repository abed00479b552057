"""Masks at answer: a masked value is in no answer of any route, and no question tells it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from custody.cli.main import cli
from custody.clock import SystemClock
from custody.errors import InvalidInputError
from custody.flow import Component
from custody.model import MASK, Event
from custody.model.visibility import EventCondition, Visibility
from custody.read.event_scan import EventFilter, plan_scan, read_part
from custody.repository import EventSelection, Repository
from custody.serving.access import Scope, Tokens, add_token
from custody.serving.api_door import PREFIX
from custody.serving.application import Access, application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from custody.serving.rights import Rights
from custody.vfs import PosixFileSystem
from tests.support import append, event, run_steps
from tests.unit.serving.test_rights import BODIES, SECRET, asked

NAME = "db.password"
RULES = f"""
[[rule]]
who = ["admin", "clerk"]
see = "everything"

[[rule]]
who = ["clerk", "north"]
mask = ["*PASSWORD*", "filename"]

[[rule]]
who = ["north"]
see = [{{"attribute.{NAME}" = "*{SECRET}*"}}]
"""
CLERK = Visibility(None, (), ("*PASSWORD*", "filename"))
SETTINGS = f"""
[index]
attributes = ["note", "{NAME}"]
[exports.box]
kind = "files"
url = "out"
"""


def secretive(number: int) -> Event:
    """An event with the secret in masked attributes and in nothing else."""
    return event(
        number,
        previous_attributes={NAME: f"old-{SECRET}", "filename": SECRET, "note": "before"},
        updated_attributes={NAME: f"{SECRET}-{number % 2}", "filename": f"{SECRET}.csv", "note": f"n{number % 3}"},
        extra=json.dumps({"env": [{"name": "PASSWORD", "value": SECRET}], "password": {"is": SECRET}}),
    )


def opened(root: Path, settings: str = SETTINGS) -> Repository:
    """A repository with events in logs, in a journal, and with contents; every other one has secrets."""
    Repository.create(root)
    (root / "custody.toml").write_text(settings)
    repository = Repository.open(root)

    def some(first: int, last: int) -> list[Event]:
        plain = {"updated_attributes": {"note": "n1"}}
        return [secretive(number) if number % 2 else event(number, **plain) for number in range(first, last)]

    append(repository, some(0, 40))
    parent = secretive(3).flowfile_uuid
    child = {"parent_uuids": (parent,), "child_uuids": ("the-child",), "event_type": "FORK"}
    append(repository, [event(100, flowfile_uuid="the-fork", **child)])
    run_steps(repository.settings)
    append(repository, some(40, 80))
    repository.hold("case", EventSelection(attributes={NAME: SECRET}), "asked for", "audit")
    repository.append_with_content([secretive(81)], b"of a content")
    return Repository.open(root)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return opened(tmp_path_factory.mktemp("masks") / "repository")


@pytest.fixture(scope="module")
def tokens(whole: Repository) -> dict[str, str]:
    path = whole.settings.root / "tokens"
    names = ("admin", "clerk", "north")
    return {name: add_token(PosixFileSystem(), path, name, frozenset(Scope), "") for name in names}


@contextmanager
def api(repository: Repository, rules: str = RULES) -> Iterator[TestClient]:
    root = repository.settings.root
    (root / "rights.toml").write_text(rules)
    services = Services(repository, repository.settings, SystemClock())
    access = Access(Tokens.read(root / "tokens"), rights=Rights(root / "rights.toml"))
    try:
        with open_doors(("api",), services) as doors:
            app = application(repository.settings.serve, doors, access)
            with TestClient(app, base_url=f"http://localhost{PREFIX}/", raise_server_exceptions=False) as client:
                yield client
    finally:
        services.close()


@pytest.fixture(scope="module")
def client(whole: Repository, tokens: dict[str, str]) -> Iterator[TestClient]:
    with api(whole) as client:
        yield client


def answers(client: TestClient, token: str, event_id: int, sql: int) -> Iterator[tuple[str, Any, str]]:
    """Every operation of the API with many parameters: path, question and answer; of SQL so many questions."""
    headers = {"Authorization": f"Bearer {token}"}
    questions: dict[str, list[dict[str, Any]]] = {
        **BODIES,
        "/events/search": [*BODIES["/events/search"], {"query": {"field": f"attribute.{NAME}", "prefix": "sword"}}],
        "/sql": [
            {"query": "SELECT * FROM events"},
            {"query": "SELECT CAST(updated_attributes['db.password'] AS INT) FROM events"},
        ][:sql],
    }
    for path, operations in client.get("openapi.json", headers=headers).json()["paths"].items():
        for method in operations:
            for here, parameters in asked(path, "main", event_id):
                for body in questions[path] if method == "post" else [None]:
                    answer = client.request(method, here, params=parameters, json=body, headers=headers)
                    assert answer.status_code < 500, (here, answer.text)
                    yield (
                        path,
                        (parameters, body),
                        answer.text.replace(f"{SECRET}-{event_id // 2}", "").replace(f"urn:{SECRET}", ""),
                    )


def test_no_route_gives_a_masked_value_away(client: TestClient, tokens: dict[str, str], whole: Repository) -> None:
    chosen = [one.event.event_id for one in whole.search(f"attribute.{NAME}:*", limit=1000).events]
    told = {"admin": 0, "clerk": 0}
    for name in told:
        for event_id, sql in ((chosen[0], 2 if name == "clerk" else 0), (chosen[-1], 0))[: 1 + (name == "clerk")]:
            for path, question, text in answers(client, tokens[name], event_id, sql):
                told[name] += SECRET in text
                assert name == "admin" or SECRET not in text, (name, path, question, text[:500])
    assert told["admin"] > 15


def test_other_readers_see_the_values_and_the_same_events(client: TestClient, tokens: dict[str, str]) -> None:
    pages = {}
    for name in ("admin", "clerk", "north"):
        headers = {"Authorization": f"Bearer {tokens[name]}"}
        # A rule looks at the value that there is, not at its mask.
        pages[name] = client.get("events", params={"q": "attribute.note:n*", "limit": 1000}, headers=headers).json()
    assert pages["admin"]["total"] == pages["clerk"]["total"] == 81 > pages["north"]["total"] == 41
    for one, other in zip(pages["admin"]["items"], pages["clerk"]["items"], strict=True):
        attributes = other["event"].get("updated_attributes", {})
        assert {name for name, value in attributes.items() if value == MASK} == attributes.keys() & {NAME, "filename"}
        assert one["event"].get("updated_attributes", {}).keys() == attributes.keys()
    headers = {"Authorization": f"Bearer {tokens['clerk']}"}
    for path, status in (
        ("status", 200),
        ("timeline/main", 200),
        ("holds", 200),
        ("quarantine", 403),
        ("replay-plans", 200),
        ("jobs", 200),
        ("http://localhost/metrics", 200),
    ):
        answer = client.get(path, headers=headers)
        assert answer.status_code == status, answer.text
        assert SECRET not in answer.text


@pytest.mark.parametrize(
    "question",
    [
        f"attribute.{NAME}:{SECRET}-1",
        f"attribute.{NAME}:*",
        f"NOT attribute.{NAME}:sword*",
        f"attribute.{NAME}:[a TO z]",
        "filename:swordfish.csv",
        "note:n1 OR filename:*",
        {"field": f"attribute.{NAME}", "exists": True},
        {"field": "filename", "prefix": "s"},
    ],
)
def test_a_condition_on_a_masked_attribute_is_refused(whole: Repository, question: str | dict[str, object]) -> None:
    seen = whole.seen_by(CLERK)
    for ask in (seen.search, seen.facets, lambda text: seen.histogram(text, 0, 1 << 41)):
        with pytest.raises(InvalidInputError, match=f"Masked here, and so no fields: {NAME}, filename"):
            ask(question)


def test_no_question_tells_a_masked_value(whole: Repository, client: TestClient, tokens: dict[str, str]) -> None:
    seen = whole.seen_by(CLERK)
    # Asked before: what is cached for one reader is not given to another.
    assert whole.search(SECRET).total == 0 < whole.search(f"{SECRET}-1").total
    assert whole.facets("", [f"attribute.{NAME}"])[0][f"attribute.{NAME}"][f"{SECRET}-1"] == 41
    for text in (f"{SECRET}-1", f"{SECRET}*", f'"{SECRET}.csv"', f"old-{SECRET}", "*word*"):
        assert seen.search(text).total == 0, text
        assert sum(one.events for one in seen.histogram(text, 0, 1 << 41)[0]) == 0
    for field in (f"attribute.{NAME}", "filename"):
        with pytest.raises(InvalidInputError, match="facet"):
            seen.facets("", [field])
    headers = {"Authorization": f"Bearer {tokens['clerk']}"}
    fields = client.get("fields", headers=headers).json()
    assert NAME not in fields["attributes"]
    assert "filename" not in fields["fields"]
    assert not {f"attribute.{NAME}", "filename"} & set(fields["facets"])


def rows(repository: Repository, text: str) -> list[dict[str, Any]]:
    with repository.sql(text) as result:
        return list(pa.Table.from_batches(result.batches(), result.schema).to_pylist())


def test_sql_gets_masked_values_whatever_it_asks(whole: Repository) -> None:
    seen = whole.seen_by(CLERK)
    value = f"updated_attributes['{NAME}']"
    counted = (
        "TRUE",
        f"{value} IS NOT NULL",
        f"{value} = '{MASK}'",
        f"{value} LIKE '%{SECRET}%'",
        f"contains(extra, '{SECRET}')",
        # Left to the scan by the engine: equality and ranges of a column.
        f"extra = '{secretive(1).extra}'",
        'extra > \'{"env":[{"name":"PASSWORD","value":"s\'',
        f"map_values(updated_attributes)[1] >= '{SECRET}'",
        f"updated_attributes = MAP {{'{NAME}': '{SECRET}-1', 'filename': '{SECRET}.csv', 'note': 'n1'}}",
        "extra IS NOT NULL AND event_id < 6",
    )
    # Each by itself: only a condition of a whole SELECT is left to the scan.
    text = " UNION ALL ".join(
        f"SELECT {number} AS place, count(*) AS n, max({value}) AS most FROM events WHERE {condition}"  # noqa: S608
        for number, condition in enumerate(counted)
    )
    shown = sorted((row["place"], row["n"], row["most"]) for row in rows(seen, text))
    assert [n for _, n, _ in shown] == [82, 41, 41, 0, 0, 0, 0, 0, 0, 3]
    assert {most for _, _, most in shown} == {MASK, None}
    assert rows(seen, "SELECT count(*) AS n FROM logs")[0]["n"] == 1


def test_who_sees_some_events_sees_these_masked(whole: Repository) -> None:
    rule = EventCondition.of({f"attribute.{NAME}": f"*{SECRET}*"})
    seen = whole.seen_by(Visibility((rule,), (), ("*password*",)))
    events = list(seen.events(0, 1000))
    assert len(events) == seen.search("").total == 41
    assert {one.updated_attributes[NAME] for one in events} == {MASK}
    assert {one.event_id for one in seen.get_many(range(100))} == {one.event_id for one in events}


def test_parts_of_a_scan_are_masked_where_they_are_read(whole: Repository) -> None:
    plan = plan_scan(whole.seen_by(CLERK).workspaces())
    columns = ["event_id", "updated_attributes", "extra"]
    tables = [
        one for part in plan.parts for one in read_part(whole.settings, PosixFileSystem(), part, EventFilter(), columns)
    ]
    events = pa.concat_tables(tables).to_pylist()
    assert len(events) == 82
    assert SECRET not in str(events)
    assert SECRET in str(
        [
            table.to_pylist()
            for part in plan_scan(whole.workspaces()).parts
            for table in read_part(whole.settings, PosixFileSystem(), part, EventFilter(), columns)
        ]
    )


COMMANDS = [
    ["sql", "SELECT * FROM events", "--csv", "--as-of", "0"],
    ["event", "3"],
    ["event", "3", "--json"],
    ["event", "3", "--nifi", "--whole"],
    ["event", "3", "--as-of", "0"],
    ["events", "--count", "200", "--json"],
    ["events", "--count", "200", "--nifi"],
    ["events", "--as-of", "0", "--json"],
    ["search", "--limit", "100"],
    ["search", "--limit", "100", "--json", "--as-of", "0"],
    ["search", "--facet", "component_name", "--facet", "attribute.note"],
    ["lineage", "the-child"],
    ["lineage", "the-child", "--json"],
    ["lineage", "the-child", "--export", "json"],
    ["lineage", "40", "--parents", "--json"],
    ["hold", "list"],
    ["queue", "show", "orders"],
    ["queue", "show", "orders", "--json"],
    ["export", "box"],
]


def test_what_is_masked_for_all_is_printed_and_exported_by_no_command(tmp_path: Path) -> None:
    repository = opened(tmp_path / "r")
    root = repository.settings.root
    with repository.flowfiles() as flow:
        flow.connect("orders", consumer="sort")
        with flow.session(Component(id="till", type="Till")) as session:
            session.transfer(session.create({NAME: SECRET}), "orders")
    add_token(PosixFileSystem(), root / "tokens", "admin", frozenset(Scope), "")
    told = 0
    for masks in ("[]", '["*Password*", "filename"]'):
        (root / "custody.toml").write_text(f"[query]\nmask_attributes = {masks}\n{SETTINGS}")
        # A process of SQL starts for each question: it is asked where something is masked.
        for command in COMMANDS if masks != "[]" else COMMANDS[1:]:
            result = CliRunner().invoke(cli, ["--repository", str(root), *command])
            assert result.exit_code == 0, (command, result.output)
            told += SECRET in result.output
            assert masks == "[]" or SECRET not in result.output, command
        out = "".join(path.read_text() for path in (root / "out").rglob("*.ndjson"))
        assert (SECRET in out) is (masks == "[]")
        assert out.count("eventOrdinal") == 83  # with that of the queue
        for path in (root / "out").rglob("*.ndjson"):
            path.unlink()
        CliRunner().invoke(cli, ["--repository", str(root), "export", "box", "--rewind", "main:0"])
    assert told > 12
    # The record has them, and steps work with them.
    answering = Repository.open(root)
    assert SECRET in str(answering.get(3))
    assert SECRET not in str(answering.answering().get(3))
    # Nor by the server to somebody with all rights; more masks come on top of these.
    rules = '[[rule]]\nwho = ["admin"]\nsee = "everything"\nmask = ["note"]'
    token = add_token(PosixFileSystem(), root / "tokens", "other", frozenset(Scope), "")
    with api(Repository.open(root), rules.replace("admin", "other")) as client:
        headers = {"Authorization": f"Bearer {token}"}
        text = client.get("events/main/3", headers=headers).text
        assert SECRET not in text
        assert '"note":"***"' in text


@contextmanager
def masking_for_all(repository: Repository, *masks: str) -> Iterator[tuple[Repository, TestClient]]:
    """The repository and its API with masks for everybody; who asks has all scopes and no rules."""
    query = repository.settings.query.model_copy(update={"mask_attributes": masks})
    masked = Repository(repository.settings.model_copy(update={"query": query}))
    services = Services(masked, masked.settings, SystemClock())
    try:
        with (
            open_doors(("api",), services) as doors,
            TestClient(application(masked.settings.serve, doors), base_url=f"http://localhost{PREFIX}/") as client,
        ):
            yield masked, client
    finally:
        services.close()


def test_a_server_without_rules_masks_for_all(whole: Repository) -> None:
    with masking_for_all(whole, "*password*", "filename") as (_, client):
        assert client.get("events", params={"limit": 1000}).text.count(SECRET) == 0
        assert client.get("events", params={"q": f"attribute.{NAME}:*"}).status_code == 400
    assert replace(CLERK, masks=()).is_everything


# Of every operation that takes a query, what is asked besides.
ASKED: dict[str, list[dict[str, Any]]] = {
    "/events": [{"limit": 1000}, {"oldest_first": True, "explain": True}, {"as_of": "now"}],
    "/events/facets": [{"field": ["component_name", "attribute.note"]}, {"field": "day", "as_of": "now"}],
    "/events/histogram": [{"since": "2026-01-01", "until": "2026-12-31"}],
    "/events/export": [{"format": form} for form in ("ndjson", "arrow", "csv")],
    "/events/search": [{}, {"as_of": "now"}],
    "/replay-plans": [{}, {"as_of": "now"}],
}


def operations_with_queries(client: TestClient) -> set[tuple[str, str]]:
    """Method and path of each operation whose parameters or whose body have a query, as the API describes itself."""
    description = client.get("openapi.json").json()
    schemas = description["components"]["schemas"]
    found = set()
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            names = set(schemas.get(body.get("$ref", "").rpartition("/")[2], {}).get("properties", ()))
            names |= {parameter["name"] for parameter in operation.get("parameters", [])}
            if names & {"q", "query"}:
                found.add((method, path))
    return found


def answers_to(client: TestClient, text: str) -> Iterator[tuple[str, str]]:
    """Path and answer of each operation that takes a query, without the text and the names of plans."""
    for method, path in sorted(operations_with_queries(client) - {("post", "/sql")}):
        for besides in ASKED[path]:
            if method == "get":
                answer = client.get(path.lstrip("/"), params={**besides, "q": text})
            else:
                wait = {"wait": 10} if path == "/replay-plans" else {}
                answer = client.post(path.lstrip("/"), json={**besides, "query": text}, params=wait)
            assert answer.status_code < 300, (path, answer.text)
            shown = answer.text
            if path == "/replay-plans":
                job = answer.json()
                shown = str([job["state"], job["done"], job["result"]["events"], job["result"]["refused"]])
            yield path, re.sub(r'"seconds":[0-9.e-]+', "", shown).replace(text, "")


def test_each_operation_answers_a_masked_text_as_one_that_no_event_has(tmp_path: Path) -> None:
    whole = opened(tmp_path / "r")
    with whole.flowfiles() as flow:
        flow.connect("orders", consumer="sort")

    def telling(client: TestClient, *texts: str) -> set[str]:
        """The paths whose answers tell texts of events from one that no event has."""
        paths = set()
        for text in texts:
            nobody_s = answers_to(client, text.replace(SECRET, "marlinspike"))
            for (path, one), (_, other) in zip(answers_to(client, text), nobody_s, strict=True):
                if one != other:
                    paths.add(path)
        return paths

    with masking_for_all(whole, "*PASSWORD*", "filename") as (masked, client):
        assert {path for _, path in operations_with_queries(client)} == {*ASKED, "/sql"}
        assert telling(client, f"{SECRET}-1", f"NOT {SECRET}*") == set()
        # In Python as well: a plan is an answer to its query. It is about the events as they are stored, all the same.
        assert masked.plan_replay(f"{SECRET}-1").refused == []
        assert len(masked.plan_replay("attribute.note:n1").refused) > 20
        with pytest.raises(InvalidInputError, match="Masked here"):
            masked.plan_replay(f"attribute.{NAME}:*")
    with masking_for_all(whole) as (_, client):
        assert telling(client, f"{SECRET}-1") == set(ASKED)


def test_rules_of_retention_are_told_without_masked_values(tmp_path: Path) -> None:
    whole = opened(tmp_path / "r", SETTINGS + f'[retention]\nrules = ["attribute:{NAME}={SECRET}-1 keep 1 hour"]\n')
    for masks, told in (((), True), (("*password*",), False)):
        with masking_for_all(whole, *masks) as (_, client):
            plan = client.get("retention/plan")
            assert f"attribute:{NAME}={SECRET}-1" in plan.text if told else f"attribute:{NAME}=***" in plan.text
            assert (SECRET in plan.text) is told
    whole.apply_retention()
    for masks, told in (((), True), (("*password*",), False)):
        with masking_for_all(whole, *masks) as (_, client):
            answer = client.get("timeline/main/difference", params={"former": "0"})
            assert answer.json()["entries"]["tombstones_added"] != []
            assert (SECRET in answer.text) is told


def test_the_tries_that_wrote_a_file_are_printed_with_masks(tmp_path: Path) -> None:
    root = tmp_path / "r"
    repository = Repository.create(root)
    known = {"airflow.dag_id": "orders", "airflow.run_id": SECRET, "airflow.log_url": f"http://airflow/{SECRET}"}
    task = {"component_type": "AirflowTask", "event_type": "SEND", "transit_uri": "file:///data/report.parquet"}
    append(repository, [event(1, **task, updated_attributes=known)])
    command = ["--repository", str(root), "airflow-runs", "wrote", "/data/report.parquet", "--json"]
    assert SECRET in CliRunner().invoke(cli, command).output
    (root / "custody.toml").write_text('[query]\nmask_attributes = ["airflow.*_*"]\n')
    masked = json.loads(CliRunner().invoke(cli, command).output)
    assert [(one["dag_id"], one["run_id"], one["log_url"]) for one in masked["tries"]] == [(MASK, MASK, MASK)]
