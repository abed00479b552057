"""A database written from the reference's tables: the reader is tested without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from custody.clock import SystemClock
from custody.config import Settings
from custody.swh import ObjectType, ProvenanceDatabase, Swhid
from custody.swh.build import STEPS, Build, BuildDescription, StepOutput
from custody.swh.publishing import Published, database_catalog, database_folder, publish
from custody.swh.table_file import WrittenFile, write_table_file
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


def write_database(folder: Path, reference: Reference, *, group_rows: int = 8) -> dict[str, list[WrittenFile]]:
    """Write every table as up to two files, cut between two keys, in a folder of its own; return the files by table."""
    files_by_table: dict[str, list[WrittenFile]] = {}
    for name, (columns, rows) in rows_of(reference).items():
        spec, names = TABLES[name], columns.split()
        order = [names.index(column) for column in spec.order if column in names]
        whole = sorted(rows, key=lambda row: [row[place] for place in order])
        key = names.index(spec.range_column)
        cut = next(
            (n for n in range(len(whole) // 2, len(whole)) if n and whole[n][key] != whole[n - 1][key]), len(whole)
        )
        files_by_table[name] = []
        (folder / name).mkdir(parents=True)
        for number, part in enumerate((whole[:cut], whole[cut:])):
            arrays = [pa.array([row[place] for row in part], _kind(column)) for place, column in enumerate(names)]
            source, target = folder / f"{name}.source", folder / name / f"{number:05}.parquet"
            pq.write_table(pa.table(arrays, names=names), source)
            written = write_table_file(PosixFileSystem(), spec, [source], target, group_rows=group_rows)
            files_by_table[name] += [] if written is None else [written]
            source.unlink()
    return files_by_table


def open_database(folder: Path, reference: Reference) -> ProvenanceDatabase:
    written = write_database(folder, reference)
    files = {
        name: {folder / name / file.name: bytes.fromhex(file.sha256) for file in made} for name, made in written.items()
    }
    return ProvenanceDatabase(PosixFileSystem(), files)


def publish_reference(settings: Settings, name: str, reference: Reference, node_filter: str) -> Published:
    """Publish the reference's tables as a build; all of them come from the first step, which Spark has no part in."""
    fs = PosixFileSystem()
    description = BuildDescription(graph="/graph", fingerprint=name, node_filter=node_filter)
    build = Build.begin(fs, database_folder(settings), name, description)
    for step in STEPS:
        attempt = build.attempt(step)
        written = write_database(attempt / "tables", reference) if step == STEPS[0] else {}
        files = tuple(file for files_of_table in written.values() for file in files_of_table)
        build.finish(attempt, StepOutput(step=step, files=files, kept={}, rounds=0, seconds=0.0))
    return publish(database_catalog(settings, fs, SystemClock()), build)


def _kind(column: str) -> pa.DataType:
    return {"type": pa.string(), "url": pa.string(), "sha1_git": pa.binary(), "path": pa.binary()}.get(
        column, pa.int64()
    )
