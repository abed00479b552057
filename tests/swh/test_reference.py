"""The reference itself: definitions on graphs that fit on a page, and what must hold for every graph."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given

from tests.swh.graphs import Shape, random_graph, shapes
from tests.swh.reference import Reference, SmallGraph

# Contents 0 to 9, directories 10 to 19, revisions 20 to 29, releases 30 to 39, snapshots 40 to 49, origins 50 to 59.
KINDS = ("cnt", "dir", "rev", "rel", "snp", "ori")


def graph(*edges: tuple[int, int] | tuple[int, int, bytes], **dates: int) -> SmallGraph:
    """A graph of edges; dates are given as `n20=100`."""
    whole = [(edge[0], edge[1], edge[2] if len(edge) == 3 else b"x") for edge in edges]
    nodes = {node for edge in edges for node in edge[:2]}
    author = {int(name[1:]): date for name, date in dates.items()}
    return SmallGraph({node: KINDS[node // 10] for node in nodes}, whole, author)


def test_a_directory_is_frontier_when_all_in_it_is_older_than_a_revision_around_it() -> None:
    first = ((20, 10), (10, 11, b"lib"), (11, 0, b"f"))
    second = ((21, 12), (12, 11, b"vendor"), (12, 1, b"new"))
    assert Reference(graph(*first, n20=100), "all").frontier == set()
    assert Reference(graph(*first, *second, n20=100, n21=100), "all").frontier == set(), "an equal date is not older"
    reference = Reference(graph(*first, *second, n20=100, n21=101), "all")
    assert reference.frontier == {11}
    assert reference.frontier_directories_in_revisions() == {
        (11, 100, 20, 100, b"lib/"),
        (11, 100, 21, 101, b"vendor/"),
    }
    assert reference.contents_in_frontier_directories() == {(0, 11, b"f")}
    assert reference.contents_in_revisions_without_frontiers() == {(1, 21, 101, b"new")}


def test_a_directory_without_a_content_of_its_own_is_never_frontier_but_what_is_in_it_may_be() -> None:
    edges = ((20, 10), (10, 11, b"a"), (11, 12, b"b"), (12, 0, b"f"), (21, 13), (13, 11, b"c"))
    assert Reference(graph(*edges, n20=1, n21=2), "all").frontier == {12}


def test_a_root_directory_that_is_frontier_elsewhere_has_an_empty_path() -> None:
    edges = ((20, 10), (10, 0, b"f"), (21, 11), (11, 10, b"old"))
    reference = Reference(graph(*edges, n20=1, n21=2), "all")
    assert reference.frontier_directories_in_revisions() == {(10, 1, 20, 1, b""), (10, 1, 21, 2, b"old/")}


def test_a_release_speaks_for_its_revision_s_directory_except_in_the_earliest_timestamps() -> None:
    edges = ((30, 20), (20, 10), (10, 11, b"d"), (11, 0, b"f"), (31, 1), (32, 31))
    reference = Reference(graph(*edges, n20=100, n30=7, n31=0, n32=1), "all")
    assert reference.earliest == {0: 100, 10: 100, 11: 100, 1: 0}
    assert reference.contents_in_revisions_without_frontiers() == {
        (0, 20, 100, b"d/f"),
        (0, 30, 7, b"d/f"),
        (1, 31, 0, b""),
    }
    assert reference.holding()[0] == [(7, 30), (100, 20)]
    undated = Reference(graph(*edges, n30=7), "all")
    assert undated.earliest == {}
    assert undated.contents_in_revisions_without_frontiers() == {(0, 30, 7, b"d/f")}


def test_heads_are_what_snapshots_and_releases_point_at() -> None:
    edges = ((50, 40), (40, 20), (20, 21), (21, 22), (30, 22), (20, 10), (10, 0), (21, 11), (11, 1), (51, 41))
    reference = Reference(graph(*edges, n20=3, n21=1, n22=2), "heads")
    assert reference.roots() == [20, 22, 30]
    assert reference.nodes() == {0, 10, 20, 22, 30, 50, 51}
    assert reference.earliest == {0: 3, 10: 3}
    assert reference.revisions_in_origins() == {(20, 50), (22, 50)}
    everything = Reference(reference.graph, "all")
    assert everything.roots() == [20, 21, 22, 30]
    assert everything.revisions_in_origins() == {(20, 50), (21, 50), (22, 50)}


def test_of_several_paths_the_one_with_fewest_names_and_then_the_smallest_is_kept() -> None:
    edges = (
        (20, 10),
        (10, 11, b"a"),
        (11, 0, b"f"),
        (10, 0, b"zz"),
        (10, 0, b"z"),
        (10, 12, b"a-b"),
        (12, 1, b"g"),
        (11, 1, b"h"),
    )
    contents = Reference(graph(*edges, n20=1), "all").contents_in_revisions_without_frontiers()
    assert contents == {(0, 20, 1, b"z"), (1, 20, 1, b"a-b/g")}


@pytest.mark.parametrize("node_filter", ["all", "heads"])
@given(shape=shapes(200))
def test_the_three_tables_together_hold_every_revision_of_every_content(node_filter: str, shape: Shape) -> None:
    reference = Reference(random_graph(shape), node_filter)
    inside: dict[object, set[object]] = defaultdict(set)
    for row in reference.frontier_directories_in_revisions():
        inside[row[0]].add(row[2])
    union = {(row[0], row[1]) for row in reference.contents_in_revisions_without_frontiers()}
    for content, directory, _ in reference.contents_in_frontier_directories():
        union |= {(content, revision) for revision in inside[directory]}
    contents = set(reference.graph.of("cnt"))
    plain = {(node, root) for node, held in reference.holding().items() if node in contents for _, root in held}
    assert union == plain


@given(shape=shapes(200))
def test_random_graphs_have_no_cycle_and_one_directory_a_revision(shape: Shape) -> None:
    random_one = random_graph(shape)
    assert len(random_one.types) >= 10
    for revision in random_one.of("rev"):
        assert len(random_one.below(revision, "dir")) <= 1
    order: dict[int, int] = {}
    waiting = list(random_one.types)
    while waiting:
        node = waiting[-1]
        below = [child for child, _ in random_one.children[node] if random_one.types[child] in ("dir", "cnt")]
        missing = [child for child in below if child not in order]
        assert len(waiting) < 100_000, "a cycle"
        if missing:
            waiting += missing
        else:
            order.setdefault(waiting.pop(), len(order))
