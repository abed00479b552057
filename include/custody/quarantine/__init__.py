"""Room `quarantine`: rejected input and damaged bytes, kept for inspection and for another attempt."""

from custody.quarantine.store import (
    BadPiece,
    Quarantine,
    QuarantineEntry,
    bad_piece,
    body_of,
    is_body_file,
    is_intact,
    keep_cut,
    keep_evidence,
)

__all__ = [
    "BadPiece",
    "Quarantine",
    "QuarantineEntry",
    "bad_piece",
    "body_of",
    "is_body_file",
    "is_intact",
    "keep_cut",
    "keep_evidence",
]
