"""Room `maintenance`, repair: verify, plan the actions, do them on request, report what was done.

`executor` plans and does; a `repair_*` module holds the actions on one kind of file, as `check_*` holds its checks.
"""

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
