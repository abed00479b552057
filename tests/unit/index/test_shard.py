"""Index shards: rebuilt the same from the events, visible only when whole, searched by their own ids."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pytest
from whoosh import query

from custody.errors import ConfigurationError, CorruptionError, NotFoundError
from custody.index import (
    IDENTIFIER_FIELDS,
    NUMBER_FIELDS,
    TIME_FIELDS,
    IndexedFields,
    build_shard,
    term,
    whoosh_schema,
    whoosh_writer,
)
from custody.index.builder import ATTEMPT_PREFIX
from custody.index.fields import Layout
from custody.index.shard import OpenShard
from custody.index.terms import TERM_BYTES_MAX
from custody.model import Event, to_batch
from custody.query import parse_query
from custody.vfs import PosixFileSystem
from tests.support import FailingFileSystem, event, sample

FS = PosixFileSystem()
NAME = "1772409600000-00000000000000000500"
QUESTIONS = [
    "*",
    "event_type:SEND",
    "filename:*order*",
    "file_size:[100 TO]",
    "attribute.order.region:emea",
    "details:auto",
]


def table_of(events: list[Event], first: int = 500) -> pa.Table:
    return pa.Table.from_batches([to_batch(events, first)])


def answers(path: Path) -> list[list[int]]:
    return [OpenShard(FS, path).search(parse_query(text, ["order.region"])).tolist() for text in QUESTIONS]


def ids(path: Path, text: str) -> list[int]:
    found: list[int] = OpenShard(FS, path).search(parse_query(text, ["a"])).tolist()
    return found


def test_a_shard_is_rebuilt_the_same_after_deletion(tmp_path: Path) -> None:
    table = table_of(sample(300))
    path = tmp_path / "index" / NAME
    built = build_shard(FS, path, table, ["order.region"])
    before = answers(path)
    assert all(before)
    assert (built.path, built.documents) == (path, 300)
    assert built.size_bytes == sum(file.stat().st_size for file in path.iterdir())
    shutil.rmtree(path)
    assert build_shard(FS, path, table, ["order.region"]).documents == 300
    assert answers(path) == before


def test_ids_come_newest_first_and_are_the_events_own(tmp_path: Path) -> None:
    build_shard(FS, tmp_path / NAME, table_of([event(n) for n in range(5)]), [])
    assert ids(tmp_path / NAME, "*") == [504, 503, 502, 501, 500]


def test_a_shard_that_is_there_is_kept(tmp_path: Path) -> None:
    build_shard(FS, tmp_path / NAME, table_of([event(0)]), [])
    build_shard(FS, tmp_path / NAME, table_of([event(0), event(1)]), [])
    assert ids(tmp_path / NAME, "*") == [500]


def test_a_build_that_fails_at_any_operation_leaves_a_whole_shard_or_none(tmp_path: Path) -> None:
    counting = FailingFileSystem()
    (tmp_path / "whole").mkdir()
    build_shard(counting, tmp_path / "whole" / NAME, table_of([event(0)]), [])
    assert counting.operations.count("sync") == 2  # the file and the manifest
    for fail_at in range(1, len(counting.operations) + 1):
        folder = tmp_path / str(fail_at)
        folder.mkdir()
        with pytest.raises(OSError, match="injected"):
            build_shard(FailingFileSystem(fail_at), folder / NAME, table_of([event(0)]), [])
        if NAME in FS.list(folder):
            assert ids(folder / NAME, "*") == [500]
        assert all(name == NAME or name.startswith(ATTEMPT_PREFIX) for name in FS.list(folder))
        build_shard(FS, folder / NAME, table_of([event(0)]), [])
        assert ids(folder / NAME, "*") == [500]


def test_all_files_of_a_shard_are_synced_before_it_gets_its_name(tmp_path: Path) -> None:
    fs = FailingFileSystem()
    build_shard(fs, tmp_path / NAME, table_of([event(0)]), [])
    assert fs.operations.count("sync") == len(list((tmp_path / NAME).iterdir()))
    assert fs.operations[-3:] == ["sync_directory", "rename", "sync_directory"]


def test_a_half_built_attempt_is_not_a_shard(tmp_path: Path) -> None:
    attempt = tmp_path / f"{ATTEMPT_PREFIX}{NAME}-0123"
    attempt.mkdir()
    (attempt / "half").write_bytes(b"x")
    build_shard(FS, tmp_path / NAME, table_of([event(0)]), [])
    assert ids(tmp_path / NAME, "*") == [500]
    assert (attempt / "half").exists()


def test_a_shard_that_is_gone_or_no_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=NAME):
        OpenShard(FS, tmp_path / NAME).search(query.Every())
    (tmp_path / NAME).mkdir()
    with pytest.raises(CorruptionError, match=NAME):
        OpenShard(FS, tmp_path / NAME).search(query.Every())


@pytest.mark.parametrize("layout", ["packed", "whoosh"])
@pytest.mark.parametrize("change", ["gone", "cut", "one bit of each byte"])
def test_a_shard_with_a_damaged_file_is_refused_where_the_file_is_needed(
    tmp_path: Path, change: str, layout: Layout
) -> None:
    path = tmp_path / NAME
    events = sample(50)
    built = build_shard(FS, path, table_of(events), [], layout=layout)
    middle = {name: sorted(getattr(item, name) for item in events)[25] for name in (*TIME_FIELDS, *NUMBER_FIELDS)}
    questions = [query.NumericRange(name, number, None) for name, number in middle.items()]
    questions += [query.Every(field.name) for field in IDENTIFIER_FIELDS]
    questions.append(query.Or([query.Term("filename", "a"), query.Term("filename", "b")]))  # by the filter
    questions.append(query.Phrase("details", ["auto", "terminated"]))  # by the places of words
    for file in sorted(path.iterdir()):
        good = file.read_bytes()
        file.unlink()
        if change != "gone":
            file.write_bytes(good[:-1] if change == "cut" else bytes(byte ^ 1 for byte in good))
        if not file.name.endswith(("toc", "_stored.col")):  # Whoosh's alone
            with pytest.raises(CorruptionError, match=NAME):
                for question in questions:
                    OpenShard(FS, path).search(question)
        file.write_bytes(good)
    assert len(ids(path, "*")) == built.documents == 50


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b", 'attribute.a:"A B"'),
        ("x:y", "attribute.a:x:y"),
        ("\N{SNOWMAN}Ä", "attribute.a:\N{SNOWMAN}ä"),
        ("ab\0c", "attribute.a:ab*"),
        ("v" * 5000, f"attribute.a:{'v' * 4000}*"),
        ("v" * 70_000, "attribute.a:v*"),
        ("NOT", "attribute.a:'not'"),
    ],
)
def test_odd_values_are_found_whole(tmp_path: Path, value: str, text: str) -> None:
    events = [event(0, updated_attributes={"a": value}), event(1, updated_attributes={"a": "other"}), event(2)]
    build_shard(FS, tmp_path / NAME, table_of(events), ["a"])
    assert ids(tmp_path / NAME, text) == [500]


def test_an_attribute_is_searched_as_it_is_after_the_event(tmp_path: Path) -> None:
    events = [
        event(0, previous_attributes={"a": "old"}, updated_attributes={"a": "new"}),
        event(1, previous_attributes={"a": "old"}, updated_attributes={"a": None}),
        event(2, previous_attributes={"a": "old"}),
    ]
    build_shard(FS, tmp_path / NAME, table_of(events), ["a"])
    assert ids(tmp_path / NAME, "attribute.a:new") == [500]
    assert ids(tmp_path / NAME, "attribute.a:old") == [502]


def test_a_term_is_cut_at_a_whole_character() -> None:
    assert term("ABC") == "abc"
    assert term("x" + "ä" * TERM_BYTES_MAX) == "x" + "ä" * (TERM_BYTES_MAX // 2 - 1)


def test_every_field_of_the_schema_is_a_stock_type() -> None:
    for name, kind in whoosh_schema(["a"]).items():
        assert type(kind).__module__ == "whoosh.fields", name


def test_another_whoosh_gets_its_own_writer_and_the_bulk_writer_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = table_of(sample(50))
    whole = answers(build_shard(FS, tmp_path / "bulk", table, [], layout="whoosh").path)
    assert whoosh_writer.whoosh_difference() is None
    monkeypatch.setattr(whoosh_writer, "RELEASE", (2, 7, 99))
    with pytest.raises(ConfigurationError, match=r"release \(2, 7, 5\) instead of \(2, 7, 99\)"):
        build_shard(FS, tmp_path / "refused", table, [], layout="whoosh", writer="bulk")
    path = build_shard(FS, tmp_path / "stock", table, [], layout="whoosh").path
    assert "written by Whoosh itself, which is slow" in caplog.text
    assert OpenShard(FS, path).description.layout == "stock"
    assert answers(path) == whole
    # A packed shard is none of Whoosh's.
    assert answers(build_shard(FS, tmp_path / "packed", table, []).path) == whole
    assert sorted(item.name for item in tmp_path.iterdir()) == ["bulk", "packed", "stock"]


def test_a_packed_shard_takes_no_terms_of_numbers(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"index\.layout"):
        build_shard(FS, tmp_path / NAME, table_of([event(0)]), [], ranges=["event_time"])
    assert not FS.list(tmp_path)


def test_a_shard_for_whoosh_is_asked_for_where_a_packed_one_is(tmp_path: Path) -> None:
    packed, whoosh = (
        OpenShard(FS, build_shard(FS, tmp_path / layout, table_of([event(0)]), [], layout=layout).path).description
        for layout in get_args(Layout)
    )
    assert (packed.layout, whoosh.layout) == ("packed", "bulk")
    for layout in get_args(Layout):
        assert whoosh.is_of(IndexedFields(layout=layout))
    assert packed.is_of(IndexedFields())
    assert not packed.is_of(IndexedFields(layout="whoosh"))
