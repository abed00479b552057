"""Footers: cut apart and joined again they are what they were, and one of a few blocks reads these blocks."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from custody.eventlog.parquet_footer import cut_footer, footer_of

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
