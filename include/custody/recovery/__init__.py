"""Room `recovery`: leftovers of interrupted work are found by what lies on disk alone, and dealt with."""

from custody.recovery.adoption import AdoptedJournal, adopt, list_foreign_journals
from custody.recovery.leftovers import Leftover, LeftoverPaths, find_leftovers, peek_leftovers
from custody.recovery.recover import STEPS, Recover, RecoveryReport, recover, seal_dead_journals

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
