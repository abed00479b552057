"""Room `quarantine`: rejected input, kept for inspection and for another try."""

from custody.quarantine.store import Entry, Quarantine, keep_cut, keep_evidence

__all__ = ["Entry", "Quarantine", "keep_cut", "keep_evidence"]
