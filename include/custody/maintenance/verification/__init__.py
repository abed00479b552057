"""Room `maintenance`, verification: everything on containers and store is checked, unit by unit.

`check_units` lists the units, `verifier` checks them; a `check_*` module holds the checks of one kind of file.
"""

from typing import TYPE_CHECKING

from custody.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from custody.maintenance.verification.check_orphans import orphans
    from custody.maintenance.verification.check_units import CheckUnit, writer_check_units
    from custody.maintenance.verification.verifier import VerificationReport, run_check, verify_repository

__all__ = ["CheckUnit", "VerificationReport", "orphans", "run_check", "verify_repository", "writer_check_units"]

# Imported when they are used, so that a command loads what it needs and no more.
_MODULES = {
    "custody.maintenance.verification.check_orphans": ("orphans",),
    "custody.maintenance.verification.check_units": (
        "CheckUnit",
        "writer_check_units",
    ),
    "custody.maintenance.verification.verifier": (
        "VerificationReport",
        "run_check",
        "verify_repository",
    ),
}

if not TYPE_CHECKING:  # a checker would take every name for one that is here
    __getattr__ = lazy_exports(__name__, _MODULES)
