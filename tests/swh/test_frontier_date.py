"""Whether the frontier may be made from the earliest date of a directory, in place of the latest of its contents'.

The original's documents leave that open. Any set of frontier directories gives right answers, so this is about which
set gives fewer rows (docs/design/050-frontier-date.md).
"""

from __future__ import annotations

from hypothesis import given

from tests.swh.graphs import Shape, random_graph, shapes
from tests.swh.reference import Reference, Row, SmallGraph
from tests.swh.test_reference import graph


class ByEarliest(Reference):
    """The tables with the other date: a directory is frontier where it is older itself than a revision around it."""

    def _max_leaf_timestamps(self) -> dict[int, int]:
        return {
            directory: self.earliest[directory]
            for directory in super()._max_leaf_timestamps()
            if directory in self.earliest
        }


def pairs(tables: Reference) -> set[Row]:
    """Which content is in which revision or release, as the tables say it."""
    of_directory: dict[object, set[object]] = {}
    for content, directory, _ in tables.contents_in_frontier_directories():
        of_directory.setdefault(directory, set()).add(content)
    direct: set[Row] = {(content, root) for content, root, *_ in tables.contents_in_revisions_without_frontiers()}
    for directory, _, root, *_ in tables.frontier_directories_in_revisions():
        direct |= {(content, root) for content in of_directory.get(directory, ())}
    return direct


def rows(tables: Reference) -> int:
    """How many rows the three tables have."""
    return (
        len(tables.frontier_directories_in_revisions())
        + len(tables.contents_in_frontier_directories())
        + len(tables.contents_in_revisions_without_frontiers())
    )


@given(shape=shapes(60))
def test_both_dates_give_the_same_answers(shape: Shape) -> None:
    small = random_graph(shape)
    assert pairs(Reference(small, "all")) == pairs(ByEarliest(small, "all"))


@given(shape=shapes(60))
def test_the_latest_of_the_contents_is_never_later_than_the_directory(shape: Shape) -> None:
    tables, other = Reference(random_graph(shape), "all"), ByEarliest(random_graph(shape), "all")
    for directory, date in other.max_leaf.items():
        assert tables.max_leaf[directory] <= date


def test_a_new_arrangement_of_old_contents_is_frontier_by_one_date_and_not_by_the_other() -> None:
    # Revision 20 holds two contents in its root; revision 21 moves both into a new directory, 12.
    edges = ((20, 10), (10, 0, b"a"), (10, 1, b"b"), (21, 11), (11, 12, b"new"), (12, 0, b"a"), (12, 1, b"b"))
    small = graph(*edges, n20=1, n21=2)
    assert Reference(small, "all").frontier == {12}
    assert ByEarliest(small, "all").frontier == set()
    # Nothing shares the directory yet: as frontier it costs one row more.
    assert (rows(Reference(small, "all")), rows(ByEarliest(small, "all"))) == (5, 4)


def many_revisions_of_one_second(contents: int, revisions: int) -> SmallGraph:
    old: list[tuple[int, int, bytes]] = [(20, 10, b"")]
    old += [(10, number, f"{number}".encode()) for number in range(contents)]
    new = [(12, number, f"{number}".encode()) for number in range(contents)]
    for number in range(revisions):
        new += [(21 + number, 13 + number, b""), (13 + number, 12, b"new"), (13 + number, 9 - number, b"own")]
    dates = {"n20": 1, **{f"n{21 + number}": 2 for number in range(revisions)}}
    return graph(*old, *new, **dates)


def test_neither_date_always_gives_fewer_rows() -> None:
    # Three revisions of one second share the new directory: here the latest of the contents finds it, and saves rows.
    small = many_revisions_of_one_second(5, 3)
    assert Reference(small, "all").frontier == {12}
    assert ByEarliest(small, "all").frontier == set()
    assert rows(Reference(small, "all")) < rows(ByEarliest(small, "all"))
