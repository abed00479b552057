"""Where a lineage begins, by names of any kind, and to which side it goes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from custody.airflow_runs.run_events import asset_uuid
from custody.capture import dataset_uuid
from custody.errors import InvalidInputError
from custody.lineage import Beginning, Bounds, StartingPoint, StartKind, Toward, beginning, trace
from custody.model import Event
from tests.support import event
from tests.unit.lineage.pipeline import CLEAN_UUID, CLEANING, RAW_UUID, REPORT_UUID, REPORTING, pipeline
from tests.unit.lineage.test_graph import EDGES, Store, family


def begins(*words: str, is_joined: bool = True) -> Beginning:
    def get(event_id: int, writer: str | None) -> Event:
        return event(event_id, flowfile_uuid=f"of {writer}")

    points = [StartingPoint.of(word) for word in words]
    return beginning(points, get, asset_uuid, "here", is_joined=is_joined)


@pytest.mark.parametrize(
    ("word", "kind", "text"),
    [
        ("42", StartKind.EVENT, "42"),
        ("event=main:42", StartKind.EVENT, "main:42"),
        ("run=7", StartKind.RUN, "7"),
        ("dataset=s3://a/b", StartKind.DATASET, "s3://a/b"),
        ("flowfile=42", StartKind.FLOWFILE, "42"),
        ("identifier=run=7", StartKind.IDENTIFIER, "run=7"),
        ("erp:17", StartKind.WHAT, "erp:17"),
        ("other=7", StartKind.WHAT, "other=7"),
        ("run=", StartKind.WHAT, "run="),
    ],
)
def test_a_word_says_what_it_names(word: str, kind: StartKind, text: str) -> None:
    assert StartingPoint.of(word) == StartingPoint(kind, text)


def test_each_slash_may_be_the_one_between_namespace_and_name() -> None:
    uuids = begins("dataset=hdfs://host:8020//lake/a b").uuids
    for namespace, name in (("hdfs:", "/host:8020//lake/a b"), ("hdfs://host:8020", "/lake/a b")):
        assert dataset_uuid(namespace, name) in uuids
    assert asset_uuid("hdfs://host:8020//lake/a b") in uuids
    assert dataset_uuid("a", "b", "v@1") not in begins("dataset=a/b@v@1").uuids, "the last sign counts"
    assert dataset_uuid("a", "b@v", "1") in begins("dataset=a/b@v@1").uuids
    assert len(begins("dataset=" + "/x" * 5000).uuids) < 200


def test_events_are_those_of_their_writer_and_identifiers_need_an_index() -> None:
    assert begins("event=main:42").uuids == ("of main",)
    assert begins("42").uuids == ("of here",)
    assert begins("erp:1", "identifier=2").identifiers == ("erp:1", "2")
    assert begins("erp:1", "identifier=2", is_joined=False).identifiers == ("2",)
    for wrong in ("event=main:x", "event=main:", f"event={1 << 63}"):
        with pytest.raises(InvalidInputError, match="WRITER:ID"):
            begins(wrong)
    with pytest.raises(InvalidInputError, match="expected where it begins, by one of what, flowfile"):
        begins()


def test_names_of_which_nothing_is_known_are_told() -> None:
    begun = begins("dataset=s3://a/b", "erp:1", "flowfile=f")
    assert begun.missing([dataset_uuid("s3://a", "b")], ["erp:1"]) == ["f"]
    assert begun.missing([], []) == ["s3://a/b", "erp:1", "f"]


@pytest.mark.parametrize(
    ("start", "toward", "expected"),
    [("d", Toward.UP, "abcd"), ("d", Toward.DOWN, "de"), ("b", Toward.UP, "ab"), ("b", Toward.DOWN, "bde")],
)
def test_a_lineage_goes_to_one_side(start: str, toward: Toward, expected: str) -> None:
    lineage = trace(family(EDGES).lookup, [start], Bounds(100, toward=toward))
    assert sorted(lineage.nodes) == list(expected)
    assert lineage.is_complete
    assert lineage.starts == (start,)
    ends = {one for node in lineage.nodes.values() for one in (*node.parents, *node.children)}
    assert ends <= set(expected)


@pytest.mark.parametrize(
    ("start", "toward", "expected"),
    [
        (CLEAN_UUID, Toward.UP, {CLEAN_UUID, CLEANING, RAW_UUID}),
        (CLEAN_UUID, Toward.DOWN, {CLEAN_UUID, REPORTING, REPORT_UUID}),
        (CLEANING, Toward.UP, {CLEANING, RAW_UUID}),
        (CLEANING, Toward.DOWN, {CLEANING, CLEAN_UUID, REPORTING, REPORT_UUID}),
    ],
)
def test_of_a_run_inputs_lie_on_the_one_side_and_outputs_on_the_other(
    start: str, toward: Toward, expected: set[str]
) -> None:
    store = Store([("main", one) for one in numbered(pipeline())])
    lineage = trace(store.lookup, [start], Bounds(100, toward=toward))
    assert set(lineage.nodes) == expected
    bounded = trace(store.lookup, [start], Bounds(100, depth_max=0, toward=toward))
    assert set(bounded.nodes) <= expected
    assert start in bounded.nodes


def numbered(events: list[Event]) -> list[Event]:
    return [replace(one, event_id=number) for number, one in enumerate(events)]
