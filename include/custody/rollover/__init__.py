"""Room `rollover`: from sealed groups to live event logs, one idempotent step after the other."""

from custody.rollover.change_feed import Commits, GroupWatch, Mark, News, commits_since, read_mark, waiting_groups
from custody.rollover.pending import Pending, is_live, pending
from custody.rollover.publish import add_file, add_shard, is_stale, rebuild_shard
from custody.rollover.steps import STEPS, Step, Unit
from custody.rollover.sweeping import strays, sweep_unit, swept_groups

__all__ = [
    "STEPS",
    "Commits",
    "GroupWatch",
    "Mark",
    "News",
    "Pending",
    "Step",
    "Unit",
    "add_file",
    "add_shard",
    "commits_since",
    "is_live",
    "is_stale",
    "pending",
    "read_mark",
    "rebuild_shard",
    "strays",
    "sweep_unit",
    "swept_groups",
    "waiting_groups",
]
