"""Room `rollover`: from sealed groups of journals to live event logs, one idempotent step after the other."""

from custody.rollover.change_feed import GroupWatch, NewLogs, WaitingGroups, WatchMark, new_logs_since, read_mark
from custody.rollover.pending import Pending, pending
from custody.rollover.publish import add_file, add_shard, is_stale, rebuild_shard
from custody.rollover.rollover_steps import STEPS
from custody.rollover.sweeping import stray_journals, sweep_unit, swept_groups

__all__ = [
    "STEPS",
    "GroupWatch",
    "NewLogs",
    "Pending",
    "WaitingGroups",
    "WatchMark",
    "add_file",
    "add_shard",
    "is_stale",
    "new_logs_since",
    "pending",
    "read_mark",
    "rebuild_shard",
    "stray_journals",
    "sweep_unit",
    "swept_groups",
]
