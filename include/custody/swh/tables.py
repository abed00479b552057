"""The tables of a provenance database: columns, key and order. One place for the jobs that write and the reader.

Ids are those of the graph that the database was built from. Every file is sorted by its key, and a key is in one file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from custody.swh.swhid import HASH_BYTES

ID = pa.uint64()
DATE = pa.timestamp("s", tz="UTC")
DATE_MIN, DATE_MAX = -62_135_596_800, 253_402_300_799
"""Years 1 to 9999 in seconds since the epoch; a date outside of them is a slip and counts as none."""

NODES = "nodes"
NODE_IDS = "node_ids"
ORIGINS = "origins"
EARLIEST = "earliest_revisions"
DIRECTORIES_IN_REVISIONS = "frontier_directories_in_revisions"
CONTENTS_IN_REVISIONS = "contents_in_revisions_without_frontiers"
CONTENTS_IN_DIRECTORIES = "contents_in_frontier_directories"
REVISIONS_IN_ORIGINS = "revisions_in_origins"

HASH_KEY = "hash_key"

ROWS_OF_MANY, ROWS_OF_ONE = 4096, 1024
"""Rows of a page: of tables with many rows a key, which compress the better the longer a page is, and with one or few;
measured, docs/swh.md."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table: its columns as they are on disk, and the columns that its rows are sorted by, the key first."""

    name: str
    schema: pa.Schema
    order: tuple[str, ...]
    range_column: str
    """The column whose ranges become files: the key, or what the key is derived from."""
    page_rows: int = ROWS_OF_MANY
    """Rows of a page, which is what a question decodes."""
    delta: frozenset[str] = frozenset()
    """Columns of numbers that are stored as differences, besides the key."""
    raw: frozenset[str] = frozenset()
    """Columns that are stored uncompressed: compressing them gains little, and takes time for each page."""

    @property
    def key(self) -> str:
        """The column that is indexed."""
        return self.order[0]

    def with_footer(self, footer: Mapping[str, str]) -> TableSpec:
        """Return the table with texts that the footer of each of its files has besides."""
        return replace(self, schema=self.schema.with_metadata(dict(footer) or None))

    @property
    def derives_key(self) -> bool:
        """Whether the key is computed when a file is written."""
        return self.key != self.range_column


def _spec(
    name: str, order: str, *, page_rows: int = ROWS_OF_MANY, delta: str = "", raw: str = "", **columns: pa.DataType
) -> TableSpec:
    names = tuple(order.split())
    schema = pa.schema([pa.field(column, kind, nullable=False) for column, kind in columns.items()])
    ranges = "sha1_git" if names[0] == HASH_KEY else names[0]
    return TableSpec(name, schema, names, ranges, page_rows, frozenset(delta.split()), frozenset(raw.split()))


_HASH = pa.binary(HASH_BYTES)
_ALL = (
    _spec(NODES, "id", page_rows=ROWS_OF_ONE, raw="id type sha1_git", id=ID, type=pa.string(), sha1_git=_HASH),
    _spec(
        NODE_IDS,
        f"{HASH_KEY} sha1_git type",
        page_rows=ROWS_OF_ONE,
        delta="id",
        raw="hash_key sha1_git type id",
        hash_key=ID,
        sha1_git=_HASH,
        type=pa.string(),
        id=ID,
    ),
    _spec(ORIGINS, "id", page_rows=ROWS_OF_ONE, raw="id", id=ID, url=pa.string()),
    _spec(EARLIEST, "node", page_rows=ROWS_OF_ONE, raw="node", node=ID, author_date=DATE, revrel=ID),
    _spec(
        DIRECTORIES_IN_REVISIONS,
        "dir revrel_author_date revrel",
        dir=ID,
        dir_max_author_date=DATE,
        revrel=ID,
        revrel_author_date=DATE,
        path=pa.binary(),
    ),
    _spec(
        CONTENTS_IN_REVISIONS,
        "cnt revrel_author_date revrel",
        cnt=ID,
        revrel=ID,
        revrel_author_date=DATE,
        path=pa.binary(),
    ),
    _spec(CONTENTS_IN_DIRECTORIES, "cnt dir", cnt=ID, dir=ID, path=pa.binary()),
    _spec(REVISIONS_IN_ORIGINS, "revrel ori", page_rows=ROWS_OF_ONE, raw="revrel", revrel=ID, ori=ID),
)
TABLES: Mapping[str, TableSpec] = MappingProxyType({spec.name: spec for spec in _ALL})
"""Every table of a database, by name."""


def hash_keys(hashes: pa.Array) -> np.ndarray:
    """Return the keys of hashes: their first 63 bits as numbers, so that keys sort as hashes do.

    Args:
        hashes: fixed-size binaries of 20 bytes, without nulls.
    """
    data = np.frombuffer(hashes.buffers()[1], np.uint8)
    start = hashes.offset * HASH_BYTES
    rows = data[start : start + len(hashes) * HASH_BYTES].reshape(-1, HASH_BYTES)
    head: np.ndarray = np.ascontiguousarray(rows[:, :8]).view(">u8").reshape(-1).astype(np.uint64) >> np.uint64(1)
    return head
