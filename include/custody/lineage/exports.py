"""Exports of a lineage's diagram: JSON, DOT, SVG, GraphML, CSV and OpenLineage; the same diagram, the same bytes."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from xml.etree import ElementTree as ET

import msgspec

from custody.format.csv_cells import plain_cell
from custody.lineage.diagram import EVENT, Diagram, DiagramEdge, DiagramNode
from custody.lineage.identities import NodeKind
from custody.lineage.openlineage import NAMESPACE, Dataset, Job, RunState, run_event
from custody.lineage.svg import svg
from custody.model import EventType

_NOT_XML = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_DOT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_CONTROL = re.compile(r"[\x7f-\x9f]")
_GRAPHML = "http://graphml.graphdrawing.org/xmlns"
_FIELDS = {
    "kind": "string",
    "flowfile_uuid": "string",
    "time": "long",
    "cut": "string",
    "event_type": "string",
    "event_id": "long",
    "writer": "string",
    "url": "string",
    "filename": "string",
    "component": "string",
    "input_content": "string",
    "output_content": "string",
    "namespace": "string",
    "name": "string",
    "version": "string",
    "failed": "boolean",
}
"""The fields of a node that GraphML has, with their types there; CSV has the same."""
_SHAPES = {
    EVENT: "box",
    NodeKind.FLOWFILE: "ellipse",
    NodeKind.RUN: "hexagon",
    NodeKind.JOB: "component",
    NodeKind.DATASET: "cylinder",
    NodeKind.UNKNOWN: "ellipse",
}
"""Of DOT."""
_STATES: dict[str, RunState] = {
    EventType.CREATE: RunState.START,
    EventType.ATTRIBUTES_MODIFIED: RunState.RUNNING,
}
"""Of a run, by the type of its event; all others end it."""
_EDGE_FIELDS = ("source", "target", "flowfile_uuid")


class ExportFormat(StrEnum):
    """A format of exports."""

    JSON = "json"
    DOT = "dot"
    SVG = "svg"
    GRAPHML = "graphml"
    OPENLINEAGE = "openlineage"
    CSV_NODES = "csv-nodes"
    CSV_EDGES = "csv-edges"


def export(diagram: Diagram, form: ExportFormat) -> str:
    """Return a diagram in a format, as a text that ends with a line break."""
    return _WRITERS[form](diagram)


def _json(diagram: Diagram) -> str:
    return _plain_json(diagram) + "\n"


def _plain_json(value: object) -> str:
    # JSON leaves these as they are, and a terminal would obey them.
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", msgspec.json.encode(value).decode())


def _dot(diagram: Diagram) -> str:
    lines = ["digraph lineage {", '  node [fontname="sans-serif"];']
    lines += [f"  {_quoted(node.id)} [{_dot_attributes(node)}];" for node in diagram.nodes]
    lines += [
        f"  {_quoted(edge.source)} -> {_quoted(edge.target)} [tooltip={_quoted(edge.flowfile_uuid)}];"
        for edge in diagram.edges
    ]
    return "\n".join([*lines, "}", ""])


def _dot_attributes(node: DiagramNode) -> str:
    chosen = {"label": node.label, "shape": _SHAPES[node.kind]}
    if node.kind == NodeKind.UNKNOWN:
        chosen["style"] = "dashed"
    if node.url is not None:
        chosen["URL"] = node.url
    chosen["tooltip"] = node.flowfile_uuid or node.id
    return ", ".join(f"{name}={_quoted(value)}" for name, value in chosen.items())


def _quoted(text: str) -> str:
    """Return a text as DOT quotes it; backslashes would be escapes of labels, so they are doubled."""
    plain = _NOT_DOT.sub("\N{REPLACEMENT CHARACTER}", text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _graphml(diagram: Diagram) -> str:
    root = ET.Element("graphml", {"xmlns": _GRAPHML})
    for name, kind in {**_FIELDS, "label": "string"}.items():
        ET.SubElement(root, "key", {"id": name, "for": "node", "attr.name": name, "attr.type": kind})
    ET.SubElement(root, "key", {"id": "flowfile", "for": "edge", "attr.name": "flowfile_uuid", "attr.type": "string"})
    graph = ET.SubElement(root, "graph", {"id": "lineage", "edgedefault": "directed"})
    for node in diagram.nodes:
        _add_node(graph, node)
    for edge in diagram.edges:
        places = {"source": _xml(edge.source), "target": _xml(edge.target)}
        _add_data(ET.SubElement(graph, "edge", places), "flowfile", edge.flowfile_uuid)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _add_node(graph: ET.Element, node: DiagramNode) -> None:
    element = ET.SubElement(graph, "node", {"id": _xml(node.id)})
    for name in _FIELDS:
        if (text := _field(node, name)) is not None:
            _add_data(element, name, text)
    _add_data(element, "label", node.label)


def _field(node: DiagramNode, name: str) -> str | None:
    value = getattr(node, name)
    if value is None or value is False:
        return None
    return "true" if value is True else str(value)


def _csv_nodes(diagram: Diagram) -> str:
    rows = ([node.id, *(_field(node, name) for name in _FIELDS), node.label] for node in diagram.nodes)
    return _csv(("id", *_FIELDS, "label"), rows)


def _csv_edges(diagram: Diagram) -> str:
    return _csv(_EDGE_FIELDS, ([getattr(edge, name) for name in _EDGE_FIELDS] for edge in diagram.edges))


def _csv(head: Iterable[str], rows: Iterable[Iterable[str | None]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(head)
    writer.writerows([None if cell is None else plain_cell(_xml(cell)) for cell in row] for row in rows)
    return text.getvalue()


def _add_data(element: ET.Element, key: str, value: str) -> None:
    ET.SubElement(element, "data", {"key": key}).text = _xml(value)


def _xml(text: str) -> str:
    """Return a text without the characters that XML cannot hold, escaped or not."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _openlineage(diagram: Diagram) -> str:
    """Return a run event a line, for each event: its run reads the FlowFiles it came from and writes those it made.

    An event of a run is one of that run, under its own id and the name of its job; its datasets have their own names.
    """
    return "".join(f"{_plain_json(document)}\n" for document in _run_events(diagram))


def _run_events(diagram: Diagram) -> Iterator[dict[str, object]]:
    events = {node.id: node for node in diagram.nodes if node.kind == EVENT}
    things = {node.flowfile_uuid: node for node in diagram.nodes if node.kind != EVENT}
    datasets = {
        uuid: Dataset(node.name, node.namespace, node.version)
        for uuid, node in things.items()
        # Under its own name, so that whoever reads the export knows it again.
        if node.kind == NodeKind.DATASET and node.name is not None and node.namespace is not None
    }
    ends: dict[str, tuple[dict[str, None], dict[str, None]]] = {place: ({}, {}) for place in events}
    for edge in diagram.edges:
        thing = things.get(edge.flowfile_uuid)
        # A run or a job is no data: between its own events it goes on, and nothing is read or written.
        if thing is None or thing.kind not in (NodeKind.RUN, NodeKind.JOB):
            _put_edge(ends, edge)
    for place, node in events.items():
        inputs, outputs = ends[place]
        run = things.get(node.flowfile_uuid)
        of_run = run if run is not None and run.kind == NodeKind.RUN else None
        yield _run_event(node, of_run, _datasets(inputs, datasets), _datasets(outputs, datasets))


def _datasets(uuids: Iterable[str], known: Mapping[str | None, Dataset]) -> list[Dataset]:
    return [known.get(uuid) or Dataset(uuid) for uuid in uuids]


def _put_edge(ends: dict[str, tuple[dict[str, None], dict[str, None]]], edge: DiagramEdge) -> None:
    # An edge between two events is a FlowFile that goes on: the one writes it and the other reads it.
    if edge.target in ends:
        ends[edge.target][0][edge.flowfile_uuid] = None
    if edge.source in ends:
        ends[edge.source][1][edge.flowfile_uuid] = None


def _run_event(
    node: DiagramNode, run: DiagramNode | None, inputs: list[Dataset], outputs: list[Dataset]
) -> dict[str, object]:
    """Return the run event of an event; `run` is the node of the run that it tells of, None of a FlowFile's event."""
    facet = {
        "url": node.url,
        "eventType": node.event_type,
        "eventId": node.event_id,
        "writer": node.writer,
        "flowFileUuid": node.flowfile_uuid,
        "filename": node.filename,
        "inputContent": node.input_content,
        "outputContent": node.output_content,
    }
    job = Job((run.name if run else None) or node.component or "unknown", (run.namespace if run else None) or NAMESPACE)
    state = RunState.COMPLETE
    if run is not None:
        state = RunState.FAIL if node.failed else _STATES.get(node.event_type or "", RunState.COMPLETE)
    run_id = None if run is None else run.flowfile_uuid
    return run_event(node.id, node.time or 0, job, facet, inputs, outputs, run_id=run_id, state=state)


_WRITERS: dict[ExportFormat, Callable[[Diagram], str]] = {
    ExportFormat.JSON: _json,
    ExportFormat.DOT: _dot,
    ExportFormat.SVG: svg,
    ExportFormat.GRAPHML: _graphml,
    ExportFormat.OPENLINEAGE: _openlineage,
    ExportFormat.CSV_NODES: _csv_nodes,
    ExportFormat.CSV_EDGES: _csv_edges,
}
