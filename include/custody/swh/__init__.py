"""Room `swh`: Software Heritage's provenance tables, from a graph of software to "where was this content?"."""

from custody.swh.database import Occurrence, ProvenanceDatabase, Whereabouts
from custody.swh.git_import import Imported, import_git
from custody.swh.graph import Graph, GraphTable, open_graph
from custody.swh.swhid import ObjectType, Swhid, content_swhid

__all__ = [
    "Graph",
    "GraphTable",
    "Imported",
    "ObjectType",
    "Occurrence",
    "ProvenanceDatabase",
    "Swhid",
    "Whereabouts",
    "content_swhid",
    "import_git",
    "open_graph",
]
