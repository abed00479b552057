"""Lineages by the API and by the command: kinds and names of nodes, where they begin, failures, rights and masks."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from custody.cli.main import cli
from custody.clock import SystemClock
from custody.repository import Repository
from custody.serving.access import Scope, Tokens, add_token
from custody.serving.api_door import PREFIX, ApiDoor
from custody.serving.application import Access, application
from custody.serving.door import Services
from custody.serving.rights import Rights
from custody.vfs import PosixFileSystem
from tests.support import append, event, run_steps
from tests.unit.lineage.pipeline import (
    CLEAN,
    CLEAN_UUID,
    CLEANING,
    RAW,
    RAW_UUID,
    REPORT,
    REPORT_UUID,
    REPORTING,
    pipeline,
)

RULES = """
[[rule]]
who = ["all", "masked"]
see = "everything"

[[rule]]
who = ["some"]
see = "everything"
hide = [{component_name = "clean orders"}]

[[rule]]
who = ["masked"]
mask = ["openlineage.job.name", "filename"]
"""
ENTRY = "start-of-the-chain"
FAILED = "end-of-the-chain"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A pipeline whose second job failed after it had worked once, and a chain of three steps to a failure."""
    root = tmp_path_factory.mktemp("lineage") / "repository"
    Repository.create(root)
    opened = Repository.open(root)
    steps = [ENTRY, "middle", FAILED]
    forks = [
        event(number, event_type="FORK", flowfile_uuid=one, parent_uuids=(one,), child_uuids=(other, f"{one}-brother"))
        for number, (one, other) in enumerate(itertools.pairwise(steps))
    ]
    routed = event(3, event_type="ROUTE", flowfile_uuid=FAILED, relationship="failure", details="0 errors")
    named = event(4, event_type="ADDINFO", flowfile_uuid=ENTRY, alternate_identifier_uri="erp:17")
    append(opened, [*pipeline(), pipeline(ends="FAIL")[-1], *forks, routed, named])
    run_steps(opened.settings)
    return Repository.open(root)


@contextmanager
def client_of(repository: Repository, access: Access) -> Iterator[TestClient]:
    door = ApiDoor(Services(repository, repository.settings, SystemClock()))
    app = application(repository.settings.serve, [door], access)
    try:
        with TestClient(app, base_url=f"http://localhost{PREFIX}/", raise_server_exceptions=False) as client:
            yield client
    finally:
        door.close()


@pytest.fixture(scope="module")
def client(repository: Repository) -> Iterator[TestClient]:
    with client_of(repository, Access()) as client:
        yield client


def lineage(client: TestClient, headers: dict[str, str] | None = None, **parameters: Any) -> dict[str, Any]:
    answer = client.get("lineage", params=parameters, headers=headers)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def nodes(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {node["uuid"]: node for node in document["nodes"]}


def command(repository: Repository, *words: str) -> Any:
    result = CliRunner().invoke(cli, ["-r", str(repository.settings.root), "lineage", *words])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in words else result.stdout


def test_nodes_say_what_they_are(client: TestClient, repository: Repository) -> None:
    document = lineage(client, dataset="/".join(CLEAN))
    told = {uuid: (node["kind"], node.get("namespace"), node.get("name")) for uuid, node in nodes(document).items()}
    assert told == {
        RAW_UUID: ("DATASET", *RAW),
        CLEANING: ("RUN", "shop", "clean orders"),
        CLEAN_UUID: ("DATASET", *CLEAN),
        REPORTING: ("RUN", "shop", "report"),
        REPORT_UUID: ("DATASET", *REPORT),
    }
    assert document["starts"] == [CLEAN_UUID]
    tree = command(repository, "/".join(CLEAN))
    assert "dataset " + CLEAN_UUID + " (s3://lake/clean/orders) ← asked for" in tree
    assert f"run {REPORTING} (shop/report) · failed" in tree


@pytest.mark.parametrize(
    ("parameter", "value", "start"),
    [
        ("dataset", "/".join(RAW), RAW_UUID),
        ("dataset", "/".join(REPORT), REPORT_UUID),
        ("what", "/".join(REPORT), REPORT_UUID),
        ("run", CLEANING, CLEANING),
        ("run", CLEANING.upper(), CLEANING),
        ("what", CLEANING, CLEANING),
        ("event", "main:0", CLEANING),
        ("what", "0", CLEANING),
        ("what", "erp:17", ENTRY),
        ("identifier", "erp:17", ENTRY),
        ("flowfile", ENTRY, ENTRY),
    ],
)
def test_a_lineage_begins_at_names_of_any_kind(
    client: TestClient, repository: Repository, parameter: str, value: str, start: str
) -> None:
    document = lineage(client, None, **{parameter: value})
    assert document["starts"] == [start]
    assert document.get("notices", []) == []
    word = value if parameter == "what" else f"{parameter}={value}"
    assert command(repository, word, "--json")["starts"] == [start]


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ({}, 400),
        ({"event": "main:99999"}, 404),
        ({"event": "../x:1"}, 404),
        ({"event": "nobody:1"}, 404),
        ({"event": "main:x"}, 400),
        ({"dataset": "s3://lake/nothing"}, 404),
        ({"run": "nothing"}, 404),
        ({"what": "x" * 2001}, 400),
        ({"dataset": "s3://lake/raw/orders", "direction": "left"}, 400),
    ],
)
def test_what_nothing_is_known_of_is_said(client: TestClient, parameters: dict[str, str], status: int) -> None:
    answer = client.get("lineage", params=parameters)
    assert answer.status_code == status, answer.text


def test_of_several_starts_one_may_be_unknown(client: TestClient) -> None:
    document = lineage(client, flowfile=[ENTRY, "nobody"])
    assert document["starts"] == [ENTRY]
    assert document["notices"] == ["no event of this lineage mentions nobody."]


def test_only_what_failed_keeps_the_way(client: TestClient) -> None:
    whole = nodes(lineage(client, flowfile=ENTRY, depth=5))
    failed = nodes(lineage(client, flowfile=ENTRY, depth=5, failed="true"))
    assert whole.keys() - failed.keys() == {f"{ENTRY}-brother", "middle-brother"}
    assert [uuid for uuid, node in failed.items() if node.get("failed")] == [FAILED]
    assert [one.get("failed", False) for one in failed[FAILED]["events"]] == [True]
    of_run = nodes(lineage(client, dataset="/".join(RAW), depth=5, failed="true"))
    assert set(of_run) == {RAW_UUID, CLEANING, CLEAN_UUID, REPORTING}
    assert sum(one.get("failed", False) for one in of_run[REPORTING]["events"]) == 1


def test_the_command_and_the_api_give_the_same_answer(client: TestClient, repository: Repository) -> None:
    for parameters, words in (
        ({"flowfile": [ENTRY, "middle"], "depth": 1}, [ENTRY, "middle", "--depth", "1"]),
        ({"dataset": "/".join(CLEAN), "direction": "up"}, ["/".join(CLEAN), "--direction", "up", "--depth", "1"]),
        (
            {"what": [ENTRY, CLEANING], "failed": "true", "depth": 9, "writer": "main"},
            [ENTRY, CLEANING, "--failed", "--depth", "9", "--only-writer", "main"],
        ),
        (
            {"flowfile": FAILED, "as_of": "0", "writer": "main"},
            [FAILED, "--as-of", "0", "--writer", "main", "--depth", "1"],
        ),
    ):
        asked, said = lineage(client, **parameters), command(repository, *words, "--json")
        assert plain(said["nodes"], by_writers=True) == plain(asked["nodes"])
        assert said["starts"] == asked["starts"]
        assert said["cut"] == asked["frontier"]


def plain(documents: list[dict[str, Any]], *, by_writers: bool = False) -> list[dict[str, Any]]:
    """What a lineage says of its nodes, without what the command and the API write in other ways."""
    names = ("uuid", "kind", "parents", "children", "cut", "namespace", "name", "version")
    told = []
    for node in documents:
        ids = (
            list(zip(node["writers"], [one["event_id"] for one in node["events"]], node["events_failed"], strict=True))
            if by_writers
            else [(one["writer"], one["event"]["event_id"], one.get("failed", False)) for one in node["events"]]
        )
        told.append({**{name: node.get(name) for name in names}, "failed": node.get("failed", False), "events": ids})
    return told


def test_exports_say_what_nodes_are_and_csv_has_nodes_and_edges(client: TestClient) -> None:
    def exported(form: str, **parameters: Any) -> str:
        asked = {"dataset": "/".join(CLEAN), "format": form, **parameters}
        answer = client.get("lineage/export", params=asked)
        assert answer.status_code == 200, answer.text
        return answer.text

    rows = list(csv.DictReader(io.StringIO(exported("csv-nodes"))))
    assert {(row["kind"], row["namespace"], row["name"]) for row in rows if row["kind"] != "EVENT"} == {
        ("DATASET", *RAW),
        ("DATASET", *CLEAN),
        ("DATASET", *REPORT),
        ("RUN", "shop", "clean orders"),
        ("RUN", "shop", "report"),
    }
    assert {row["label"] for row in rows if row["failed"] == "true"} == {"DROP 4 failed", "run: shop/report failed"}
    ids = {row["id"] for row in rows}
    edges = list(csv.DictReader(io.StringIO(exported("csv-edges"))))
    assert edges
    assert {end for row in edges for end in (row["source"], row["target"])} <= ids
    assert 'shape="cylinder"' in exported("dot")
    assert "<polygon" in exported("svg")
    assert ">DATASET<" in exported("graphml")
    runs = [json.loads(line) for line in exported("openlineage").splitlines()]
    written = [output for run in runs for output in run["outputs"]]
    assert {"namespace": REPORT[0], "name": REPORT[1]} in written
    only = exported("json", failed="true", dataset="/".join(RAW), depth=5)
    assert {node["kind"] for node in json.loads(only)["nodes"]} == {"DATASET", "RUN", "EVENT"}
    assert REPORT_UUID not in {node.get("flowfile_uuid") for node in json.loads(only)["nodes"]}


def test_cells_that_begin_as_formulas_are_texts(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    append(repository, [event(0, flowfile_uuid="=1+1", component_name="@SUM(A1)")])
    rows = list(csv.DictReader(io.StringIO(command(repository, "=1+1", "--export", "csv-nodes"))))
    assert {row["flowfile_uuid"] for row in rows} == {"'=1+1"}
    assert {row["component"] for row in rows} == {"", "'@SUM(A1)"}


@pytest.fixture(scope="module")
def by_rights(repository: Repository) -> Iterator[tuple[TestClient, dict[str, dict[str, str]]]]:
    root = repository.settings.root
    (root / "rights.toml").write_text(RULES)
    headers = {
        name: {"Authorization": f"Bearer {add_token(PosixFileSystem(), root / 'tokens', name, frozenset(Scope), '')}"}
        for name in ("all", "some", "masked")
    }
    access = Access(Tokens.read(root / "tokens"), rights=Rights(root / "rights.toml"))
    with client_of(repository, access) as client:
        yield client, headers


def test_a_hidden_run_is_hidden_and_so_is_what_it_alone_names(
    by_rights: tuple[TestClient, dict[str, dict[str, str]]],
) -> None:
    client, headers = by_rights
    seen = nodes(lineage(client, headers["some"], dataset="/".join(CLEAN), depth=9))
    assert set(seen) == {CLEAN_UUID, REPORTING, REPORT_UUID}
    assert "clean orders" not in json.dumps(seen).replace("s3://lake", "")
    for parameters in ({"dataset": "/".join(RAW)}, {"run": CLEANING}, {"event": "main:0"}, {"what": RAW_UUID}):
        answer = client.get("lineage", params=parameters, headers=headers["some"])
        assert answer.status_code == 404, answer.text
        assert client.get("lineage", params=parameters, headers=headers["all"]).status_code == 200


def test_masked_names_are_in_no_answer(by_rights: tuple[TestClient, dict[str, dict[str, str]]]) -> None:
    client, headers = by_rights
    masked = lineage(client, headers["masked"], dataset="/".join(CLEAN), depth=9)
    for node in masked["nodes"]:
        assert "name" not in node, node["kind"]
        assert "namespace" not in node
    assert {node["kind"] for node in masked["nodes"]} == {"RUN", "DATASET"}
    assert [node["uuid"] for node in masked["nodes"] if node.get("failed")] == [REPORTING]
    dot = client.get("lineage/export", params={"run": CLEANING, "format": "dot"}, headers=headers["masked"]).text
    assert "clean/orders" not in dot
    assert "shop/clean orders" not in dot


def test_one_writer_alone_is_asked_in_the_same_way(tmp_path: Path) -> None:
    root = Repository.create(tmp_path / "repository").settings.root
    append(Repository.open(root), [event(0, flowfile_uuid="f")])
    (root / "custody.toml").write_text('[repository]\nwriter = "other"\n')
    repository = Repository.open(root)
    append(repository, [event(1, event_type="SEND", flowfile_uuid="f")])

    with client_of(repository, Access()) as client:
        for parameters, words, events in (
            ({}, [], 2),
            ({"writer": "other"}, ["--only-writer", "other"], 1),
        ):
            asked, said = lineage(client, None, flowfile="f", **parameters), command(repository, "f", *words, "--json")
            assert asked["events"] == said["events"] == events
            assert plain(said["nodes"], by_writers=True) == plain(asked["nodes"])
        ids = lineage(client, None, event="other:0")["starts"]
    assert ids == ["f"]
    assert command(repository, "0", "--writer", "other", "--json")["events"] == 2, "whose event is meant, and no bound"


def test_starts_stand_as_they_are_asked_for_and_flowfiles_last(client: TestClient, repository: Repository) -> None:
    asked = lineage(client, None, flowfile=[FAILED, ENTRY], dataset="/".join(RAW), depth=0)
    assert asked["starts"] == [RAW_UUID, FAILED, ENTRY]
    words = ["dataset=" + "/".join(RAW), f"flowfile={FAILED}", f"flowfile={ENTRY}", "--depth", "0"]
    assert command(repository, *words, "--json")["starts"] == asked["starts"]
