"""Search over shards, waiting events and writers: pages, cursors, facets, pruning, and what a lost shard changes."""

from __future__ import annotations

import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from custody.catalog import Action, RemoveFile
from custody.config import Settings
from custody.config.sections import LeaseSection
from custody.errors import InvalidInputError, LockedError, NotFoundError
from custody.lease import Attempt, lease_status
from custody.model import Event
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from custody.workspace import leased
from tests.support import append, event, run_steps, sample

ROLLED, WAITING = 300, 50
EVENTS = sample(ROLLED + WAITING)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Three live shards, and events that wait in a journal."""
    found = Repository.create(tmp_path / "demo")
    for start in range(0, ROLLED, 100):
        append(found, EVENTS[start : start + 100])
        run_steps(found.settings)
    append(found, EVENTS[ROLLED:])
    return found


def with_region(repository: Repository) -> Settings:
    found = repository.settings
    chosen = {**found.model_dump(), "root": found.root, "index": {"attributes": ["order.region"]}}
    return Settings.model_validate(chosen)


def matching(text: str) -> list[int]:
    return [n for n, item in enumerate(EVENTS) if item.event_type == text]


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("limit", [1, 7, 40, 1000])
def test_pages_join_to_the_whole_while_events_arrive(repository: Repository, limit: int, oldest_first: bool) -> None:
    expected = matching("ROUTE") if oldest_first else matching("ROUTE")[::-1]
    found: list[int] = []
    cursor = None
    while True:
        page = repository.search("event_type:ROUTE", limit=limit, oldest_first=oldest_first, cursor=cursor)
        found += [stored.event.event_id for stored in page.events]
        cursor = page.cursor
        if cursor is None:
            break
        if len(found) < 10 and not oldest_first:
            append(repository, [event(10_000 + len(found), event_type="ROUTE")])
            run_steps(repository.settings)
    assert found == expected


def test_a_cursor_of_another_order_or_none_at_all_is_refused(repository: Repository) -> None:
    cursor = repository.search(limit=1).cursor
    assert cursor is not None
    with pytest.raises(InvalidInputError, match="other order"):
        repository.search(limit=1, cursor=cursor, oldest_first=True)
    for text in ("", "zz", "7b7d", cursor[:-2]):
        with pytest.raises(InvalidInputError, match="cursor"):
            repository.search(limit=1, cursor=text)


def test_no_more_shards_are_searched_than_the_page_needs(repository: Repository) -> None:
    explained = repository.search("", limit=1).explained["main"]
    assert (explained.shards, explained.searched) == (3, 1)
    first = min(item.event_time for item in EVENTS[:100])
    found = repository.search(f"event_time:[TO {first}]")
    assert found.total == sum(item.event_time <= first for item in EVENTS)
    assert found.explained["main"].pruned >= 1


@pytest.mark.parametrize("oldest_first", [False, True])
def test_a_shard_that_gave_all_its_matches_is_not_counted_as_well(repository: Repository, oldest_first: bool) -> None:
    every = repository.search("", limit=1000, oldest_first=oldest_first)
    assert (every.explained["main"].searched, every.explained["main"].counted) == (3, 0)
    page = repository.search("", limit=150, oldest_first=oldest_first)
    behind = repository.search("", limit=150, oldest_first=oldest_first, cursor=page.cursor)
    assert [result.total for result in (every, page, behind)] == [ROLLED + WAITING] * 3
    assert page.explained["main"].counted > 0


def test_facets_count_all_that_match_whatever_answers(repository: Repository) -> None:
    expected = {
        "event_type": Counter(item.event_type.lower() for item in EVENTS if item.component_type == "RouteOnAttribute"),
        "day": Counter(_day(item) for item in EVENTS if item.component_type == "RouteOnAttribute"),
    }
    asked = "component_type:RouteOnAttribute", ["event_type", "day"]
    counts, notices = repository.facets(*asked)
    assert (counts, notices) == (expected, ())
    shard = next((repository.settings.containers[0] / "main/index").iterdir())
    shutil.rmtree(shard)
    counts, notices = Repository.open(repository.settings.root).facets(*asked)
    assert counts == expected
    assert shard.name in "".join(notices)


def test_days_of_a_zone_are_counted_whatever_answers(repository: Repository) -> None:
    zone = "Asia/Kolkata"
    expected = Counter(str(datetime.fromtimestamp(item.event_time / 1000, ZoneInfo(zone)).date()) for item in EVENTS)
    assert repository.facets("", ["day"], zone=zone) == ({"day": expected}, ())
    shutil.rmtree(next((repository.settings.containers[0] / "main/index").iterdir()))
    assert Repository.open(repository.settings.root).facets("", ["day"], zone=zone)[0] == {"day": expected}


def _day(item: Event) -> str:
    return datetime.fromtimestamp(item.event_time / 1000, UTC).strftime("%Y-%m-%d")


@pytest.mark.parametrize("field", ["flowfile_uuid", "details", "nonsense", "file_size"])
def test_a_field_without_facets_is_refused_with_those_that_have(repository: Repository, field: str) -> None:
    with pytest.raises(InvalidInputError, match=r"expected one of day, event_type"):
        repository.facets("", [field])


@pytest.mark.parametrize(
    ("text", "structured"),
    [
        ("event_type:ROUTE", {"field": "event_type", "equals": "Route"}),
        ("NOT event_type:ROUTE", {"not": {"field": "event_type", "equals": "ROUTE"}}),
        (
            "event_type:(SEND OR DROP) AND file_size:[1000 TO]",
            {
                "and": [
                    {"or": [{"field": "event_type", "equals": name} for name in ("SEND", "DROP")]},
                    {"field": "file_size", "from": 1000},
                ]
            },
        ),
        ("filename:*orders*", {"field": "filename", "wildcard": "*ORDERS*"}),
        ("component_name:p*", {"field": "component_name", "prefix": "P"}),
        ('details:"auto terminated"', {"field": "details", "phrase": "Auto terminated"}),
        ("event_time:2026-03-01", {"field": "event_time", "equals": "2026-03-01"}),
        ("filename:[a TO p]", {"field": "filename", "from": "a", "to": "P"}),
        ("", {}),
    ],
)
def test_the_structured_form_finds_what_the_text_finds(
    repository: Repository, text: str, structured: dict[str, object]
) -> None:
    assert repository.search(structured) == repository.search(text)


@pytest.mark.parametrize(
    "structured",
    [
        {"field": "nonsense", "equals": "a"},
        {"field": "event_type"},
        {"field": "event_type", "equals": 1},
        {"field": "event_type", "equals": "a", "prefix": "b"},
        {"field": "file_size", "prefix": "1"},
        {"field": "file_size", "from": 1 << 63},
        {"field": "file_size", "equals": True},
        {"field": "filename", "phrase": "a b"},
        {"and": {"field": "event_type", "equals": "a"}},
        {"and": [], "or": []},
        {"xor": []},
        {"and": ["text"]},
        {"or": [{"field": "event_type", "equals": str(n)} for n in range(10_001)]},
    ],
)
def test_a_structured_query_that_makes_no_sense_is_refused(
    repository: Repository, structured: dict[str, object]
) -> None:
    with pytest.raises(InvalidInputError, match="query"):
        repository.search(structured)


def test_a_search_names_an_attribute_that_older_shards_do_not_know(repository: Repository) -> None:
    settings = with_region(repository)
    found = Repository(settings).search("attribute.order.region:emea")
    assert "3 index shards were made before" in "".join(found.notices)


def test_a_rebuilt_index_answers_as_the_kept_one_and_takes_new_settings_in(repository: Repository) -> None:
    texts = ["", "event_type:ROUTE", "filename:*o*", "details:auto", "file_size:[100 TO 5000]"]
    before = [repository.search(text) for text in texts]
    folder = repository.settings.containers[0] / "main/index"
    kept = {path.name: (path / "custody.shard").read_bytes() for path in folder.iterdir()}
    assert len(list(repository.rebuild_index())) == len(kept) == 3
    assert {path.name: (path / "custody.shard").read_bytes() for path in folder.iterdir()} == kept
    assert [repository.search(text) for text in texts] == before

    settings = with_region(repository)
    changed = Repository(settings)
    shutil.rmtree(folder / min(kept))
    assert len(list(changed.rebuild_index([max(kept)], stale_only=True))) == 1
    assert {built.path.name for _, built in changed.rebuild_index(stale_only=True)} == {*kept} - {max(kept)}
    assert list(changed.rebuild_index(stale_only=True)) == []
    found = changed.search("attribute.order.region:emea")
    regions = [{**item.previous_attributes, **item.updated_attributes}.get("order.region") for item in EVENTS]
    assert (found.total, found.notices) == (sum(str(region).lower() == "emea" for region in regions), ())
    assert [repository.search(text) for text in texts] == before


def test_a_rebuild_waits_for_a_compaction_and_names_its_holder(repository: Repository) -> None:
    settings = repository.settings.model_copy(update={"lease": LeaseSection(wait_seconds=0)})
    opened = Repository(settings)
    folder = opened.workspace().paths.lease("compact")
    with (
        leased(opened.workspace(), Attempt("dag/run/compact", 1), "compact"),
        pytest.raises(LockedError, match="dag/run/compact"),
    ):
        list(opened.rebuild_index())
    rebuilding = opened.rebuild_index()
    next(rebuilding)
    with pytest.raises(LockedError, match="custody-index-rebuild"):
        opened.compact()
    rebuilding.close()  # the rest is not wanted: the lease is free
    ended = lease_status(PosixFileSystem(), folder)
    assert ended is not None
    assert ended.failed
    assert len(list(opened.rebuild_index())) == 3


def test_a_shard_that_no_catalog_lists_cannot_be_rebuilt(repository: Repository) -> None:
    with pytest.raises(NotFoundError, match="nonsense"):
        list(repository.rebuild_index(["nonsense"]))


def test_shards_are_spread_over_all_containers_also_when_all_logs_have_one_size(tmp_path: Path) -> None:
    made = Repository.create(tmp_path / "demo")
    chosen = {**made.settings.model_dump(), "root": made.settings.root, "repository": {"containers": ["a", "b"]}}
    found = Repository(Settings.model_validate(chosen))
    for start in range(0, 80, 10):
        append(found, EVENTS[start : start + 10])
        run_steps(found.settings)
    counts = [len(list((container / "main/index").iterdir())) for container in found.settings.containers]
    assert sum(counts) == 8
    assert min(counts) >= 2
    assert found.search("").total == 80
    assert found.search("").notices == ()


def test_each_log_has_a_shard_of_its_own_and_none_is_larger_than_the_setting_allows(tmp_path: Path) -> None:
    made = Repository.create(tmp_path / "demo")
    chosen = {**made.settings.model_dump(), "root": made.settings.root, "eventlog": {"log_bytes_target": 60_000}}
    found = Repository(Settings.model_validate(chosen))
    append(found, EVENTS)
    run_steps(found.settings)
    state = found.workspace().catalog.load()
    assert len(state.files) >= 3
    assert sorted(path for shard in state.shards.values() for path in shard.log_paths) == sorted(state.files)
    assert max(shard.size_bytes for shard in state.shards.values()) < 60_000 + 20_000  # what an empty one weighs
    assert found.search("").total == len(EVENTS)


def test_no_more_shards_are_open_than_the_setting_allows(repository: Repository) -> None:
    chosen = {**repository.settings.model_dump(), "root": repository.settings.root, "query": {"open_shards_max": 1}}
    found = Repository(Settings.model_validate(chosen))
    assert found.search("event_type:ROUTE") == repository.search("event_type:ROUTE")
    assert sum(found._shards.is_open(path) for path in (found.settings.containers[0] / "main/index").iterdir()) == 1


def test_events_whose_log_is_not_live_any_more_are_neither_found_nor_counted(repository: Repository) -> None:
    catalog = repository.workspace().catalog
    middle = sorted(catalog.load().files.values(), key=lambda file: file.first_event_id)[1]
    catalog.commit([Action(remove_file=RemoveFile(path=middle.path))])  # and not its shard, which points to it
    left = [n for n in range(len(EVENTS)) if not middle.first_event_id <= n <= middle.last_event_id]
    for text, expected in (("", left), ("event_type:ROUTE", [n for n in matching("ROUTE") if n in left])):
        for limit in (3, 1000):
            found = repository.search(text, limit=limit)
            assert (found.total, found.notices) == (len(expected), ())
            assert [stored.event.event_id for stored in found.events] == expected[::-1][:limit]
        assert sum(repository.facets(text)[0]["event_type"].values()) == len(expected)


def test_searches_of_several_threads_give_what_one_gives(repository: Repository) -> None:
    texts = ["", "event_type:ROUTE", "filename:*o*", "component_type:p*", "details:auto", "file_size:[100 TO 5000]"]
    texts += ["event_type:ROUTE AND component_type:r*", "NOT event_type:DROP", "event_type:(SEND OR DROP OR FORK)"]
    expected = {text: Repository.open(repository.settings.root).search(text) for text in texts}
    found = Repository.open(repository.settings.root)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(found.search, texts * 6))
    assert answers == [expected[text] for text in texts * 6]
