"""Facts that a step reads from the footers of Spark's files, without a Spark job."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from custody.spark.swh.work import BYTES_OF_A_NODE, BYTES_OF_AN_ARC, Sizes, any_in, rows_in


def write(folder: Path, *files: list[bool], statistics: bool = True) -> Path:
    for number, moved in enumerate(files):
        table = pa.table({"node": range(len(moved)), "moved": pa.array(moved, pa.bool_())})
        path = folder / f"part-{number}.snappy.parquet"
        pq.write_table(table, path, row_group_size=2, write_statistics=statistics)
    (folder / "_SUCCESS").touch()
    return folder


def test_rows_are_counted_over_all_files(tmp_path: Path) -> None:
    assert rows_in(write(tmp_path, [True] * 5, [], [False] * 2)) == 7
    assert rows_in(tmp_path / "none") == 0


@pytest.mark.parametrize(
    ("files", "expected"),
    [([[False] * 5, [False]], False), ([[False] * 5, [False, False, True]], True), ([[]], False), ([], False)],
)
def test_whether_any_row_is_true_is_in_the_statistics(tmp_path: Path, files: list[list[bool]], expected: bool) -> None:
    assert any_in(write(tmp_path, *files), "moved") is expected


def test_without_statistics_a_row_may_be_true(tmp_path: Path) -> None:
    assert any_in(write(tmp_path, [False] * 3, statistics=False), "moved")


@pytest.mark.parametrize("memory", [0, 100, 240, 1 << 30, 3_600_000_000])
def test_arcs_of_a_range_and_numbers_of_nodes_take_no_more_than_the_memory(memory: int) -> None:
    sizes = Sizes.of_memory(memory)
    assert sizes.arcs_in_arrays * BYTES_OF_AN_ARC <= memory
    room = sizes.room
    # At least one arc has to be looked at.
    assert room.arcs * BYTES_OF_AN_ARC <= max(memory // 2, BYTES_OF_AN_ARC)
    assert room.nodes * BYTES_OF_A_NODE <= memory // 2
