"""A database written from the reference's tables: the reader is tested without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from custody.swh import ObjectType, ProvenanceDatabase, Swhid
from custody.swh.table_file import write_table_file
from custody.swh.tables import TABLES
from custody.vfs import PosixFileSystem
from tests.swh.graphs import sha1_git
from tests.swh.reference import Reference, Row


def swhid(reference: Reference, node: int) -> Swhid:
    return Swhid(ObjectType(reference.graph.types[node]), sha1_git(node))


def rows_of(reference: Reference) -> dict[str, tuple[str, Iterable[Row]]]:
    """Columns and rows of each table, as Spark would leave them: without the keys that are derived."""
    types = reference.graph.types
    return {
        "nodes": ("id type sha1_git", [(node, types[node], sha1_git(node)) for node in reference.nodes()]),
        "node_ids": ("id type sha1_git", [(node, kind, sha1_git(node)) for node, kind in types.items()]),
        "origins": ("id url", [(node, f"https://example.org/{node}") for node in reference.graph.of("ori")]),
        "earliest_revisions": (
            "node author_date revrel",
            [(node, *held[0]) for node, held in reference.holding().items()],
        ),
        "frontier_directories_in_revisions": (
            "dir dir_max_author_date revrel revrel_author_date path",
            reference.frontier_directories_in_revisions(),
        ),
        "contents_in_revisions_without_frontiers": (
            "cnt revrel revrel_author_date path",
            reference.contents_in_revisions_without_frontiers(),
        ),
        "contents_in_frontier_directories": ("cnt dir path", reference.contents_in_frontier_directories()),
        "revisions_in_origins": ("revrel ori", reference.revisions_in_origins()),
    }


def write_database(folder: Path, reference: Reference, *, group_rows: int = 8) -> dict[str, Sequence[Path]]:
    """Write every table as up to two files, cut between two keys; return the files by table."""
    folder.mkdir(parents=True)
    found: dict[str, Sequence[Path]] = {}
    for name, (columns, rows) in rows_of(reference).items():
        spec, names = TABLES[name], columns.split()
        order = [names.index(column) for column in spec.order if column in names]
        whole = sorted(rows, key=lambda row: [row[place] for place in order])
        key = names.index(spec.range_column)
        cut = next(
            (n for n in range(len(whole) // 2, len(whole)) if n and whole[n][key] != whole[n - 1][key]), len(whole)
        )
        paths = []
        for number, part in enumerate((whole[:cut], whole[cut:])):
            kinds = [_kind(column) for column in names]
            arrays = [pa.array([row[place] for row in part], kind) for place, kind in enumerate(kinds)]
            source, target = folder / f"{name}.source", folder / f"{name}-{number}.parquet"
            pq.write_table(pa.table(arrays, names=names), source)
            if write_table_file(PosixFileSystem(), spec, [source], target, group_rows=group_rows) is not None:
                paths.append(target)
            source.unlink()
        found[name] = paths
    return found


def open_database(folder: Path, reference: Reference) -> ProvenanceDatabase:
    return ProvenanceDatabase(PosixFileSystem(), write_database(folder, reference))


def _kind(column: str) -> pa.DataType:
    return {"type": pa.string(), "url": pa.string(), "sha1_git": pa.binary(), "path": pa.binary()}.get(
        column, pa.int64()
    )
