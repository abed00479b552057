"""The table of statistics beside a checkpoint: each of its bits counts, and tables of earlier releases are read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from custody.catalog import Action, AddFile, RemoveFile, verify
from custody.catalog.statistics import read_statistics, table_key
from tests.support import flipped
from tests.unit.catalog.catalogs import add, build, open_catalog, transactions


@pytest.mark.parametrize("step", [37, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
def test_each_flipped_bit_of_a_table_is_named_and_none_is_read(tmp_path: Path, step: int) -> None:
    catalog = build(tmp_path, 2)
    catalog.checkpoint()
    state = catalog.load()
    key = table_key(catalog.objects, state)
    path = tmp_path / key
    good = path.read_bytes()
    assert verify(open_catalog(tmp_path), files=False).notices == []
    for bit in range(0, 8 * len(good), step):
        path.write_bytes(flipped(good, bit))
        assert read_statistics(catalog.objects, state) is None, f"bit {bit} of {8 * len(good)}"
    path.write_bytes(flipped(good, 4321))
    [notice] = verify(open_catalog(tmp_path), files=False).notices
    assert str(path) in notice
    # What comes next is not made from a damaged one.
    catalog.commit([add("more", 50)])
    catalog.checkpoint()
    table = read_statistics(catalog.objects, catalog.load())
    assert table is not None
    assert sorted(table.column("path").to_pylist()) == ["file-0", "file-1", "more"]
    assert sorted(table.column("first_event_id").to_pylist()) == [0, 10, 50]
    [notice] = verify(open_catalog(tmp_path), files=False).notices
    assert f"{path}: the table of statistics is lost or damaged; nothing reads it any more" in notice


def test_a_table_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    catalog = build(tmp_path, 2)
    catalog.checkpoint()
    state = catalog.load()
    path = tmp_path / table_key(catalog.objects, state)
    table = read_statistics(catalog.objects, state)
    assert table is not None
    earlier = table.replace_schema_metadata({"custody_catalog": f"{state.catalog_id}:{state.revision}"})
    sink = pa.BufferOutputStream()
    pq.write_table(earlier, sink, compression="zstd", write_page_checksum=True, store_schema=True)
    path.write_bytes(sink.getvalue().to_pybytes())
    assert read_statistics(catalog.objects, state) == table
    assert verify(open_catalog(tmp_path), files=False).notices == []


def test_a_file_that_is_listed_again_with_other_bytes_has_its_new_row(tmp_path: Path) -> None:
    catalog = build(tmp_path, 2)
    catalog.checkpoint()
    mended = AddFile(path="file-0", rows=9, size_bytes=77, last_event_id=9, sha256=b"n" * 32)
    catalog.commit([Action(remove_file=RemoveFile(path="file-0")), Action(add_file=mended)])
    catalog.checkpoint()
    assert len(transactions(tmp_path, "ckpt")) == 2
    table = read_statistics(catalog.objects, catalog.load())
    assert table is not None
    rows = {row["path"]: row for row in table.to_pylist()}
    assert (rows["file-0"]["size_bytes"], rows["file-0"]["sha256"]) == (77, b"n" * 32)
    assert rows["file-1"]["rows"] == 10
