"""A change of the indexed fields: answers stay right, a search names the old shards, the step builds them anew."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from custody.config import Settings
from custody.errors import ConfigurationError, InvalidInputError
from custody.index import STANDARD_FIELDS, build_shard
from custody.repository import Repository
from custody.rollover import STEPS
from custody.vfs import PosixFileSystem
from tests.support import append, event, run_steps, sample
from tests.unit.index.test_shard import table_of

ROLLED = 300
EVENTS = sample(ROLLED + 30)
QUESTIONS = [
    "",
    *("event_type:ROUTE", "NOT event_type:ROUTE", "component_type:p*", "filename:*o*", "source_node:[a TO z]"),
    *('details:"auto terminated"', "details:auto AND event_type:DROP", "file_size:[100 TO 5000]"),
    *("attribute.order.region:emea", "NOT attribute.order.region:emea", "attribute.order.region:e* OR event_type:SEND"),
    "emea",
]


def changed(repository: Repository, **index: object) -> Repository:
    """The same repository, opened with other settings of the index."""
    settings = {**repository.settings.model_dump(), "root": repository.settings.root, "index": index}
    return Repository(Settings.model_validate(settings))


@pytest.fixture
def narrow(tmp_path: Path) -> Repository:
    """Three live shards that know hardly any field, and events that wait in a journal."""
    repository = changed(Repository.create(tmp_path / "demo"), fields=["flowfile_uuid"])
    for start in range(0, ROLLED, 100):
        append(repository, EVENTS[start : start + 100])
        run_steps(repository.settings)
    append(repository, EVENTS[ROLLED:])
    return repository


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """What a repository answers that had all fields from the beginning."""
    found = changed(
        Repository.create(tmp_path_factory.mktemp("wide") / "demo"), attributes=["order.region", "batch.id"]
    )
    for start in range(0, ROLLED, 100):
        append(found, EVENTS[start : start + 100])
        run_steps(found.settings)
    append(found, EVENTS[ROLLED:])
    return answers(found)


def answers(repository: Repository) -> list[list[int]]:
    results = [repository.search(text) for text in QUESTIONS]
    assert [result.total for result in results] == [len(result.events) for result in results]
    return [[stored.event.event_id for stored in result.events] for result in results]


def old(repository: Repository, text: str = "event_type:ROUTE") -> int:
    result = repository.search(text)
    count = result.explained["main"].old
    assert ("were made before" in "".join(result.notices)) == bool(count)
    return count


def test_old_shards_are_answered_from_their_logs_until_the_step_has_made_them_anew(
    narrow: Repository, expected: list[list[int]]
) -> None:
    wide = changed(narrow, attributes=["order.region", "batch.id"], backfill_shards_max=2)
    assert answers(wide) == expected
    [notice] = wide.search("attribute.order.region:emea OR event_type:ROUTE").notices
    shards = (wide.settings.containers[0] / "main/index").iterdir()
    names = sorted((path.name for path in shards), key=lambda name: name.split("-")[1])
    assert all(name in notice for name in names)
    assert "attribute.order.region, event_type" in notice
    assert "300 events" in notice
    assert (old(wide), old(wide, "flowfile_uuid:x"), old(wide, "file_size:[1 TO]")) == (3, 0, 0)

    assert [report.note for report in run_steps(wide.settings, "index")] == names[:0:-1]  # the newest first
    assert old(wide) == 1  # though it has the shards of before open
    assert answers(wide) == expected
    assert [report.note for report in run_steps(wide.settings, "index")] == names[:1]
    assert old(wide) == 0
    assert answers(wide) == expected
    assert STEPS["index"].units(wide.settings) == []


def test_facets_of_old_shards_are_counted_in_their_logs(narrow: Repository) -> None:
    wide = changed(narrow, attributes=["order.region"])
    asked = "component_type:p*", ["event_type", "attribute.order.region", "day"]
    counts, notices = wide.facets(*asked)
    assert "3 index shards were made before" in "".join(notices)
    run_steps(wide.settings, "index")
    assert wide.facets(*asked) == (counts, ())
    assert sum(counts["day"].values()) == wide.search(asked[0]).total
    assert counts["attribute.order.region"]


def test_no_shard_is_made_anew_where_that_is_not_wanted(narrow: Repository) -> None:
    wide = changed(narrow, backfill_shards_max=0)
    assert STEPS["index"].units(wide.settings) == []
    assert len(list(wide.rebuild_index(stale_only=True))) == 3
    assert old(wide) == 0


def test_a_damaged_shard_is_made_anew_by_the_step(narrow: Repository) -> None:
    shard = min((narrow.settings.containers[0] / "main/index").iterdir()) / "custody.shard"
    before = shard.read_bytes()
    shard.write_bytes(b"damaged" + before[7:])
    assert "searched without an index" in "".join(narrow.search("flowfile_uuid:x").notices)
    run_steps(narrow.settings, "index")
    assert shard.read_bytes() == before
    assert narrow.search("flowfile_uuid:x").notices == ()


def test_a_shard_that_was_built_before_the_settings_changed_is_not_committed_as_it_is(tmp_path: Path) -> None:
    found = changed(Repository.create(tmp_path / "demo"), fields=["flowfile_uuid"])
    append(found, EVENTS[:50])
    run_steps(found.settings, "rollover", "compress", "index")
    wide = changed(found)
    run_steps(wide.settings, "rollover", "compress", "index", "commit")
    assert old(wide) == 0


def test_a_field_that_is_not_indexed_is_unknown(narrow: Repository) -> None:
    questions: list[str | dict[str, object]] = ["event_type:ROUTE", {"field": "event_type", "equals": "ROUTE"}]
    for question in questions:
        with pytest.raises(InvalidInputError, match=r"unknown field 'event_type'.*flowfile_uuid.*index\.fields"):
            narrow.search(question)
    with pytest.raises(InvalidInputError, match="expected one of day"):
        narrow.facets("", ["event_type"])
    assert narrow.search("PutHDFS").total == 0
    assert narrow.lineage([EVENTS[0].flowfile_uuid]).events


@pytest.mark.parametrize("name", ["order.region", "Batch_Id", "a:b", "ÄÖ", "x*y", "(z)", "AND"])
def test_an_attribute_of_any_name_is_searched_as_it_is_after_the_event(tmp_path: Path, name: str) -> None:
    found = changed(Repository.create(tmp_path / "demo"), attributes=[name, "other"])
    append(
        found,
        [
            event(0, updated_attributes={name: "Blue"}),
            event(1, previous_attributes={name: "blue"}),
            event(2, previous_attributes={name: "blue"}, updated_attributes={name: "red"}),
            event(3, previous_attributes={name: "blue"}, updated_attributes={name: None}),
            event(4, updated_attributes={"other": "blue"}),
        ],
    )
    for _ in range(2):
        structured: dict[str, object] = {"field": f"attribute.{name}", "equals": "blue"}
        for question in (f"attribute.{name}:BLUE", structured):
            assert [stored.event.event_id for stored in found.search(question).events] == [1, 0], question
        assert found.facets("", [f"attribute.{name}"])[0] == {f"attribute.{name}": {"blue": 2, "red": 1}}
        run_steps(found.settings)


def test_fields_that_are_left_out_take_no_space_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    fs, table = PosixFileSystem(), table_of(EVENTS[:200])
    whole = build_shard(fs, tmp_path / "whole", table, [])
    writers: list[Literal["bulk", "stock"]] = ["bulk", "stock"]
    for writer in writers:
        part = build_shard(fs, tmp_path / writer, table, [], standard=["flowfile_uuid"], writer=writer)
        assert part.size_bytes < whole.size_bytes
    with pytest.raises(ConfigurationError, match=f"'nonsense'.*{STANDARD_FIELDS[0]}"):
        build_shard(fs, tmp_path / "none", table, [], standard=["nonsense"])
