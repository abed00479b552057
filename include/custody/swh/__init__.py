"""Room `swh`: Software Heritage's provenance tables, from a graph of software to "where was this content?".

Names are imported when they are used: who wants the names of a build's folders needs neither pyarrow's datasets nor the
reader of git repositories.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_MODULES = {
    "custody.swh.database": ("Occurrence", "ProvenanceDatabase", "Whereabouts"),
    "custody.swh.git_import": ("Imported", "import_git"),
    "custody.swh.graph": ("Graph", "GraphTable", "open_graph"),
    "custody.swh.swhid": ("ObjectType", "Swhid", "content_swhid"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:  # a checker would take every name for one that is here

    def __getattr__(name: str) -> object:
        """Return a name of this room's modules."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULE_OF[name]), name)
