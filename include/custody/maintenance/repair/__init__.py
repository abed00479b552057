"""Room `maintenance`, repair: check first, say what would be done, do it when asked, keep what was done."""

from custody.maintenance.repair.actions import Action
from custody.maintenance.repair.catalogs import coming_logs, refuse_more
from custody.maintenance.repair.executor import Repaired, plan_repair, repair
from custody.maintenance.repair.planning import ORDER

__all__ = ["ORDER", "Action", "Repaired", "coming_logs", "plan_repair", "refuse_more", "repair"]
