"""Room `quarantine`: rejected input and damaged bytes, kept for inspection and for another attempt."""

from custody.quarantine.store import BadPiece, Quarantine, QuarantineEntry, bad_piece, keep_cut, keep_evidence

__all__ = ["BadPiece", "Quarantine", "QuarantineEntry", "bad_piece", "keep_cut", "keep_evidence"]
