"""Room `recovery`: what interrupted work left on disk is found by what lies there alone, and dealt with."""

from custody.recovery.adopting import Adopted, adopt, journals_of_others
from custody.recovery.finding import Finding
from custody.recovery.leftovers import Leftovers, leftovers
from custody.recovery.looking import find
from custody.recovery.recovering import Recovered, recover, seal
from custody.recovery.steps import STEPS, Recover

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
