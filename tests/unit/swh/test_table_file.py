"""Files of tables: exact row groups and pages, an index that tells every key, and rows found as a scan finds them."""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import CorruptionError, FormatVersionError, InvalidInputError
from custody.swh.index_file import INDEX_SUFFIX, KeyIndex, read_index
from custody.swh.pages import COLUMN, PageCache, find_pages
from custody.swh.table_file import IndexedTable, write_table_file
from custody.swh.tables import CONTENTS_IN_REVISIONS, NODE_IDS, NODES, TABLES, hash_keys
from custody.vfs import PosixFileSystem
from tests.unit.swh.tables import SPEC, source, write

CONTENTS = sorted([*range(0, 300, 3), *[150] * 40, 297, 297])


def test_a_file_has_row_groups_of_one_size_statistics_page_indexes_and_checksums(
    tmp_path: Path, fs: PosixFileSystem
) -> None:
    written = write(fs, tmp_path, CONTENTS)
    path = tmp_path / written.name
    file = pq.ParquetFile(path, page_checksum_verification=True)
    assert file.schema_arrow.names == SPEC.schema.names
    assert file.read().num_rows == written.rows == len(CONTENTS)
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    assert {group.num_rows for group in groups[:-1]} == {8}
    key = groups[1].column(0)
    assert "DELTA_BINARY_PACKED" in key.encodings
    assert key.has_column_index and key.has_offset_index
    assert (key.statistics.min, key.statistics.max) == (CONTENTS[8], CONTENTS[15])
    assert [column.column_index for column in groups[0].sorting_columns] == [0, 2, 1]
    assert written.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    index = path.with_suffix(INDEX_SUFFIX).read_bytes()
    assert (written.index_bytes, written.index_sha256) == (len(index), hashlib.sha256(index).hexdigest())
    assert (written.first_key, written.last_key) == (CONTENTS[0], CONTENTS[-1])


def test_dates_are_seconds_and_ids_unsigned(tmp_path: Path, fs: PosixFileSystem) -> None:
    write(fs, tmp_path, [1, 2])
    table = IndexedTable(fs, SPEC, {tmp_path / "00000.parquet": None}).rows(np.array([2], np.uint64))
    assert table.schema.field("cnt").type == pa.uint64()
    assert table.column("revrel_author_date").cast(pa.timestamp("s", "UTC")).cast(pa.int64()).to_pylist() == [55]


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=120),
    st.sets(st.integers(0, 70), max_size=20),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from([0, 600, 1 << 20]),
    st.integers(1, 30),
)
def test_rows_are_found_by_key_as_a_scan_finds_them(
    tmp_path_factory: pytest.TempPathFactory,
    contents: list[int],
    asked: set[int],
    group_rows: int,
    page_rows: int,
    cache_bytes: int,
    first: int,
) -> None:
    folder, fs = tmp_path_factory.mktemp("table"), PosixFileSystem()
    contents.sort()
    cut = contents.index(contents[len(contents) // 2])  # a key is in one file
    spec = dataclasses.replace(SPEC, page_rows=page_rows)
    before, after = contents[:cut] or [0], contents[cut:]
    write(fs, folder, before, group_rows=group_rows, name="00000", spec=spec)
    write(fs, folder, after, group_rows=group_rows, name="00001", spec=spec)
    held = Counter(before + after)
    table = IndexedTable(
        fs, SPEC, {folder / f"0000{number}.parquet": None for number in (1, 0)}, PageCache(cache_bytes)
    )
    rows = table.rows(np.array([*asked, *asked], np.uint64), ["revrel"])
    assert rows.schema.names == ["cnt", "revrel"]
    assert rows.column("cnt").to_pylist() == sorted(key for key in held.elements() if key in asked)
    whole = rows.column("revrel").to_pylist()
    for key in asked:
        alone = table.rows(np.array([key], np.uint64))
        assert alone.num_rows == held[key]
        assert table.rows(np.array([key], np.uint64), first=first).equals(alone.slice(0, first))
    start = 0
    some = table.rows(np.array([*asked], np.uint64), ["revrel"], first)
    expected = []
    for key in sorted(asked):
        expected += whole[start : start + min(held[key], first)]
        start += held[key]
    assert some.column("revrel").to_pylist() == expected


def test_an_index_names_no_page_that_it_does_not_need(tmp_path: Path, fs: PosixFileSystem) -> None:
    write(fs, tmp_path, [*range(8), *[8] * 20, *range(9, 40)])
    index = read_index(fs, tmp_path / "00000.ef")
    for key, pages in ((3, [0]), (8, [0, 1, 2, 3])):  # the page before may end with the key
        assert index.pages.of_keys(np.array([key], np.uint64)) == pages
        assert list(index.pages.of_key(key)) == pages
    assert index.pages.of_keys(np.array([1, 39], np.uint64)) == [0, index.pages.count - 1]
    assert index.held(np.array([0, 39, 40, 1 << 62], np.uint64)).tolist() == [0, 39]


def test_an_index_tells_where_each_page_of_each_column_is(tmp_path: Path, fs: PosixFileSystem) -> None:
    spec = dataclasses.replace(TABLES[NODE_IDS], page_rows=10)
    hashes = sorted(hashlib.sha1(b"%d" % number).digest() for number in range(70))  # noqa: S324
    kinds = ["rev" if number % 3 else "cnt" for number in range(70)]
    rows = pa.table({"sha1_git": pa.array(hashes), "type": kinds, "id": pa.array(range(70), pa.int64())})
    pq.write_table(rows, tmp_path / "source.parquet")
    write_table_file(fs, spec, [tmp_path / "source.parquet"], tmp_path / "0.parquet", group_rows=25)
    index, data = read_index(fs, tmp_path / "0.ef"), (tmp_path / "0.parquet").read_bytes()
    assert [index.pages.places(page)[0] for page in range(index.pages.count)] == [10, 10, 5, 10, 10, 5, 10, 10]
    assert [int(column["size"]) > 0 for column in index.pages.columns] == [False, False, True, False], "dictionaries"
    for page in range(index.pages.count):
        for offset, word in zip(*[iter(index.pages.places(page)[1:])] * 2, strict=True):
            assert zlib.crc32(data[offset:][: word & 0xFFFFFFFF]) == word >> 32
    table = IndexedTable(fs, spec, {tmp_path / "0.parquet": None})
    found = table.rows(hash_keys(pa.array(hashes, pa.binary(20))))
    assert found.column("type").to_pylist() == kinds
    assert found.column("sha1_git").to_pylist() == hashes
    assert table.rows(hash_keys(pa.array(hashes[40:41], pa.binary(20)))).column("id").to_pylist() == [40]
    assert pq.read_table(tmp_path / "0.parquet").column("type").to_pylist() == kinds, "for readers of other makes"


def test_a_type_that_no_node_has_is_refused(tmp_path: Path, fs: PosixFileSystem) -> None:
    rows = pa.table({"id": pa.array([1]), "type": ["tree"], "sha1_git": pa.array([bytes(20)])})
    pq.write_table(rows, tmp_path / "source.parquet")
    with pytest.raises(InvalidInputError, match="column 'type': expected one of"):
        write_table_file(fs, TABLES[NODES], [tmp_path / "source.parquet"], tmp_path / "0.parquet")


def test_pages_of_other_rows_than_the_index_would_say_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"cnt": range(30)}), tmp_path / "0.parquet", max_rows_per_page=7, compression="zstd")
    data = memoryview((tmp_path / "0.parquet").read_bytes())
    with pytest.raises(CorruptionError, match=r"column 0: expected pages of 10 rows .* got 5 pages"):
        find_pages(data, pq.read_metadata(tmp_path / "0.parquet"), 10, tmp_path / "0.parquet")


def test_a_table_without_a_row_has_no_file(tmp_path: Path, fs: PosixFileSystem) -> None:
    assert write_table_file(fs, SPEC, [source(tmp_path, [])], tmp_path / "0.parquet") is None
    assert not (tmp_path / "0.parquet").exists()
    assert IndexedTable(fs, SPEC, {}).rows(np.array([1], np.uint64)).num_rows == 0


def test_rows_that_are_not_sorted_or_not_there_are_refused(tmp_path: Path, fs: PosixFileSystem) -> None:
    with pytest.raises(InvalidInputError, match="expected rows sorted by cnt"):
        write_table_file(fs, SPEC, [source(tmp_path, [3, 2])], tmp_path / "0.parquet")
    broken = pq.read_table(source(tmp_path, [1])).set_column(1, "revrel", pa.nulls(1, pa.int64()))
    pq.write_table(broken, tmp_path / "broken.parquet")
    with pytest.raises(InvalidInputError, match="column 'revrel': expected a value in each row"):
        write_table_file(fs, SPEC, [tmp_path / "broken.parquet"], tmp_path / "1.parquet")


def test_keys_of_hashes_sort_as_the_hashes_do(tmp_path: Path, fs: PosixFileSystem) -> None:
    hashes = sorted(hashlib.sha1(b"%d" % number).digest() for number in range(200))  # noqa: S324
    keys = hash_keys(pa.array(hashes, pa.binary(20)).slice(10))
    assert keys.tolist() == [int.from_bytes(digest[:8], "big") >> 1 for digest in hashes[10:]]
    rows = {"sha1_git": pa.array(hashes), "type": ["cnt"] * 200, "id": pa.array(range(200), pa.int64())}
    pq.write_table(pa.table(rows), tmp_path / "source.parquet")
    write_table_file(fs, TABLES[NODE_IDS], [tmp_path / "source.parquet"], tmp_path / "0.parquet", group_rows=16)
    found = IndexedTable(fs, TABLES[NODE_IDS], {tmp_path / "0.parquet": None}).rows(keys[5:6])
    assert found.column("sha1_git").to_pylist() == [hashes[15]]


def test_a_flipped_bit_anywhere_in_an_index_is_refused(tmp_path: Path, fs: PosixFileSystem) -> None:
    write(fs, tmp_path, CONTENTS[:24])
    path = tmp_path / "00000.ef"
    right, keys = path.read_bytes(), np.array(CONTENTS[:24], np.uint64)
    for place in range(len(right)):
        path.write_bytes(right[:place] + bytes([right[place] ^ (1 << place % 8)]) + right[place + 1 :])
        wanted = FormatVersionError if place == 7 else CorruptionError
        with pytest.raises(wanted, match=r"00000\.ef @"):
            read_index(fs, path).check()
        with pytest.raises(wanted, match=r"00000\.ef @"):
            IndexedTable(fs, SPEC, {path.with_suffix(".parquet"): None}).rows(keys)


def test_damage_in_a_block_of_an_index_costs_only_answers_that_need_it(tmp_path: Path, fs: PosixFileSystem) -> None:
    contents = list(range(0, 1_500_000, 5))
    write(fs, tmp_path, contents, group_rows=1 << 16)
    path = tmp_path / "00000.ef"
    index, data = read_index(fs, path), bytearray(path.read_bytes())
    assert len(index.keys.ones_before) > 10, "blocks"
    assert index.held(np.arange(2000, dtype=np.uint64)).tolist() == list(range(0, 2000, 5))
    data[-8 * len(index.words) + 8 * index.keys.high_words // 2] ^= 1
    path.write_bytes(data)
    table = IndexedTable(fs, SPEC, {tmp_path / "00000.parquet": None})
    for key in (0, 1_499_995):
        assert table.rows(np.array([key], np.uint64)).column("cnt").to_pylist() == [key]
    with pytest.raises(CorruptionError, match=r"00000\.ef @\d+: the checksum of a block"):
        table.rows(np.array([750_000], np.uint64))
    with pytest.raises(CorruptionError, match=r"00000\.ef @\d+: the checksum of a block"):
        table.rows(np.array(contents[::1000], np.uint64))


def small_index() -> bytes:
    """Two keys on one page of one column."""
    columns, places = np.zeros(1, COLUMN), np.array([[2, 4, 30]], np.uint64)
    return KeyIndex.of(np.array([5, 9], np.uint64), columns, np.array([5], np.uint64), places, bytes(32)).encode()


def test_every_cut_of_an_index_is_refused(tmp_path: Path, fs: PosixFileSystem) -> None:
    data = small_index()
    for length in range(len(data)):
        path = tmp_path / f"{length}.ef"
        path.write_bytes(data[:length])
        with pytest.raises(CorruptionError):
            read_index(fs, path)


def test_an_index_that_is_not_the_one_of_the_catalog_is_refused(tmp_path: Path, fs: PosixFileSystem) -> None:
    written = write(fs, tmp_path, CONTENTS)
    path = tmp_path / written.name
    listed = bytes.fromhex(written.sha256)
    assert IndexedTable(fs, SPEC, {path: listed}).rows(np.array([150], np.uint64)).num_rows == 41
    for one in (path, path.with_suffix(INDEX_SUFFIX)):
        one.unlink()
    write(fs, tmp_path, CONTENTS[1:])
    with pytest.raises(CorruptionError, match=r"00000\.ef @56: expected the index .*, as the catalog says"):
        IndexedTable(fs, SPEC, {path: listed}).rows(np.array([150], np.uint64))


def test_an_index_whose_words_do_not_fit_its_head_is_refused(tmp_path: Path, fs: PosixFileSystem) -> None:
    data = small_index()
    end = len(data) - 8 * len(read_index_of(fs, tmp_path, data).words) - 32
    fields = {
        24: (8, (0, 3, 1 << 60)),
        32: (4, (64,)),
        36: (4, (0, 2)),
        40: (8, (0, 1 << 60)),
        48: (8, (0, 2, 1 << 60)),
    }
    for offset, (width, values) in fields.items():
        for value in values:
            hostile = data[:offset] + value.to_bytes(width, "little") + data[offset + width : end]
            with pytest.raises(CorruptionError, match=r"0\.ef"):
                read_index_of(fs, tmp_path, hostile + hashlib.sha256(hostile).digest() + data[end + 32 :]).check()


def read_index_of(fs: PosixFileSystem, folder: Path, data: bytes) -> KeyIndex:
    (folder / "0.ef").write_bytes(data)
    return read_index(fs, folder / "0.ef")


def test_a_file_of_another_index_or_no_parquet_at_all_is_refused(tmp_path: Path, fs: PosixFileSystem) -> None:
    write(fs, tmp_path, CONTENTS)
    path = tmp_path / "00000.parquet"
    right = path.read_bytes()
    (tmp_path / "elsewhere").mkdir()
    write(fs, tmp_path / "elsewhere", [*CONTENTS[:-1], 298])
    for wrong in (
        (tmp_path / "elsewhere" / "00000.parquet").read_bytes(),
        b"",
        b"PAR1",
        right[: len(right) // 4],
    ):
        path.write_bytes(wrong)
        with pytest.raises(CorruptionError, match=r"00000\.parquet"):
            IndexedTable(fs, SPEC, {path: None}).rows(np.array(CONTENTS, np.uint64))


@pytest.mark.in_parts(2)
def test_a_flipped_bit_anywhere_in_a_page_is_an_error_and_elsewhere_in_a_file_changes_nothing(
    tmp_path: Path, fs: PosixFileSystem
) -> None:
    write(fs, tmp_path, CONTENTS[:6], group_rows=6, spec=dataclasses.replace(SPEC, page_rows=3))
    path = tmp_path / "00000.parquet"
    right, keys = path.read_bytes(), np.array(CONTENTS[:6], np.uint64)
    expected = IndexedTable(fs, SPEC, {path: None}).rows(keys)
    metadata = pq.read_metadata(path)
    pages = 0
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        pages += sum(group.column(number).total_compressed_size for number in range(group.num_columns))
    noticed = 0
    for place in range(len(right)):
        path.write_bytes(right[:place] + bytes([right[place] ^ (1 << place % 8)]) + right[place + 1 :])
        try:
            assert IndexedTable(fs, SPEC, {path: None}).rows(keys).equals(expected), f"byte {place}"
        except CorruptionError as error:
            assert str(path) in str(error)
            noticed += 1
    # What no question reads: the first four bytes, page indexes and the footer, which are there for others.
    assert noticed == pages


def test_damage_in_a_page_is_noticed_by_a_question_about_its_rows_only(tmp_path: Path, fs: PosixFileSystem) -> None:
    write(fs, tmp_path, CONTENTS)
    path = tmp_path / "00000.parquet"
    start = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[start + 40] ^= 1
    path.write_bytes(data)
    table = IndexedTable(fs, SPEC, {path: None})
    with pytest.raises(CorruptionError, match=r"00000\.parquet: pages 0 to 0 cannot be read: the checksum of the page"):
        table.rows(np.array([0], np.uint64))
    assert table.rows(np.array([150], np.uint64)).num_rows == 41


def test_a_footer_says_of_which_version_of_a_graph_the_table_is(tmp_path: Path) -> None:
    rows = pa.table({"cnt": [1, 2], "revrel": [3, 4], "revrel_author_date": [5, 6], "path": [b"a", b"b"]})
    pq.write_table(rows, tmp_path / "source.parquet")
    spec = TABLES[CONTENTS_IN_REVISIONS].with_footer({"swh_graph_version": "2024-12-06"})
    assert write_table_file(PosixFileSystem(), spec, [tmp_path / "source.parquet"], tmp_path / "0.parquet") is not None
    footer = pq.read_metadata(tmp_path / "0.parquet").metadata
    assert footer is not None
    assert footer[b"swh_graph_version"] == b"2024-12-06"
    plain = TABLES[CONTENTS_IN_REVISIONS].with_footer({})
    assert write_table_file(PosixFileSystem(), plain, [tmp_path / "source.parquet"], tmp_path / "1.parquet") is not None
    assert pq.read_metadata(tmp_path / "1.parquet").metadata is None
