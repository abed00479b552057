"""Room `maintenance`, verification: everything that lies on containers and store is looked at, piece by piece."""

from importlib import import_module
from typing import TYPE_CHECKING

from custody.maintenance.verification.orphans import orphans

if TYPE_CHECKING:
    from custody.maintenance.verification.check_units import Piece, pieces
    from custody.maintenance.verification.verifier import Checked, check_piece, verify_repository

__all__ = ["Checked", "Piece", "check_piece", "orphans", "pieces", "verify_repository"]

# Imported when they are used, so that a command loads what it needs and no more.
_MODULES = {
    "custody.maintenance.verification.check_units": (
        "Piece",
        "pieces",
    ),
    "custody.maintenance.verification.verifier": (
        "Checked",
        "check_piece",
        "verify_repository",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:  # a checker would take every name for one that is here

    def __getattr__(name: str) -> object:
        """Return a name of this room's modules."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULE_OF[name]), name)
