"""One question, one answer: packed shards, bulk and stock segments, both readers, and each event looked at."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from whoosh import index, query

from custody.index import build_shard
from custody.index.shard import OpenShard
from custody.model import Event, to_batch
from custody.query import Scan
from custody.vfs import PosixFileSystem
from tests.support import event, sample
from tests.unit.index.naive_search import matches
from tests.unit.index.query_strategies import ATTRIBUTES, EVENTS, NUMBERS, QUERIES

FS = PosixFileSystem()
FIRST = 1000


def table_of(events: list[Event], first: int = FIRST) -> pa.Table:
    return pa.Table.from_batches([to_batch(events, first)])


def pieces(table: pa.Table, size: int) -> list[pa.Table]:
    return [table.slice(start, size) for start in range(0, table.num_rows, size)]


def without_and_not(question: query.Query) -> query.Query:
    """The same question by AND and NOT. Whoosh's AND NOT keeps its first document if what it excludes begins before."""
    if isinstance(question, query.AndNot):
        question = query.And([question.a, query.Not(question.b)])
    return question.apply(without_and_not)


def by_stock_reader(path: Path, question: query.Query) -> list[int] | None:
    """Return what Whoosh finds; None where it has no answer that could be compared."""
    question = without_and_not(question)
    with index.open_dir(str(path), readonly=True).searcher() as searcher:
        try:
            documents = sorted(searcher.docs_for_query(question))
        except IndexError:  # an AND inside of an AND: its matcher goes past the end of a list that is used up
            return None
        pointers = searcher.reader().column_reader("event_id")
        return [pointers[document] for document in documents]


@pytest.mark.in_parts(2)
@given(EVENTS, st.lists(QUERIES, min_size=1, max_size=8), st.integers(1, 50), st.sampled_from([0, 1 << 20]))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_way_finds_what_looking_at_each_event_finds(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], questions: list[query.Query], size: int, memory: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    table = table_of(events)
    packed = build_shard(FS, folder / "packed", pieces(table, size), ATTRIBUTES, memory_bytes=memory).path
    whoosh = partial(build_shard, FS, attributes=ATTRIBUTES, layout="whoosh")
    bulk = whoosh(folder / "bulk", pieces(table, size), ranges=NUMBERS, memory_bytes=memory).path
    stock = whoosh(folder / "stock", table, ranges=NUMBERS, writer="stock").path
    columns = whoosh(folder / "columns", table, ranges=()).path
    readers = [OpenShard(FS, path) for path in (packed, bulk, stock, columns)]
    scan = Scan(table, ATTRIBUTES)
    for question in questions:
        expected = [FIRST + n for n in range(len(events) - 1, -1, -1) if matches(events[n], question)]
        for reader in readers:
            assert reader.search(question).tolist() == expected, (question, reader.path.name)
            assert reader.count(question) == len(expected)
            assert reader.search(question, 3).tolist() == expected[:3]
            assert reader.search(question, 3, oldest_first=True).tolist() == expected[::-1][:3]
        assert (np.flatnonzero(scan.match(question)) + FIRST)[::-1].tolist() == expected, (question, "scan")
        assert by_stock_reader(bulk, question) in (expected, None), (question, "stock reader")


def test_documents_of_and_not_that_begin_behind_what_is_excluded_are_excluded(tmp_path: Path) -> None:
    """Whoosh's own AND NOT gives the first of them; the same question by AND and NOT gives none."""
    table = table_of([event(event_type=name) for name in ("a", "a", "b")])
    question = query.AndNot(query.Term("event_type", "a"), query.Wildcard("event_type", "?"))
    stock = build_shard(FS, tmp_path / "stock", table, ATTRIBUTES, layout="whoosh", ranges=(), writer="stock").path
    packed = build_shard(FS, tmp_path / "packed", table, ATTRIBUTES).path
    assert OpenShard(FS, stock).search(question).tolist() == OpenShard(FS, packed).search(question).tolist() == []
    assert by_stock_reader(stock, question) == []


@given(st.integers(0, 400), st.integers(1, 60), st.integers(0, 400))
@settings(deadline=None)
def test_pages_of_ids_join_to_the_whole(shard: OpenShard, start: int, limit: int, end: int) -> None:
    question = query.Prefix("component_type", "p")
    whole = [event_id for event_id in shard.search(question).tolist() if end <= event_id < FIRST + start]
    found, below = [], FIRST + start
    while page := shard.search(question, limit, below=below, above=end - 1).tolist():
        found += page
        below = page[-1]
    assert found == whole


@pytest.fixture(scope="module", params=["packed", "whoosh"])
def shard(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> OpenShard:
    path = tmp_path_factory.mktemp("index") / "shard"
    table = table_of(sample(400))
    return OpenShard(FS, build_shard(FS, path, table, ["order.region"], layout=request.param).path)
