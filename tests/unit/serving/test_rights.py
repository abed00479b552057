"""What somebody may not see is in no answer of any route; the answers are those of a repository without it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from custody.clock import SystemClock
from custody.errors import ConfigurationError, NotFoundError
from custody.lineage import NodeKind
from custody.model import Event
from custody.model.visibility import EventCondition, Visibility
from custody.repository import Repository
from custody.serving.access import Scope, Tokens, add_token
from custody.serving.api_door import PREFIX
from custody.serving.application import Access, application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from custody.serving.reloaded_file import LOOK_SECONDS
from custody.serving.rights import Rights
from custody.vfs import PosixFileSystem
from tests.support import append, event, run_steps

SECRET = "swordfish"  # noqa: S105 - what must be in no answer
CONTENT = f"{SECRET} in a content".encode() * 20
RULES = """
[[rule]]
who = ["admin*"]
see = "everything"

[[rule]]
who = ["clerk", "guest"]
see = [{process_group_name = ["orders", "ship?"]}, {"attribute.tenant" = "ours*"}]

[[rule]]
who = ["clerk"]
hide = [{"attribute.kind" = "*pay*"}, {event_type = "DROP", component_type = "GenerateFlowFile"}]
"""
CLERK = Visibility(
    (
        EventCondition.of({"process_group_name": ["orders", "ship?"]}),
        EventCondition.of({"attribute.tenant": "ours*"}),
    ),
    (
        EventCondition.of({"attribute.kind": "*pay*"}),
        EventCondition.of({"event_type": "DROP", "component_type": "GenerateFlowFile"}),
    ),
)


def shown(number: int) -> Event:
    return event(number, process_group_name="orders", updated_attributes={"note": f"n{number % 3}"})


def hidden(number: int) -> Event:
    """An event that the clerk may not see, for one of many reasons; the secret is all over it."""
    values: list[dict[str, Any]] = [
        {"process_group_name": SECRET},
        {"process_group_name": "shipping"},
        {"process_group_name": "Orders"},
        {"process_group_name": None},
        {"process_group_name": "orders", "updated_attributes": {"kind": "a payment"}},
        {"process_group_name": "orders", "previous_attributes": {"kind": "pay"}, "updated_attributes": {"kind": "no"}},
        {"process_group_name": "orders", "event_type": "DROP"},
        {"previous_attributes": {"tenant": "theirs"}, "updated_attributes": {"tenant": "ours"}},
    ]
    chosen = {
        "flowfile_uuid": f"{SECRET}-{number}",
        "component_name": SECRET,
        "details": f"{SECRET} {number}",
        "transit_uri": f"file:///{SECRET}",
        "alternate_identifier_uri": f"urn:{SECRET}",
        "source_system_flowfile_identifier": SECRET,
        **values[number % len(values)],
    }
    attributes = {"filename": SECRET, "note": SECRET, **chosen.pop("updated_attributes", {})}
    return event(number, updated_attributes=attributes, **chosen)


def opened(root: Path, *, with_hidden: bool) -> Repository:
    """A repository with events in logs, in a journal, and with contents; every other one is hidden."""
    Repository.create(root)
    (root / "custody.toml").write_text('[index]\nattributes = ["note", "tenant", "kind"]\n')
    repository = Repository.open(root)

    def some(first: int, last: int) -> list[Event]:
        kinds = (shown, hidden) if with_hidden else (shown,)
        return [kind(number) for number in range(first, last) for kind in kinds]

    append(repository, some(0, 30))
    parent = hidden(3).flowfile_uuid
    child = {"parent_uuids": (parent,), "child_uuids": ("the-child",), "event_type": "FORK"}
    append(repository, [event(100, process_group_name="ships", flowfile_uuid="the-fork", **child)])
    run_steps(repository.settings)
    append(repository, some(30, 40))
    if with_hidden:
        repository.append_with_content([hidden(40)], CONTENT)
    return Repository.open(root)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return opened(tmp_path_factory.mktemp("whole") / "repository", with_hidden=True)


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return opened(tmp_path_factory.mktemp("without") / "repository", with_hidden=False)


@pytest.fixture(scope="module")
def tokens(whole: Repository) -> dict[str, str]:
    path = whole.settings.root / "tokens"
    scopes = frozenset(Scope)
    return {name: add_token(PosixFileSystem(), path, name, scopes, "") for name in ("admin-1", "clerk", "nobody")}


@pytest.fixture(scope="module")
def client(whole: Repository, tokens: dict[str, str]) -> Iterator[TestClient]:
    root = whole.settings.root
    (root / "rights.toml").write_text(RULES)
    services = Services(whole, whole.settings, SystemClock())
    access = Access(Tokens.read(root / "tokens"), rights=Rights(root / "rights.toml"))
    try:
        with open_doors(("api", "openlineage", "events"), services) as doors:
            app = application(whole.settings.serve, doors, access)
            with TestClient(app, base_url=f"http://localhost{PREFIX}/", raise_server_exceptions=False) as client:
                yield client
    finally:
        services.close()


def without_ids(events: list[Event]) -> list[Event]:
    return [msgspec.structs.replace(one, event_id=0) for one in events]


QUERIES = (
    "",
    "attribute.note:n1",
    "event_type:CREATE",
    "NOT attribute.note:n1",
    "event_time:[2026-03-01 TO 2026-03-03]",
    "attribute.note:*",
    SECRET,
)


@pytest.mark.parametrize("text", QUERIES)
def test_searches_and_facets_are_those_of_a_repository_without_the_hidden(
    whole: Repository, without: Repository, text: str
) -> None:
    seen = whole.seen_by(CLERK)
    one, other = seen.search(text, limit=100), without.search(text, limit=100)
    assert (one.total, one.notices) == (other.total, other.notices)
    assert without_ids([each.event for each in one.events]) == without_ids([each.event for each in other.events])
    spans = text, 1_772_409_600_000, 1_772_409_600_000 + 100_000, 9
    assert seen.histogram(*spans) == without.histogram(*spans)
    fields = ("event_type", "attribute.note", "day", "component_type", "component_name", "attribute.kind")
    assert seen.facets(text, fields) == without.facets(text, fields)
    # Asked before and after others: what is cached for one reader is not given to another.
    assert whole.search("", limit=1).total == 82


def test_pages_hide_the_same_events(whole: Repository) -> None:
    seen, cursor, ids = whole.seen_by(CLERK), None, list[int]()
    while True:
        page = seen.search("", limit=7, cursor=cursor, oldest_first=True)
        ids += [one.event.event_id for one in page.events]
        cursor = page.cursor
        if cursor is None:
            break
    assert len(ids) == page.total == 41
    # A cursor of somebody who sees everything gives nothing more away.
    of_all = whole.search("", limit=7, oldest_first=True)
    behind = seen.search("", limit=100, cursor=of_all.cursor, oldest_first=True)
    assert {one.event.event_id for one in behind.events} <= set(ids)


def test_sql_counts_and_shows_the_same(whole: Repository, without: Repository) -> None:
    seen = whole.seen_by(CLERK)
    text = "SELECT count(*) AS n, count(DISTINCT flowfile_uuid) AS f, max(event_time) AS t FROM events"
    answers = []
    for repository in (seen, without):
        with repository.sql(text) as result:
            answers.append(pa.Table.from_batches(result.batches()).to_pylist())
    assert answers[0] == answers[1]
    text = "SELECT (SELECT count(*) FROM logs) + (SELECT count(*) FROM transactions) AS n"
    with seen.sql(text) as result:
        assert pa.Table.from_batches(result.batches()).to_pylist() == [{"n": 0}]


def test_lineage_knows_a_hidden_flowfile_by_the_events_that_name_it_alone(whole: Repository) -> None:
    seen, parent = whole.seen_by(CLERK), hidden(3).flowfile_uuid
    lineage = seen.lineage(["the-fork"])
    assert lineage.nodes[parent].kind is NodeKind.UNKNOWN
    assert lineage.nodes[parent].events == ()
    assert whole.lineage(["the-fork"]).nodes[parent].events
    with pytest.raises(NotFoundError):
        seen.lineage([hidden(1).flowfile_uuid])


def test_a_hidden_event_is_not_there_by_its_id_either(whole: Repository) -> None:
    seen = whole.seen_by(CLERK)
    ids = [one.event.event_id for one in whole.search("", limit=1000).events]
    visible = {one.event.event_id for one in seen.search("", limit=1000).events}
    assert {one.event_id for one in seen.get_many(ids)} == visible
    assert {one.event_id for one in seen.events(0, 1000)} == visible
    assert {one.event_id for one in seen.events_between(0, 1 << 60)} == visible
    at = seen.timeline()  # of the catalog, which knows of no single event
    last = [one.revision for one in at][-1]
    assert {one.event.event_id for one in seen.search("", limit=1000, as_of=last).events} <= visible
    absent, away = max(ids) + 5, min(set(ids) - visible)
    messages = []
    for number in (absent, away):
        with pytest.raises(NotFoundError) as refused:
            seen.get(number, "main")
        messages.append(str(refused.value).replace(str(number), "N"))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("position", range(0, 100, 7))
def test_damage_shows_no_hidden_event(whole: Repository, tmp_path: Path, position: int) -> None:
    root = tmp_path / "damaged"
    shutil.copytree(whole.settings.root, root)
    logs = list(root.glob("store/**/*.parquet"))
    assert logs
    for log in logs:
        data = bytearray(log.read_bytes())
        begin = len(data) * position // 100
        data[begin : begin + 40] = bytes(40)
        log.write_bytes(data)
    seen = {one.event.event_id for one in whole.seen_by(CLERK).search("", limit=1000).events}
    damaged = Repository.open(root).seen_by(CLERK)
    page = damaged.search("", limit=1000)
    assert {one.event.event_id for one in page.events} <= seen
    assert page.total <= len(seen)
    assert {one.event_id for one in damaged.get_many(range(100))} <= seen
    counts, _ = damaged.facets("", ("component_name", "event_type"))
    assert SECRET not in counts["component_name"]
    assert counts["event_type"].total() <= len(seen)


def asked(path: str, writer: str, event_id: int) -> list[tuple[str, dict[str, Any]]]:
    """Return addresses and parameters for a path of the description, which ask for hidden things above all."""
    here = path.replace("{writer}", writer).replace("{event_id}", str(event_id)).lstrip("/")
    extra: dict[str, list[dict[str, Any]]] = {
        "/events": [
            {"q": ""},
            {"q": "attribute.note:*", "limit": 1000},
            {"q": SECRET, "explain": True},
            {"as_of": "now"},
        ],
        "/events/facets": [{"field": ["attribute.note", "component_name", "transit_uri", "filename"], "q": ""}],
        "/events/histogram": [{"since": "2026-03-01", "until": "2026-03-03", "q": SECRET}],
        "/events/export": [{"format": form} for form in ("ndjson", "arrow", "csv")],
        "/lineage": [
            {"flowfile": "the-child", "depth": 5},
            {"flowfile": f"{SECRET}-{event_id // 2}"},
            {"identifier": f"urn:{SECRET}"},
        ],
        "/dag-runs": [{"dag_id": SECRET[:4]}, {"dag_id": "c0ffee00-0000-4000-8000-000000000001"}],
        "/dag-run": [{"dag_id": SECRET[:4], "run_id": "x"}],
        "/lineage/export": [
            {"flowfile": "the-child", "format": form} for form in ("json", "dot", "svg", "graphml", "openlineage")
        ],
    }
    return [(here, parameters) for parameters in extra.get(path, [{}])]


BODIES: dict[str, list[dict[str, Any]]] = {
    "/replay-plans": [{"query": "attribute.note:*"}, {"event_ids": [1, 3, 5], "writer": "main"}],
    "/replay-plans/{plan}/runs": [{}],
    "/quarantine/resubmissions": [{"keys": ["0123456789abcdef"]}],
    "/quarantine/removals": [{"keys": ["0123456789abcdef"], "pieces": 1}],
    "/forget-plans": [{"attributes": {"note": SECRET}}],
    "/forget-plans/{plan}/runs": [{"events": 1, "reason": SECRET}],
    "/retention/runs": [{"events": 1 << 40}],
    "/holds": [{"name": SECRET, "reason": ""}],
    "/hold-counts": [{"name": SECRET}],
    "/hold-releases": [{"name": SECRET, "reason": SECRET}],
    "/events/search": [{"query": ""}, {"query": SECRET}, {"query": "attribute.note:*", "limit": 100}],
    "/sql": [
        {"query": "SELECT *, (SELECT count(*) FROM logs) FROM events"},
        # A value of a hidden event can be told neither by a row nor by an error.
        {"query": "SELECT CAST(details AS INT) FROM events WHERE details LIKE 'swordfish%'"},
    ],
}


def test_no_route_gives_a_hidden_event_away(client: TestClient, whole: Repository, tokens: dict[str, str]) -> None:
    ids = [one.event.event_id for one in whole.search(f"component_name:{SECRET}", limit=1000).events]
    chosen = [ids[0], ids[1], ids[-1], ids[len(ids) // 2]]
    everything = {"Authorization": f"Bearer {tokens['admin-1']}"}
    description = client.get("openapi.json", headers=everything).json()
    told: dict[str, list[bool]] = {"admin-1": [], "clerk": [], "nobody": []}
    for name, gave in told.items():
        headers = {"Authorization": f"Bearer {tokens[name]}"}
        for path, operations in description["paths"].items():
            for method in operations:
                for event_id in chosen if "{event_id}" in path else chosen[:1]:
                    for here, parameters in asked(path, "main", event_id):
                        # A process of SQL starts for each question: others than the clerk ask one.
                        bodies = BODIES[path][: None if name == "clerk" else 1] if method == "post" else [None]
                        for body in bodies:
                            answer = client.request(method, here, params=parameters, json=body, headers=headers)
                            assert answer.status_code < 500, (here, answer.text)
                            # What was asked for may be repeated by a refusal; the answer's own words may not.
                            text = answer.content.replace(f"{SECRET}-{event_id // 2}".encode(), b"")
                            text = text.replace(f"urn:{SECRET}".encode(), b"").replace(b"swordfish-3", b"")
                            gave.append(SECRET.encode() in text)
                            if name != "admin-1":
                                assert SECRET.encode() not in text, (name, path, parameters, answer.text[:500])
                            if name != "admin-1" and "{event_id}" in path:
                                assert answer.status_code == 404, (name, path)
    # The same questions do find it, by who may see it.
    assert sum(told["admin-1"]) > 15


def test_what_tells_of_all_events_is_refused_to_who_sees_some(client: TestClient, tokens: dict[str, str]) -> None:
    counted = (
        "status",
        "timeline/main",
        "timeline/main/difference?former=0",
        "quarantine",
        "holds",
        "retention/plan",
        "attestations",
    )
    for path in (*counted, "runs", "http://localhost/metrics"):
        for name, status in (("admin-1", 200), ("clerk", 403), ("nobody", 403)):
            answer = client.get(path, headers={"Authorization": f"Bearer {tokens[name]}"})
            assert answer.status_code == status, (path, name, answer.text)


def test_who_is_named_by_no_rule_sees_nothing(client: TestClient, tokens: dict[str, str]) -> None:
    headers = {"Authorization": f"Bearer {tokens['nobody']}"}
    page = client.get("events", headers=headers).json()
    assert (page["total"], page["items"]) == (0, [])


def test_a_changed_file_counts_within_a_second_and_a_broken_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "rights.toml"
    path.write_text(RULES)
    rights = Rights(path)
    assert rights.visibility("clerk") == CLERK
    assert rights.visibility("admin-9") is None
    assert rights.visibility("somebody") == Visibility(())
    rights._file._looked -= 2 * LOOK_SECONDS
    path.write_text('[[rule]]\nwho = ["clerk"]\nsee = 7\n')
    assert rights.visibility("clerk") == CLERK
    rights._file._looked -= 2 * LOOK_SECONDS
    path.write_text('[[rule]]\nwho = ["*"]\nsee = "everything"\n')
    assert rights.visibility("clerk") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rule = 1", r"expected \[\[rule\]\] alone"),
        ("[other]\na = 1", "got other"),
        ("[[rule]]\nsee = 'everything'", "expected who"),
        ("[[rule]]\nwho = ['a']\nsees = []", "rule 1: expected who, see, hide, mask, got sees"),
        ("[[rule]]\nwho = ['a']\nsee = 'all'", 'or "everything"'),
        ("[[rule]]\nwho = ['a']\nhide = 'everything'", r"expected hide = \["),
        ("[[rule]]\nwho = ['a']\nsee = [{}]", "empty condition"),
        ("[[rule]]\nwho = ['a']\nsee = [{details = 'x'}]", "field 'details': expected attribute.NAME or one of"),
        ("[[rule]]\nwho = ['a']\nsee = [{platform = 3}]", "expected a pattern"),
        ("[[rule]]\nwho = ['a']\nsee = [{platform = []}]", "expected a pattern"),
        ("[[rule]]\nwho = ['a']\nmask = '*password*'", r"expected mask = \["),
        ("[[rule]]\nwho = ['a']\nmask = ['']", r"expected mask = \["),
        ("[[rule", "in TOML"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "rights.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=said) as refused:
        Rights(path)
    assert str(path) in str(refused.value)


def test_a_file_that_others_can_change_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rights.toml"
    path.write_text(RULES)
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="chmod"):
        Rights(path)


@pytest.mark.parametrize(
    ("pattern", "value", "matches"),
    [
        ("a.c", "abc", False),
        ("a.c*", "a.c\nd", True),
        ("*", "", True),
        ("?", "", False),
        ("?", "ü", True),
        ("[ab]*", "[ab]x", True),
        ("[ab]*", "ax", False),
        ("${x}?", "${x}y", True),
        ("\\E*", "\\Equoted", True),
        ("a*b*c", "a-b-b-c", True),
        ("a*", "ba", False),
        ("*a", "ab\na\n", False),
    ],
)
def test_a_pattern_means_its_text(pattern: str, value: str, matches: bool) -> None:
    table = pa.table({"platform": pa.array([value, None], pa.string())})
    mask = Visibility((EventCondition.of({"platform": pattern}),)).rows(table)
    assert mask.to_pylist() == [matches, False]
