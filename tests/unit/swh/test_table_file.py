"""Files of tables: exact row groups, an index that tells every key, and rows found by key as a scan finds them."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import CorruptionError, FormatVersionError, InvalidInputError
from custody.swh.group_cache import GroupCache
from custody.swh.index_file import INDEX_SUFFIX, KeyIndex, read_index
from custody.swh.table import Table
from custody.swh.table_file import write_table_file
from custody.swh.tables import NODE_IDS, TABLES, hash_keys
from custody.vfs import PosixFileSystem
from tests.unit.swh.tables import SPEC, source, write

CONTENTS = sorted([*range(0, 300, 3), *[150] * 40, 297, 297])


def test_a_file_has_row_groups_of_one_size_statistics_page_indexes_and_checksums(
    tmp_path: Path, fs: PosixFileSystem
) -> None:
    made = write(fs, tmp_path, CONTENTS)
    path = tmp_path / made.name
    file = pq.ParquetFile(path, page_checksum_verification=True)
    assert file.schema_arrow.names == SPEC.schema.names
    assert file.read().num_rows == made.rows == len(CONTENTS)
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    assert {group.num_rows for group in groups[:-1]} == {8}
    key = groups[1].column(0)
    assert "DELTA_BINARY_PACKED" in key.encodings
    assert key.has_column_index and key.has_offset_index
    assert (key.statistics.min, key.statistics.max) == (CONTENTS[8], CONTENTS[15])
    assert [column.column_index for column in groups[0].sorting_columns] == [0, 2, 1]
    assert made.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    index = path.with_suffix(INDEX_SUFFIX).read_bytes()
    assert (made.index_bytes, made.index_sha256) == (len(index), hashlib.sha256(index).hexdigest())
    assert (made.first_key, made.last_key) == (CONTENTS[0], CONTENTS[-1])


def test_dates_are_seconds_and_ids_unsigned(tmp_path: Path, fs: PosixFileSystem) -> None:
    write(fs, tmp_path, [1, 2])
    table = Table(fs, SPEC, {tmp_path / "00000.parquet": None}).rows(np.array([2], np.uint64))
    assert table.schema.field("cnt").type == pa.uint64()
    assert table.column("revrel_author_date").cast(pa.timestamp("s", "UTC")).cast(pa.int64()).to_pylist() == [55]


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=120),
    st.sets(st.integers(0, 70), max_size=20),
    st.integers(1, 9),
    st.sampled_from([0, 600, 1 << 20]),
    st.integers(1, 30),
)
def test_rows_are_found_by_key_as_a_scan_finds_them(
    tmp_path_factory: pytest.TempPathFactory,
    contents: list[int],
    asked: set[int],
    group_rows: int,
    cache_bytes: int,
    first: int,
) -> None:
    folder, fs = tmp_path_factory.mktemp("table"), PosixFileSystem()
    contents.sort()
    cut = len(contents) // 2
    write(fs, folder, contents[:cut] or [0], group_rows=group_rows, name="00000")
    write(fs, folder, contents[cut:], group_rows=group_rows, name="00001")
    held = Counter((contents[:cut] or [0]) + contents[cut:])
    table = Table(fs, SPEC, {folder / f"0000{number}.parquet": None for number in (1, 0)}, GroupCache(cache_bytes))
    found = table.rows(np.array([*asked, *asked], np.uint64), ["revrel"])
    assert found.schema.names == ["cnt", "revrel"]
    assert found.column("cnt").to_pylist() == sorted(key for key in held.elements() if key in asked)
    whole = found.column("revrel").to_pylist()
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


def test_an_index_names_no_row_group_that_it_does_not_need(tmp_path: Path, fs: PosixFileSystem) -> None:
    write(fs, tmp_path, [*range(8), *[8] * 20, *range(9, 40)])
    index = read_index(fs, tmp_path / "00000.ef")
    assert index.groups(np.array([3], np.uint64)) == [0]
    assert index.groups(np.array([8], np.uint64)) == [0, 1, 2, 3]  # the group before may end with the key
    assert index.groups(np.array([1, 39], np.uint64)) == [0, len(index.group_firsts) - 1]
    assert index.held(np.array([0, 39, 40, 1 << 62], np.uint64)).tolist() == [0, 39]


def test_a_table_without_a_row_has_no_file(tmp_path: Path, fs: PosixFileSystem) -> None:
    assert write_table_file(fs, SPEC, [source(tmp_path, [])], tmp_path / "0.parquet") is None
    assert not (tmp_path / "0.parquet").exists()
    assert Table(fs, SPEC, {}).rows(np.array([1], np.uint64)).num_rows == 0


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
    found = Table(fs, TABLES[NODE_IDS], {tmp_path / "0.parquet": None}).rows(keys[5:6])
    assert found.column("sha1_git").to_pylist() == [hashes[15]]


@pytest.mark.parametrize("place", [0, 7, 8, 40, 60, -1])
def test_a_damaged_index_is_refused(tmp_path: Path, fs: PosixFileSystem, place: int) -> None:
    write(fs, tmp_path, CONTENTS)
    path = tmp_path / "00000.ef"
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
    with pytest.raises(FormatVersionError if place == 7 else CorruptionError, match=r"00000\.ef @"):
        read_index(fs, path)


def test_every_cut_of_an_index_is_refused(tmp_path: Path, fs: PosixFileSystem) -> None:
    data = KeyIndex.of(np.array([5, 9], np.uint64), np.array([5], np.uint64), bytes(32)).encode()
    for length in range(len(data)):
        path = tmp_path / f"{length}.ef"
        path.write_bytes(data[:length])
        with pytest.raises(CorruptionError):
            read_index(fs, path)


def test_an_index_that_is_not_the_one_of_the_catalog_is_refused(tmp_path: Path, fs: PosixFileSystem) -> None:
    made = write(fs, tmp_path, CONTENTS)
    path = tmp_path / made.name
    listed = bytes.fromhex(made.index_sha256)
    assert Table(fs, SPEC, {path: listed}).rows(np.array([150], np.uint64)).num_rows == 41
    for one in (path, path.with_suffix(INDEX_SUFFIX)):
        one.unlink()
    write(fs, tmp_path, CONTENTS[1:])
    with pytest.raises(CorruptionError, match=r"00000\.ef @0: expected the index .*, as the catalog says"):
        Table(fs, SPEC, {path: listed}).rows(np.array([150], np.uint64))


def test_an_index_whose_words_do_not_fit_its_head_is_refused(tmp_path: Path, fs: PosixFileSystem) -> None:
    data = bytearray(KeyIndex.of(np.array([5, 9], np.uint64), np.array([5], np.uint64), bytes(32)).encode()[:-32])
    for offset, value in ((24, 3), (32, 64), (36, 0), (36, 2), (40, 1 << 60)):
        width = 4 if offset in (32, 36) else 8
        hostile = data[:offset] + value.to_bytes(width, "little") + data[offset + width :]
        (tmp_path / "0.ef").write_bytes(hostile + hashlib.sha256(hostile).digest())
        with pytest.raises(CorruptionError, match=r"0\.ef @"):
            read_index(fs, tmp_path / "0.ef")


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
        right[:-1],
        b"\xff" * 12 + right[-4:],
    ):
        path.write_bytes(wrong)
        with pytest.raises(CorruptionError, match=r"00000\.parquet"):
            Table(fs, SPEC, {path: None}).rows(np.array([150], np.uint64))


def test_a_flipped_bit_anywhere_in_a_file_gives_the_right_rows_or_an_error(tmp_path: Path, fs: PosixFileSystem) -> None:
    write(fs, tmp_path, CONTENTS[:20], group_rows=10)
    path = tmp_path / "00000.parquet"
    right, keys = path.read_bytes(), np.array(CONTENTS[:20], np.uint64)
    expected = Table(fs, SPEC, {path: None}).rows(keys)
    noticed = 0
    for place in range(len(right)):
        path.write_bytes(right[:place] + bytes([right[place] ^ (1 << place % 8)]) + right[place + 1 :])
        try:
            assert Table(fs, SPEC, {path: None}).rows(keys).equals(expected), f"byte {place}"
        except CorruptionError:
            noticed += 1
    # What nobody reads may change: the first four bytes, page indexes, and what else a page's head says.
    assert noticed > len(right) * 0.6


def test_damage_in_a_page_is_noticed(tmp_path: Path, fs: PosixFileSystem) -> None:
    write(fs, tmp_path, CONTENTS)
    path = tmp_path / "00000.parquet"
    start = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[start + 40] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=r"00000\.parquet: row group 0 cannot be read"):
        Table(fs, SPEC, {path: None}).rows(np.array([0], np.uint64))
