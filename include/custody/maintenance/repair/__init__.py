"""Room `maintenance`, repair: check first, say what would be done, do it when asked, keep what was done."""

from custody.maintenance.repair.actions import RepairAction
from custody.maintenance.repair.executor import ACTION_ORDER, RepairReport, plan_repairs, repair_repository
from custody.maintenance.repair.repair_catalog import require_accepted, unpublished_logs

__all__ = [
    "ACTION_ORDER",
    "RepairAction",
    "RepairReport",
    "plan_repairs",
    "repair_repository",
    "require_accepted",
    "unpublished_logs",
]
