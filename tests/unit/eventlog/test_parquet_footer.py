"""Footers: cut apart and joined again they are what they were, and one of a few blocks reads these blocks."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from custody.eventlog.parquet_footer import cut_footer, footer_of, key_values

TABLE = pa.table({"number": list(range(100)), "texts": [["a" * (n % 5)] * (n % 3) for n in range(100)]})


def parquet(table: pa.Table, rows: int, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=rows, **options)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def thrift(data: bytes) -> bytes:
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 100), st.sampled_from(["zstd", "none"]), st.booleans(), st.dictionaries(st.text(), st.text()))
def test_a_footer_that_is_cut_and_joined_is_what_it_was(
    rows: int, compression: str, statistics: bool, metadata: dict[str, str]
) -> None:
    data = parquet(TABLE.replace_schema_metadata(metadata), rows, compression=compression, write_statistics=statistics)
    parts = cut_footer(thrift(data))
    assert len(parts.row_groups) == -(-100 // rows)
    footer = thrift(data)
    assert footer_of(parts.before, parts.after, parts.row_groups, 100) == (
        b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    )


@pytest.mark.parametrize("numbers", [[0], [3], [2, 4], list(range(20))])
def test_a_footer_of_some_blocks_reads_these_blocks_of_the_whole_file(numbers: list[int]) -> None:
    data = parquet(TABLE, 5)
    parts = cut_footer(thrift(data))
    footer = footer_of(parts.before, parts.after, [parts.row_groups[n] for n in numbers], 5 * len(numbers))
    found = pq.ParquetFile(pa.BufferReader(data), metadata=pq.read_metadata(pa.BufferReader(footer))).read()
    assert found.equals(pa.concat_tables([TABLE.slice(5 * n, 5) for n in numbers]))


@given(st.binary(max_size=60))
def test_what_is_no_footer_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="expected a Parquet footer"):
        cut_footer(data)


def test_a_footer_that_breaks_off_is_refused() -> None:
    footer = thrift(parquet(TABLE, 5))
    parts = cut_footer(footer)
    for length in range(len(footer) - len(parts.after) - 1):
        with pytest.raises(ValueError, match="expected a Parquet footer"):
            cut_footer(footer[:length])


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.text(), st.text()))
def test_metadata_of_a_footer_is_what_pyarrow_reads(metadata: dict[str, str]) -> None:
    data = parquet(TABLE.replace_schema_metadata(metadata), 50)
    assert key_values(cut_footer(thrift(data)).after) == pq.read_metadata(pa.BufferReader(data)).metadata


def test_a_footer_may_have_no_metadata_or_a_key_alone() -> None:
    data = parquet(pa.table({"number": [1]}), 1, store_schema=False)
    assert pq.read_metadata(pa.BufferReader(data)).metadata is None
    assert key_values(cut_footer(thrift(data)).after) == {}
    assert key_values(b"\x19\x1c\x18\x01k\x00\x00") == {b"k": b""}


def test_metadata_that_breaks_off_is_refused() -> None:
    after = cut_footer(thrift(parquet(TABLE, 50))).after
    length = next(length for length in range(len(after)) if _is_read(after[:length]) and length)
    whole = key_values(after)
    assert key_values(after[:length]) == whole
    for shorter in range(1, length):
        with pytest.raises(ValueError, match="in a Parquet footer"):
            key_values(after[:shorter])
    for damaged in (
        b"\x19\x15\x02",
        b"\x19\x1c\x15\x02\x00",
        b"\x19\x1c\x18\x01a\x18\x01b\x18\x01c\x00",
        b"\x19\x1c\x00",
    ):
        with pytest.raises(ValueError, match="in a Parquet footer"):
            key_values(damaged)


def _is_read(after: bytes) -> bool:
    try:
        return bool(key_values(after))
    except ValueError:
        return False
