"""Room `recovery`: leftovers of interrupted work are found by what lies on disk alone, and dealt with."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from custody.recovery.foreign_journals import AdoptedJournal, adopt, list_foreign_journals
    from custody.recovery.leftovers import Leftover, LeftoverPaths, find_leftovers, peek_leftovers
    from custody.recovery.recover_step import STEPS, Recover, RecoveryReport, recover, seal_dead_journals

__all__ = [
    "STEPS",
    "AdoptedJournal",
    "Leftover",
    "LeftoverPaths",
    "Recover",
    "RecoveryReport",
    "adopt",
    "find_leftovers",
    "list_foreign_journals",
    "peek_leftovers",
    "recover",
    "seal_dead_journals",
]

# Imported when they are used, so that a command loads what it needs and no more.
_MODULES = {
    "custody.recovery.foreign_journals": (
        "AdoptedJournal",
        "adopt",
        "list_foreign_journals",
    ),
    "custody.recovery.leftovers": (
        "Leftover",
        "LeftoverPaths",
        "find_leftovers",
        "peek_leftovers",
    ),
    "custody.recovery.recover_step": (
        "STEPS",
        "Recover",
        "RecoveryReport",
        "recover",
        "seal_dead_journals",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:  # a checker would take every name for one that is here

    def __getattr__(name: str) -> object:
        """Return a name of this room's modules."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULE_OF[name]), name)
