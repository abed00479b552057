"""Lineage over a repository: expanding one event, and what cannot or must not be seen keeps its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.config import SETTINGS_FILE
from custody.errors import InvalidInputError, NotFoundError
from custody.index import OpenShard
from custody.lineage import Bounds, Cut
from custody.model import Event
from custody.repository import Component, EventSelection, Repository
from tests.support import append, event, flipped, run_steps

FORK = {"event_type": "FORK", "flowfile_uuid": "parent", "parent_uuids": ("parent",), "child_uuids": ("child",)}
STORY = [
    event(0, event_type="RECEIVE", event_time=10, flowfile_uuid="parent", lineage_start_date=10),
    event(1, event_time=20, lineage_start_date=10, **FORK),
    event(2, event_type="SEND", event_time=30, flowfile_uuid="child", lineage_start_date=10),
    event(3, event_type="DROP", event_time=40, flowfile_uuid="parent", lineage_start_date=10),
]


def ids(events: list[Event]) -> list[int]:
    return sorted(item.event_id for item in events)


@pytest.mark.parametrize(("direction", "expected"), [("parents", [0, 1]), ("children", [1, 2])])
def test_an_event_is_expanded_to_one_side(repository: Repository, direction: str, expected: list[int]) -> None:
    append(repository, STORY)
    lineage = repository.expand(1, direction)
    assert ids([item for node in lineage.nodes.values() for item in node.events]) == expected
    assert list(lineage.nodes) == ["parent", "child"]


def test_what_cannot_be_expanded_is_refused(repository: Repository) -> None:
    append(repository, STORY)
    with pytest.raises(InvalidInputError, match="got SEND, so its parents cannot be expanded"):
        repository.expand(2, "parents")
    with pytest.raises(InvalidInputError, match="parents, children"):
        repository.expand(1, "cousins")
    with pytest.raises(NotFoundError, match="no event 99"):
        repository.expand(99, "children")


def test_a_forgotten_flowfile_stays_as_a_node_that_nothing_is_known_of(repository: Repository) -> None:
    join = event(5, event_type="JOIN", flowfile_uuid="both", parent_uuids=("secret", "parent"), child_uuids=("both",))
    append(repository, [*STORY, event(4, event_type="RECEIVE", flowfile_uuid="secret"), join])
    run_steps(repository.settings)
    repository.forget(EventSelection(event_ids=(4,)), "asked for")
    lineage = repository.lineage(["parent"])
    assert lineage.nodes["secret"].kind == "UNKNOWN"
    assert (lineage.nodes["secret"].events, lineage.nodes["secret"].children) == ((), ("both",))
    assert {node.kind for uuid, node in lineage.nodes.items() if uuid != "secret"} == {"FLOWFILE"}


def test_events_in_a_damaged_log_are_unknown_and_stay_connected(repository: Repository) -> None:
    append(repository, STORY[:2])
    run_steps(repository.settings)
    append(repository, STORY[2:])
    run_steps(repository.settings)
    oldest = min(repository.settings.store.rglob("*.parquet"), key=lambda path: path.name)
    oldest.write_bytes(flipped(oldest.read_bytes(), 8 * 100))
    lineage = repository.lineage(["parent", "child"])
    assert [(item.event_id, item.uuids) for item in lineage.unknown_events] == [
        (0, ("parent",)),
        (1, ("child", "parent")),
    ]
    assert lineage.notices


def test_a_diagram_says_whether_contents_can_be_had(repository: Repository) -> None:
    repository.append_with_content([event(0)], b"hello")
    [created] = repository.events()
    lineage = repository.lineage([created.flowfile_uuid])

    def output() -> str | None:
        nodes = repository.diagram(lineage).nodes
        return next(node.output_content for node in nodes if node.event_id == created.event_id)

    assert output() == "available"
    path = repository.content(created).path
    path.unlink()
    assert output() == "gone"
    path.write_bytes(b"something else")
    assert output() == "damaged"


def test_a_flowfile_that_another_writer_knows_by_the_same_identifier_is_linked(tmp_path: Path) -> None:
    root = Repository.create(tmp_path / "repository").settings.root
    here, there = Component(id="here", type="Here"), Component(id="there", type="There")
    sender = Repository.open(root)
    with sender.session(here) as session:
        sent = session.create({"alternate.identifier": "Erp:Batch-17 ö"})
    run_steps(sender.settings)
    (root / SETTINGS_FILE).write_text('[repository]\nwriter = "other"\n')
    other = Repository.open(root)
    with other.session(there) as session:
        received = session.create()
        session.addinfo(received, "Erp", "Batch-17 ö")
        child = session.fork(received)
    for opened in (other, Repository.open(root)):
        lineage = opened.lineage([sent.uuid])
        assert set(lineage.nodes) == {sent.uuid, received.uuid, child.uuid}
        assert lineage.identifiers == {"Erp:Batch-17 ö": tuple(sorted((sent.uuid, received.uuid)))}
        by_name = opened.lineage(identifiers=["Erp:Batch-17 ö"])
        assert by_name.nodes.keys() == lineage.nodes.keys()
        run_steps(opened.settings)
    with pytest.raises(NotFoundError, match="no event mentions the FlowFile erp:batch-17 ö"):
        other.lineage(identifiers=["erp:batch-17 ö"])
    result = CliRunner().invoke(cli, ["-r", str(root), "lineage", "Erp:Batch-17 ö"])
    assert result.exit_code == 0, result.output
    assert "alternate identifier Erp:Batch-17 ö of FlowFile" in result.stdout
    document = json.loads(CliRunner().invoke(cli, ["-r", str(root), "lineage", sent.uuid, "--json"]).stdout)
    assert document["identifiers"] == {"Erp:Batch-17 ö": sorted((sent.uuid, received.uuid))}
    assert CliRunner().invoke(cli, ["-r", str(root), "lineage", "Erp:nothing"]).exit_code == 12


def test_without_the_field_in_the_index_identifiers_join_nothing(tmp_path: Path) -> None:
    root = Repository.create(tmp_path / "repository").settings.root
    (root / SETTINGS_FILE).write_text('[index]\nfields = ["event_type", "flowfile_uuid"]\n')
    opened = Repository.open(root)
    with opened.session(Component(id="c", type="C")) as session:
        one = session.create({"alternate.identifier": "x:1"})
        session.create({"alternate.identifier": "x:1"})
    run_steps(opened.settings)
    assert set(opened.lineage([one.uuid]).nodes) == {one.uuid}
    with pytest.raises(InvalidInputError, match=r"Add 'alternate_identifier_uri' to index\.fields"):
        opened.lineage(identifiers=["x:1"])


def test_an_identifier_that_all_events_have_is_looked_up_in_few_shards(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = 8
    for group in range(groups):
        numbers = range(200 * group, 200 * (group + 1))
        named = {"alternate_identifier_uri": "Erp:All"}
        append(repository, [event(n, flowfile_uuid=f"flowfile-{n}", event_time=n, **named) for n in numbers])
        run_steps(repository.settings)
    asked: set[Path] = set()
    search = OpenShard.search

    def noted(shard: OpenShard, *arguments: Any, **options: Any) -> Any:
        found = search(shard, *arguments, **options)
        asked.update([shard.path] if len(found) else [])
        return found

    def refused(*_: object) -> int:
        raise AssertionError("a lineage has no use for a total")

    monkeypatch.setattr(OpenShard, "search", noted)
    monkeypatch.setattr(OpenShard, "count", refused)
    lineage = Repository.open(repository.settings.root).lineage(["flowfile-3"], Bounds(100, identifier_flowfiles_max=1))
    assert list(lineage.nodes) == ["flowfile-3"]
    assert lineage.cut == {"flowfile-3": Cut.IDENTIFIER}
    # Its own, and the newest.
    assert len(asked) == 2
