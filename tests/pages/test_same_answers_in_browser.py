"""Every page shows the command and the request that give the same answer: both are done, and the answers compared."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.repository import EventSelection, Repository
from custody.repository.local_pass import PASSES, run_locally
from tests.pages.test_in_browser import built, opened, settled
from tests.pages.test_time_in_browser import run_told
from tests.support import append, event, sample
from tests.unit.serving.serve_process import Served, served
from tests.unit.serving.test_api_changes import quarantined

__all__ = ["built"]

pytestmark = pytest.mark.slow

ORDER = "0dd0ca5e-0000-4000-8000-000000045226"
DAY = 86_400_000
START = 1_772_409_600_000
PAGES = (
    "search.html?q=event_type:SEND&f=component_name:put+order",
    "search.html?since=2026-03-02&until=2026-03-02T00:30&oldest_first=true&q=event_type:RECEIVE",
    "search.html?writer=main&as_of=0",
    "search.html?q=component_name:%22Rare%22",
    "event.html?writer=main&event=7",
    "event.html?writer=main&event=7&as_of=0&whole=true",
    f"lineage.html?flowfile={ORDER}&depth=all",
    f"lineage.html?flowfile={ORDER}&as_of=1&writer=main",
    "run.html",
    "run.html?dag_id=orders&run_id=late",
    "run.html?dag_id=orders&run_id=late&task_id=sort&map_index=-1",
    "run.html?dag_id=orders&run_id=early&as_of=1&writer=main",
    "sql.html?query=select+event_type,+count(*)+as+n+from+events+group+by+1+order+by+1",
    "sql.html?query=select+max(event_id)+from+events&as_of=0&writer=main",
    "status.html",
    "proof.html",
    "proof.html?writer=main&former=0&later=2",
    "keep.html?ids=7,8&writer=main",
    f"keep.html?flowfile={ORDER}&since=2026-01-01",
    "replay.html?q=event_type:SEND&writer=main",
)


class Shown(NamedTuple):
    """What a page shows to be done elsewhere."""

    page: str
    command: str
    request: str


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Samples, an order, runs of a DAG, days of a year, a hold, something forgotten, and pieces in the quarantine."""
    made = Repository.create(tmp_path_factory.mktemp("same") / "repository")
    with made.flowfiles() as flow:
        flow.connect("orders")
    append(made, sample(300))
    run_locally(PASSES["all"], made.settings, run_id="first")
    rare = [event(at, event_time=START - at * 30 * DAY, component_name="Rare") for at in range(1, 9)]
    parts = [f"0dd0ca5e-0000-4000-8000-00000000000{number}" for number in range(3)]
    cut = event(9, event_type="FORK", flowfile_uuid=ORDER, parent_uuids=[ORDER], child_uuids=parts)
    append(made, [*rare, event(10, flowfile_uuid=ORDER), cut, *run_told("early"), *run_told("late")])
    run_locally(PASSES["all"], made.settings, run_id="second")
    made.hold("case-17", EventSelection(flowfile_uuids=[ORDER]), "court order", "carol")
    made.forget(EventSelection(event_ids=[3]), "request of a customer", "main", who="alice")
    for number in range(3):
        quarantined(made, f"[{number}, none]".encode())
    return Repository.open(made.settings.root)


@pytest.fixture(scope="module")
def server(repository: Repository) -> Iterator[Served]:
    with served(repository.settings.root, "--door", "pages") as running:
        yield running


def _shown_on(page: Any, address: str) -> list[Shown]:
    found = []
    for part in page.locator("details.same").all():
        fields = part.locator("input")
        # It is closed: its fields have no place on the page, and have values.
        values = [fields.nth(at).input_value() for at in range(fields.count())]
        found.append(Shown(address, values[0], values[1]))
    return found


def _requested(request: str) -> tuple[str, Any]:
    """Do what `curl` would do; return the path below the API and the document, of a job the one that it ended with."""
    words = shlex.split(request)
    assert words[0] == "curl"
    body = words[words.index("-d") + 1].encode() if "-d" in words else None
    base, path = re.fullmatch(r"(.*/api/v1/)(.*)", words[-1]).groups()  # type: ignore[union-attr]

    def asked(address: str, data: bytes | None = None) -> Any:
        method, headers = ("GET", {}) if data is None else ("POST", {"Content-Type": "application/json"})
        answer = httpx.request(method, address, content=data, headers=headers, timeout=60)
        assert answer.status_code < 300, (address, answer.text)
        return answer.json()

    document = asked(words[-1], body)
    deadline = time.monotonic() + 60
    while body is not None and document.get("state") in ("queued", "running"):
        assert time.monotonic() < deadline
        document = asked(f"{base}jobs/{document['id']}?wait=10")
    return urlsplit(path).path, document


def _run(root: Path, command: str) -> Any:
    words = shlex.split(command.replace(" --reason …", " --reason 'a request'"))
    assert words[0] == "custody"
    at = words.index("--") if "--" in words else len(words)
    json_too = [] if "--json" in words else ["--json"]
    done = CliRunner().invoke(cli, ["-r", str(root), *words[1:at], *json_too, *words[at:]], catch_exceptions=False)
    assert done.exit_code == 0, (command, done.output)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines[0] if len(lines) == 1 else lines


def _event(document: dict[str, Any]) -> dict[str, Any]:
    """An event without what is not said: the API has ordinals as text, for they pass what JavaScript counts to."""
    known = {name: value for name, value in document.items() if value not in (None, [], {}, -1)}
    return known | ({"source_ordinal": str(known["source_ordinal"])} if "source_ordinal" in known else {})


def _listed(items: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [(item["writer"], _event(item["event"])) for item in items]


def _nodes(items: list[dict[str, Any]]) -> dict[str, Any]:
    # The API names the writer of each event, and the command does not.
    return {
        node["uuid"]: [_event(one.get("event", one)) for one in node.get("events", [])]
        for node in sorted(items, key=lambda node: str(node["uuid"]))
    }


def _without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


def _of(document: dict[str, Any], *names: str) -> list[Any]:
    return [document[name] for name in names]


def _status(document: dict[str, Any]) -> dict[str, Any]:
    # What other programs of this machine write counts, too.
    for disk in (*document["disks"], *document["stripes"], *document["content_containers"]):
        disk.pop("free_bytes")
    return _without(document, "budget")


# Of each path what the API and the command say, in one shape.
_API: dict[str, Callable[[Any], Any]] = {
    "events": lambda it: [_listed(it["items"]), *_of(it, "total", "lost", "as_of")],
    "events/facets": lambda it: it["facets"],
    "events/main/7": lambda it: _event(it["event"]),
    "lineage": lambda it: [_nodes(it["nodes"]), *_of(it, "events", "frontier", "as_of")],
    "status": _status,
    "quarantine": lambda it: {one["key"]: one for one in it["items"]},
    "timeline/main": lambda it: it["items"][::-1],
    "timeline/main/difference": lambda it: it["entries"],
    "timeline/main/chain": lambda it: _of(it, "writer", "revision", "digest", "revisions", "checkpoints", "defects"),
    "holds": lambda it: it["items"],
    "attestations": lambda it: it["items"],
    "retention/plan": lambda it: _without(it, "now_ms"),
    "sql": lambda it: it["rows"],
    "forget-plans": lambda it: it["result"]["writers"],
    "replay-plans": lambda it: _of(it["result"], "events", "bytes", "refused"),
}
_SAID: dict[str, Callable[[Any], Any]] = {
    "events": lambda it: [_listed(it["events"]), *_of(it, "total", "lost", "as_of")],
    "events/main/7": lambda it: _event(it),
    "lineage": lambda it: [_nodes(it["nodes"]), *_of(it, "events", "cut", "as_of")],
    "status": _status,
    "quarantine": lambda it: {one["key"]: one for one in it},
    "timeline/main/chain": lambda it: _of(it[0], "writer", "revision", "digest", "revisions", "checkpoints", "defects"),
    "retention/plan": lambda it: _without(it, "now_ms"),
    "sql": lambda it: [list(row.values()) for row in (it if isinstance(it, list) else [it])],
    "replay-plans": lambda it: [*_of(it, "events", "bytes"), sum(it["refused_by_code"].values())],
}


def _compare(path: str, api: Any, said: Any) -> None:
    """Compare the document of the API at a path with what the command printed."""
    kind = path.rsplit("/api/v1/", 1)[-1]
    assert _SAID.get(kind, lambda it: it)(said) == _API.get(kind, lambda it: it)(api), kind


def test_each_command_and_each_request_that_a_page_shows_give_the_same_answer(
    server: Served, repository: Repository
) -> None:
    shown = []
    with opened(server.url, timezone_id="Asia/Kolkata") as page:
        for address in PAGES:
            page.goto(f"{server.url}/ui/{address}")
            settled(page)
            found = _shown_on(page, address)
            assert found, f"{address} shows nothing to be done elsewhere"
            shown += found
    paths = set()
    for one in dict.fromkeys(each._replace(page="") for each in shown):
        path, document = _requested(one.request)
        assert document, one
        _compare(path, document, _run(repository.settings.root, one.command))
        paths.add(path.rsplit("/api/v1/", 1)[-1])
    # Everything that the pages ask for to be looked at, but the contents and what a list leads to.
    assert {
        "events",
        "events/facets",
        "events/histogram",
        "events/main/7",
        "lineage",
        "dag-runs",
        "dag-run",
        "sql",
        "status",
        "quarantine",
        "jobs",
        "runs",
        "timeline/main",
        "timeline/main/difference",
        "timeline/main/chain",
        "attestations",
        "holds",
        "retention/plan",
        "forget-plans",
        "replay-plans",
    } <= paths
