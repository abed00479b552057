"""The tables by their definitions, in plain dictionaries: slow, obvious, and what the Spark jobs are compared with.

A path is the one with the fewest names, and of these the smallest in bytes, where there are several.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

Row = tuple[object, ...]
Paths = dict[int, bytes]


@dataclass
class SmallGraph:
    """A graph in memory: the type of each node, edges with names, dates in seconds of the nodes that have one."""

    types: dict[int, str]
    edges: Sequence[tuple[int, int, bytes | None]]
    author: dict[int, int] = field(default_factory=dict)
    committer: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.children: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self.parents: dict[int, set[int]] = defaultdict(set)
        for source, target, name in self.edges:
            self.children[source].append((target, name or b""))
            self.parents[target].add(source)

    def of(self, *types: str) -> list[int]:
        return sorted(node for node, kind in self.types.items() if kind in types)

    def below(self, node: int, *types: str) -> list[int]:
        return sorted({child for child, _ in self.children[node] if self.types[child] in types})


class Reference:
    """All tables of a graph under a filter, `all` or `heads`; each is computed when it is asked for."""

    def __init__(self, graph: SmallGraph, node_filter: str) -> None:
        self.graph = graph
        self.filter = node_filter
        self.earliest = self._earliest_timestamps()
        self.max_leaf = self._max_leaf_timestamps()
        self.frontier = self._directory_frontier()

    def is_root(self, node: int) -> bool:
        """A release; a revision, under `heads` only one that a snapshot or a release points at."""
        graph = self.graph
        if graph.types[node] == "rel":
            return True
        pointing = {graph.types[parent] for parent in graph.parents[node]}
        return graph.types[node] == "rev" and (self.filter == "all" or bool(pointing & {"snp", "rel"}))

    def roots(self) -> list[int]:
        return [node for node in self.graph.of("rel", "rev") if self.is_root(node)]

    def dated_roots(self) -> list[int]:
        return [node for node in self.roots() if node in self.graph.author]

    def root_directory(self, node: int) -> int | None:
        """The directory of a revision or release, or of the revision of a release; of a release's release none."""
        graph = self.graph
        direct = graph.below(node, "dir")
        if not direct and graph.types[node] == "rel":
            direct = [top for revision in graph.below(node, "rev") for top in graph.below(revision, "dir")]
        assert len(direct) <= 1
        return direct[0] if direct else None

    def reachable(self) -> set[int]:
        """Contents and directories below the roots."""
        return self._closure(child for root in self.roots() for child in self.graph.below(root, "dir", "cnt"))

    def nodes(self) -> set[int]:
        return self.reachable() | set(self.roots()) | set(self.graph.of("ori"))

    def _closure(self, starts: Iterable[int]) -> set[int]:
        seen: set[int] = set()
        waiting = list(starts)
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting += self.graph.below(node, "dir", "cnt")
        return seen

    def _earliest_timestamps(self) -> dict[int, int]:
        earliest: dict[int, int] = {}
        for root in self.dated_roots():
            date = self.graph.author[root]
            for node in self._closure(self.graph.below(root, "dir", "cnt")):
                earliest[node] = min(date, earliest.get(node, date))
        return earliest

    def _max_leaf_timestamps(self) -> dict[int, int]:
        greatest: dict[int, int] = {}
        reachable = self.reachable()
        for directory in self.graph.of("dir"):
            if self.filter == "all" or directory in reachable:
                below = self._closure([directory])
                dates = [self.earliest[n] for n in below if self.graph.types[n] == "cnt" and n in self.earliest]
                if dates:
                    greatest[directory] = max(dates)
        return greatest

    def _directory_frontier(self) -> set[int]:
        frontier: set[int] = set()
        for root in self.dated_roots():
            top = self.root_directory(root)
            if top is not None:
                frontier |= self._frontier_of(top, self.graph.author[root])
        return frontier

    def _frontier_of(self, top: int, date: int) -> set[int]:
        """The topmost directories below a root directory that hold contents, all of them older than a date."""
        frontier: set[int] = set()
        seen = {top}
        waiting = [top]
        while waiting:
            for child in self.graph.below(waiting.pop(), "dir"):
                if child in seen or child not in self.max_leaf:
                    continue
                seen.add(child)
                if self.max_leaf[child] < date and self.graph.below(child, "cnt"):
                    frontier.add(child)
                else:
                    waiting.append(child)
        return frontier

    def _paths(self, top: int, enters: Callable[[int], bool]) -> Iterator[tuple[int, bytes]]:
        """Directories and contents below `top` (itself with an empty path), best path first, each once."""
        queue = [(0, b"", top)]
        seen: set[int] = set()
        while queue:
            depth, path, node = heapq.heappop(queue)
            if node in seen:
                continue
            seen.add(node)
            yield node, path
            if self.graph.types[node] == "dir" and enters(node):
                for child, name in self.graph.children[node]:
                    kind = self.graph.types[child]
                    if kind in ("dir", "cnt"):
                        heapq.heappush(queue, (depth + 1, path + name + (b"/" if kind == "dir" else b""), child))

    def _without_frontiers(self, top: int) -> Iterator[tuple[int, bytes]]:
        return self._paths(top, lambda node: node not in self.frontier)

    def frontier_directories_in_revisions(self) -> set[Row]:
        rows: set[Row] = set()
        for root in self.dated_roots():
            top = self.root_directory(root)
            for node, path in [] if top is None else self._without_frontiers(top):
                if node in self.frontier:
                    rows.add((node, self.max_leaf[node], root, self.graph.author[root], path))
        return rows

    def contents_in_revisions_without_frontiers(self) -> set[Row]:
        rows: set[Row] = set()
        for root in self.dated_roots():
            top = self.root_directory(root)
            contents = list(self._without_frontiers(top)) if top is not None else []
            if self.graph.types[root] == "rel":
                contents += [(content, b"") for content in self.graph.below(root, "cnt")]
            for node, path in contents:
                if self.graph.types[node] == "cnt":
                    rows.add((node, root, self.graph.author[root], path))
        return rows

    def contents_in_frontier_directories(self) -> set[Row]:
        return {
            (node, directory, path)
            for directory in self.frontier
            for node, path in self._paths(directory, lambda _: True)
            if self.graph.types[node] == "cnt"
        }

    def revisions_in_origins(self) -> set[Row]:
        rows: set[Row] = set()
        roots = set(self.roots())
        for origin in self.graph.of("ori"):
            seen: set[int] = set()
            waiting = [origin]
            while waiting:
                for node in self.graph.below(waiting.pop(), "snp", "rel", "rev"):
                    if node not in seen:
                        seen.add(node)
                        waiting.append(node)
            rows |= {(node, origin) for node in seen & roots}
        return rows

    def earliest_revision(self) -> dict[int, tuple[int, int, int]]:
        """Of each content and directory: date by the committer, revision, and how many revisions hold it, in all."""
        holding: dict[int, list[int]] = defaultdict(list)
        for revision in self.graph.of("rev"):
            for node in self._closure(self.graph.below(revision, "dir")):
                holding[node].append(revision)
        earliest = {}
        for node, revisions in holding.items():
            dated = [(self.graph.committer[rev], rev) for rev in revisions if self.graph.committer.get(rev)]
            if dated:
                earliest[node] = (*min(dated), len(revisions))
        return earliest

    def holding(self) -> dict[int, list[tuple[int, int]]]:
        """Of each content and directory all dated roots that it is in, by plain containment, oldest first."""
        holders: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for root in self.dated_roots():
            top = self.root_directory(root)
            starts = set(self.graph.below(root, "cnt", "dir")) | ({top} if top is not None else set())
            for node in self._closure(starts):
                holders[node].append((self.graph.author[root], root))
        return {node: sorted(held) for node, held in holders.items()}
