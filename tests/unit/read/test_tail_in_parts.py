"""What waits and does not fit into the cache is read in parts: each answer is the one that the whole would give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from custody.journal import JournalFile
from custody.journal.encoding import EventRecord, view_batches
from custody.model import Event
from custody.read import cache, tail
from custody.read.reader import snapshot
from custody.repository import Repository
from custody.repository.soft_delete import EventSelection
from tests.support import append, event, run_steps

PART_BYTES = 30_000
EVENTS = 400
SQL = "select event_type, count(*), max(event_id) from events group by all order by 1"


@pytest.fixture
def in_parts(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A live log, then three groups, each with rows and batches; no cache, and parts that are much smaller."""
    append(repository, [event(number) for number in range(10)])
    run_steps(repository.settings)
    for first in (100, 200, 300):
        with repository.writer() as writer:
            for start, count in ((first, 3), (first + 3, 90), (first + 93, 7)):
                writer.append([_event(number) for number in range(start, start + count)])
    # Journals of megabytes would take seconds to write.
    monkeypatch.setattr(cache, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr(tail, "PART_BYTES", PART_BYTES)
    query = repository.settings.query.model_copy(update={"cache_bytes": 0})
    return Repository(repository.settings.model_copy(update={"query": query}))


def _event(number: int) -> Event:
    made = (f"flowfile-{number + 1}",) if number % 10 == 0 else ()
    return event(
        number,
        event_type="FORK" if made else "SEND",
        flowfile_uuid=f"flowfile-{number}",
        child_uuids=made,
        details=f"number {number % 7} terminated",
        updated_attributes={"filename": f"file-{number % 3}", "gone": None},
    )


ANSWERS: dict[str, Callable[[Repository], object]] = {
    "all": lambda found: found.search("", limit=1000),
    "term": lambda found: found.search("flowfile_uuid:flowfile-250"),
    "words": lambda found: found.search('details:"3 terminated" AND event_type:SEND', limit=7, oldest_first=True),
    "attribute": lambda found: found.search("filename:file-2", limit=5, offset=3),
    "numbers": lambda found: found.search("file_size:[0 TO] NOT event_type:FORK", limit=100),
    "facets": lambda found: found.facets("", ["event_type", "filename", "day"]),
    "histogram": lambda found: found.histogram("event_type:FORK", 0, 1 << 42, 7),
    "lineage": lambda found: found.lineage(["flowfile-150"]),
    "events": lambda found: list(found.get_many([3, 12, 150, 309, 5000])),
    "sql": lambda found: [
        batch.to_pylist()
        for batch in found.sql("select event_type, count(*), max(event_id) from events group by 1 order by 1").batches()
    ],
    "next id": lambda found: snapshot(found.workspace()).next_event_id,
}


def _whole(found: Repository) -> Repository:
    return Repository.open(found.settings.root)


def test_the_tail_lies_in_several_parts(in_parts: Repository) -> None:
    view = snapshot(in_parts.workspace())
    assert len(view.tail.parts) > 3
    assert view.tail.decoded.num_rows == 0
    whole = snapshot(_whole(in_parts).workspace())
    assert whole.tail.parts == ()
    assert view.tail.table().sort_by("event_id").equals(whole.tail.table().sort_by("event_id"))


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("name", ANSWERS)
def test_each_answer_is_that_of_the_whole(in_parts: Repository, name: str) -> None:
    assert ANSWERS[name](in_parts) == ANSWERS[name](_whole(in_parts))


@pytest.mark.parametrize("name", ["all", "term", "facets", "lineage", "events", "sql"])
def test_what_was_forgotten_is_in_no_answer(in_parts: Repository, name: str) -> None:
    in_parts.forget(EventSelection(flowfile_uuids=("flowfile-151", "flowfile-250")), "a test")
    assert in_parts.search("flowfile_uuid:flowfile-250").total == 0
    assert ANSWERS[name](in_parts) == ANSWERS[name](_whole(in_parts))


def test_damage_costs_its_record_and_is_named(in_parts: Repository) -> None:
    journal = max(in_parts.settings.root.rglob("*.sealed"), key=lambda path: path.name)
    data = bytearray(journal.read_bytes())
    data[data.index(b"flowfile-350")] ^= 1
    journal.write_bytes(data)
    found, whole = in_parts.search("", limit=1), _whole(in_parts).search("", limit=1)
    assert (found.total, found.notices) == (whole.total, whole.notices)
    assert 0 < found.total < EVENTS - 90
    assert any(str(journal) in notice for notice in found.notices)


def test_a_record_that_is_none_behind_a_right_checksum_is_named(
    in_parts: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = JournalFile.read

    def other_count(fs: object, path: Path) -> JournalFile:
        journal = read(fs, path)  # type: ignore[arg-type]
        if journal.records and path.name.startswith(f"{110:020d}"):
            first = journal.records[0]
            journal.records[0] = type(first)(
                first.path, first.offset, first.kind, first.schema, first.first_event_id, first.count + 1, first.body
            )
        return journal

    # No writer can be made to write such a record.
    monkeypatch.setattr(JournalFile, "read", staticmethod(other_count))
    found = in_parts.search("", limit=1)
    assert found.total == 210
    assert any("expected 4 events in a record, got 3" in notice for notice in found.notices)


@pytest.mark.parametrize("name", ["term", "sql"])
def test_records_of_several_journals_are_decoded_together(
    in_parts: Repository, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Journals of a group alternate, and the heads of their records are read once a part, not once a column."""
    asked: list[int] = []
    views = view_batches

    def counted(records: Sequence[EventRecord]) -> list[pa.RecordBatch]:
        asked.extend(record.first_event_id for record in records)
        return views(records)

    monkeypatch.setattr("custody.read.tail.view_batches", counted)
    assert ANSWERS[name](in_parts)
    assert len(asked) == len(set(asked)) >= 3


SELECTS = [
    "select count(*) as n from events",
    "select event_type, sum(file_size) as size from events group by 1 order by 1",
    "select writer, event_id, updated_attributes from events where event_id > 250 order by event_id",
    "select e from events e order by e.event_id limit 3",
    "select * exclude (details) from events order by event_id limit 5",
    "select events from events order by event_id desc limit 2",
    "with few as (select DETAILS as said, event_id from events) select few.said from few order by event_id",
    "select columns('.*_type') from events order by event_id limit 4",
    "select a.event_id from events a join events b using (flowfile_uuid) order by 1",
    "select count(*) as n from events natural join (select 105 as event_id)",
    "select x from events as e(w, x) order by x limit 3",
    "select column_name, min, max, count from (summarize select file_size, details from events)",
    "describe events",
    "select 1 as one",
]


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("text", SELECTS)
def test_the_engine_gets_the_columns_that_a_query_reads(in_parts: Repository, text: str) -> None:
    def answered(found: Repository) -> list[object]:
        with found.sql(text) as result:
            return [row for batch in result.batches() for row in batch.to_pylist()]

    assert answered(in_parts) == answered(_whole(in_parts)) != []


def test_the_engine_gets_no_other_column(in_parts: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[str] = set()
    column = tail.TailPart.column

    def noted(part: tail.TailPart, name: str) -> pa.ChunkedArray:
        taken.add(name)
        return column(part, name)

    monkeypatch.setattr(tail.TailPart, "column", noted)
    list(in_parts.sql("select e.event_type from events e where e.file_size > 0").batches())
    assert taken == {"event_id", "event_type", "file_size"}
    taken.clear()
    list(in_parts.sql("select 1").batches())
    assert not taken


def test_a_first_event_by_its_id_decodes_its_record_and_a_second_one_its_group(in_parts: Repository) -> None:
    found = _whole(in_parts)
    assert found.get(150) == _event_of(in_parts, 150)
    kept = cache.caches_of(found.workspace()).decoded
    assert not _decoded_groups(kept)
    assert found.get(152) == _event_of(in_parts, 152)
    assert _decoded_groups(kept) == 1
    assert found.get(250) == _event_of(in_parts, 250)
    assert _decoded_groups(kept) == 1


def _event_of(found: Repository, event_id: int) -> Event:
    return next(each.event for each in found.search("", limit=1000).events if each.event.event_id == event_id)


def _decoded_groups(kept: object) -> int:
    return sum(isinstance(kept.get(key), cache.DecodedJournal) for key in kept)  # type: ignore[attr-defined]
