"""Room `recovery`: what interrupted work left on disk is found by what lies there alone, and dealt with."""

from custody.recovery.adoption import Adopted, adopt, journals_of_others
from custody.recovery.leftovers import Finding, Leftovers, find, leftovers
from custody.recovery.recover import STEPS, Recover, Recovered, recover, seal

__all__ = [
    "STEPS",
    "Adopted",
    "Finding",
    "Leftovers",
    "Recover",
    "Recovered",
    "adopt",
    "find",
    "journals_of_others",
    "leftovers",
    "recover",
    "seal",
]
