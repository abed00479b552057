"""`python -m benchmarks.swh.graph --edges 1000000 FOLDER`: a made-up graph of software of about that size.

A repository is a tree of places for directories and files. A commit writes some files anew, and with them every
directory above: so trees share most of what is in them, as git's do. Beyond that
- sizes, histories and popularity of contents have heavy tails; a quarter of the files hold a content of another one;
- directories of other repositories are vendored, at any depth;
- histories branch and merge; some commits have the tree of another one; forks are origins of the same history;
- dates go back at times, some are missing; releases may be older than their revision, or of a directory or content.

The graph is made in batches of repositories, each one file of a table; nothing is done edge by edge. A number of edges
and a seed always give the same graph.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.swh.trees import Repositories, Trees

Ids = np.ndarray
TYPES = ("cnt", "dir", "ori", "rel", "rev", "snp")
_BATCH_EDGES = 200_000
_EDGES_OF_A_COMMIT = 60
_SHARE_REUSED, _SHARE_UNDATED, _SHARE_VENDORING = 0.25, 0.01, 0.04


@dataclass
class Batch:
    """Nodes, edges and dates of one batch, in pieces."""

    nodes: list[tuple[Ids, str]] = field(default_factory=list)
    edges: list[tuple[Ids, Ids, str, str, pa.Array | None]] = field(default_factory=list)
    dates: list[tuple[Ids, Ids, Ids]] = field(default_factory=list)
    """Ids, dates in seconds, and which of them have one."""
    origins: Ids = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def edge_count(self) -> int:
        return sum(len(piece[0]) for piece in self.edges)


class Generator:
    """Makes batches one after the other; a later one refers to contents and directories of the earlier ones."""

    def __init__(self, seed: int = 7) -> None:
        self._rng = np.random.default_rng(seed)
        self._next = 0
        self._contents = np.empty(0, np.int64)
        self._libraries = np.empty(0, np.int64)

    def batch(self, commits: int) -> Batch:
        """Make repositories of about as many commits in all."""
        rng, rows = self._rng, Batch()
        trees = Trees.grown(rng, Repositories.drawn(rng, commits))
        directories = self._new(rows, "dir", len(trees.directories))
        contents = self._contents_of(rows, len(trees.files))
        self._entries(rows, trees, directories, contents)
        revisions = self._new(rows, "rev", trees.repositories.commits)
        tops = directories[trees.roots(rng)]
        rows.edges.append((revisions, tops, "rev", "dir", None))
        children, parents = trees.repositories.history(rng)
        rows.edges.append((revisions[children], revisions[parents], "rev", "rev", None))
        dates = trees.repositories.dates(rng)
        self._dated(rows, revisions, dates)
        releases, targets = self._releases(rows, revisions, dates, directories, contents)
        self._origins(rows, trees.repositories, revisions, parents, releases, targets)
        self._libraries = np.concatenate([self._libraries, rng.choice(directories, max(len(directories) // 50, 1))])
        return rows

    def _new(self, rows: Batch, kind: str, count: int) -> Ids:
        ids = np.arange(self._next, self._next + count)
        self._next += count
        rows.nodes.append((ids, kind))
        return ids

    def _popular(self, pool: Ids, count: int) -> Ids:
        """Of a pool some again and again, most hardly ever: ranks are drawn so that their logarithms are even."""
        return pool[(len(pool) ** self._rng.random(count)).astype(np.int64) - 1]

    def _contents_of(self, rows: Batch, count: int) -> Ids:
        """The content of each version of a file: of its own, or one that is elsewhere."""
        rng = self._rng
        is_reused = rng.random(count) < _SHARE_REUSED
        fresh = self._new(rows, "cnt", int(count - is_reused.sum()) + count // 1000 + 1)  # some are in no directory
        pool = np.concatenate([self._contents, fresh])
        contents = np.empty(count, np.int64)
        contents[~is_reused] = fresh[: int((~is_reused).sum())]
        contents[is_reused] = self._popular(pool, int(is_reused.sum()))
        self._contents = np.concatenate([self._contents, rng.permutation(fresh)])
        return contents

    def _entries(self, rows: Batch, trees: Trees, directories: Ids, contents: Ids) -> None:
        above, below, names = trees.directory_entries()
        rows.edges.append((directories[above], directories[below], "dir", "dir", names))
        above, below, names = trees.file_entries()
        rows.edges.append((directories[above], contents[below], "dir", "cnt", names))
        if len(self._libraries):
            rng = self._rng
            vendoring = np.flatnonzero(rng.random(trees.places) < _SHARE_VENDORING)
            chosen = self._popular(self._libraries, trees.places)
            later = self._popular(self._libraries, trees.places)
            versions = np.flatnonzero(np.isin(trees.place_of_directories, vendoring))
            places = trees.place_of_directories[versions]
            is_later = trees.is_late(versions)
            targets = np.where(is_later, later[places], chosen[places])
            names = pa.repeat(pa.scalar(b"vendor", pa.binary()), len(versions))
            rows.edges.append((directories[versions], targets, "dir", "dir", names))

    def _dated(self, rows: Batch, ids: Ids, dates: Ids) -> None:
        rows.dates.append((ids, dates, self._rng.random(len(ids)) >= _SHARE_UNDATED))

    def _releases(self, rows: Batch, revisions: Ids, dates: Ids, directories: Ids, contents: Ids) -> tuple[Ids, Ids]:
        """One release to 25 commits; return them and the place of the commit that each was made for."""
        rng = self._rng
        count = max(len(revisions) // 25, 1)
        releases = self._new(rows, "rel", count)
        places = rng.integers(0, len(revisions), count)
        kind = rng.random(count)
        for is_it, targets, name in (
            (kind < 0.95, revisions[places], "rev"),
            ((kind >= 0.95) & (kind < 0.98), rng.choice(directories, count), "dir"),
            (kind >= 0.98, rng.choice(contents, count), "cnt"),
        ):
            rows.edges.append((releases[is_it], targets[is_it], "rel", name, None))
        days = np.where(rng.random(count) < 0.03, -rng.exponential(100, count), rng.exponential(3, count))
        self._dated(rows, releases, dates[places] + (days * 86400).astype(np.int64))
        return releases, places

    def _origins(
        self, rows: Batch, repositories: Repositories, revisions: Ids, followed: Ids, releases: Ids, places: Ids
    ) -> None:
        """Each repository has an origin with some visits, popular ones have forks; a visit is a snapshot of its own."""
        rng = self._rng
        forks = np.minimum(rng.zipf(2.2, repositories.count), 200)
        origins = self._new(rows, "ori", int(forks.sum()))
        rows.origins = origins
        of_origin = np.repeat(np.arange(repositories.count), forks)
        visits = rng.integers(1, 4, len(origins))
        snapshots = self._new(rows, "snp", int(visits.sum()))
        rows.edges.append((np.repeat(origins, visits), snapshots, "ori", "snp", None))
        of_snapshot = np.repeat(of_origin, visits)
        first, length = repositories.first[of_snapshot], repositories.lengths[of_snapshot]
        # The last commit of most visits is late in the history; branches are where nothing follows.
        seen = np.maximum((length * rng.random(len(snapshots)) ** 0.2).astype(np.int64), 1)
        rows.edges.append((snapshots, revisions[first + seen - 1], "snp", "rev", None))
        tips = np.setdiff1d(np.arange(len(revisions)), followed)
        held = repositories.of_commit[tips]
        main = np.concatenate([[0], np.cumsum(np.bincount(of_snapshot, minlength=repositories.count))])
        own = np.argsort(of_snapshot, kind="stable")[main[:-1]]
        rows.edges.append((snapshots[own[held]], revisions[tips], "snp", "rev", None))
        rows.edges.append((snapshots[own[repositories.of_commit[places]]], releases, "snp", "rel", None))


def write_graph(folder: Path, edges: int, seed: int = 7) -> dict[str, int]:
    """Write a graph of at least so many edges; return how many nodes of each type, edges and dates it has."""
    generator = Generator(seed)
    counts = dict.fromkeys((*TYPES, "edges", "dated"), 0)
    per_commit: float = _EDGES_OF_A_COMMIT
    for name in ("nodes", "edges", "timestamps", "origins"):
        (folder / name).mkdir(parents=True)
    number = commits = 0
    while counts["edges"] < edges:
        wanted = min(_BATCH_EDGES, max(edges // 5, 1), edges - counts["edges"])
        rows = generator.batch(max(int(wanted / per_commit), 40))
        _write(folder, number, rows, seed)
        for ids, kind in rows.nodes:
            counts[kind] += len(ids)
            commits += len(ids) if kind == "rev" else 0
        counts["edges"] += rows.edge_count
        counts["dated"] += int(sum(is_dated.sum() for _, _, is_dated in rows.dates))
        per_commit = counts["edges"] / commits
        number += 1
    (folder / "counts.json").write_text(json.dumps(counts) + "\n")
    return counts


def _write(folder: Path, number: int, rows: Batch, seed: int) -> None:
    ids = np.concatenate([piece for piece, _ in rows.nodes])
    hashes = np.random.default_rng([seed, number]).bytes(20 * len(ids))
    tables = {
        "nodes": {
            "id": pa.array(ids, pa.uint64()),
            "type": _repeated([(kind, len(piece)) for piece, kind in rows.nodes]),
            "sha1_git": pa.FixedSizeBinaryArray.from_buffers(pa.binary(20), len(ids), [None, pa.py_buffer(hashes)]),
        },
        "edges": {
            "src": pa.array(np.concatenate([edge[0] for edge in rows.edges]), pa.uint64()),
            "dst": pa.array(np.concatenate([edge[1] for edge in rows.edges]), pa.uint64()),
            "src_type": _repeated([(edge[2], len(edge[0])) for edge in rows.edges]),
            "dst_type": _repeated([(edge[3], len(edge[0])) for edge in rows.edges]),
            "name": pa.chunked_array(
                [edge[4] if edge[4] is not None else pa.nulls(len(edge[0]), pa.binary()) for edge in rows.edges]
            ),
        },
        "timestamps": {
            "id": pa.array(np.concatenate([piece for piece, _, _ in rows.dates]), pa.uint64()),
            "author_ts": pa.concat_arrays([pa.array(dates, mask=~is_dated) for _, dates, is_dated in rows.dates]),
            "committer_ts": pa.concat_arrays(
                [pa.array(dates + ids % 5 * 3600, mask=~is_dated) for ids, dates, is_dated in rows.dates]
            ),
        },
        "origins": {
            "id": pa.array(rows.origins, pa.uint64()),
            "url": pa.array([f"https://example.org/{origin}" for origin in rows.origins.tolist()], pa.string()),
        },
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / name / f"{number:05}.parquet", compression="zstd")


def _repeated(runs: Sequence[tuple[str, int]]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.repeat(pa.scalar(value), count) for value, count in runs if count], pa.string())


def main(argv: Sequence[str] | None = None) -> int:
    """Write one graph and print its counts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.swh.graph", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args(argv)
    sys.stdout.write(json.dumps(write_graph(arguments.folder, arguments.edges, arguments.seed)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
