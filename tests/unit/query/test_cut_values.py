"""Values longer than the index has them: every query is answered right, whatever settings a shard was built with."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from custody.index import describe_shard
from custody.index.terms import TERM_BYTES_MAX
from custody.model import Event
from custody.repository import Repository
from custody.rollover.publish import rebuild_shard
from custody.vfs import PosixFileSystem
from tests.support import append, event, run_steps

CUT = 64
HEAD = "ab" * (CUT // 2)
VALUES = (
    *(HEAD[:-1], HEAD, HEAD.upper(), HEAD + "c", HEAD + "d" * 40, HEAD[:-1] + "ß" + "x" * 70),
    *(
        "İ" * CUT,
        "İ" * (CUT + 1),
        "short",
        "ab",
        "Σ" * CUT + "x",
        "y" * (TERM_BYTES_MAX + 1),
        "y" * (TERM_BYTES_MAX + 2),
    ),
)
EVENTS = [event(number, updated_attributes={"note": value, "filename": value}) for number, value in enumerate(VALUES)]
TEXTS = (*VALUES, HEAD[:-2], HEAD + "cc", "missing", "missing" * 20)
NO_LENGTH = 1 << 20


def repository_of(root: Path, *parts: tuple[int, list[Event]]) -> Repository:
    """A repository with a shard of each part, built with a longest value of its own."""
    Repository.create(root)
    for longest, events in parts:
        set_longest(root, longest)
        repository = Repository.open(root)
        append(repository, events)
        run_steps(repository.settings)
    return Repository.open(root)


def set_longest(root: Path, longest: int) -> None:
    text = f'[index]\nattributes = ["note"]\n[query]\nattribute_characters_max = {longest}\n'
    (root / "custody.toml").write_text(text)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Shards with short terms, with long ones, with short ones again, and events that have no shard."""
    repository = repository_of(
        tmp_path_factory.mktemp("mixed") / "demo", (CUT, EVENTS), (NO_LENGTH, EVENTS), (CUT + 30, EVENTS)
    )
    append(repository, EVENTS)
    return repository


def numbers(repository: Repository, question: dict[str, object]) -> Counter[int]:
    """Which events match, by their ordinal; each is there once a shard and once without."""
    found = repository.search(question, limit=1000)
    assert found.total == len(found.events)
    return Counter(item.event.source_ordinal or 0 for item in found.events)


def expected(matches: list[int]) -> Counter[int]:
    return Counter(dict.fromkeys(matches, 4))


@pytest.mark.parametrize("name", ["attribute.note", "filename"])
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_value_is_found_by_all_of_it_and_by_nothing_else(mixed: Repository, name: str, text: str) -> None:
    same = [number for number, value in enumerate(VALUES) if value.lower() == text.lower()]
    assert numbers(mixed, {"field": name, "equals": text}) == expected(same)
    if text not in VALUES:
        assert not same


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_prefix_is_compared_with_the_value(mixed: Repository, text: str) -> None:
    begun = [number for number, value in enumerate(VALUES) if value.lower().startswith(text.lower())]
    assert numbers(mixed, {"field": "attribute.note", "prefix": text}) == expected(begun)


@pytest.mark.parametrize("pattern", ["*x", "*dd", HEAD + "?", "?" * CUT, "*", "a*c", "y*y", "*bab*d"])
def test_a_pattern_is_compared_with_the_value(mixed: Repository, pattern: str) -> None:
    import re

    regex = re.compile(pattern.replace("*", ".*").replace("?", "."), re.DOTALL)
    matching = [number for number, value in enumerate(VALUES) if regex.fullmatch(value.lower())]
    assert matching
    assert numbers(mixed, {"field": "attribute.note", "wildcard": pattern}) == expected(matching)


@pytest.mark.parametrize("first", [HEAD, HEAD + "c", HEAD + "ca", "ab", "y" * TERM_BYTES_MAX + "yy"], ids=range(5))
def test_a_range_is_compared_with_the_value(mixed: Repository, first: str) -> None:
    behind = [number for number, value in enumerate(VALUES) if value.lower().encode() >= first.encode()]
    assert numbers(mixed, {"field": "attribute.note", "from": first}) == expected(behind)


def test_not_is_the_other_events(mixed: Repository) -> None:
    others = [number for number, value in enumerate(VALUES) if value != HEAD + "c"]
    assert numbers(mixed, {"not": {"field": "attribute.note", "equals": HEAD + "c"}}) == expected(others)


def test_facets_count_each_value_by_itself(mixed: Repository) -> None:
    counts, notices = mixed.facets("", ["attribute.note"])
    assert counts["attribute.note"] == Counter(value.lower() for value in VALUES for _ in range(4))
    assert any("query.attribute_characters_max" in notice for notice in notices)


def test_a_short_text_is_answered_by_the_index_and_a_long_one_says_what_it_costs(mixed: Repository) -> None:
    short = mixed.search({"field": "attribute.note", "equals": HEAD[:-1]})
    [stats] = short.explained.values()
    assert (stats.scanned, short.notices) == (0, ())
    long = mixed.search({"field": "attribute.note", "equals": HEAD + "c"})
    [stats] = long.explained.values()
    assert stats.scanned == 1, "only the shard whose terms are as short as that"
    assert any("attribute.note" in notice and "attribute_characters_max" in notice for notice in long.notices)


def test_a_shard_without_long_values_answers_everything(tmp_path: Path) -> None:
    few = [one for one in EVENTS if len(one.attributes["note"] or "") < CUT]
    repository = repository_of(tmp_path / "demo", (CUT, few))
    for question in ({"equals": HEAD + "c"}, {"wildcard": "*x"}, {"prefix": HEAD * 3}, {"from": HEAD * 2}):
        result = repository.search({"field": "attribute.note", **question})
        [stats] = result.explained.values()
        assert (stats.scanned, stats.searched) == (0, 1)


@pytest.mark.parametrize("longest", [CUT, 1000, NO_LENGTH])
def test_the_index_has_no_more_of_an_attribute_than_the_setting_says(tmp_path: Path, longest: int) -> None:
    repository = repository_of(tmp_path / "demo", (longest, EVENTS))
    workspace = repository.workspace()
    [shard] = workspace.state().shards.values()
    about = describe_shard(PosixFileSystem(), workspace.shard_path(shard))
    opened = repository._shards.open(workspace.shard_path(shard))
    terms = opened.terms.texts(*opened.terms.range_of("attribute.note")).to_pylist()
    # Some letters are longer in lower case, which comes after the cut.
    assert max(len(text) for text in terms if "i̇" not in text) == min(longest, TERM_BYTES_MAX)
    assert set(about.cut or ()) == {"attribute.note", "filename"}
    assert repository.get(0).attributes["note"] == VALUES[0]
    assert [one.attributes["note"] for one in repository.events()] == list(VALUES), "the record is whole"


def test_a_rebuilt_shard_follows_the_setting_of_today(tmp_path: Path) -> None:
    root = tmp_path / "demo"
    repository = repository_of(root, (CUT, EVENTS))
    set_longest(root, NO_LENGTH)
    workspace = Repository.open(root).workspace()
    [shard] = workspace.state().shards.values()
    assert repository.search({"field": "attribute.note", "equals": HEAD + "c"}).total == 1
    rebuild_shard(workspace, shard)
    result = Repository.open(root).search({"field": "attribute.note", "equals": HEAD + "c"})
    [stats] = result.explained.values()
    assert (result.total, stats.scanned) == (1, 0)


def test_a_shard_of_before_this_was_noted_is_not_trusted_with_long_texts(tmp_path: Path) -> None:
    """Its terms are the first bytes of their values, whatever setting there was."""
    repository = repository_of(tmp_path / "demo", (NO_LENGTH, EVENTS))
    workspace = repository.workspace()
    [shard] = workspace.state().shards.values()
    opened = repository._shards.open(workspace.shard_path(shard))
    opened.description = msgspec.structs.replace(opened.description, cut=None)
    long = VALUES[-1]
    assert repository.search({"field": "attribute.note", "equals": long}).total == 1
    assert repository.search({"field": "attribute.note", "equals": long[:TERM_BYTES_MAX]}).total == 0
    [stats] = repository.search({"field": "attribute.note", "equals": HEAD + "c"}).explained.values()
    assert stats.scanned == 0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.text("abẞΣİ𝄞", min_size=60, max_size=70), min_size=1, max_size=6),
    longest=st.integers(64, 68),
    kind=st.sampled_from(["equals", "prefix"]),
    data=st.data(),
)
def test_any_values_are_found_as_a_scan_finds_them(
    tmp_path_factory: pytest.TempPathFactory, values: list[str], longest: int, kind: str, data: st.DataObject
) -> None:
    events = [event(number, updated_attributes={"note": value}) for number, value in enumerate(values)]
    root = tmp_path_factory.mktemp("any") / "demo"
    repository = repository_of(root, (longest, events))
    chosen = data.draw(st.sampled_from(values))
    for text in (chosen, chosen[:-1], chosen[:64]):
        question: dict[str, object] = {"field": "attribute.note", kind: text}
        lowered = text.lower()
        match = str.startswith if kind == "prefix" else str.__eq__
        same = {number for number, value in enumerate(values) if match(value.lower(), lowered)}
        result = repository.search(question)
        assert {item.event.source_ordinal for item in result.events} == same
