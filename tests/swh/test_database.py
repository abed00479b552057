"""Questions to a database are answered as the reference answers them by plain containment."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from custody.errors import InvalidInputError, NotFoundError
from custody.swh import ObjectType, ProvenanceDatabase, Swhid, Whereabouts
from tests.swh.database import open_database, swhid
from tests.swh.graphs import Shape, random_graph, shapes
from tests.swh.reference import Reference

UNKNOWN = Swhid(ObjectType.CONTENT, b"\xfe" * 20)


def first_origins(reference: Reference) -> dict[int, str]:
    origins: dict[int, list[int]] = defaultdict(list)
    for revrel, origin in reference.revisions_in_origins():
        origins[revrel].append(origin)  # type: ignore[index,arg-type]
    return {revrel: f"https://example.org/{min(numbers)}" for revrel, numbers in origins.items()}


def expected_first(reference: Reference) -> dict[int, Whereabouts]:
    holding, origins = reference.holding(), first_origins(reference)
    first = {}
    for node in reference.graph.of("cnt", "dir"):
        asked = swhid(reference, node)
        if node in holding:
            date, revrel = holding[node][0]
            first[node] = Whereabouts(asked, True, swhid(reference, revrel), date, origins.get(revrel))
        else:
            first[node] = Whereabouts(asked, is_known=True)
    return first


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(random_graph(Shape(11, 60, 50, 30, 8, 4, 4, 20, 0.1)), "all")


@pytest.fixture(scope="module")
def database(reference: Reference, tmp_path_factory: pytest.TempPathFactory) -> ProvenanceDatabase:
    return open_database(tmp_path_factory.mktemp("database") / "tables", reference)


@pytest.mark.parametrize("node_filter", ["heads", "all"])
@settings(max_examples=12)
@given(shape=shapes(100))
def test_every_content_and_directory_is_first_where_the_reference_says(
    tmp_path_factory: pytest.TempPathFactory, node_filter: str, shape: Shape
) -> None:
    reference = Reference(random_graph(shape), node_filter)
    database = open_database(tmp_path_factory.mktemp("database") / "tables", reference)
    expected = expected_first(reference)
    assert database.whereis_many([place.swhid for place in expected.values()]) == list(expected.values())
    holding, origins = reference.holding(), first_origins(reference)
    for content in reference.graph.of("cnt"):
        occurrences = database.occurrences(swhid(reference, content))
        assert [(one.author_date, one.anchor, one.origin) for one in occurrences] == [
            (date, swhid(reference, revrel), origins.get(revrel)) for date, revrel in holding.get(content, [])
        ]


def test_every_path_of_an_answer_leads_from_the_root_to_the_content(
    reference: Reference, database: ProvenanceDatabase
) -> None:
    graph = reference.graph
    nodes = {swhid(reference, node): node for node in graph.types}
    steps = 0
    for content in graph.of("cnt"):
        for one in database.occurrences(swhid(reference, content)):
            root = nodes[one.anchor]
            top = reference.root_directory(root)
            here = {content} if top is None else {top}
            for name in one.path.split(b"/") if top is not None and one.path else []:
                here = {child for node in here for child, called in graph.children[node] if called == name}
                steps += 1
            assert content in here
    assert steps > 100


def test_one_question_gives_what_many_give(reference: Reference, database: ProvenanceDatabase) -> None:
    for place in expected_first(reference).values():
        assert database.whereis(place.swhid) == place


@given(nodes=st.lists(st.integers(0, 200), max_size=30))
def test_many_questions_are_answered_in_their_order_also_repeated_ones(
    reference: Reference, database: ProvenanceDatabase, nodes: list[int]
) -> None:
    expected = expected_first(reference)
    asked = [node for node in nodes if node in expected]
    questions = [*(expected[node].swhid for node in asked), UNKNOWN]
    assert database.whereis_many(questions) == [
        *(expected[node] for node in asked),
        Whereabouts(UNKNOWN, is_known=False),
    ]


def test_what_the_graph_does_not_have_is_not_found(database: ProvenanceDatabase) -> None:
    with pytest.raises(NotFoundError, match="is not in the graph"):
        database.whereis(UNKNOWN)
    with pytest.raises(NotFoundError, match="is not in the graph"):
        database.occurrences(UNKNOWN)
    assert database.whereis_many([]) == []


def test_a_hash_of_another_type_is_another_object(reference: Reference, database: ProvenanceDatabase) -> None:
    content = reference.graph.of("cnt")[0]
    assert not database.whereis_many([Swhid(ObjectType.DIRECTORY, swhid(reference, content).sha1_git)])[0].is_known


def test_all_revisions_are_kept_of_contents_only(reference: Reference, database: ProvenanceDatabase) -> None:
    directory = swhid(reference, reference.graph.of("dir")[0])
    with pytest.raises(InvalidInputError, match="of contents only"):
        database.occurrences(directory)
