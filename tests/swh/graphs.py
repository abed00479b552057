"""Random graphs with every corner that the definitions speak of, and how one is written as tables."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from tests.swh.reference import SmallGraph

_NAMES = (b"a", b"a-b", b"a.c", b"b", b"README", b"src", b"\xe9t\xe9", b"\xff\x01", b"z" * 40)


@dataclass(frozen=True)
class Shape:
    """How large a random graph is, and how odd."""

    seed: int
    contents: int
    directories: int
    revisions: int
    releases: int
    origins: int
    depth: int
    dates: int
    """How many different dates there are: few give many equal ones."""
    undated: float


def shapes(nodes_max: int, *, depth_max: int = 6) -> st.SearchStrategy[Shape]:
    """Graphs of 10 to about `nodes_max` nodes."""
    part = max(nodes_max // 4, 8)
    return st.builds(
        Shape,
        seed=st.integers(0, (1 << 32) - 1),
        contents=st.integers(2, part),
        directories=st.integers(3, part),
        revisions=st.integers(3, max(part // 2, 4)),
        releases=st.integers(0, max(part // 8, 3)),
        origins=st.integers(1, max(part // 16, 4)),
        depth=st.integers(1, depth_max),
        dates=st.sampled_from([2, 5, 50, 5000]),
        undated=st.sampled_from([0.0, 0.1, 0.5]),
    )


def random_graph(shape: Shape) -> SmallGraph:
    """Build the graph of a shape; the same shape gives the same graph."""
    return _Builder(shape).build()


class _Builder:
    def __init__(self, shape: Shape) -> None:
        self._random = random.Random(shape.seed)  # noqa: S311 - a test's graph
        self._shape = shape
        self._types: dict[int, str] = {}
        self._edges: list[tuple[int, int, bytes | None]] = []
        counts = [shape.contents, shape.directories, shape.revisions, shape.releases, shape.origins]
        total = sum(counts) + 3 * shape.origins + 4
        self._ids = iter(self._random.sample(range(total), total))

    def build(self) -> SmallGraph:
        shape, rng = self._shape, self._random
        contents = self._new("cnt", shape.contents)
        tops = self._directories(contents)
        revisions = self._revisions(tops)
        releases = self._releases(revisions, tops, contents)
        self._origins(revisions, releases, tops)
        if rng.random() < 0.3:  # a submodule
            self._edges.append((rng.choice(tops), rng.choice(revisions), b"sub"))
        return SmallGraph(self._types, self._edges, self._dates(), self._dates())

    def _new(self, kind: str, count: int) -> list[int]:
        ids = [next(self._ids) for _ in range(count)]
        self._types.update(dict.fromkeys(ids, kind))
        return ids

    def _directories(self, contents: list[int]) -> list[int]:
        """Layers: a directory holds contents, and directories of the layers below, shared at several depths."""
        rng = self._random
        directories = self._new("dir", self._shape.directories)
        size = max(1, len(directories) // self._shape.depth)
        below: list[int] = []
        for start in range(0, len(directories), size):
            layer = directories[start : start + size]
            for directory in layer:
                for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
                    self._entry(directory, rng.choice(contents))
                for _ in range(rng.choice([0, 1, 1, 2, 3]) if below else 0):
                    self._entry(directory, rng.choice(below))
            below += layer
        return directories

    def _entry(self, directory: int, child: int) -> None:
        used = {name for source, _, name in self._edges[-16:] if source == directory}
        free = [name for name in _NAMES if name not in used]
        self._edges.append((directory, child, self._random.choice(free)))

    def _revisions(self, tops: list[int]) -> list[int]:
        rng = self._random
        revisions = self._new("rev", self._shape.revisions)
        for place, revision in enumerate(revisions):
            if rng.random() < 0.97:  # the tree of another is not there
                self._edges.append((revision, rng.choice(tops[-len(tops) // 2 :]), None))
            for parent in (
                {rng.choice(revisions[:place]) for _ in range(rng.choice([0, 1, 1, 1, 2]))} if place else set()
            ):
                self._edges.append((revision, parent, None))
        return revisions

    def _releases(self, revisions: list[int], tops: list[int], contents: list[int]) -> list[int]:
        rng = self._random
        releases = self._new("rel", self._shape.releases)
        for place, release in enumerate(releases):
            targets = [revisions] * 5 + [tops, contents] + ([releases[:place]] if place else [])
            self._edges.append((release, rng.choice(rng.choice(targets)), None))
        return releases

    def _origins(self, revisions: list[int], releases: list[int], tops: list[int]) -> None:
        rng = self._random
        snapshots = self._new("snp", self._shape.origins + 1)
        for snapshot in snapshots:
            heads = [*rng.choices(revisions, k=2), *(rng.choices(releases, k=2) if releases else [])]
            heads += [rng.choice(tops)] if rng.random() < 0.1 else []
            for head in rng.sample(heads, rng.randint(0, len(heads))):
                self._edges.append((snapshot, head, b"refs/heads/x"))
        for origin in self._new("ori", self._shape.origins):
            for snapshot in rng.sample(snapshots, rng.choice([0, 1, 1, 2]) if len(snapshots) > 1 else 1):
                self._edges.append((origin, snapshot, None))

    def _dates(self) -> dict[int, int]:
        rng = self._random
        dated = [node for node, kind in self._types.items() if kind in ("rev", "rel")]
        return {node: rng.randint(-1, self._shape.dates) * 10 for node in dated if rng.random() >= self._shape.undated}


def disjoint(graphs: list[SmallGraph]) -> tuple[SmallGraph, list[int]]:
    """Put graphs beside each other; return the whole and by how much the ids of each went up."""
    types: dict[int, str] = {}
    edges: list[tuple[int, int, bytes | None]] = []
    author: dict[int, int] = {}
    committer: dict[int, int] = {}
    shifts: list[int] = []
    shift = 0
    for graph in graphs:
        shifts.append(shift)
        types |= {node + shift: kind for node, kind in graph.types.items()}
        edges += [(source + shift, target + shift, name) for source, target, name in graph.edges]
        author |= {node + shift: date for node, date in graph.author.items()}
        committer |= {node + shift: date for node, date in graph.committer.items()}
        shift += max(graph.types) + 1
    return SmallGraph(types, edges, author, committer), shifts


def sha1_git(node: int) -> bytes:
    """A made-up hash of a node; spread, so that hashes are not in the order of ids."""
    return (node * 0x9E3779B97F4A7C15 % (1 << 160)).to_bytes(20, "little")


def write_graph(graph: SmallGraph, folder: Path) -> Path:
    """Write a graph as the tables that `custody.swh.open_graph` reads."""
    folder.mkdir(parents=True)
    nodes = sorted(graph.types)
    origins = graph.of("ori")
    tables = {
        "nodes": pa.table(
            {
                "id": pa.array(nodes, pa.uint64()),
                "type": [graph.types[node] for node in nodes],
                "sha1_git": pa.array([sha1_git(node) for node in nodes], pa.binary(20)),
            }
        ),
        "edges": pa.table(
            {
                "src": pa.array([source for source, _, _ in graph.edges], pa.uint64()),
                "dst": pa.array([target for _, target, _ in graph.edges], pa.uint64()),
                "src_type": pa.array([graph.types[source] for source, _, _ in graph.edges], pa.string()),
                "dst_type": pa.array([graph.types[target] for _, target, _ in graph.edges], pa.string()),
                "name": pa.array([name for _, _, name in graph.edges], pa.binary()),
            }
        ),
        "timestamps": pa.table(
            {
                "id": pa.array(graph.of("rev", "rel"), pa.uint64()),
                "author_ts": pa.array([graph.author.get(node) for node in graph.of("rev", "rel")], pa.int64()),
                "committer_ts": pa.array([graph.committer.get(node) for node in graph.of("rev", "rel")], pa.int64()),
            }
        ),
        "origins": pa.table(
            {
                "id": pa.array(origins, pa.uint64()),
                "url": pa.array([f"https://example.org/{node}" for node in origins], pa.string()),
            }
        ),
    }
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def drawn(count: int, nodes_max: int, seed: int) -> list[SmallGraph]:
    rng = random.Random(seed)  # noqa: S311 - a test's graphs
    part = nodes_max // 4
    return [
        random_graph(
            Shape(
                seed=rng.randrange(1 << 32),
                contents=rng.randint(2, part),
                directories=rng.randint(3, part),
                revisions=rng.randint(3, part // 2),
                releases=rng.randint(0, part // 8),
                origins=rng.randint(1, 4),
                depth=rng.randint(1, 4),
                dates=rng.choice([2, 5, 50]),
                undated=rng.choice([0.0, 0.1, 0.5]),
            )
        )
        for _ in range(count)
    ]
