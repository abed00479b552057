"""Exports of a lineage: well formed whatever names hold, the same each time, of bounded size."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.capture import Accepted, Format
from custody.config import ContentStore
from custody.flow.content import ContentReader
from custody.lineage import Bounds, Diagram, ExportFormat, Lineage, Toward, UnknownEvent, export, trace
from custody.lineage.svg import NODES_MAX
from custody.model import ContentClaim, Event
from custody.vfs import PosixFileSystem
from tests.support import event
from tests.unit.capture.sample_inputs import dataset, read, run_event
from tests.unit.lineage.pipeline import CLEANING, REPORTING, pipeline, taken_in

_NS = "{http://graphml.graphdrawing.org/xmlns}"
_SVG = "{http://www.w3.org/2000/svg}"
_SIDES = ("inputs", "outputs")
NASTY = 'a<b>&"c\'\\ ]]> --> \x00\x1b[31m\ufffe\n"]; evil [label="x'


def story(name: str = "a.txt") -> list[Event]:
    attributes = {"filename": name}
    elsewhere = ContentClaim(container="default", section="1", identifier="9", offset=0, size=3)
    gone = ContentClaim(container="custody:main/1", section="0001", identifier="1772409600000-1", offset=0, size=3)
    fork = {"event_type": "FORK", "parent_uuids": ("p",), "child_uuids": ("c", "d")}
    return [
        event(0, event_id=0, event_type="RECEIVE", flowfile_uuid="p", updated_attributes=attributes),
        event(1, event_id=1, flowfile_uuid="p", component_name=name, **fork),
        event(2, event_id=2, event_type="SEND", flowfile_uuid="c", content_claim=elsewhere),
        event(3, event_id=3, event_type="DROP", flowfile_uuid="p", previous_content_claim=gone),
        event(4, event_id=4, event_type="JOIN", flowfile_uuid="j", parent_uuids=("c", "x"), child_uuids=("j",)),
    ]


def lineage_of(events: list[Event]) -> Lineage:
    return trace(lambda _, most: [("main", item) for item in events][:most], ["p"], 10_000)


def diagram_of(lineage: Lineage) -> Diagram:
    return Diagram.of(lineage, ContentReader(PosixFileSystem(), ContentStore(Path("/nowhere"))))


def test_a_receive_and_a_drop_are_three_nodes_and_two_edges() -> None:
    diagram = diagram_of(
        lineage_of(
            [
                event(0, event_id=0, event_type="RECEIVE", flowfile_uuid="p"),
                event(1, event_id=1, event_type="DROP", flowfile_uuid="p"),
            ]
        )
    )
    assert [node.id for node in diagram.nodes] == ["custody:main/events/0", "flowfile:p", "custody:main/events/1"]
    assert [(edge.source, edge.target) for edge in diagram.edges] == [
        ("custody:main/events/0", "flowfile:p"),
        ("flowfile:p", "custody:main/events/1"),
    ]


def test_nodes_have_reference_file_name_and_whether_contents_can_be_had() -> None:
    nodes = {node.id: node for node in diagram_of(lineage_of(story())).nodes}
    assert nodes["custody:main/events/0"].filename == "a.txt"
    assert nodes["custody:main/events/0"].output_content is None
    assert nodes["custody:main/events/2"].output_content == "elsewhere"
    assert nodes["custody:main/events/3"].input_content == "gone"
    assert nodes["flowfile:x"].kind == "UNKNOWN"
    assert nodes["flowfile:p"].kind == "FLOWFILE"


def test_each_edge_joins_two_nodes_and_no_node_is_alone() -> None:
    diagram = diagram_of(lineage_of(story()))
    places = {node.id for node in diagram.nodes}
    ends = {end for edge in diagram.edges for end in (edge.source, edge.target)}
    assert ends == places


def test_an_unreadable_event_is_a_node_at_its_flowfiles() -> None:
    graph = lineage_of(story())
    lost = Lineage(graph.nodes, graph.events, graph.is_complete, (), (UnknownEvent("main", 7, ("c", "d")),))
    diagram = diagram_of(lost)
    assert next(node for node in diagram.nodes if node.event_id == 7).kind == "UNKNOWN"
    assert [edge.source for edge in diagram.edges if edge.target == "custody:main/events/7"] == [
        "flowfile:c",
        "flowfile:d",
    ]


@pytest.mark.parametrize("form", list(ExportFormat))
def test_the_same_lineage_gives_the_same_bytes(form: ExportFormat) -> None:
    assert export(diagram_of(lineage_of(story())), form) == export(diagram_of(lineage_of(story())), form)


@given(st.text(min_size=1) | st.just(NASTY))
def test_no_name_breaks_a_format(name: str) -> None:
    diagram = diagram_of(lineage_of(story(name)))
    graph = ET.fromstring(export(diagram, ExportFormat.GRAPHML).encode())  # noqa: S314 - its own
    assert len(graph.findall(f".//{_NS}node")) == len(diagram.nodes)
    assert len(graph.findall(f".//{_NS}edge")) == len(diagram.edges)
    picture = ET.fromstring(export(diagram, ExportFormat.SVG).encode())  # noqa: S314 - its own
    assert len(picture.findall(f"{_SVG}g")) == len(diagram.nodes)
    assert {element.tag for element in picture} == {f"{_SVG}{tag}" for tag in ("defs", "path", "g")}
    lines = export(diagram, ExportFormat.DOT).splitlines()
    assert len(lines) == 3 + len(diagram.nodes) + len(diagram.edges)
    assert all(_quotes(line) % 2 == 0 for line in lines)
    assert json.loads(export(diagram, ExportFormat.JSON))["events"] == 5


def test_graphml_declares_every_field_and_its_values_are_of_the_declared_types() -> None:
    """What readers of GraphML rely on: keys before the graph, no id twice, edges between nodes that are there."""
    graph = lineage_of(story())
    lost = Lineage(graph.nodes, graph.events, False, (), (UnknownEvent("main", 7, ("c",)),))
    root = ET.fromstring(export(diagram_of(lost), ExportFormat.GRAPHML))  # noqa: S314 - its own
    assert [element.tag for element in root] == [f"{_NS}key"] * (len(root) - 1) + [f"{_NS}graph"]
    keys = {(key.attrib["for"], key.attrib["id"]): key.attrib["attr.type"] for key in root.findall(f"{_NS}key")}
    assert len({key.attrib["id"] for key in root.findall(f"{_NS}key")}) == len(keys)
    parse = {"string": str, "long": int}
    for kind in ("node", "edge"):
        for element in root.iter(f"{_NS}{kind}"):
            values = {data.attrib["key"]: data.text or "" for data in element}
            assert len(values) == len(element)
            for name, value in values.items():
                parse[keys[kind, name]](value)
    ids = [node.attrib["id"] for node in root.iter(f"{_NS}node")]
    assert len(set(ids)) == len(ids)
    ends = {edge.attrib[end] for edge in root.iter(f"{_NS}edge") for end in ("source", "target")}
    assert ends <= set(ids)
    assert root[-1].attrib["edgedefault"] == "directed"


def _quotes(line: str) -> int:
    return line.replace("\\\\", "").replace('\\"', "").count('"')


def test_openlineage_can_be_ingested_and_gives_the_same_families() -> None:
    text = export(diagram_of(lineage_of(story())), ExportFormat.OPENLINEAGE)
    found = read(text.encode(), Format.OPENLINEAGE)
    events = [item.event for item in found if isinstance(item, Accepted)]
    assert len(events) == len(found) == 5
    documents = [json.loads(line) for line in text.splitlines()]
    for document in documents:
        assert {"eventTime", "producer", "schemaURL", "run", "job"} <= set(document)
        for facet in document["run"]["facets"].values():
            assert {"_producer", "_schemaURL"} <= set(facet)
    assert [item["name"] for item in documents[1]["inputs"]] == ["p"]
    assert {item["name"] for item in documents[1]["outputs"]} == {"p", "c", "d"}
    assert {item["name"] for item in documents[4]["inputs"]} == {"c", "x"}


_NAMES = st.lists(st.sampled_from("abcde"), max_size=3, unique=True)


@given(st.lists(st.tuples(_NAMES, _NAMES, st.integers(0, 3)), min_size=1, max_size=6))
def test_a_run_reads_and_writes_what_it_named_and_nothing_else(runs: list[tuple[list[str], list[str], int]]) -> None:
    """The datasets are read and written in any order, several times, also by one run."""
    told = [
        run_event("COMPLETE", number, inputs=list(map(dataset, reads)), outputs=list(map(dataset, writes)))
        | {"eventTime": f"2026-03-04T{hour:02d}:00:{number:02d}Z"}
        for number, (reads, writes, hour) in enumerate(runs)
    ]
    events = [msgspec.structs.replace(one, event_id=place) for place, one in enumerate(taken_in(*told))]
    uuids = [one.flowfile_uuid for one in events]
    diagram = diagram_of(trace(lambda _, most: [("main", one) for one in events][:most], uuids, 10_000))
    exported = map(json.loads, export(diagram, ExportFormat.OPENLINEAGE).splitlines())
    found = {one["run"]["runId"]: [sorted(item["name"] for item in one[side]) for side in _SIDES] for one in exported}
    assert found == {
        one["run"]["runId"]: [sorted(item["name"] for item in one[side]) for side in _SIDES] for one in told
    }
    # Every other form has the same edges.
    nodes = {node.id: node for node in diagram.nodes}
    table = list(csv.DictReader(io.StringIO(export(diagram, ExportFormat.CSV_EDGES))))
    named = [(nodes[row["source"]].name, nodes[row["target"]].flowfile_uuid) for row in table]
    reads_of = [(name, run) for name, run in named if name in set("abcde") and run in found]
    assert sorted(reads_of) == sorted((name, run) for run, (reads, _) in found.items() for name in reads)
    dot = export(diagram, ExportFormat.DOT)
    assert dot.count(" -> ") == len(table) == len(diagram.edges)
    lines = len({(edge.source, edge.target) for edge in diagram.edges})
    assert export(diagram, ExportFormat.SVG).count("marker-end=") == lines


def test_a_run_keeps_its_id_its_job_and_its_states() -> None:
    events = [msgspec.structs.replace(one, event_id=place) for place, one in enumerate(pipeline(ends="FAIL"))]
    uuids = [one.flowfile_uuid for one in events]
    diagram = diagram_of(trace(lambda _, most: [("main", one) for one in events][:most], uuids, 10_000))
    exported = [json.loads(line) for line in export(diagram, ExportFormat.OPENLINEAGE).splitlines()]
    assert [(one["eventType"], one["run"]["runId"]) for one in exported] == [
        ("START", CLEANING),
        ("COMPLETE", CLEANING),
        ("START", REPORTING),
        ("FAIL", REPORTING),
    ]
    assert {(one["job"]["namespace"], one["job"]["name"]) for one in exported} == {
        ("shop", "clean orders"),
        ("shop", "report"),
    }


def test_flowfiles_that_go_the_same_way_are_told_one_by_one() -> None:
    events = [
        event(0, event_id=0, event_type="JOIN", flowfile_uuid="p", parent_uuids=("a", "b")),
        event(1, event_id=1, event_type="JOIN", flowfile_uuid="q", parent_uuids=("a", "b", "p")),
    ]
    exported = [
        json.loads(line) for line in export(diagram_of(lineage_of(events)), ExportFormat.OPENLINEAGE).splitlines()
    ]
    assert {item["name"] for item in exported[1]["inputs"]} >= {"a", "b", "p"}


def test_a_picture_is_bounded_and_says_what_it_leaves_out() -> None:
    events = [event(n, event_id=n, event_type="SEND", flowfile_uuid="p") for n in range(NODES_MAX + 9)]
    text = export(diagram_of(lineage_of(events)), ExportFormat.SVG)
    assert text.count("<rect") == NODES_MAX
    assert "10 more nodes are not drawn" in text


@pytest.mark.parametrize(("start", "toward", "expected"), [("c", "down", "cj"), ("j", "up", "cjpx"), ("p", "up", "p")])
def test_a_diagram_of_one_side_has_no_node_of_the_other(start: str, toward: str, expected: str) -> None:
    def lookup(uuids: Sequence[str], most: int) -> list[tuple[str, Event]]:
        wanted = set(uuids)
        found = [one for one in story() if wanted & {one.flowfile_uuid, *one.parent_uuids, *one.child_uuids}]
        return [("main", one) for one in found][:most]

    diagram = diagram_of(trace(lookup, [start], Bounds(100, toward=Toward(toward))))
    assert sorted(node.id for node in diagram.nodes if node.kind != "EVENT") == [f"flowfile:{one}" for one in expected]
    places = {node.id for node in diagram.nodes}
    assert {end for edge in diagram.edges for end in (edge.source, edge.target)} <= places
