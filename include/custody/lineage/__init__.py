"""Lineage of FlowFiles: where data came from and what became of it."""

from custody.lineage.graph import FlowFileNode, Lineage, Lookup, trace

__all__ = ["FlowFileNode", "Lineage", "Lookup", "trace"]
