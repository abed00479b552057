"""What a run read and wrote, with the contents that events tell of: which ones, where they can be had, and for whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from custody.clock import SystemClock
from custody.repository import Repository
from custody.serving.access import Scope, Tokens, add_token
from custody.serving.api_door import PREFIX
from custody.serving.application import Access, application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from custody.serving.rights import Rights
from custody.vfs import PosixFileSystem
from tests.support import append, event, run_steps
from tests.unit.serving.dag_run_story import BEFORE, GROUP, READ, START, WROTE, RunStory
from tests.unit.serving.test_api_changes import client_of

STORY = RunStory()
RIGHTS = f"""
[[rule]]
who = ["boss", "reader"]
see = "everything"

[[rule]]
who = ["clerk"]
see = "everything"
hide = [{{process_group_name = "{GROUP}"}}]

[[rule]]
who = ["masked"]
see = "everything"
mask = ["airflow.state"]
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Revision 0 knows the run alone; the contents came with the next one."""
    repository = Repository.create(tmp_path_factory.mktemp("contents") / "repository")
    append(repository, STORY.told())
    run_steps(repository.settings)
    append(repository, STORY.moved(repository))
    run_steps(repository.settings)
    return Repository.open(repository.settings.root)


@pytest.fixture(scope="module")
def client(repository: Repository) -> Iterator[TestClient]:
    with client_of(repository, Access()) as client:
        yield client


def asked(client: TestClient, **more: Any) -> dict[str, Any]:
    headers = more.pop("headers", None)
    answer = client.get("dag-run", params={"dag_id": "orders", "run_id": "nightly", **more}, headers=headers)
    assert answer.status_code == 200, answer.text
    known: dict[str, Any] = answer.json()
    return known


def test_what_a_run_read_is_what_lay_there_before_its_end(client: TestClient) -> None:
    [read] = asked(client)["read"]
    [content] = read["contents"]
    assert (read["name"], content["name"]) == (STORY.read, f"{STORY.read}/a.json")
    assert (content["event_type"], content["component"]) == ("SEND", STORY.component)
    assert content["content"]["availability"] == "available"
    assert content["content"]["size"] == len(READ)
    assert client.get(content["content"]["href"]).content == READ
    assert content["previous_content"] is None


def test_what_a_run_wrote_is_what_was_taken_there_until_somebody_wrote_it_again(client: TestClient) -> None:
    [wrote] = asked(client, task_id="sort")["wrote"]
    [content] = wrote["contents"]
    assert (wrote["name"], content["name"], content["event_type"]) == (STORY.wrote, STORY.wrote, "FETCH")
    assert client.get(content["content"]["href"], headers={"range": "bytes=5-12"}).content == WROTE[5:13]
    assert client.get(content["previous_content"]["href"]).content == BEFORE


def test_an_event_within_the_time_of_the_task_is_the_nearest_witness(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    STORY.store(repository)
    within = int(START.timestamp() * 1000) + 150_000
    sent = event(1, event_type="SEND", event_time=within, transit_uri=STORY.wrote, component_name="Sort")
    repository.append_with_content([sent], b"by the task itself")
    with client_of(repository, Access()) as client:
        [wrote] = asked(client)["wrote"]
        [content] = wrote["contents"]
        assert client.get(content["content"]["href"]).content == b"by the task itself"


def test_a_content_that_is_gone_is_told_with_the_reason(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    STORY.store(repository)
    claims = [
        path for path in repository.settings.root.rglob("content*/**/*") if path.is_file() and path.stat().st_size
    ]
    assert claims
    for path in claims:
        path.unlink()
    with client_of(Repository.open(repository.settings.root), Access()) as client:
        [content] = asked(client)["wrote"][0]["contents"]
    for place, size in ((content["content"], len(WROTE)), (content["previous_content"], len(BEFORE))):
        assert place == {"availability": "gone", "size": size, "href": None}


def test_of_an_earlier_moment_contents_are_those_known_then(client: TestClient) -> None:
    known = asked(client, as_of="0", writer="main")
    assert [asset["contents"] for asset in (*known["read"], *known["wrote"])] == [[], []]
    now = asked(client, as_of="1", writer="main")
    href = now["read"][0]["contents"][0]["content"]["href"]
    assert href.endswith("/content?as_of=1")
    assert client.get(href).content == READ
    assert client.get(href.replace("as_of=1", "as_of=0")).status_code == 404


def test_the_same_is_found_where_no_index_has_claims(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    kept = [name for name in Repository.open(root).settings.index.fields if not name.startswith("content_claim")]
    (root / "custody.toml").write_text(f"[index]\nfields = {kept!r}\n")
    repository = Repository.open(root)
    STORY.store(repository)
    run_steps(repository.settings)
    with client_of(Repository.open(root), Access()) as client:
        known = asked(client)
    assert [len(asset["contents"]) for asset in (*known["read"], *known["wrote"])] == [1, 1]


def test_rules_and_scopes_hold_for_contents_of_a_run(repository: Repository) -> None:
    root = repository.settings.root
    (root / "rights.toml").write_text(RIGHTS)
    every, read = frozenset(Scope), frozenset({Scope.READ})
    scopes = {"boss": every, "reader": read, "clerk": every, "masked": every}
    names = {name: add_token(PosixFileSystem(), root / "tokens", name, known, "") for name, known in scopes.items()}
    services = Services(repository, repository.settings, SystemClock())
    access = Access(Tokens.read(root / "tokens"), rights=Rights(root / "rights.toml"))
    try:
        with open_doors(("api",), services) as doors:
            app = application(repository.settings.serve, doors, access)
            with TestClient(app, base_url=f"http://localhost{PREFIX}/") as client:
                headers = {name: {"Authorization": f"Bearer {made}"} for name, made in names.items()}
                of_all = asked(client, headers=headers["boss"])
                href = of_all["wrote"][0]["contents"][0]["content"]["href"]
                assert client.get(href, headers=headers["boss"]).content == WROTE
                # Where contents are may be known without the right to read them, as on the page of an event.
                assert asked(client, headers=headers["reader"])["wrote"] == of_all["wrote"]
                assert client.get(href, headers=headers["reader"]).status_code == 403
                hidden = asked(client, headers=headers["clerk"])
                assert [asset["contents"] for asset in (*hidden["read"], *hidden["wrote"])] == [[], []]
                assert [asset["name"] for asset in hidden["wrote"]] == [STORY.wrote]
                assert client.get(href, headers=headers["clerk"]).status_code == 404
                masked = asked(client, headers=headers["masked"])
                assert masked["wrote"] == of_all["wrote"]
                assert {one["state"] for one in masked["events"]} == {"***"}
    finally:
        services.close()
        (root / "tokens").unlink()


def test_of_many_assets_the_first_are_looked_up(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    many = [replace(STORY, task_id=f"t{at}", read=f"s3://in/{at}", wrote=f"s3://out/{at}") for at in range(60)]
    append(repository, [one for story in many for one in story.told()])
    run_steps(repository.settings)
    with client_of(repository, Access()) as client:
        known = asked(client)
    for side in ("read", "wrote"):
        assert [asset["contents"] for asset in known[side]] == [[]] * 50 + [None] * 10
