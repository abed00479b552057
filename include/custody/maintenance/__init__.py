"""Room `maintenance`: logs written anew without what was forgotten; everything looked at, and mended.

Looking and mending are in `verification`, `scrub` and `repair`, the steps of the maintenance in `steps`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from custody.maintenance.claim_refs import References, all_references, in_journals, log_tables, references_of
    from custody.maintenance.compaction import Compacted, Unit, compact, run, waiting
    from custody.maintenance.rewriting import (
        Rewriting,
        conditions_for,
        groups_on_disk,
        leftover_shards,
        open_file,
        planned,
        retire,
    )

__all__ = [
    "Compacted",
    "References",
    "Rewriting",
    "Unit",
    "all_references",
    "compact",
    "conditions_for",
    "groups_on_disk",
    "in_journals",
    "leftover_shards",
    "log_tables",
    "open_file",
    "planned",
    "references_of",
    "retire",
    "run",
    "waiting",
]

# Imported when they are used, so that a command loads what it needs and no more.
_MODULES = {
    "custody.maintenance.claim_refs": (
        "References",
        "all_references",
        "in_journals",
        "log_tables",
        "references_of",
    ),
    "custody.maintenance.compaction": (
        "Compacted",
        "Unit",
        "compact",
        "run",
        "waiting",
    ),
    "custody.maintenance.rewriting": (
        "Rewriting",
        "conditions_for",
        "groups_on_disk",
        "leftover_shards",
        "open_file",
        "planned",
        "retire",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:  # a checker would take every name for one that is here

    def __getattr__(name: str) -> object:
        """Return a name of this room's modules."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULE_OF[name]), name)
