"""Room `maintenance`, verification: everything that lies on containers and store is looked at, piece by piece."""

from custody.maintenance.verification.check_units import Piece, pieces
from custody.maintenance.verification.orphans import orphans
from custody.maintenance.verification.verifier import Checked, check_piece, verify_repository

__all__ = ["Checked", "Piece", "check_piece", "orphans", "pieces", "verify_repository"]
