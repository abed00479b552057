"""Room `quarantine`: rejected input, kept for inspection and for another try."""

from custody.quarantine.store import Quarantine, QuarantineEntry, keep_cut, keep_evidence

__all__ = ["Quarantine", "QuarantineEntry", "keep_cut", "keep_evidence"]
