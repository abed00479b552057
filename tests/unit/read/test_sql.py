"""SQL answers as a full scan does, over all writers and the live tail, and reaches nothing but its tables."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from threading import Timer
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest

from custody.errors import CorruptionError, InvalidInputError
from custody.eventlog import EventLog
from custody.model import EVENT_SCHEMA, Event
from custody.read.sql import SqlSources
from custody.repository import EventSelection, Repository
from custody.sql import QueryInput, engine
from custody.sql.engine import register
from custody.vfs import PosixFileSystem
from tests.support import append, flipped, numbered, run_steps, sample

EVENTS = numbered(sample(300))
ENDLESS = "select count(*) from range(1000000000) a, range(1000000000) b where a.range * b.range = -1"


@pytest.fixture
def two(tmp_path: Path) -> Repository:
    """Writer one: two logs of several blocks and a journal; writer two: a journal alone."""
    root = tmp_path / "repository"
    Repository.create(root)
    for writer, parts in (("one", [(0, 120), (120, 200), (200, 300)]), ("two", [(0, 50)])):
        (root / "custody.toml").write_text(f'[repository]\nwriter = "{writer}"\n[eventlog]\nblock_bytes_max = 20000\n')
        repository = Repository.open(root)
        for start, end in parts:
            append(repository, EVENTS[start:end])
            if end < 300 and writer == "one":
                run_steps(repository.settings)
    return Repository.open(root)


def rows(repository: Repository, text: str) -> list[dict[str, object]]:
    with repository.sql(text) as result:
        return [row for batch in result.batches() for row in batch.to_pylist()]


def test_the_events_of_all_writers_are_one_table_with_their_writer(two: Repository) -> None:
    found = rows(two, "select writer, count(*) n, min(event_id) a, max(event_id) b from events group by 1 order by 1")
    assert found == [{"writer": "one", "n": 300, "a": 0, "b": 299}, {"writer": "two", "n": 50, "a": 0, "b": 49}]


def test_every_column_has_the_values_of_the_events(two: Repository) -> None:
    with two.sql("select * exclude writer from events where writer = 'one' order by event_id") as result:
        table = pa.Table.from_batches(result.batches(), result.schema)
    expected = pa.concat_tables(two.events(0, 1000, "one").tables())
    assert table.column_names == EVENT_SCHEMA.names
    for field in EVENT_SCHEMA:
        got, want = table.column(field.name), expected.column(field.name)
        if pa.types.is_timestamp(field.type):
            got = got.cast(field.type)
        assert got.to_pylist() == want.to_pylist(), field.name


@pytest.mark.parametrize(
    ("where", "test"),
    [
        ("event_type = 'SEND'", lambda e: e.event_type == "SEND"),
        ("event_id between 115 and 125", lambda e: 115 <= e.event_id <= 125),
        ("details is not null", lambda e: e.details is not None),
        (
            "file_size > 1000 and event_type in ('DROP', 'SEND')",
            lambda e: e.file_size > 1000 and e.event_type in ("DROP", "SEND"),
        ),
        ("updated_attributes['filename'] is not null", lambda e: e.updated_attributes.get("filename") is not None),
        ("event_id < 0", lambda e: False),
    ],
)
def test_a_filter_agrees_with_a_full_scan(two: Repository, where: str, test: object) -> None:
    found = rows(two, f"select event_id from events where writer = 'one' and {where} order by 1")  # noqa: S608
    assert [row["event_id"] for row in found] == [e.event_id for e in EVENTS if test(e)]  # type: ignore[operator]


def test_times_compare_as_instants_in_utc(two: Repository) -> None:
    moment = sorted(e.event_time for e in EVENTS)[150]
    before = f"event_time < make_timestamptz({moment}000)"
    found = rows(two, f"select count(*) n from events where writer = 'one' and {before}")  # noqa: S608
    assert found == [{"n": sum(e.event_time < moment for e in EVENTS)}]
    assert rows(two, "select strftime(min(event_time), '%Y-%m-%d') d from events") == [{"d": "2026-03-02"}]


def test_the_table_of_logs_agrees_with_the_catalog(two: Repository) -> None:
    found = rows(two, "select writer, rows, first_event_id, last_event_id, path from logs order by 3")
    assert [(r["writer"], r["rows"], r["first_event_id"], r["last_event_id"]) for r in found] == [
        ("one", 120, 0, 119),
        ("one", 80, 120, 199),
    ]
    assert all(Path(str(row["path"])).is_file() for row in found)


def test_the_table_of_transactions_agrees_with_the_catalogs(two: Repository) -> None:
    found = rows(two, "select * from transactions order by writer, revision")
    timeline = list(two.timeline("one"))
    assert [(row["writer"], row["revision"]) for row in found] == [("one", each.revision) for each in timeline]
    assert [row["uuid"] for row in found] == [str(UUID(bytes=each.uuid)) for each in timeline]
    assert sum(int(str(row["events_added"])) for row in found) == 200
    sizes = rows(two, "select sum(size_bytes) a, (select sum(bytes_added) from transactions) b from logs")
    assert sizes[0]["a"] == sizes[0]["b"]
    assert found[-1]["next_event_id"] == 200
    # A join of the table with itself sees it twice.
    linked = rows(two, "select count(*) n from transactions join TRANSACTIONS b using (writer, revision)")
    assert linked == [{"n": len(timeline)}]


def test_a_transaction_that_is_damaged_is_an_error_or_left_out_and_named(two: Repository) -> None:
    two.workspace("one").catalog.load()
    two.workspace("one").catalog.write_checkpoint()
    paths = sorted(two.settings.store.rglob("*.txn"))
    data = paths[0].read_bytes()
    paths[0].write_bytes(flipped(data, 8 * (len(data) // 2)))
    fresh = Repository.open(two.settings.root)
    # The state is that of the checkpoint: only who reads the history finds the damage.
    assert rows(fresh, "select count(*) n from events") == [{"n": 350}]
    with pytest.raises(CorruptionError, match=rf"{paths[0].name}.*expected"):
        rows(fresh, "select * from transactions")
    with fresh.sql("select revision from transactions order by 1", skip_damaged=True) as result:
        found = [row["revision"] for batch in result.batches() for row in batch.to_pylist()]
        assert found == list(range(1, len(paths)))
        [notice] = result.notices
        assert paths[0].name in notice


def test_transactions_are_read_only_for_queries_that_name_them(
    two: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("custody.catalog.Catalog.timeline", refused)
    assert rows(two, "select count(*) n from events") == [{"n": 350}]
    with pytest.raises(AssertionError):
        rows(two, "select count(*) from transactions")


def test_projections_and_filters_reach_the_scan(two: Repository) -> None:
    two.forget(EventSelection(event_ids=[5]), "asked for", writer="one")
    sources = SqlSources(two.workspaces(), skip_damaged=False)
    connection = duckdb.connect()
    register(connection, QueryInput(sources.parts, sources.tail(None), sources.hidden))
    explained = connection.sql("explain select details from events where event_id = 7")
    text = str(explained.fetchall())
    assert "Projections" in text
    assert "event_id" in text.split("Filters")[1]


def test_a_log_that_is_gone_is_an_error_or_left_out_and_named_also_where_it_was_open(two: Repository) -> None:
    before = rows(two, "select count(*) n from events")
    path = min(two.settings.store.rglob("*.parquet"))
    rows_lost = EventLog(PosixFileSystem(), path).toc.blocks["rows"].sum()
    list(two.events(writer="one", count=10))  # opens it
    path.unlink()
    for asked in (two, Repository.open(two.settings.root)):
        with pytest.raises(CorruptionError, match=path.name):
            rows(asked, "select count(*) n from events")
        with asked.sql("select count(*) n from events", skip_damaged=True) as result:
            assert [row for batch in result.batches() for row in batch.to_pylist()] == [
                {"n": before[0]["n"] - rows_lost}
            ]
        assert any(path.name in notice for notice in result.notices)


def test_page_checksums_are_verified(two: Repository) -> None:
    assert engine.PARQUET_FORMAT.default_fragment_scan_options.page_checksum_verification
    path = min(two.settings.store.rglob("*.parquet"))
    log = EventLog(PosixFileSystem(), path)
    place = int(log.toc.blocks[1]["offset"] + log.toc.blocks[1]["length"]) - 40
    path.write_bytes(flipped(path.read_bytes(), 8 * place))
    fresh = Repository.open(two.settings.root)
    with pytest.raises(CorruptionError, match=rf"{path.name} block 1.*--skip-damaged"):
        rows(fresh, "select * from events")
    lost = int(log.toc.blocks[1]["rows"])
    with fresh.sql("select count(*) n from (select * from events)", skip_damaged=True) as result:
        [batch] = result.batches()
        assert batch.to_pylist() == [{"n": 350 - lost}]
        [notice] = result.notices
        assert "block 1" in notice


def test_a_damaged_footer_costs_nothing(two: Repository) -> None:
    path = min(two.settings.store.rglob("*.parquet"))
    data = path.read_bytes()
    for bit in (8 * (len(data) - 100), 8 * (len(data) - 6), 8 * (len(data) - 1)):
        path.write_bytes(flipped(data, bit))
        assert rows(Repository.open(two.settings.root), "select sum(event_id) s from events where writer='one'") == [
            {"s": sum(range(300))}
        ]


@pytest.mark.parametrize(
    "text",
    [
        "select * from '/etc/passwd'",
        "select * from sources",
        "select * from stored",
        "from query_table('trans' || 'actions')",
        "select * from query('copy events to ''{root}/x.csv''')",
        "copy events to '{root}/x.csv'",
        "explain analyze copy (select 1) to '{root}/x.csv'",
        "select 1; select 2",
        "",
        "selec",
        "select no_such_column from events",
    ],
)
def test_only_one_select_of_the_tables_is_run(two: Repository, text: str) -> None:
    sources = pa.table({"secret": [1]})
    assert sources.num_rows == 1
    before = sorted(two.settings.root.rglob("*"))
    with pytest.raises(InvalidInputError, match=r"^SQL: [^\n]*$"):
        rows(two, text.format(root=two.settings.root))
    assert sorted(two.settings.root.rglob("*")) == before


def test_forgotten_events_are_in_no_answer(two: Repository) -> None:
    in_a_log, waiting = EVENTS[7].flowfile_uuid, EVENTS[250].flowfile_uuid
    gone = {each.event_id for each in EVENTS if each.flowfile_uuid in (in_a_log, waiting)}
    two.forget(EventSelection(flowfile_uuids=[in_a_log, waiting]), "asked for", writer="one")
    shown = rows(two, "select event_id, flowfile_uuid from events where writer = 'one' order by 1")
    assert [row["event_id"] for row in shown] == sorted(set(range(300)) - gone)
    assert not {in_a_log, waiting} & {row["flowfile_uuid"] for row in shown}
    assert rows(two, "select count(*) n from events where writer = 'one'") == [{"n": 300 - len(gone)}]


@pytest.mark.parametrize("text", ["describe events", "show tables", "summarize logs", "values (1)"])
def test_read_only_statements_are_allowed(two: Repository, text: str) -> None:
    assert rows(two, text)


def test_a_query_that_takes_too_long_is_stopped(two: Repository) -> None:
    start = time.monotonic()
    with pytest.raises(InvalidInputError, match=r"stopped after 0\.5 seconds"):
        two.sql(ENDLESS, seconds_max=0.5)
    assert time.monotonic() - start < 10


def test_a_query_whose_time_is_over_before_it_begins_is_stopped(two: Repository) -> None:
    begun = time.monotonic()
    with pytest.raises(InvalidInputError, match="stopped after 1e-09 seconds"):
        two.sql(ENDLESS, seconds_max=1e-9)
    assert time.monotonic() - begun < 30


def test_memory_is_bounded_by_the_settings(two: Repository) -> None:
    (two.settings.root / "custody.toml").write_text(
        f"[query]\nsql_memory_bytes = {64 << 20}\nsql_spill_bytes_max = 0\n"
    )
    with pytest.raises(InvalidInputError, match=rf"{64 << 20} bytes in the engine \(query.sql_memory_bytes\)"):
        rows(Repository.open(two.settings.root), "select list(range) from range(100000000)")


def test_rows_are_streamed(two: Repository) -> None:
    start = time.monotonic()
    with two.sql("select range from range(1000000000000)") as result:
        batch = next(result.batches())
        assert 0 < batch.num_rows <= 10_000
    assert time.monotonic() - start < 10


def test_an_interrupt_stops_a_query_at_once(two: Repository) -> None:
    rows(two, "select 1")  # all is imported from here on
    timer = Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    # A process that was started in the background ignores interrupts.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        start = time.monotonic()
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            two.sql(ENDLESS)
        assert time.monotonic() - start < 10
    finally:
        signal.signal(signal.SIGINT, former)


def test_an_empty_repository_has_empty_tables(repository: Repository) -> None:
    assert rows(repository, "select * from events") == []
    assert rows(repository, "select count(*) n from logs") == [{"n": 0}]


def test_a_new_event_is_found_at_once(two: Repository) -> None:
    with two.writer() as writer:
        writer.append(
            [
                Event(
                    event_type="NEW", event_time=1, component_id="c", component_type="t", flowfile_uuid="f", file_size=0
                )
            ]
        )
        assert rows(two, "select writer, event_id from events where event_type = 'NEW'") == [
            {"writer": "two", "event_id": 50}
        ]
