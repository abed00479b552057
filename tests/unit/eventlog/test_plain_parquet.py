"""An event log is plain Parquet: other engines read it as it is, whatever stands between its blocks and its footer."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from custody.eventlog import LogOptions, log_metadata, write_log
from custody.model import EVENT_SCHEMA, to_batch, to_events
from custody.spark.environment import QUICK_START_FLAGS
from custody.vfs import PosixFileSystem
from tests.support import numbered, sample

EVENTS = numbered(sample(300), 5)


@pytest.fixture(scope="module", params=["zstd", "gzip", "none"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = pa.Table.from_batches([to_batch(EVENTS, 5)])
    target = tmp_path_factory.mktemp("open") / "log.parquet"
    options = LogOptions(20_000, request.param)
    return write_log(PosixFileSystem(), target, table, log_metadata(table, "main", "provenance"), options).path


def test_pyarrow_reads_it(path: Path) -> None:
    table = pq.read_table(path, page_checksum_verification=True)
    assert table.schema.remove_metadata().equals(EVENT_SCHEMA)
    assert to_events(table) == EVENTS
    assert to_events(ds.dataset(path).to_table(filter=ds.field("event_id") < 9)) == EVENTS[:4]


def test_duckdb_reads_it(path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.sql(f"select * from read_parquet('{path}')").to_arrow_reader(1000).read_all()  # noqa: S608
        assert found.column("event_id").to_pylist() == [event.event_id for event in EVENTS]
        attributes = [dict(pairs) for pairs in found.column("updated_attributes").to_pylist()]
        assert attributes == [event.updated_attributes for event in EVENTS]
        uuid = EVENTS[150].flowfile_uuid
        counted = connection.sql(
            f"select count(*) n from read_parquet('{path}') where flowfile_uuid = '{uuid}'"  # noqa: S608
        ).to_arrow_table()
        assert counted.to_pylist() == [{"n": sum(event.flowfile_uuid == uuid for event in EVENTS)}]


def test_pandas_reads_it(path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(path)
    assert list(frame.columns) == EVENT_SCHEMA.names
    assert frame["event_id"].tolist() == [event.event_id for event in EVENTS]
    assert frame["event_type"].tolist() == [event.event_type for event in EVENTS]


@pytest.mark.in_parts(3)
@pytest.mark.spark
def test_spark_reads_it(path: Path) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    # One file is read: the optimizing compiler would not pay for itself.
    spark = builder.config("spark.driver.extraJavaOptions", " ".join(QUICK_START_FLAGS)).getOrCreate()
    try:
        frame = spark.read.parquet(str(path))
        assert frame.columns == EVENT_SCHEMA.names
        rows = frame.select("event_id", "event_type", "updated_attributes").orderBy("event_id").collect()
        assert [row[0] for row in rows] == [event.event_id for event in EVENTS]
        assert [row[2] for row in rows] == [event.updated_attributes for event in EVENTS]
        uuid = EVENTS[150].flowfile_uuid
        wanted = sum(event.flowfile_uuid == uuid for event in EVENTS)
        assert frame.filter(frame.flowfile_uuid == uuid).count() == wanted
    finally:
        spark.stop()
