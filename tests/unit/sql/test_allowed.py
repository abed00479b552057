"""The names that a query may use: its tables, and functions that compute; every other way out is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from custody.read.sql import TRANSACTIONS_SCHEMA, SqlSources
from custody.repository import EventSelection, Repository
from custody.sql import QueryInput
from custody.sql.allowed import QueryRefusedError, read_query, tables_read
from custody.sql.engine import connect, register
from custody.sql.protocol import EngineLimits
from tests.support import append, event, run_steps

TABLES = ("events", "logs", "transactions")
FORGOTTEN = ("aaaaaaaa-0000-4000-8000-000000000001", "aaaaaaaa-0000-4000-8000-000000000002")
HIDDEN = "f0rg0tten"
LIMITS = EngineLimits(1 << 28, 1 << 30, 0, 1 << 20, 60)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    """The engine as a query finds it, in this process; one event of a log and one of the tail are forgotten."""
    root = tmp_path_factory.mktemp("allowed")
    repository = Repository.create(root / "repository")
    append(repository, [event(1), event(2, flowfile_uuid=FORGOTTEN[0], details=HIDDEN), event(3)])
    run_steps(repository.settings)
    append(repository, [event(4), event(5, flowfile_uuid=FORGOTTEN[1], details=HIDDEN), event(6)])
    for uuid in FORGOTTEN:
        repository.forget(EventSelection(flowfile_uuids=[uuid]), "asked for")
    sources = SqlSources(Repository.open(repository.settings.root).workspaces(), skip_damaged=False)
    assert sources.hidden.to_pylist() == [{"writer": "main", "event_id": 1}]
    connection = connect(LIMITS, str(root / "spill"))
    tables = {"logs": sources.logs, "transactions": TRANSACTIONS_SCHEMA.empty_table()}
    register(connection, QueryInput(sources.parts, sources.tail(None), sources.hidden, tables))
    return connection


def asked(engine: duckdb.DuckDBPyConnection, text: str) -> pa.Table:
    """What the engine's process does with a query."""
    tables_read(engine, text, TABLES)
    return engine.sql(text).to_arrow_table()


INTERNAL = [
    "select * from stored",
    "select * from hidden",
    "from query_table('stored')",
    "from query_table('trans' || 'actions')",
    "from query_table(['events', 'logs'])",
    "from query('from events')",
    "select * from temp.main.events",
    "select * from temp.events",
    "select * from main.events",
    "select * from memory.main.logs",
    "select * from duckdb_tables()",
    "select * from duckdb_views()",
    "select * from duckdb_columns",
    "select * from duckdb_functions()",
    "select * from duckdb_settings()",
    "select * from duckdb_secrets()",
    "select * from duckdb_temporary_files()",
    "select * from duckdb_memory()",
    "select * from duckdb_logs",
    "select * from duckdb_databases()",
    "select * from information_schema.tables",
    "select * from information_schema.views",
    "select * from pg_catalog.pg_views",
    "select * from pg_class",
    "select * from sqlite_master",
    "select * from sqlite_temp_schema",
    "select * from pragma_database_list",
    "select * from pragma_table_info('events')",
    "select * from pragma_show('events')",
    "select * from pragma_storage_info('events')",
    "select * from pragma_version()",
    "show databases",
    "show schemas",
    "show duckdb_views",
    "describe duckdb_tables",
    "describe information_schema.columns",
    "summarize duckdb_columns",
    "summarize stored",
    "summarize from hidden",
    "select (select max(event_id) from stored)",
    "select 1 where exists (from stored)",
    "select * from events, lateral (from hidden)",
    "select * from events positional join stored",
    "from events union all by name from stored",
    "with a as (from stored) from a",
    "with recursive a as (select 1 n union all select n + 1 from a, stored where n < 3) from a",
    "with duckdb_views as (from duckdb_views) from duckdb_views",
    "with a as (from sqlite_master), sqlite_master as (select 1) from a",
    "with events as (select 1) from events",
    "unpivot stored on event_id",
    "from histogram_values(stored, event_id)",
    "from histogram('stored', event_id)",
    "from seq_scan('events')",
    "from arrow_scan(1, 2, 3)",
    "from python_arrow_scan()",
    "from pandas_scan(0)",
    "from python_map_function(0)",
    "from json_execute_serialized_sql(json_serialize_sql('from events'))",
    "select json_serialize_plan('from events')",
    "select pg_get_viewdef(1)",
    "select current_setting('temp_directory')",
    "select getvariable('x')",
    "select finalize('x'::blob)",
]
OUTSIDE = [
    "select * from '/etc/passwd'",
    "select * from '{root}/secret.csv'",
    'select * from "{root}/secret.csv"',
    "with \"x.csv\" as (select 1) select * from '{root}/secret.csv'",
    "select * from read_csv('{root}/secret.csv')",
    "select * from read_csv_auto('{root}/secret.csv')",
    "select * from read_text('{root}/secret.csv')",
    "select * from read_blob('{root}/secret.csv')",
    "select * from read_json('{root}/secret.csv')",
    "select * from read_json_auto('{root}/secret.csv')",
    "select * from read_ndjson('{root}/secret.csv')",
    "select * from read_json_objects('{root}/secret.csv')",
    "select * from read_parquet('{root}/**/*.parquet')",
    "select * from parquet_scan('{root}/**/*.parquet')",
    "select * from parquet_metadata('{root}/**/*.parquet')",
    "select * from parquet_schema('{root}/**/*.parquet')",
    "select * from parquet_kv_metadata('{root}/**/*.parquet')",
    "select * from parquet_file_metadata('{root}/**/*.parquet')",
    "select * from parquet_bloom_probe('{root}/**/*.parquet', 'a', 1)",
    "select * from read_duckdb('{root}/x.db')",
    "select * from glob('{root}/*')",
    "select * from sniff_csv('{root}/secret.csv')",
    "select * from read_csv('http://127.0.0.1:9/x')",
    "select * from which_secret('s3://x', 's3')",
    "select * from checkpoint()",
    "select * from force_checkpoint('memory')",
    "select * from enable_logging()",
    "select * from truncate_duckdb_logs()",
    "select write_log('x')",
    "select getenv('HOME')",
    "select nextval('x')",
    "from query('copy events to ''{root}/new.csv''')",
]
OTHER_STATEMENTS = [
    "copy events to '{root}/new.csv'",
    "copy (select 1) to '{root}/new.csv'",
    "export database '{root}/new'",
    "import database '{root}/new'",
    "attach '{root}/new.db'",
    "attach ':memory:' as b",
    "detach memory",
    "use memory",
    "install httpfs",
    "load httpfs",
    "load '{root}/secret.csv'",
    "set threads = 1",
    "set variable x = 1",
    "reset lock_configuration",
    "set enable_external_access = true",
    "pragma database_list",
    "pragma table_info('events')",
    "pragma enable_profiling",
    "call pragma_version()",
    "checkpoint",
    "create table t as select 1",
    "create view v as from events",
    "create or replace temp view events as select 1",
    "create macro m() as table from events",
    "create secret (type s3)",
    "drop view events",
    "alter table events rename to e",
    "insert into logs select * from logs",
    "delete from events",
    "update events set event_id = 1",
    "truncate events",
    "vacuum",
    "analyze",
    "begin",
    "prepare p as from events",
    "execute p",
    "explain from events",
    "explain analyze from events",
    "pivot events on event_type",
    "select 1; select 2",
    "select 1; drop view events",
    "",
    ";",
]


@pytest.mark.parametrize("text", INTERNAL)
def test_the_inside_of_the_engine_cannot_be_named(engine: duckdb.DuckDBPyConnection, text: str) -> None:
    with pytest.raises((QueryRefusedError, duckdb.Error)) as caught:
        asked(engine, text)
    said = str(caught.value)
    assert "__duckdb" not in said
    assert "arrow_scan" not in said or "arrow_scan" in text


@pytest.mark.parametrize("text", OUTSIDE + OTHER_STATEMENTS)
def test_nothing_outside_is_read_or_written(engine: duckdb.DuckDBPyConnection, tmp_path: Path, text: str) -> None:
    with pytest.raises((QueryRefusedError, duckdb.Error)):
        asked(engine, text.format(root=tmp_path))


@pytest.mark.parametrize("text", [text for text in OUTSIDE + OTHER_STATEMENTS if text.strip(";")])
def test_where_nobody_looks_at_a_query_the_engine_reaches_nothing_either(tmp_path: Path, text: str) -> None:
    (tmp_path / "secret.csv").write_text(f"a\n{HIDDEN}\n")
    before = sorted(tmp_path.rglob("*"))
    locked = connect(LIMITS, str(tmp_path / "spill"))
    locked.register("events", pa.table({"event_id": [0], "event_type": ["DROP"]}))
    try:
        found = locked.execute(text.format(root=tmp_path))
        shown = str(found.fetchall()) if found.description else ""
    except duckdb.Error as error:
        shown = str(error)
    assert HIDDEN not in shown
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("select 1", set()),
        ("from EVENTS", {"events"}),
        ('select * from "Events" e join logs l using (writer)', {"events", "logs"}),
        ("with a as (from events), b as (from a) from b", {"events"}),
        ("with recursive a as (select 1 n union all select n + 1 from a where n < 3) from a", set()),
        ("select (select 1 from transactions) where 2 in (select revision from transactions)", {"transactions"}),
        ("describe events", {"events"}),
        ("show logs", {"logs"}),
        ("summarize logs", {"logs"}),
        ("summarize from events where event_id < 3", {"events"}),
        ("show tables", set()),
        ("show all tables", set()),
        ("describe", set()),
        ("table logs", {"logs"}),
        ("unpivot logs on rows, size_bytes", {"logs"}),
        ("from (pivot logs on partition in ('a') using sum(rows))", {"logs"}),
        ("select * from range(3), generate_series(1, 2), unnest([1]), (values (1)) v(a)", set()),
        ("select unnest(parent_uuids), updated_attributes['a'], len(child_uuids) from events", {"events"}),
        ("select * from json_each('[1]')", set()),
        ("select list_transform([1], lambda x: x + 1), regexp_replace('a', 'b', 'c')", set()),
        ("from events select distinct on (writer) * qualify row_number() over () = 1", {"events"}),
        ("from events using sample 1 rows", {"events"}),
        ("from events asof join logs on events.event_time >= logs.first_event_time", {"events", "logs"}),
    ],
)  # fmt: skip
def test_queries_that_read_and_compute_are_allowed(
    engine: duckdb.DuckDBPyConnection, text: str, names: set[str]
) -> None:
    assert tables_read(engine, text, TABLES) == names
    asked(engine, text)


def test_tables_are_listed_by_their_names(engine: duckdb.DuckDBPyConnection) -> None:
    assert asked(engine, "show tables").column(0).to_pylist() == sorted(TABLES)


@pytest.mark.parametrize("text", ["select " + "(" * 3000 + "1" + ")" * 3000, "select " + "not " * 3000 + "true"])
def test_a_query_that_is_nested_too_deeply_is_refused(engine: duckdb.DuckDBPyConnection, text: str) -> None:
    with pytest.raises((QueryRefusedError, duckdb.Error)):
        tables_read(engine, text, TABLES)


NAMES = st.sampled_from(
    (
        *TABLES,
        "stored",
        "hidden",
        "tail",
        "sources",
        "query_input",
        "connection",
        "duckdb_tables",
        "sqlite_master",
        "raw",
    )
) | st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8)
NAMED = st.one_of(
    NAMES,
    NAMES.map('"{}"'.format),
    NAMES.map("'{}'".format),
    NAMES.map("temp.{}".format),
    NAMES.map("main.{}".format),
    NAMES.map("system.main.{}".format),
    NAMES.map("query_table('{}')".format),
    NAMES.map("query('from {}')".format),
    NAMES.map("{}()".format),
    NAMES.map("duckdb_{}()".format),
    NAMES.map("pragma_show('{}')".format),
)
SHAPES: list[Callable[[str], str]] = [
    "from {}".format,
    "select * from {} where event_id >= 0".format,
    "select max(flowfile_uuid), min(details), list(event_id) from {}".format,
    "with x as (from {}) from x".format,
    "with stored as (from {}) from stored".format,
    "select (select string_agg(flowfile_uuid, ',') from {})".format,
    "select * from events full join {} t on true".format,
    "from events union all by name from {}".format,
    "summarize from {}".format,
    "describe {}".format,
    "show {}".format,
    "unpivot {} on details".format,
    "select * from {} anti join events using (event_id)".format,
    "select error(string_agg(flowfile_uuid || details, ' ')) from {}".format,
    "select flowfile_uuid::int from {}".format,
]


@given(NAMED, st.sampled_from(SHAPES))
@example("events", SHAPES[0])
@example("events", SHAPES[2])
@example("events", SHAPES[6])
@example("events", SHAPES[8])
@example("events", SHAPES[13])
@example("events", SHAPES[14])
def test_whatever_is_named_a_forgotten_event_is_not_given_out(
    engine: duckdb.DuckDBPyConnection, name: str, shape: Callable[[str], str]
) -> None:
    for ask in (asked, lambda engine, text: engine.sql(text).to_arrow_table()):  # also where nobody looks at it
        try:
            table = ask(engine, shape(name))
            shown = str(table.to_pylist())
            columns = (table.column(n) for n, column in enumerate(table.column_names) if column == "event_id")
            ids = [event_id for column in columns for event_id in column.to_pylist()]  # a join may have several
        except (QueryRefusedError, duckdb.Error) as error:
            shown, ids = str(error), []
        assert HIDDEN not in shown
        assert not [uuid for uuid in FORGOTTEN if uuid in shown]
        assert 1 not in ids
        assert 4 not in ids


def test_the_others_are_given_out(engine: duckdb.DuckDBPyConnection) -> None:
    ids = asked(engine, "select event_id from events order by 1").column(0).to_pylist()
    assert ids == [0, 2, 3, 5]
    assert asked(engine, "select count(*) from events").to_pylist() == [{"count_star()": 4}]
    assert asked(engine, "from events where event_id in (1, 4)").num_rows == 0


COLUMNS = ("writer", "event_id", "event_type", "attributes", "file_size", "component_id")


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("select count(*) from events", []),
        ("select 1", []),
        ("select EVENT_TYPE, sum(file_size) from events group by 1", ["event_type", "file_size"]),
        ("select e.event_type from events e where attributes['x'] = 'y'", ["event_type", "attributes"]),
        ("with c as (select event_type x from events) select x from c", ["event_type"]),
        ("select count(*) from events join logs using (writer)", ["writer"]),
        ("select event_type from events order by (select max(e.event_id) from events e)", ["event_id", "event_type"]),
        ("select event_type from events union by name select file_size from events", ["event_type", "file_size"]),
        *(
            (text, None)
            for text in (
                "from events",
                "from events using sample 1 rows",
                "select e from events e",
                "select count(events) from events",
                "select * exclude (writer) from events",
                "select columns('w.*') from events",
                "select event_type from events natural join logs",
                "select a from events as e(a, b)",
                "select #1 from events",
                "describe events",
                "summarize events",
                "select unnest([e]) from events e",
                "select e.event_type from (from events) e",
                "select event_type from (select * from events)",
            )
        ),
    ],
)
def test_the_columns_that_a_query_may_read_are_told(
    engine: duckdb.DuckDBPyConnection, text: str, columns: list[str] | None
) -> None:
    read = read_query(engine, text, ["events", "logs"], {}, COLUMNS).columns
    assert read == (columns if columns is None else [name for name in COLUMNS if name in columns])
