"""Room `quarantine`: rejected input, kept for inspection and for another try."""

from custody.quarantine.evidence import keep_cut, keep_evidence
from custody.quarantine.store import Entry, Quarantine

__all__ = ["Entry", "Quarantine", "keep_cut", "keep_evidence"]
