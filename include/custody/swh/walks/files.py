"""What tasks read and write: folders of Parquet files as arrays, and arrays as files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from custody.swh.walks.arrays import GraphArrays
from custody.swh.walks.dates import NONE_BELOW
from custody.swh.walks.paths import Rows
from custody.swh.walks.spill import write_run
from custody.vfs import PosixFileSystem

Columns = dict[str, np.ndarray | pa.Array]
_TYPES = {"is_direct": pa.bool_()}
"""Of columns that are no numbers."""
_NAMES = pa.dictionary(pa.int32(), pa.binary())
_NO_ARCS = pa.schema({"src": pa.int64(), "dst": pa.int64(), "to_directory": pa.bool_(), "name": _NAMES})


@dataclass(frozen=True)
class Roots:
    """Dated roots that have a directory, sorted by it: numbers of directories, dates, ids of revisions or releases."""

    top: np.ndarray
    date: np.ndarray
    revrel: np.ndarray
    is_direct: np.ndarray

    @classmethod
    def read(cls, graph: GraphArrays, folder: Path) -> Roots:
        """Read what the first step kept of roots."""
        rows = read_rows(folder, "top", "author_date", "revrel", "is_direct")
        rows = rows.filter(pc.and_(pc.is_valid(rows["top"]), pc.is_valid(rows["author_date"])))
        top = graph.numbers_of(int_column(rows, "top"))
        order = np.lexsort((int_column(rows, "revrel"), top))
        is_direct = np.asarray(rows["is_direct"].combine_chunks().cast(pa.uint8())).astype(bool)
        return cls(
            top[order], int_column(rows, "author_date")[order], int_column(rows, "revrel")[order], is_direct[order]
        )

    def _of(self, tops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the first root of each directory, and how many it has."""
        first = np.searchsorted(self.top, tops)
        return first, np.searchsorted(self.top, tops, "right") - first

    def each(self, tops: np.ndarray, found: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Return each row of what was found below tops once for each root of its top: the roots, and the rows."""
        first, counts = self._of(tops)
        repeated = counts[found.top]
        row = np.repeat(np.arange(len(found.top)), repeated)
        behind = np.cumsum(repeated)
        root = np.arange(len(row)) - np.repeat(behind - repeated, repeated) + first[found.top[row]]
        return root, row


def read_arcs(edges: Path) -> pa.Table:
    """Return the arcs from directories to directories and contents, as `make_arrays` takes them."""
    parts = []
    for path in sorted(edges.glob("*.parquet")):
        with pq.ParquetFile(path, read_dictionary=["dst_type"]) as file:
            rows = file.read(["src", "dst", "dst_type", "name"], use_threads=False)
        rows = rows.filter(pc.is_in(rows["dst_type"], pa.array(["dir", "cnt"])))
        to_directory = pc.equal(rows["dst_type"], "dir")
        # With the slash, as "a/" is greater than "a-b/", although "a" is smaller than "a-b".
        names = pc.if_else(to_directory, pc.binary_join_element_wise(rows["name"], b"/", b""), rows["name"])
        columns = {"src": rows["src"], "dst": rows["dst"], "to_directory": to_directory}
        # A file at a time, as names take a place in a dictionary each and no room of their own.
        parts.append(pa.table(columns | {"name": names.dictionary_encode()}))
    return pa.concat_tables(parts).unify_dictionaries() if parts else _NO_ARCS.empty_table()


def read_rows(folder: Path, *columns: str) -> pa.Table:
    """Return columns of all Parquet files of a folder."""
    parts = []
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            parts.append(file.read(list(columns), use_threads=False))
    if not parts:
        return pa.table({name: pa.array([], _TYPES.get(name, pa.int64())) for name in columns})
    return pa.concat_tables(parts)


def read_latest(graph: GraphArrays, leaves: Path) -> np.ndarray:
    """Return the latest date in each directory, as `greatest` gave it, from what its step kept."""
    rows, found = read_rows(leaves, "dir", "max_leaf"), np.full(graph.count, NONE_BELOW)
    found[graph.numbers_of(int_column(rows, "dir"))] = int_column(rows, "max_leaf")
    return found


def read_marked(graph: GraphArrays, listed: Path) -> np.ndarray:
    """Return which directories are listed in the column `dir`, as bool."""
    found = np.zeros(graph.count, bool)
    found[graph.numbers_of(int_column(read_rows(listed, "dir"), "dir"))] = True
    return found


def int_column(rows: pa.Table, column: str) -> np.ndarray:
    """Return a column of numbers without nulls as an array."""
    return np.asarray(rows[column])


def add_run(fs: PosixFileSystem, folder: Path, name: tuple[int, int], columns: Columns) -> int:
    """Write sorted rows as a run, named by the part that found them and a number; return how many rows."""
    rows = pa.table(columns)
    path = folder / f"{name[0]:05}-{name[1]:06}.parquet"
    fs.remove(path)
    if rows.num_rows:
        write_run(fs, path, rows)
    return int(rows.num_rows)


def write_alone(fs: PosixFileSystem, folder: Path, columns: Columns) -> int:
    """Write the one file of a folder that a task makes alone."""
    fresh(fs, folder)
    rows = pa.table(columns)
    write_run(fs, folder / "00000.parquet", rows)
    return int(rows.num_rows)


def fresh(fs: PosixFileSystem, folder: Path) -> None:
    """Make a folder that is empty, whatever an earlier try left in it."""
    fs.remove_tree(folder)
    fs.make_directory(folder)
