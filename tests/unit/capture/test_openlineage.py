"""OpenLineage: runs become events whose parents and children are datasets, so that lineage goes from run to run."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import pytest

from custody.capture import Accepted, Format, Rejected, dataset_uuid, former_ordinal, is_same
from custody.lineage import Lineage, trace
from custody.model import Event, EventType
from tests.unit.capture.sample_inputs import Json, array, dataset, lines, read, run_event

SEED, TREE = dataset_uuid("lake://east", "seed"), dataset_uuid("lake://east", "tree")


def event_of(document: Json) -> Event:
    [found] = read(json.dumps(document, indent=1).encode(), Format.OPENLINEAGE)
    assert isinstance(found, Accepted), found
    assert not found.warnings
    return found.event


def events_of(*documents: Json) -> list[Event]:
    return [event_of(document) for document in documents]


@pytest.mark.parametrize(
    ("kind", "event_type", "children"),
    [
        ("START", EventType.CREATE, ("run",)),
        ("RUNNING", EventType.ATTRIBUTES_MODIFIED, (TREE,)),
        ("OTHER", EventType.ATTRIBUTES_MODIFIED, (TREE,)),
        ("COMPLETE", EventType.JOIN, (TREE,)),
        ("FAIL", EventType.DROP, ("run",)),
        ("ABORT", EventType.DROP, ("run",)),
    ],
)
def test_inputs_are_parents_and_outputs_are_children_once_they_are_made(
    kind: str, event_type: EventType, children: tuple[str, ...]
) -> None:
    event = event_of(run_event(kind, inputs=[dataset("seed")], outputs=[dataset("tree")]))
    run = "0195aaaa-0000-7000-8000-000000000001"
    assert (event.event_type, event.flowfile_uuid, event.parent_uuids) == (event_type, run, (SEED,))
    assert event.child_uuids == tuple(run if child == "run" else child for child in children)


def test_a_run_that_ends_without_data_drops() -> None:
    event = event_of(run_event("COMPLETE"))
    assert (event.event_type, event.parent_uuids, event.child_uuids) == ("DROP", (), ())


def test_what_one_run_writes_and_another_reads_is_one_node_of_the_lineage() -> None:
    events = events_of(
        run_event("COMPLETE", 1, inputs=[dataset("seed")], outputs=[dataset("tree")]),
        run_event("COMPLETE", 2, inputs=[dataset("tree")], outputs=[dataset("wood")]),
    )
    lineage = lineage_of(events, dataset_uuid("lake://east", "wood"))
    [run] = lineage.nodes[SEED].children
    assert lineage.nodes[run].children == (TREE,)
    [other] = lineage.nodes[TREE].children
    assert lineage.nodes[other].children == (dataset_uuid("lake://east", "wood"),)


def test_inputs_named_at_the_start_and_outputs_named_at_the_end_meet_in_the_run() -> None:
    events = events_of(run_event("START", inputs=[dataset("seed")]), run_event("COMPLETE", outputs=[dataset("tree")]))
    lineage = lineage_of(events, TREE)
    [run] = lineage.nodes[SEED].children
    assert lineage.nodes[run].children == (TREE,)
    assert [event.event_type for event in lineage.nodes[run].events] == ["CREATE", "JOIN"]


def test_a_version_of_a_dataset_is_a_node_of_its_own() -> None:
    event = event_of(run_event(inputs=[dataset("seed", "v1"), dataset("seed", "v2")], outputs=[dataset("seed")]))
    assert event.parent_uuids == tuple(dataset_uuid("lake://east", "seed", version) for version in ("v1", "v2"))
    assert event.child_uuids == (SEED,)
    assert len({*event.parent_uuids, *event.child_uuids}) == 3


def test_the_uuid_of_a_dataset_never_changes() -> None:
    assert dataset_uuid("lake://east", "seed") == "89cac96a-0a01-5883-b56d-20e29e778085"
    assert dataset_uuid("lake://east", "seed", "v1") == "5d2a1a5f-fc16-57f9-9be8-42bb28490eeb"


def test_names_cannot_be_confused_by_where_they_are_cut() -> None:
    assert dataset_uuid("a", "b/c") != dataset_uuid("a/b", "c") != dataset_uuid("a", "b", "c")


def test_the_run_the_job_and_the_parent_are_found_in_the_event() -> None:
    event = event_of(run_event())
    assert (event.component_id, event.component_name) == ("garden/trees.grow", "trees.grow")
    assert event.component_type == "AIRFLOW TASK"
    assert (event.process_group_id, event.process_group_name) == ("garden/trees", "trees")
    assert event.updated_attributes["openlineage.parent.run_id"] == "0195bbbb-parent"
    assert event.updated_attributes["openlineage.event_type"] == "COMPLETE"
    assert (event.source_node, event.event_time) == ("openlineage:garden", 1_772_600_761_089)


def test_every_facet_is_kept() -> None:
    document = run_event("FAIL", inputs=[dataset("seed", schema={"fields": [{"name": "x", "type": "float"}]})])
    document["run"]["facets"]["errorMessage"] = {"message": "no water", "programmingLanguage": "PYTHON"}
    event = event_of(document)
    assert json.loads(event.extra or "") == {"openlineage": document}
    assert event.details == "no water"


def test_numbers_are_kept_as_they_were_written() -> None:
    raw = json.dumps(run_event(rows=0)).replace('"rows": 0', '"rows": 1.10e2, "id": 12345678901234567890123')
    [found] = read(raw.encode(), Format.OPENLINEAGE)
    assert isinstance(found, Accepted)
    assert '"rows":1.10e2,"id":12345678901234567890123' in (found.event.extra or "")


def test_the_size_is_what_the_outputs_say_was_written() -> None:
    sized = [{**dataset(name), "outputFacets": {"outputStatistics": {"rowCount": 2, "size": 70}}} for name in "ab"]
    assert event_of(run_event(outputs=[*sized, dataset("c")])).file_size == 140
    assert event_of(run_event("START", outputs=sized)).file_size == 0
    with_point = [{**dataset("a"), "outputFacets": {"outputStatistics": {"size": 70.0}}}]
    assert event_of(run_event(outputs=with_point)).file_size == 70
    with_point[0]["outputFacets"]["outputStatistics"]["size"] = 70.5
    [found] = read(lines([run_event(outputs=with_point)]))
    assert isinstance(found, Rejected)
    assert found.problem.message == "outputStatistics.size: expected a whole number, got 70.5"


def test_copies_have_one_number_and_other_events_have_others() -> None:
    documents = [run_event(kind, number) for kind in ("START", "COMPLETE", "FAIL") for number in range(20)]
    assert [event.source_ordinal for event in events_of(*documents)] == [
        event.source_ordinal for event in events_of(*documents)
    ]
    assert len({event.source_ordinal for event in events_of(*documents)}) == 60


def test_array_lines_and_one_object_are_read() -> None:
    documents = [run_event("START"), run_event("COMPLETE")]
    forms = (array(documents), lines(documents), json.dumps(documents[0], indent=2).encode())
    kinds = [[found.event.event_type for found in read(data) if isinstance(found, Accepted)] for data in forms]
    assert kinds == [["CREATE", "DROP"], ["CREATE", "DROP"], ["CREATE"]]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"run": None}, "run: expected a value, got null"),
        ({"run": {}}, "runId: expected a value, got no key"),
        ({"job": {"name": "x"}}, "namespace: expected a value"),
        ({"eventType": "PAUSE"}, "eventType: expected one of START, RUNNING"),
        ({"eventTime": "today"}, "eventTime: expected a time such as"),
        ({"inputs": [5]}, "inputs: expected an array of objects"),
        ({"outputs": [{"name": "x"}]}, "namespace: expected a value"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(changes: Json, says: str) -> None:
    [found] = read(array([run_event(**changes)]), Format.OPENLINEAGE)
    assert isinstance(found, Rejected)
    assert says in found.problem.message


def test_a_dataset_that_is_renamed_goes_on_from_its_former_name() -> None:
    change = {"lifecycleStateChange": "RENAME", "previousIdentifier": {"namespace": "lake://east", "name": "seed"}}
    renamed = {"eventTime": "2026-03-04T05:06:07Z", "dataset": dataset("tree", lifecycleStateChange=change)}
    event = event_of({**renamed, "producer": "p"})
    assert (event.event_type, event.parent_uuids, event.child_uuids) == ("CLONE", (SEED,), (TREE,))
    assert (event.flowfile_uuid, event.attributes["filename"]) == (TREE, "tree")
    lineage = lineage_of([event], TREE)
    assert lineage.nodes[SEED].children == (TREE,)


@pytest.mark.parametrize(
    ("change", "event_type"),
    [("CREATE", "CREATE"), ("DROP", "DROP"), ("ALTER", "ATTRIBUTES_MODIFIED"), (7, "ATTRIBUTES_MODIFIED")],
)
def test_what_happens_to_a_dataset_alone_is_an_event_of_it(change: object, event_type: str) -> None:
    document = {"eventTime": "2026-03-04T05:06:07Z", "producer": "p"}
    event = event_of({**document, "dataset": dataset("tree", lifecycleStateChange={"lifecycleStateChange": change})})
    assert (event.event_type, event.flowfile_uuid, event.parent_uuids, event.child_uuids) == (event_type, TREE, (), ())


def test_an_event_about_a_job_alone_claims_no_edge() -> None:
    document = {**run_event(inputs=[dataset("seed")], outputs=[dataset("tree")])}
    del document["run"], document["eventType"]
    event = event_of(document)
    assert (event.event_type, event.parent_uuids, event.child_uuids) == ("ATTRIBUTES_MODIFIED", (), ())
    assert event.attributes["openlineage.event_type"] == "JOB"
    assert json.loads(event.extra or "") == {"openlineage": document}


def test_an_event_is_its_json_whatever_the_order_of_its_keys() -> None:
    document = run_event("RUNNING", inputs=[dataset("seed")])
    one, other = event_of(document), event_of(dict(reversed(document.items())))
    assert one.extra != other.extra
    assert is_same(one, other)
    assert one.source_ordinal == other.source_ordinal
    different = event_of({**document, "inputs": []})
    assert not is_same(one, different)
    assert different.source_ordinal != one.source_ordinal
    assert former_ordinal(different) == former_ordinal(one), "an older custody did not tell them apart"


def test_the_numbers_of_events_never_change() -> None:
    event = event_of(run_event())
    assert (event.source_ordinal, former_ordinal(event)) == (4331108145996087638, 4331107435146010945)


def lineage_of(events: list[Event], uuid: str) -> Lineage:
    stored = [msgspec.structs.replace(event, event_id=number) for number, event in enumerate(events)]

    def lookup(wanted: Sequence[str], _: int) -> list[tuple[str, Event]]:
        return [("main", event) for event in stored if _mentioned(event) & set(wanted)]

    return trace(lookup, [uuid], 100)


def _mentioned(event: Event) -> set[str]:
    return {event.flowfile_uuid, *event.parent_uuids, *event.child_uuids}
