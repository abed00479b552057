"""Room `maintenance`, repair: check first, say what would be done, do it when asked, keep what was done."""

from custody.maintenance.repair.actions import Action
from custody.maintenance.repair.executor import ORDER, Repaired, plan_repair, repair
from custody.maintenance.repair.repair_catalog import coming_logs, refuse_more

__all__ = ["ORDER", "Action", "Repaired", "coming_logs", "plan_repair", "refuse_more", "repair"]
