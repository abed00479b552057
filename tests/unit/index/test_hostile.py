"""Input that nobody should send: huge and odd terms, bombs, and shards that somebody made to be read."""

from __future__ import annotations

import itertools
import pickle
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from whoosh import query

from custody.errors import CorruptionError, InvalidInputError
from custody.index import build_shard
from custody.index.manifest import NAME, Manifest
from custody.index.paged_file import checksums_of
from custody.index.postings import DecodedPostings, PostingsCache
from custody.index.safe_pickle import NotPlainDataError, plain_data
from custody.index.shard import OpenShard
from custody.model import EVENT_SCHEMA, to_batch
from custody.query import Scan, parse_query
from custody.query.parser import QUERY_CHARACTERS_MAX
from custody.vfs import PosixFileSystem
from tests.support import event, python, sample
from tests.unit.index.test_shard import table_of

FS = PosixFileSystem()
NUMBERS = ("event_time", "file_size")


@contextmanager
def quicker_than(seconds: float) -> Iterator[None]:
    """Fail when the block takes longer: a bound against time that explodes, not a measurement."""
    begun = time.perf_counter()
    yield
    assert time.perf_counter() - begun < seconds


def repeated(rows: int, **columns: pa.Array) -> pa.Table:
    """Many copies of one event with other ids, and some columns replaced."""
    one = table_of([event(0, updated_attributes={"a": "x"})])
    table = one.take(pa.array(np.zeros(rows, np.int64)))
    columns = {"event_id": pa.array(np.arange(rows)), **columns}
    for name, values in columns.items():
        table = table.set_column(EVENT_SCHEMA.get_field_index(name), EVENT_SCHEMA.field(name), values)
    return table


@pytest.mark.parametrize("value", ["x" * 32_768, "y" * 70_000, "🜁" * 20_000, "\0" * 5000, "é\0🜁", "a\nb\tc", "%_\\*"])
def test_a_term_of_any_length_and_letters_is_found_by_both_readers(tmp_path: Path, value: str) -> None:
    events = [event(0, updated_attributes={"a": value}, details=value), event(1)]
    path = build_shard(FS, tmp_path / "shard", table_of(events), ["a"]).path
    found = OpenShard(FS, path)
    prefix = value[:3].lower()
    assert found.search(query.Prefix("attribute.a", prefix)).tolist() == [500]
    assert found.search(query.Every("attribute.a")).tolist() == [500]


def test_a_hundred_thousand_values_of_an_attribute_cost_what_they_are(tmp_path: Path) -> None:
    rows = 100_000
    names = pa.array(np.char.add("value ", np.arange(rows).astype(str)))
    maps = pa.MapArray.from_arrays(pa.array(np.arange(rows + 1), pa.int32()), pa.array(["a"] * rows), names)
    table = repeated(rows, updated_attributes=maps)
    with quicker_than(30):
        found = OpenShard(FS, build_shard(FS, tmp_path / "shard", table, ["a"]).path)
        assert found.search(query.Term("attribute.a", "value 4711")).tolist() == [4711]
        assert found.count(query.Wildcard("attribute.a", "*77*")) == sum("77" in str(n) for n in range(rows))
        assert found.count(query.Prefix("attribute.a", "value 9")) == sum(str(n)[0] == "9" for n in range(rows))


@pytest.mark.parametrize("rows", [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_very_many_events_with_one_uuid_are_one_list(tmp_path: Path, rows: int) -> None:
    table = repeated(rows)
    pieces = (table.slice(start, 50_000) for start in range(0, rows, 50_000))
    found = OpenShard(FS, build_shard(FS, tmp_path / "shard", pieces, []).path)
    question = query.Term("flowfile_uuid", event(0).flowfile_uuid)
    with quicker_than(5):
        assert found.count(question) == rows
        assert found.search(question, 3).tolist() == [rows - 1, rows - 2, rows - 3]
        assert found.search(question, 3, oldest_first=True).tolist() == [0, 1, 2]


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> OpenShard:
    """Values that make patterns backtrack."""
    events = [event(n, updated_attributes={"filename": "ab" * 200 + str(n)}) for n in range(500)]
    path = tmp_path_factory.mktemp("index") / "shard"
    return OpenShard(FS, build_shard(FS, path, table_of(events), []).path)


@pytest.mark.parametrize(
    "text",
    [
        "filename:*a*b*c*",
        f"filename:{'*a' * 100}*z",
        f"filename:{'?' * 300}*{'b*' * 200}",
        " OR ".join(f"filename:t{n}" for n in range(200)),
        f"NOT {'(' * 50}component_type:x{')' * 50}",
    ],
)
def test_a_query_that_is_a_bomb_does_not_go_off(shard: OpenShard, text: str) -> None:
    with quicker_than(10):
        shard.search(parse_query(text))
        shard.count(parse_query(text))


def test_ten_thousand_terms_are_asked_at_once(shard: OpenShard) -> None:
    uuids = [event(n).flowfile_uuid for n in range(10_000)]
    with quicker_than(10):
        found = shard.search(query.Or([query.Term("flowfile_uuid", uuid) for uuid in uuids]))
    assert len(found) == 500


def test_a_text_that_is_too_long_is_refused_before_it_is_read() -> None:
    with quicker_than(1), pytest.raises(InvalidInputError, match=str(QUERY_CHARACTERS_MAX)):
        parse_query("(" * 1_000_000)


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("a function was called",)


def test_a_pickle_that_calls_a_function_is_no_data(capsys: pytest.CaptureFixture[str]) -> None:
    for protocol in range(2, 6):
        with pytest.raises(NotPlainDataError):
            plain_data(pickle.dumps(_Bomb(), protocol))
        with pytest.raises(NotPlainDataError):
            plain_data(pickle.dumps({"a": print}, protocol))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_is_what_was_pickled(protocol: int) -> None:
    value = ((1, 255, 65_535, 1 << 31, -5, 1 << 40), None, (b"", b"ab\xff", b"x" * 300), 1.5, [1, [2, "ä"]], ())
    assert plain_data(pickle.dumps(value, protocol)) == value


def layouts(path: Path, table: pa.Table, ranges: Sequence[str] = ()) -> dict[str, Callable[[], Path]]:
    """What builds a shard, of each layout."""
    whoosh = partial(build_shard, FS, path, table, [], layout="whoosh", ranges=ranges)
    return {
        "packed": lambda: build_shard(FS, path, table, []).path,
        "bulk": lambda: whoosh(writer="bulk").path,
        "stock": lambda: whoosh(writer="stock").path,
    }


@pytest.mark.in_parts(3)
@pytest.mark.parametrize("layout", ["packed", "bulk", "stock"])
def test_a_shard_with_any_bytes_and_right_checksums_is_answered_or_refused(tmp_path: Path, layout: str) -> None:
    events = sample(300)
    path = layouts(tmp_path / "shard", table_of(events), NUMBERS)[layout]()
    questions = [
        query.Every("flowfile_uuid"),
        query.Term("event_type", "send"),
        query.Wildcard("filename", "*o*"),
        query.Phrase("details", ["auto", "terminated"]),
        query.NumericRange("file_size", 100, 5000),
        query.And([query.Term("event_type", "route"), query.Not(query.Prefix("component_type", "r"))]),
    ]
    expected = [OpenShard(FS, path).search(question).tolist() for question in questions]
    # In an order of their own: a folder has none, and an empty one of Whoosh's has no byte.
    files = sorted(
        item for item in path.iterdir() if item.name != NAME and item.suffix != ".toc" and item.stat().st_size
    )
    chance = random.Random(7)  # noqa: S311
    refused = 0
    for _ in range(150):
        file = chance.choice(files)
        good = file.read_bytes()
        bad = bytearray(good)
        for _ in range(chance.choice([1, 1, 4, 64])):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        file.write_bytes(bad)
        original = (path / NAME).read_bytes()
        _seal(path)
        try:
            with quicker_than(20):
                for question in questions:
                    OpenShard(FS, path).search(question)
        except CorruptionError as error:
            assert str(path) in str(error)
            refused += 1
        file.write_bytes(good)
        (path / NAME).write_bytes(original)
    assert refused >= 5
    assert [OpenShard(FS, path).search(question).tolist() for question in questions] == expected


def _seal(path: Path) -> None:
    """Give the manifest the checksums of the files as they are: what somebody does who means harm."""
    found = Manifest.decode((path / NAME).read_bytes(), path)
    sums = [number for file in found.description.files for number in checksums_of((path / file.name).read_bytes())]
    changed = msgspec.structs.replace(found, checksums=np.array(sums, np.uint32))
    (path / NAME).write_bytes(changed.encode())


def test_the_same_events_give_the_same_bytes(tmp_path: Path) -> None:
    table = table_of(sample(300))
    whole = build_shard(FS, tmp_path / "whole", table, ["order.region"])
    pieces = [table.slice(start, 7) for start in range(0, 300, 7)]
    again = build_shard(FS, tmp_path / "again", pieces, ["order.region"], memory_bytes=0)
    assert whole.sha256 == again.sha256
    files = {file.name: file.read_bytes() for file in whole.path.iterdir()}
    assert {file.name: file.read_bytes() for file in again.path.iterdir()} == files


_BUILD = """
import sys
from pathlib import Path
import pyarrow as pa
from custody.index import build_shard
from custody.vfs import PosixFileSystem
folder = Path(sys.argv[1])
with pa.OSFile(sys.argv[2], "rb") as file:
    table = pa.ipc.open_file(file).read_all()
print("ready", flush=True)
sys.stdin.readline()
for number in range(100):
    build_shard(PosixFileSystem(), folder / f"{number:013d}-{500:020d}", table, [])
"""


@pytest.mark.slow
def test_a_killed_builder_leaves_whole_shards_and_attempts(tmp_path: Path) -> None:
    batch = to_batch(sample(2000), 500)
    with pa.OSFile(str(tmp_path / "events.arrow"), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    chance = random.Random(7)  # noqa: S311
    whole = 0
    for run in range(10):
        folder = tmp_path / str(run)
        folder.mkdir()
        with python(_BUILD, folder, tmp_path / "events.arrow") as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()
            process.stdin.write("\n")
            process.stdin.flush()
            time.sleep(chance.uniform(0.2, 1.5))
            process.kill()
        for path in folder.iterdir():
            if not path.name.startswith("building-"):
                found = OpenShard(FS, path)
                found.verify()
                assert found.count(query.Every()) == 2000
                whole += 1
    assert whole


_PEAKS = """
import resource, sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from whoosh import query
from custody.index import OpenShard, build_shard
from custody.query import parse_query
from custody.vfs import PosixFileSystem
from benchmarks.eventlog.bulk import tables

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

next(iter(tables(20_000)))
print(peak(), flush=True)
path = build_shard(PosixFileSystem(), Path(sys.argv[1]), tables(int(sys.argv[2])), ["batch.id"]).path
print(peak(), flush=True)
shard = OpenShard(PosixFileSystem(), path)
uuids = [query.Term("flowfile_uuid", f"{n:036}") for n in range(10_000)]
texts = ["flowfile_uuid:*a*b*c*", "flowfile_uuid:?*", "NOT filename:*z*", "file_size:[TO -1]"]
for bomb in [*map(parse_query, texts), query.Or(uuids), query.Prefix("flowfile_uuid", "")]:
    shard.search(bomb, 1000)
    shard.count(bomb)
print(peak(), flush=True)
"""


@pytest.mark.slow
def test_building_a_large_shard_and_asking_it_what_matches_all_takes_bounded_memory(tmp_path: Path) -> None:
    events = 500_000
    with python(_PEAKS, tmp_path / "shard", events, Path(__file__).parents[3]) as process:
        assert process.stdout is not None
        before, built, asked = (int(process.stdout.readline()) for _ in range(3))
    assert built - before < 300, (before, built)  # MB; the events themselves are 500
    assert asked - built < 300, (built, asked)


def test_long_lists_answer_alike_in_blocks_and_when_they_are_kept(tmp_path: Path) -> None:
    rows = 40_000
    chance = np.random.default_rng(7)
    chosen = [("event_type", 3), ("component_id", 7), ("component_name", 5_000), ("component_type", 300)]
    columns = {name: pa.array(chance.integers(0, count, rows).astype(str)) for name, count in chosen}
    table = repeated(rows, **columns)
    path = build_shard(FS, tmp_path / "shard", [table], []).path
    bulk = build_shard(FS, tmp_path / "bulk", [table], [], layout="whoosh").path
    stock = build_shard(FS, tmp_path / "stock", [table.slice(0, 5000)], [], layout="whoosh", writer="stock").path
    terms = [query.Term(name, str(n)) for name, _ in chosen for n in range(3)]
    questions: list[query.Query] = [
        *terms,
        *(query.And([one, other]) for one, other in itertools.combinations(terms, 2)),
        query.And([terms[0], terms[3], query.Not(terms[6])]),
        query.Or([query.Term("component_id", str(n)) for n in range(20)]),
        query.Or([query.Term("component_name", str(n)) for n in range(4_900, 5_200)]),
        query.Prefix("component_type", "1"),
        query.Wildcard("component_name", "*7*1"),
    ]
    for shard_path, events in ((path, table), (bulk, table), (stock, table.slice(0, 5000))):
        shard, scan = OpenShard(FS, shard_path), Scan(events)
        for question in questions * 2:
            expected = np.flatnonzero(scan.match(question))[::-1]
            assert shard.search(question).tolist() == expected.tolist(), question
            assert shard.count(question) == len(expected)
            window = expected[(expected < 30_000) & (expected > 9_000)]
            assert shard.search(question, 50, below=30_000, above=9_000).tolist() == window[:50].tolist()
            oldest = shard.search(question, 50, below=30_000, above=9_000, oldest_first=True)
            assert oldest.tolist() == window[::-1][:50].tolist()


def test_no_more_of_the_long_lists_is_kept_than_the_bound() -> None:
    kept = PostingsCache(bytes_max=1000)
    for place in range(10):
        kept.put(place, DecodedPostings(np.arange(100, dtype=np.int32)))
    kept.put(99, DecodedPostings(np.arange(1000, dtype=np.int32)))
    assert [place for place in range(100) if kept.get(place) is not None] == [8, 9]
