"""Room `maintenance`, verification: everything on containers and store is checked, unit by unit.

`check_units` lists the units, `verifier` checks them; a `check_*` module holds the checks of one kind of file.
"""

from custody.maintenance.verification.check_units import CheckUnit, writer_check_units
from custody.maintenance.verification.orphans import orphans
from custody.maintenance.verification.verifier import VerificationReport, run_check, verify_repository

__all__ = ["CheckUnit", "VerificationReport", "orphans", "run_check", "verify_repository", "writer_check_units"]
