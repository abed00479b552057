"""Room `swh`: Software Heritage's provenance tables, from a graph of software to "where was this content?".

Names are imported when they are used: who wants the names of a build's folders needs neither pyarrow's datasets nor the
reader of git repositories.
"""

from typing import TYPE_CHECKING

from custody.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from custody.swh.database import Occurrence, ProvenanceDatabase, Whereabouts
    from custody.swh.export_import import ImportedExport, import_export
    from custody.swh.git_import import Imported, import_git
    from custody.swh.graph import Graph, GraphTable, open_graph
    from custody.swh.swhid import ObjectType, Swhid, content_swhid

__all__ = [
    "Graph",
    "GraphTable",
    "Imported",
    "ImportedExport",
    "ObjectType",
    "Occurrence",
    "ProvenanceDatabase",
    "Swhid",
    "Whereabouts",
    "content_swhid",
    "import_export",
    "import_git",
    "open_graph",
]

_MODULES = {
    "custody.swh.database": ("Occurrence", "ProvenanceDatabase", "Whereabouts"),
    "custody.swh.export_import": ("ImportedExport", "import_export"),
    "custody.swh.git_import": ("Imported", "import_git"),
    "custody.swh.graph": ("Graph", "GraphTable", "open_graph"),
    "custody.swh.swhid": ("ObjectType", "Swhid", "content_swhid"),
}

if not TYPE_CHECKING:  # a checker would take every name for one that is here
    __getattr__ = lazy_exports(__name__, _MODULES)
