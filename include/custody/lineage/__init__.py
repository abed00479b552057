"""Lineage of FlowFiles: where data came from and what became of it."""

from custody.lineage.diagram import Diagram, DiagramEdge, DiagramNode, event_reference
from custody.lineage.exports import ExportFormat, export
from custody.lineage.graph import (
    EXPANDABLE,
    Bounds,
    Cut,
    Direction,
    FlowFileNode,
    Lineage,
    Lookup,
    NodeKind,
    UnknownEvent,
    expansion_bounds,
    require_expandable,
    trace,
)

__all__ = [
    "EXPANDABLE",
    "Bounds",
    "Cut",
    "Diagram",
    "DiagramEdge",
    "DiagramNode",
    "Direction",
    "ExportFormat",
    "FlowFileNode",
    "Lineage",
    "Lookup",
    "NodeKind",
    "UnknownEvent",
    "event_reference",
    "expansion_bounds",
    "export",
    "require_expandable",
    "trace",
]
