"""Parquet footers in the catalog: read by ranges, typed, with blooms."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from custody.catalog import AddFile, describe
from custody.catalog.footers import fingerprint, read_footer, stored_footer
from custody.catalog.statistics import rows_of
from custody.catalog.transaction_pb2 import FileStatistics
from custody.errors import CorruptionError

TABLE = pa.table(
    {
        "id": pa.array([5, None, 7, 1], pa.int64()),
        "time": pa.array([1000, 2000, 3000, 4000], pa.timestamp("ms", tz="UTC")),
        "name": ["b", "a", "d", "c"],
        "share": [0.5, 0.25, 1.0, 0.75],
        "flag": [True, False, True, True],
        "long": ["a" * 300, "y", "z", "w"],
        "raw": [b"\xff\x00", b"\x01", b"", b"\x02"],
    }
)


def parquet(table: pa.Table = TABLE, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=2, **options)
    return sink.getvalue()


def described(data: bytes) -> tuple[AddFile, list[tuple[int, int]]]:
    reads: list[tuple[int, int]] = []

    def get_range(start: int, length: int) -> bytes:
        reads.append((start, length))
        return data[start:][:length]

    file = AddFile(path="x.parquet")
    describe(file, get_range)
    return file, reads


def test_statistics_are_typed_and_span_all_row_groups() -> None:
    file, reads = described(parquet())
    assert len(reads) == 2  # the last 8 bytes, then the footer
    assert reads[0] == (-8, 8)
    columns = {column.column: column for column in FileStatistics.FromString(file.statistics).columns}
    assert (columns["id"].minimum.integer, columns["id"].maximum.integer, columns["id"].nulls) == (1, 7, 1)
    assert (columns["time"].minimum.integer, columns["time"].maximum.integer) == (1000, 4000)
    assert (columns["name"].minimum.text, columns["name"].maximum.text) == ("a", "d")
    assert (columns["share"].minimum.number, columns["share"].maximum.number) == (0.25, 1.0)
    assert (columns["flag"].minimum.flag, columns["flag"].maximum.flag) == (False, True)
    assert columns["raw"].maximum.binary == b"\xff\x00"
    assert columns["long"].minimum.WhichOneof("kind") is None, "a long bound is left out"


def test_bounds_are_left_out_when_a_row_group_does_not_tell_them() -> None:
    file, _ = described(parquet(write_statistics=["id"]))
    assert [column.column for column in FileStatistics.FromString(file.statistics).columns] == ["id"]
    nothing, _ = described(parquet(TABLE.slice(0, 0)))
    assert all(not column.HasField("minimum") for column in FileStatistics.FromString(nothing.statistics).columns)


def test_bounds_are_those_of_the_values_whatever_the_raw_ones_look_like() -> None:
    great = (1 << 64) - 1
    table = pa.table(
        {
            "fits": pa.array([1, (1 << 63) - 1, 5, 6], pa.uint64()),
            "great": pa.array([1, great, 5, 6], pa.uint64()),
            "u32": pa.array([1, (1 << 32) - 1, 5, 6], pa.uint32()),
            "half": pa.array([-1.0, 2.0, 256.0, -3.0], pa.float16()),
            "price": pa.array([Decimal("-1.00"), Decimal("2.00"), Decimal("-3.50"), Decimal("9.99")]),
        }
    )
    file, _ = described(parquet(table))
    columns = {column.column: column for column in FileStatistics.FromString(file.statistics).columns}
    assert (columns["fits"].minimum.integer, columns["fits"].maximum.integer) == (1, (1 << 63) - 1)
    assert (columns["u32"].minimum.integer, columns["u32"].maximum.integer) == (1, (1 << 32) - 1)
    for name in ("great", "half", "price"):
        assert not columns[name].HasField("maximum"), f"{name}: no bound is better than a wrong one"
        assert columns[name].nulls == 0
    assert rows_of([file]).column("max_u32").to_pylist() == [(1 << 32) - 1]


def test_the_footer_is_kept_and_says_the_same() -> None:
    data = parquet()
    file, _ = described(data)
    footer = stored_footer(file)
    assert footer is not None
    assert footer.equals(pq.read_metadata(io.BytesIO(data)))
    assert len(file.footer) < file.footer_bytes
    assert stored_footer(AddFile()) is None


def test_blooms_are_copied_where_the_file_has_them() -> None:
    data = parquet(bloom_filter_options={"name": {"ndv": 100, "fpp": 0.01}})
    file, _ = described(data)
    columns = {column.column: column for column in FileStatistics.FromString(file.statistics).columns}
    metadata = pq.read_metadata(io.BytesIO(data))
    for group in range(2):
        chunk = metadata.row_group(group).column(2)
        start = chunk.bloom_filter_offset
        assert columns["name"].blooms[group] == data[start : start + chunk.bloom_filter_length]
    assert not columns["id"].blooms


def test_a_fingerprint_follows_names_types_and_nullability() -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())])
    others = [
        pa.schema([pa.field("a", pa.int32()), pa.field("b", pa.string())]),
        pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())]),
        pa.schema([pa.field("b", pa.string()), pa.field("a", pa.int64())]),
    ]
    assert fingerprint(schema) == fingerprint(schema.with_metadata({"x": "y"}))
    assert len({fingerprint(other) for other in (schema, *others)}) == 4


@pytest.mark.parametrize("data", [b"", b"short", b"no parquet at all", b"\xff\xff\xff\x7fPAR1"])
def test_what_is_no_parquet_file_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError, match=r"x\.parquet"):
        read_footer(lambda start, length: data[start:][:length], "x.parquet")


def test_the_table_of_statistics_has_a_row_a_file_and_typed_columns() -> None:
    file, _ = described(parquet())
    file.first_event_time_ms = 1000
    other = AddFile(path="without", rows=3)
    table = rows_of([file, other])
    assert table.column("path").to_pylist() == ["x.parquet", "without"]
    assert table.schema.field("min_id").type == pa.int64()
    assert table.schema.field("max_name").type == pa.string()
    assert table.column("min_id").to_pylist() == [1, None]
    assert table.column("nulls_id").to_pylist() == [1, None]
    assert table.column("first_event_time")[0].as_py() == datetime.fromtimestamp(1, UTC)
    assert table.column("footer")[1].as_py() is None
