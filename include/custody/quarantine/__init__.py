"""Room `quarantine`: rejected input and damaged bytes, kept for inspection and for another attempt."""

from custody.quarantine.store import BadPiece, Quarantine, QuarantineEntry, keep_cut, keep_evidence

__all__ = ["BadPiece", "Quarantine", "QuarantineEntry", "keep_cut", "keep_evidence"]
