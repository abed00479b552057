"""A made-up database of a size that is asked for, written by the project's own writer: no graph, no Spark.

Only what a question touches is alike to a real one: how many rows tables have, how many a key, how far apart keys are,
that hashes cannot be compressed and ids of revisions hardly. Every content and directory is somewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from custody.swh.table_file import write_table_file
from custody.swh.tables import (
    CONTENTS_IN_DIRECTORIES,
    CONTENTS_IN_REVISIONS,
    DIRECTORIES_IN_REVISIONS,
    EARLIEST,
    NODE_IDS,
    NODES,
    ORIGINS,
    REVISIONS_IN_ORIGINS,
    TABLES,
)
from custody.vfs import PosixFileSystem

FILE_ROWS = 5_000_000
"""Rows of a file, as a range of Spark's."""
_DATES = (1_000_000_000, 1_700_000_000)
_CONTENTS, _DIRECTORIES, _REVISIONS = 0.6, 0.9, 0.999
"""Ids below the first share of all are contents, then directories, revisions, and at last origins."""


@dataclass(frozen=True)
class Sizes:
    """How many nodes of which kind a database of `rows` nodes has; ids are 0 to rows - 1, kind by kind."""

    rows: int

    @property
    def contents(self) -> int:
        return int(self.rows * _CONTENTS)

    @property
    def directories_end(self) -> int:
        return int(self.rows * _DIRECTORIES)

    @property
    def revisions_end(self) -> int:
        return int(self.rows * _REVISIONS)


def hashes_of(ids: np.ndarray) -> np.ndarray:
    """Made-up hashes, 20 bytes a row: the first 8 are a permutation of the ids, so that they can be told from them."""
    mixed = ids.astype(np.uint64)
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    rows = np.empty((len(ids), 20), np.uint8)
    rows[:, :8] = mixed.astype(">u8").view(np.uint8).reshape(-1, 8)
    rows[:, 8:16] = (mixed * np.uint64(0x9E3779B97F4A7C15)).view(np.uint8).reshape(-1, 8)
    rows[:, 16:] = (mixed >> np.uint64(17)).astype(np.uint32).view(np.uint8).reshape(-1, 4)
    return rows


def kinds_of(sizes: Sizes, ids: np.ndarray) -> np.ndarray:
    """The type of each id, as text."""
    bounds = np.array([sizes.contents, sizes.directories_end, sizes.revisions_end])
    values: np.ndarray = np.array(["cnt", "dir", "rev", "ori"])[np.searchsorted(bounds, ids, side="right")]
    return values


def make_database(folder: Path, rows: int, seed: int = 3) -> dict[str, int]:
    """Write every table into a folder of its own, in files of at most FILE_ROWS; return the rows of each."""
    row_counts = {}
    for name, parts in _tables(Sizes(rows), np.random.default_rng(seed)).items():
        target = folder / name
        target.mkdir(parents=True)
        row_counts[name] = 0
        for number, part in enumerate(parts):
            source = folder / "source.parquet"
            pq.write_table(pa.table(part), source, compression="none", use_dictionary=False)
            written = write_table_file(PosixFileSystem(), TABLES[name], [source], target / f"{number:05}.parquet")
            row_counts[name] += 0 if written is None else written.rows
            source.unlink()
    return row_counts


def _tables(sizes: Sizes, rng: np.random.Generator) -> dict[str, Iterator[dict[str, pa.Array]]]:
    return {
        NODES: _nodes(sizes, np.arange(sizes.rows)),
        NODE_IDS: _nodes(sizes, _by_hash(sizes)),
        ORIGINS: _origins(sizes),
        EARLIEST: _earliest(sizes, rng),
        CONTENTS_IN_REVISIONS: _listed(sizes, rng, "cnt", sizes.contents, sizes.rows, "revrel"),
        CONTENTS_IN_DIRECTORIES: _listed(sizes, rng, "cnt", sizes.contents, sizes.rows, "dir"),
        DIRECTORIES_IN_REVISIONS: _listed(sizes, rng, "dir", sizes.rows // 50, sizes.rows // 5, "revrel"),
        REVISIONS_IN_ORIGINS: _revisions_in_origins(sizes),
    }


def _by_hash(sizes: Sizes) -> np.ndarray:
    heads = np.concatenate(
        [hashes_of(part)[:, :8].copy().view(">u8").reshape(-1) for part in _cut(np.arange(sizes.rows))]
    )
    return np.argsort(heads.astype(np.uint64))


def _cut(ids: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(ids), FILE_ROWS):
        yield ids[start : start + FILE_ROWS]


def _nodes(sizes: Sizes, order: np.ndarray) -> Iterator[dict[str, pa.Array]]:
    for ids in _cut(order):
        hashes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(20), len(ids), [None, pa.py_buffer(hashes_of(ids))])
        yield {"id": pa.array(ids), "type": pa.array(kinds_of(sizes, ids)), "sha1_git": hashes}


def _origins(sizes: Sizes) -> Iterator[dict[str, pa.Array]]:
    for ids in _cut(np.arange(sizes.revisions_end, sizes.rows)):
        yield {"id": pa.array(ids), "url": pa.array([f"https://example.org/team-{i % 977}/project-{i}" for i in ids])}


def _earliest(sizes: Sizes, rng: np.random.Generator) -> Iterator[dict[str, pa.Array]]:
    for ids in _cut(np.arange(sizes.directories_end)):
        yield {
            "node": pa.array(ids),
            "author_date": pa.array(rng.integers(*_DATES, len(ids))),
            "revrel": pa.array(_revisions(sizes, rng, len(ids))),
        }


def _listed(
    sizes: Sizes, rng: np.random.Generator, key: str, keys: int, rows: int, other: str
) -> Iterator[dict[str, pa.Array]]:
    """Rows of keys that are in several things, with dates where the things are revisions; directories for contents."""
    first = 0 if key == "cnt" else sizes.contents
    for ids in _cut(np.sort(rng.integers(first, first + keys, rows))):
        count = len(ids)
        words = rng.integers(0, 300, (2, count))
        columns = {key: pa.array(ids)}
        if other == "dir":
            others = rng.integers(sizes.contents, sizes.contents + sizes.rows // 50, count)
            order = np.lexsort((others, ids))
        else:
            others, dates = _revisions(sizes, rng, count), rng.integers(*_DATES, count)
            order = np.lexsort((others, dates, ids))
            columns["revrel_author_date"] = pa.array(dates[order])
            if key == "dir":
                columns["dir_max_author_date"] = pa.array(dates[order] - 1)
        columns[other] = pa.array(others[order])
        end = b"/" if key == "dir" else b".c"
        columns["path"] = pa.array([b"src/module-%d/file-%d%b" % (*pair, end) for pair in words.T.tolist()])
        yield columns


def _revisions_in_origins(sizes: Sizes) -> Iterator[dict[str, pa.Array]]:
    origins = sizes.rows - sizes.revisions_end
    for ids in _cut(np.arange(sizes.directories_end, sizes.revisions_end)):
        yield {"revrel": pa.array(ids), "ori": pa.array(sizes.revisions_end + ids % origins)}


def _revisions(sizes: Sizes, rng: np.random.Generator, count: int) -> np.ndarray:
    values: np.ndarray = rng.integers(sizes.directories_end, sizes.revisions_end, count)
    return values
