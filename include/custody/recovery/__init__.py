"""Room `recovery`: leftovers of interrupted work are found by what lies on disk alone, and dealt with."""

from typing import TYPE_CHECKING

from custody.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from custody.recovery.earlier_state import accept_earlier
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
    "accept_earlier",
    "adopt",
    "find_leftovers",
    "list_foreign_journals",
    "peek_leftovers",
    "recover",
    "seal_dead_journals",
]

# Imported when they are used, so that a command loads what it needs and no more.
_MODULES = {
    "custody.recovery.earlier_state": ("accept_earlier",),
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

if not TYPE_CHECKING:  # a checker would take every name for one that is here
    __getattr__ = lazy_exports(__name__, _MODULES)
