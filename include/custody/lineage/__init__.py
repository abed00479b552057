"""Lineage of FlowFiles: where data came from and what became of it."""

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
    "Direction",
    "FlowFileNode",
    "Lineage",
    "Lookup",
    "NodeKind",
    "UnknownEvent",
    "expansion_bounds",
    "require_expandable",
    "trace",
]
