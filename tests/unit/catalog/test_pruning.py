"""What the catalog knows of logs rules out logs and blocks, and never one that holds what is asked for."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from custody.catalog import AddFile
from custody.catalog.footers import describe
from custody.catalog.pruning import BloomFilter, PrunedReads, Restriction
from custody.catalog.transaction_pb2 import FileStatistics
from custody.errors import CorruptionError
from custody.eventlog import TableOfContents
from custody.eventlog.toc import describe as describe_blocks
from custody.eventlog.toc import footer_of_log

ROWS, BLOCKS = 400, 8


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> tuple[AddFile, TableOfContents, pa.Table]:
    """A file of 8 blocks as the catalog lists it, its blocks, and its rows; the last block has no size at all."""
    per_block = ROWS // BLOCKS
    table = pa.table(
        {
            "event_id": pa.array(range(ROWS), pa.int64()),
            "event_time": pa.array(range(0, 10 * ROWS, 10), pa.timestamp("ms", "UTC")),
            "file_size": pa.array(
                [None if n >= ROWS - per_block else (n * 37) % 1000 for n in range(ROWS)], pa.int64()
            ),
            "source_node": pa.array([f"node-{n // 100}ä" for n in range(ROWS)], pa.string()),
            "flowfile_uuid": pa.array([f"uuid-{n}" for n in range(ROWS)], pa.string()),
        }
    )
    path = tmp_path_factory.mktemp("pruning") / "log.parquet"
    pq.write_table(
        table,
        path,
        row_group_size=per_block,
        write_statistics=["event_id", "event_time", "file_size", "source_node"],
        bloom_filter_options={"flowfile_uuid": {"ndv": 100, "fpp": 0.01}},
    )
    data = path.read_bytes()
    file = AddFile(path="log.parquet", sha256=b"x" * 32, rows=ROWS, first_event_id=0, last_event_id=ROWS - 1)
    file.first_event_time_ms, file.last_event_time_ms = 0, 10 * (ROWS - 1)
    describe(file, lambda start, length: data[start:][:length])
    # As a checkpoint keeps it.
    file.footer = b""
    footer, offset = footer_of_log(memoryview(data), path)
    return file, describe_blocks(footer, offset, memoryview(data)), table


def blocks_with(table: pa.Table, column: str, values: set[object]) -> set[int]:
    per_block = ROWS // BLOCKS
    return {number // per_block for number, value in enumerate(table[column].to_pylist()) if value in values}


@pytest.mark.parametrize("number", [0, 49, 50, 233, 399])
def test_a_bloom_filter_keeps_the_block_that_has_the_value(
    listed: tuple[AddFile, TableOfContents, pa.Table], number: int
) -> None:
    file, toc, table = listed
    restriction = Restriction(column="flowfile_uuid", values=(f"uuid-{number}".encode(),))
    # They are in the entry: whoever plans a scan elsewhere reads no table of contents.
    assert PrunedReads().blocks_of(file, [[restriction]]) == PrunedReads().blocks_of(file, [[restriction]], toc)
    reads = PrunedReads()
    blocks = reads.blocks_of(file, [[restriction]])
    assert blocks is not None
    assert blocks_with(table, "flowfile_uuid", {f"uuid-{number}"}) <= set(blocks)
    assert len(blocks) <= 2, "one in a hundred is passed by chance"
    assert (reads.logs, reads.blocks, reads.blocks_pruned) == (1, BLOCKS, BLOCKS - len(blocks))
    assert set(reads.by) == {"flowfile_uuid bloom"}


def test_a_bloom_filter_has_every_value_of_its_block_and_few_others(
    listed: tuple[AddFile, TableOfContents, pa.Table],
) -> None:
    file, _, _ = listed
    [column] = [each for each in FileStatistics.FromString(file.statistics).columns if each.blooms]
    assert len(column.blooms) == BLOCKS
    filters = [BloomFilter(data) for data in column.blooms]
    per_block = ROWS // BLOCKS
    assert all(filters[n // per_block].may_have(f"uuid-{n}".encode()) for n in range(ROWS))
    strangers = sum(filters[0].may_have(f"stranger-{n}".encode()) for n in range(2000))
    assert strangers < 60


def test_bounds_rule_out_blocks_of_numbers_texts_and_absent_values(
    listed: tuple[AddFile, TableOfContents, pa.Table],
) -> None:
    file, toc, table = listed
    for restriction, wanted in (
        (Restriction(column="event_id", least=120, greatest=130), {2}),
        (Restriction(column="event_id", values=(7, 399)), {0, 7}),
        (Restriction(column="event_time", least=500, greatest=990), {1}),
        (Restriction(column="event_time", greatest=-1), set()),
        (Restriction(column="source_node", values=("node-2ä".encode(),)), {4, 5}),
        (Restriction(column="source_node", least="node-3ä".encode()), {6, 7}),
    ):
        blocks = PrunedReads().blocks_of(file, [[restriction]], toc)
        assert set(blocks or ()) == wanted
    sized = PrunedReads().blocks_of(file, [[Restriction(column="file_size", least=0)]], toc)
    assert sized == [0, 1, 2, 3, 4, 5, 6], "a block without any size can hold none"
    assert blocks_with(table, "file_size", {999 - 999}) <= set(sized or ())


def test_an_event_that_one_of_several_places_needs_is_kept(listed: tuple[AddFile, TableOfContents, pa.Table]) -> None:
    file, toc, _ = listed
    either = [[Restriction(column="event_id", values=(3,))], [Restriction(column="event_id", values=(60,))]]
    assert PrunedReads().blocks_of(file, either, toc) == [0, 1]
    both = [[Restriction(column="event_id", least=60), Restriction(column="event_id", greatest=149)]]
    assert PrunedReads().blocks_of(file, both, toc) == [1, 2]
    assert PrunedReads().blocks_of(file, [[Restriction(column="event_id", values=(3,))], []], toc) is None
    assert PrunedReads().blocks_of(file, [], toc) is None


def test_a_log_that_is_ruled_out_counts_with_all_its_blocks(listed: tuple[AddFile, TableOfContents, pa.Table]) -> None:
    file, toc, _ = listed
    reads = PrunedReads()
    assert reads.blocks_of(file, [[Restriction(column="event_id", least=400)]], toc) == []
    assert (reads.logs_pruned, reads.blocks_pruned) == (1, BLOCKS)
    # Compared as what it is not: nothing is ruled out.
    assert reads.blocks_of(file, [[Restriction(column="event_id", values=(b"7",))]], toc) is None
    assert reads.blocks_of(file, [[Restriction(column="details", values=(b"7",))]], toc) is None


@pytest.mark.parametrize("damage", ["statistics", "bloom"])
def test_damage_to_what_the_catalog_knows_rules_out_nothing(
    listed: tuple[AddFile, TableOfContents, pa.Table], damage: str
) -> None:
    file = AddFile()
    toc = listed[1]
    file.CopyFrom(listed[0])
    file.sha256 = damage.encode().ljust(32)
    if damage == "statistics":
        file.statistics = b"\xff" * 20
    else:
        statistics = FileStatistics.FromString(file.statistics)
        for column in statistics.columns:
            column.blooms[:] = [data[1:] for data in column.blooms]
        file.statistics = statistics.SerializeToString()
    restriction = Restriction(column="flowfile_uuid", values=(b"uuid-3",))
    assert PrunedReads().blocks_of(file, [[restriction]], toc) is None
    assert PrunedReads().blocks_of(file, [[restriction]]) is None


@pytest.mark.parametrize("data", [b"", b"\x15", b"\x15\x40" + b"\x00" * 45, b"\x00" * 64])
def test_what_is_no_bloom_filter_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="bloom filter"):
        BloomFilter(data)
