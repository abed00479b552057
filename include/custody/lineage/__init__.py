"""Lineage of FlowFiles: where data came from and what became of it."""

from custody.lineage.diagram import Diagram, DiagramEdge, DiagramNode, event_reference
from custody.lineage.exports import ExportFormat, export
from custody.lineage.failures import has_failed
from custody.lineage.graph import (
    EXPANDABLE,
    Bounds,
    Cut,
    Direction,
    FlowFileNode,
    Lineage,
    Lookup,
    Toward,
    UnknownEvent,
    expansion_bounds,
    require_expandable,
    trace,
)
from custody.lineage.identities import Identity, NodeKind, identities
from custody.lineage.starting_points import Beginning, StartingPoint, StartKind, beginning

__all__ = [
    "EXPANDABLE",
    "Beginning",
    "Bounds",
    "Cut",
    "Diagram",
    "DiagramEdge",
    "DiagramNode",
    "Direction",
    "ExportFormat",
    "FlowFileNode",
    "Identity",
    "Lineage",
    "Lookup",
    "NodeKind",
    "StartKind",
    "StartingPoint",
    "Toward",
    "UnknownEvent",
    "beginning",
    "event_reference",
    "expansion_bounds",
    "export",
    "has_failed",
    "identities",
    "require_expandable",
    "trace",
]
