"""What a process keeps of shards from one search to the next: answers stay those of a process that asks for once."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from whoosh import query

from custody.catalog import Action, AddShard, RemoveFile, RemoveShard
from custody.config import SETTINGS_FILE
from custody.index import OpenShard, describe_shard
from custody.index.filter_bank import CountMemo
from custody.index.manifest import PackedFile
from custody.index.term_filter import TermFilter
from custody.index.terms import TermSet
from custody.model import Event
from custody.query import search_state
from custody.read.results import Notices
from custody.read.search import SearchResult, open_sources
from custody.repository import EventSelection, Repository
from custody.rollover import keeping_filters
from custody.vfs import PosixFileSystem
from tests.support import append, event, flipped, run_steps, sample
from tests.unit.index.query_strategies import QUERIES

TEXT = "[eventlog]\nlog_bytes_target = 120000\n[index]\nattributes = ['mime.type']\n[query]\nopen_shards_max = 4\n"
EVENTS = sample(900)
UUIDS = [one.flowfile_uuid for one in EVENTS]
# Where filters are wanted, other questions: of one that was asked before, shards without a match are not asked again.
DIFFERENT = list(dict.fromkeys(UUIDS))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with many shards, of which a process keeps few open."""
    root = tmp_path / "repository"
    Repository.create(root)
    (root / SETTINGS_FILE).write_text(TEXT)
    append(Repository.open(root), EVENTS)
    run_steps(Repository.open(root).settings)
    # Here filters are those that a process keeps: of files that have them the tests are in `test_keeping_filters`.
    shutil.rmtree(root / "containers/1/main/filters", ignore_errors=True)
    assert 6 < len(shards(root)) < 16
    return root


def shards(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("containers/1/main/index/*") if path.is_dir())


def asked(repository: Repository, text: str, **options: Any) -> tuple[SearchResult, int]:
    """A search and how many shards the filters ruled out; without what differs between any two searches."""
    result = repository.search(text, **options)
    [explained] = result.explained.values()
    return result, explained.pruned_by_filters


def pages(result: SearchResult) -> tuple[object, ...]:
    return result.total, result.events, result.notices, result.lost


def same_as_once(repository: Repository, root: Path, text: str, **options: Any) -> int:
    """Ask a process that keeps what it asked and one that does not; return what filters ruled out."""
    result, pruned = asked(repository, text, **options)
    assert pages(result) == pages(asked(Repository.open(root), text, **options)[0])
    return pruned


def test_shards_whose_filter_denies_a_term_are_not_opened_the_third_time(root: Path) -> None:
    repository, others = Repository.open(root), len(shards(root)) - 1
    pruned = [same_as_once(repository, root, f"flowfile_uuid:{uuid}") for uuid in DIFFERENT[:3]]
    assert pruned[:2] == [0, 0], "who asks once copies no filters"
    # The filter of a small shard has few bits: it may take a term for its own.
    assert others - 2 <= pruned[2] <= others


@pytest.mark.in_parts(2)
@pytest.mark.parametrize(
    ("text", "is_pruned"),
    [
        ("flowfile_uuid:{0} AND event_type:SEND", True),
        ("flowfile_uuid:{0} OR flowfile_uuid:{1} OR flowfile_uuid:none", True),
        ("flowfile_uuid:({0} OR {1}) AND filename:*", True),
        ("details:nowhere", True),
        ('details:"nowhere at all"', True),
        ("NOT flowfile_uuid:{0}", False),
        ("filename:*1* AND NOT flowfile_uuid:{0}", False),
        ("flowfile_uuid:{0} OR event_type:S*", False),
        ("flowfile_uuid:{0} OR file_size:[0 TO 100000000]", False),
        ("filename:*1*", False),
    ],
)
def test_filters_rule_out_no_more_than_a_query_allows(root: Path, text: str, is_pruned: bool) -> None:
    repository = Repository.open(root)
    for number in range(2):
        repository.search(f"flowfile_uuid:none{number}")
    for number in (0, 400, 899):
        asked_for = text.format(UUIDS[number], UUIDS[number // 2])
        assert (same_as_once(repository, root, asked_for, limit=50) > 0) == is_pruned
        assert same_as_once(repository, root, asked_for, oldest_first=True, limit=3) >= is_pruned


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(question=QUERIES, again=st.booleans())
def test_any_query_has_the_answer_of_a_process_that_asks_once(
    many: tuple[Repository, Path], question: query.Query, again: bool
) -> None:
    repository, plain = many
    for asking in (repository, repository) if again else (repository,):
        assert found(asking, question) == found(Repository.open(plain), question)


def found(repository: Repository, question: query.Query) -> tuple[list[int], int | None, tuple[str, ...]]:
    [source] = open_sources([repository.workspace()], ("tenant", "x"), Notices(strict=True))
    hits = search_state(source.shards(repository._shards), _no_scan, question)
    return hits.event_ids.tolist(), hits.total, hits.notices


def _no_scan(*_: object) -> Any:
    raise AssertionError("all shards are whole and know all fields")


@pytest.fixture(scope="module", params=["kept", "in a file"])
def many(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Repository, Path]:
    """Small shards whose events share terms, all of whose filters are kept or in a file; and where none are."""
    root = tmp_path_factory.mktemp("kept") / "repository"
    Repository.create(root)
    (root / SETTINGS_FILE).write_text("[index]\nattributes = ['tenant', 'x']\n[query]\nopen_shards_max = 2\n")
    texts = ["a", "A", "ab", "abc", "b", "B.c", "É", "日本", "[a]", ""]
    for shard in range(6):
        repository = Repository.open(root)
        append(repository, [_mixed(texts, shard, number) for number in range(20)])
        run_steps(repository.settings)
    plain = root
    if request.param == "in a file":
        plain = root.with_name("plain")
        shutil.copytree(root, plain)
        with patch.object(keeping_filters, "SHARDS_MIN", 1):
            assert keeping_filters.keep_filters(Repository.open(root).workspace()) == 6
        # From the first question on.
        assert asked(Repository.open(root), "flowfile_uuid:none")[1] == 6
    repository = Repository.open(root)
    for number in range(2):
        repository.search(f"flowfile_uuid:none{number}")
    assert asked(repository, "flowfile_uuid:none")[1] == 6
    return repository, plain


def _mixed(texts: list[str], shard: int, number: int) -> Event:
    text = texts[(3 * shard + number) % len(texts)]
    return event(
        100 * shard + number,
        event_type=texts[shard],
        flowfile_uuid=text or "none at all",
        transit_uri=text if number % 3 else None,
        details="auto ended by" if number % 2 else f"by {text}",
        file_size=number * shard,
        updated_attributes={"tenant": text, "filename": texts[number % 4]} if number % 5 else {"x": text},
    )


def test_a_total_is_counted_once_and_follows_what_comes_and_goes(root: Path) -> None:
    repository = Repository.open(root)
    totals = [same_total(repository, root) for _ in range(3)]
    assert len(set(totals)) == 1
    append(Repository.open(root), [event(1, event_type="SEND"), event(2, event_type="SEND")])
    assert same_total(repository, root) == totals[0] + 2
    run_steps(Repository.open(root).settings)
    assert same_total(repository, root) == totals[0] + 2
    [first] = repository.search("event_type:SEND", limit=1, oldest_first=True).events
    Repository.open(root).forget(EventSelection(event_ids=(first.event.event_id,)), "asked", "main")
    assert same_total(repository, root) == totals[0] + 1


def same_total(repository: Repository, root: Path) -> int:
    total = repository.search("event_type:SEND", limit=2).total
    assert total == Repository.open(root).search("event_type:SEND", limit=2).total
    return total


def test_counted_shards_are_not_opened_again(root: Path) -> None:
    repository = Repository.open(root)
    repository.search("event_type:SEND", limit=1)
    newest = max(repository.workspace().state().shards.values(), key=lambda one: one.first_event_id)
    for folder in shards(root):
        if folder.name != newest.name:
            shutil.rmtree(folder)  # what would be opened would now be missed
    repository._shards._open.clear()
    result, _ = asked(repository, "event_type:SEND", limit=1)
    assert result.total == sum(one.event_type == "SEND" for one in EVENTS)
    assert not result.notices


def test_of_a_log_that_is_live_no_more_nothing_is_counted(root: Path) -> None:
    repository = Repository.open(root)
    before = [same_total(repository, root) for _ in range(2)][1]
    workspace = repository.workspace()
    file = min(workspace.state().files.values(), key=lambda one: one.first_event_id)
    gone = sum(one.event_type == "SEND" for one in EVENTS[file.first_event_id : file.last_event_id + 1])
    assert gone
    workspace.catalog.commit([Action(remove_file=RemoveFile(path=file.path))])
    assert same_total(repository, root) == before - gone


def test_a_damaged_filter_is_told_and_its_logs_are_searched(root: Path) -> None:
    repository = Repository.open(root)
    chosen = sorted(repository.workspace().state().shards.values(), key=lambda one: one.first_event_id)[2]
    text = f"flowfile_uuid:{UUIDS[chosen.first_event_id]}"
    total = Repository.open(root).search(text).total
    [damaged] = root.glob(f"containers/1/main/index/{chosen.name}/packed.data")
    packed = describe_shard(PosixFileSystem(), damaged.parent).packed
    assert isinstance(packed, PackedFile)
    damaged.write_bytes(flipped(damaged.read_bytes(), packed.filter_place + 77))
    for _ in range(4):
        result, _ = asked(repository, text)
        assert result.total == total > 0
    assert any(str(damaged) in notice for notice in result.notices)


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("layout", ["packed", "whoosh"])
def test_many_terms_are_asked_of_the_kept_filters_alone(
    root: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TEXT.replace("[index]", f"[index]\nlayout = '{layout}'").replace("open_shards_max = 4\n", "")
    (root / SETTINGS_FILE).write_text(text)
    assert list(Repository.open(root).rebuild_index())
    repository = Repository.open(root)
    own, asked_filters = TermFilter.candidates, []

    def candidates(self: TermFilter, term_set: TermSet, prefix: bytes) -> Any:
        found = own(self, term_set, prefix)
        if self.mark not in term_set.candidates:
            asked_filters.append(self)
        return found

    monkeypatch.setattr(TermFilter, "candidates", candidates)
    for turn in range(5):
        some = UUIDS[turn * 7 :: 31]
        same = f"flowfile_uuid:({' OR '.join([*some, 'none'])})"
        once = Repository.open(root)
        asked_filters.clear()
        result, _ = asked(repository, same, limit=40)
        were_asked = len(asked_filters)
        assert pages(result) == pages(asked(once, same, limit=40)[0])
        assert result.total >= len(some)
        # The first two questions bring the filters; whoever was asked with all others is not asked again.
        assert bool(were_asked) == (turn < 2)
    total, events = result.total, result.events
    for folder in shards(root)[1:3]:
        for file in folder.iterdir():
            file.write_bytes(flipped(file.read_bytes(), file.stat().st_size // 2) if file.stat().st_size else b"")
    damaged = Repository.open(root)
    for _ in range(3):
        result, _ = asked(damaged, same, limit=40)
        assert (result.total, result.events) == (total, events)
        assert result.notices


def test_which_shards_give_out_all_events_is_known_of_all_at_once(root: Path) -> None:
    repository = Repository.open(root)
    workspace = repository.workspace()
    ordered = sorted(workspace.state().shards.values(), key=lambda one: one.first_event_id)
    repository.forget(EventSelection(event_ids=(ordered[2].last_event_id,)), "asked", "main")
    repository.forget(EventSelection(event_ids=(ordered[4].first_event_id,)), "asked", "main")
    file = min(workspace.state().files.values(), key=lambda one: one.first_event_id)
    workspace.catalog.commit([Action(remove_file=RemoveFile(path=file.path))])
    [source] = open_sources([Repository.open(root).workspace()], ("mime.type",), Notices(strict=True))
    live = source.shards(repository._shards)
    every = live.live.shards
    one_by_one = [live.is_whole(shard) and not len(live.buried_in(shard)) for shard in every]
    assert live.giving_out_all(np.arange(len(every))).tolist() == one_by_one
    assert one_by_one[::-1][:5] == [False, True, False, True, False]
    assert live.giving_out_all(np.array([1, 3])).tolist() == [one_by_one[1], one_by_one[3]]


def test_shards_of_which_it_is_known_that_nothing_matches_are_not_asked_again(root: Path) -> None:
    repository = Repository.open(root)
    chosen = sorted(repository.workspace().state().shards.values(), key=lambda one: one.first_event_id)[2]
    text = f"filename:*1* AND flowfile_uuid:{UUIDS[chosen.first_event_id]}"
    first, again = (repository.search(text, limit=100, oldest_first=turn) for turn in (False, True))
    assert first.total == again.total == Repository.open(root).search(text).total
    asked_first, asked_again = (next(iter(one.explained.values())) for one in (first, again))
    assert asked_first.searched + asked_first.pruned == asked_first.shards == len(shards(root))
    assert 0 < asked_again.searched < asked_first.searched
    # One that is damaged is told, though nothing of it matches: its logs say so, and it may be whole the next time.
    [others, *_] = (path for path in shards(root) if path.name != chosen.name)
    for file in others.iterdir():
        file.write_bytes(flipped(file.read_bytes(), file.stat().st_size // 2) if file.stat().st_size else b"")
    damaged = Repository.open(root)
    for oldest_first in (False, True):
        result = damaged.search(text, limit=100, oldest_first=oldest_first)
        assert result.total == first.total
        assert any(others.name in notice for notice in result.notices)
    # Of one whose log has gone, the number is not that of its index.
    workspace = repository.workspace()
    workspace.catalog.commit([Action(remove_file=RemoveFile(path=path)) for path in chosen.log_paths])
    assert repository.search(text).total == Repository.open(root).search(text).total < first.total


def test_facets_are_asked_of_the_shards_that_can_match_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, counted = OpenShard.facet, list[Path]()

    def facet(self: OpenShard, *arguments: Any) -> dict[str, int]:
        counted.append(self.path)
        return own(self, *arguments)

    monkeypatch.setattr(OpenShard, "facet", facet)
    repository = Repository.open(root)
    for uuid in DIFFERENT[:2]:
        repository.search(f"flowfile_uuid:{uuid}")
    text = f"flowfile_uuid:{DIFFERENT[-1]}"
    told = repository.facets(text, ["event_type"])
    holding = len(counted)
    assert 0 < holding <= 3 < len(shards(root)), "the filter of a small shard may take a term for its own"
    assert told == Repository.open(root).facets(text, ["event_type"])
    assert len(counted) == holding + len(shards(root)), "a process that keeps no filters asks all"
    assert sum(told[0]["event_type"].values()) == UUIDS.count(DIFFERENT[-1])


def test_a_rebuilt_shard_is_asked_for_the_fields_that_it_has_now(root: Path) -> None:
    repository = Repository.open(root)
    for uuid in DIFFERENT[:3]:
        assert same_as_once(repository, root, f"flowfile_uuid:{uuid}") >= 0
    (root / SETTINGS_FILE).write_text(TEXT.replace("'mime.type'", "'mime.type', 'order.region'"))
    newer = Repository.open(root)
    total = sum(str(one.updated_attributes.get("order.region", "")).lower() == "eu" for one in EVENTS)
    for _ in range(3):
        assert same_as_once(newer, root, "attribute.order.region:eu") == 0, "no filter has the field"
    assert list(newer.rebuild_index())
    for number in range(3):
        result, pruned = asked(newer, f"attribute.order.region:nowhere{number}")
        assert result.total == 0
    assert pruned >= len(shards(root)) - 1
    assert asked(newer, "attribute.order.region:eu")[0].total >= total


def test_values_that_were_cut_are_searched_in_the_logs_whatever_filters_say(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    (root / SETTINGS_FILE).write_text("[index]\nattributes = ['note']\n[query]\nattribute_characters_max = 64\n")
    for shard in range(3):
        repository = Repository.open(root)
        append(repository, [event(10 * shard + n, updated_attributes={"note": f"{shard}" * 80}) for n in range(5)])
        run_steps(repository.settings)
    repository = Repository.open(root)
    for number in range(3):
        assert asked(repository, f"attribute.note:short{number}")[0].total == 0
    assert asked(repository, "attribute.note:short")[1] == 3, "a short text is no beginning of a long one"
    for _ in range(2):
        result, pruned = asked(repository, f"attribute.note:{'1' * 80}")
        assert (result.total, pruned) == (5, 0)
        assert result.notices


def test_two_writers_whose_shards_have_one_name_are_kept_apart(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    for writer in ("main", "other"):
        (root / SETTINGS_FILE).write_text(f'[repository]\nwriter = "{writer}"\n')
        repository = Repository.open(root)
        append(repository, [event(n, flowfile_uuid=f"{writer}-{n}", event_time=5) for n in range(4)])
        run_steps(repository.settings)
    names = [{one.name for one in item.state().shards.values()} for item in Repository.open(root).workspaces()]
    assert names[0] == names[1], "named by time and id"
    repository = Repository.open(root)
    for _ in range(4):
        for writer in ("main", "other"):
            assert repository.search(f"flowfile_uuid:{writer}-2").total == 1
            assert repository.search(f"event_type:CREATE AND flowfile_uuid:{writer}-3", writer="main").total == (
                writer == "main"
            )


def test_what_is_live_no_more_is_kept_no_more_but_the_past_is_answered(root: Path) -> None:
    repository = Repository.open(root)
    for uuid in DIFFERENT[:3]:
        repository.search(f"flowfile_uuid:{uuid}")
    facts = repository._shards.facts("main")
    kept = len(facts.filters)
    assert kept >= len(shards(root)) - 1
    workspace, revision = repository.workspace(), repository.workspace().state().revision
    chosen = min(workspace.state().shards.values(), key=lambda one: one.first_event_id)
    removals = [Action(remove_shard=RemoveShard(name=chosen.name))]
    workspace.catalog.commit([*removals, *(Action(remove_file=RemoveFile(path=path)) for path in chosen.log_paths)])
    assert repository.search(f"flowfile_uuid:{UUIDS[899]}").total
    assert len(facts.filters) == kept - 1
    for _ in range(3):
        assert repository.search(f"flowfile_uuid:{UUIDS[0]}", as_of=revision).total == UUIDS.count(UUIDS[0])
    assert repository.search(f"flowfile_uuid:{UUIDS[0]}").total == UUIDS[chosen.last_event_id + 1 :].count(UUIDS[0])


def test_the_memo_of_counts_forgets_the_oldest_query_and_takes_no_long_one() -> None:
    memo = CountMemo(queries_max=2)
    one, two, three = (query.Term("event_type", text) for text in "abc")
    memo.of(one)["s"] = 1
    memo.of(two)["s"] = 2
    assert memo.of(query.Term("event_type", "a")) == {"s": 1}
    memo.of(three)["s"] = 3
    assert (memo.of(one), memo.of(three)) == ({"s": 1}, {"s": 3})
    assert memo.of(two) == {}
    long = query.Or([query.Term("event_type", str(number)) for number in range(100)])
    memo.of(long)["s"] = 4
    assert memo.of(long) == {}


def test_logs_that_go_are_told_also_of_a_folder_that_nobody_changed_for_a_while(root: Path) -> None:
    repository = Repository.open(root)
    logs = sorted(root.glob("store/main/provenance/data/**/*.parquet"))
    for folder in {path.parent for path in logs}:
        os.utime(folder, (1_772_409_600, 1_772_409_600))
    assert not repository.search("event_type:SEND").notices
    assert not repository.search("event_type:SEND").notices
    repository = Repository.open(root)
    assert not repository.search("event_type:SEND", limit=1).notices
    logs[0].unlink()
    assert any(str(logs[0].name) in notice for notice in repository.search("event_type:SEND", limit=1).notices)


def test_totals_within_times_are_those_of_events_within_them(root: Path) -> None:
    repository = Repository.open(root)
    chance = random.Random(8)  # noqa: S311 - which times are asked for
    stored = [found.event for found in repository.search("", limit=len(EVENTS)).events]
    bounds = [(shard.first_event_time_ms, shard.last_event_time_ms) for shard in _live(repository)]
    ends = sorted({end for pair in bounds for end in pair} | {end + 1 for pair in bounds for end in pair})
    for kind in ("SEND", "DROP", "ROUTE") * 15:
        first, last = sorted(chance.sample(ends, 2))
        for beside, part in ((f"event_type:{kind}", ""), (f"event_type:{kind} AND component_type:*route*", "route")):
            text = f"{beside} AND event_time:[{first} TO {last}]"
            same_as_once(repository, root, text, limit=3)
            expected = sum(
                one.event_type == kind and first <= one.event_time <= last and part in one.component_type.lower()
                for one in stored
            )
            assert repository.search(text, limit=1).total == expected, text


def _live(repository: Repository) -> list[AddShard]:
    return list(repository.workspace().state().shards.values())
