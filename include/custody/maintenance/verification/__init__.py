"""Room `maintenance`, verification: everything that lies on containers and store is looked at, piece by piece."""

from custody.maintenance.verification.check_units import CheckUnit, writer_check_units
from custody.maintenance.verification.orphans import orphans
from custody.maintenance.verification.verifier import VerificationReport, run_check, verify_repository

__all__ = ["CheckUnit", "VerificationReport", "orphans", "run_check", "verify_repository", "writer_check_units"]
