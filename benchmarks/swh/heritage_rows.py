"""Comparison by row: the tables of Software Heritage's programs and custody's tables of the same graph.

Ids of a compressed graph are its own; they are told from those of the made-up graph by the identifiers. Of two paths
either may be kept there, here it has to be the one with the fewest names, and of these the smallest in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.swh.export import hashes_by_id
from custody.swh.tables import (
    CONTENTS_IN_DIRECTORIES,
    CONTENTS_IN_REVISIONS,
    DIRECTORIES_IN_REVISIONS,
    EARLIEST,
    NODES,
    REVISIONS_IN_ORIGINS,
    TABLES,
)

_COMPARED = (CONTENTS_IN_REVISIONS, CONTENTS_IN_DIRECTORIES, DIRECTORIES_IN_REVISIONS, REVISIONS_IN_ORIGINS)
_KINDS = ("cnt", "dir", "ori", "rel", "rev", "snp")
"""By the numbers that a compressed graph has for them."""
_PATHS_AT_ONCE = 1_000_000
_NO_DATE = np.iinfo(np.int64).min


def compare(graph: Path, compressed: Path, theirs: Path, ours: Path) -> Iterator[str]:
    """Yield one line a table: how many rows there are, how many only one of the two has, where columns differ.

    Args:
        graph: the made-up graph.
        compressed: what files of the compressed graph begin with.
        theirs: folder of their tables.
        ours: folder of custody's, a folder a table.
    """
    id_of = ids_here(graph, compressed)
    for name in _COMPARED:
        yield f"  {name}: {compare_table(name, theirs, ours, id_of)}\n"
    held = [np.unique(_column(folder / NODES, "id")) for folder in (theirs, ours)]
    there = np.sort(id_of[held[0]])
    yield f"  {NODES}: {_sets(there, held[1])}\n"
    frontier = np.sort(id_of[_column(theirs / "directory_frontier", "id")])
    listed = np.unique(_column(ours / CONTENTS_IN_DIRECTORIES, "dir"))
    yield f"  directory_frontier, here the directories of {CONTENTS_IN_DIRECTORIES}: {_sets(frontier, listed)}\n"
    yield f"  earliest dates: {_compare_dates(theirs / 'earliest.bin', ours, id_of, hashes_by_id(graph)[1])}\n"


def ids_here(graph: Path, compressed: Path) -> np.ndarray:
    """Return the id in the made-up graph of each id of the compressed one.

    Raises:
        ValueError: they have different nodes.
    """
    hashes, kinds = hashes_by_id(graph)
    rows = np.fromfile(f"{compressed}.node2swhid.bin", np.uint8).reshape(-1, 22)
    if len(rows) != len(hashes):
        raise ValueError(f"{compressed}: expected {len(hashes)} nodes, got {len(rows)}.")
    # Eight bytes of a hash tell apart as many nodes as there are here; the rest is compared afterwards.
    orders = [np.argsort(np.ascontiguousarray(given[:, :8]).view(np.uint64)[:, 0]) for given in (rows[:, 2:], hashes)]
    id_of = np.empty(len(rows), np.uint64)
    id_of[orders[0]] = orders[1]
    if not ((rows[:, 2:] == hashes[id_of]).all() and (np.array(_KINDS)[rows[:, 1]] == kinds[id_of]).all()):
        raise ValueError(f"{compressed}: expected the nodes of {graph}.")
    return id_of


def compare_table(name: str, theirs: Path, ours: Path, id_of: np.ndarray) -> str:
    """Return what the rows of a table have in common; a row is a pair of ids, its first and the last one of another."""
    columns = TABLES[name].schema.names
    first, second = [one for one in columns if pa.types.is_uint64(TABLES[name].schema.field(one).type)]
    tables = [_read(folder / name) for folder in (theirs, ours)]
    pairs = []
    for number, table in enumerate(tables):
        ids = [table.column(one).to_numpy().astype(np.uint64) for one in (first, second)]
        ids = [id_of[one] for one in ids] if number == 0 else ids
        pairs.append(ids[0] * np.uint64(len(id_of)) + ids[1])
    orders = [np.argsort(one) for one in pairs]
    pairs = [one[order] for one, order in zip(pairs, orders, strict=True)]
    said = _sets(*pairs)
    common, *places = np.intersect1d(pairs[0], pairs[1], assume_unique=True, return_indices=True)
    rows = [order[place] for order, place in zip(orders, places, strict=True)]
    for date in (one for one in columns if one.endswith("_date")):
        values = [_seconds(table.column(date))[at] for table, at in zip(tables, rows, strict=True)]
        said += f", {int((values[0] != values[1]).sum())} with another {date}"
    if "path" in columns:
        other, worse = _compare_paths([table.column("path") for table in tables], rows)
        said += f", {other} with another path, of which {worse} are not the better one here"
    sizes = [sum(path.stat().st_size for path in (folder / name).glob("*")) >> 10 for folder in (theirs, ours)]
    return f"{said}; {sizes[0]} KiB there, {sizes[1]} KiB here with indexes; {len(common)} pairs in common"


def _sets(theirs: np.ndarray, ours: np.ndarray) -> str:
    """Say what two sorted arrays have apart; a value that is there twice is told."""
    only = [len(np.setdiff1d(*pair)) for pair in ((theirs, ours), (ours, theirs))]
    twice = sum(int((one[1:] == one[:-1]).sum()) for one in (theirs, ours))
    said = f"{len(theirs)} rows there, {len(ours)} here, {only[0]} only there, {only[1]} only here"
    return said + (f", {twice} twice" if twice else "")


def _compare_paths(paths: list[pa.ChunkedArray], rows: list[np.ndarray]) -> tuple[int, int]:
    """Return how many paths differ, and of how many of these custody's is not the shorter or smaller one."""
    whole = [one.cast(pa.large_binary()).combine_chunks() for one in paths]
    other = worse = 0
    for start in range(0, len(rows[0]), _PATHS_AT_ONCE):
        there, here = (one.take(at[start : start + _PATHS_AT_ONCE]) for one, at in zip(whole, rows, strict=True))
        differs = pc.not_equal(there, here)
        there, here = there.filter(differs), here.filter(differs)
        names = [pc.count_substring(one, "/") for one in (there, here)]
        is_better = pc.or_(pc.less(names[1], names[0]), pc.and_(pc.equal(*names), pc.less(here, there)))
        other += len(here)
        worse += len(here) - (pc.sum(is_better).as_py() or 0)
    return other, worse


def _compare_dates(theirs: Path, ours: Path, id_of: np.ndarray, kinds: np.ndarray) -> str:
    """Compare what they keep of each node with the table of earliest revisions, where releases of revisions count too.

    So here a date may be older, or there may be one at all, where a release has it.
    """
    there, here = np.full(len(id_of), _NO_DATE), np.full(len(id_of), _NO_DATE)
    there[id_of] = np.fromfile(theirs, ">i8")
    dates = _read(ours / EARLIEST)
    nodes, is_release = dates.column("node").to_numpy(), np.zeros(len(id_of), bool)
    here[nodes] = _seconds(dates.column("author_date"))
    is_release[nodes] = kinds[dates.column("revrel").to_numpy()] == "rel"
    older = (here != _NO_DATE) & ((here < there) | (there == _NO_DATE))
    counts = {
        "the same": (there == here) & (here != _NO_DATE),
        "of a release here and later or none there": older & is_release,
        "otherwise": ((there != here) & ~older) | (older & ~is_release),
    }
    return ", ".join(f"{int(held.sum())} {said}" for said, held in counts.items())


def _read(folder: Path) -> pa.Table:
    return ds.dataset(sorted(map(str, folder.glob("*.parquet")))).to_table()


def _column(folder: Path, name: str) -> np.ndarray:
    paths = sorted(map(str, folder.glob("*.parquet")))
    values: np.ndarray = ds.dataset(paths).to_table(columns=[name]).column(name).to_numpy().astype(np.uint64)
    return values


def _seconds(dates: pa.ChunkedArray) -> np.ndarray:
    """Dates as seconds: of Rust they come back as such or as numbers, as Parquet has no seconds."""
    if pa.types.is_timestamp(dates.type):
        dates = dates.cast(pa.timestamp("s", "UTC")).cast(pa.int64())
    values: np.ndarray = dates.to_numpy()
    return values
