"""Room `rollover`: from sealed groups to live event logs, one idempotent step after the other."""

from custody.rollover.commits import Commits, commits_since
from custody.rollover.evidence import strays
from custody.rollover.fencing import (
    discard,
    lease_folder,
    leased,
    name_before,
    put_back,
    remove,
    rollover_lease,
    set_aside,
    take_lease,
    take_rollover,
    take_step_lease,
)
from custody.rollover.history import read_report, report_path, write_report
from custody.rollover.manifest import UnitManifest, staged_path
from custody.rollover.pending import Pending, is_live, pending
from custody.rollover.publish import add_file, add_shard, is_stale, rebuild_shard
from custody.rollover.report import StepReport, UnitReport
from custody.rollover.steps import STEPS, Step, Unit
from custody.rollover.sweeping import sweep_unit, swept_groups
from custody.rollover.watching import GroupWatch, Mark, News, read_mark, waiting_groups
from custody.rollover.workspace import ROLLOVER_LEASE, LogFiles, Workspace

__all__ = [
    "ROLLOVER_LEASE",
    "STEPS",
    "Commits",
    "GroupWatch",
    "LogFiles",
    "Mark",
    "News",
    "Pending",
    "Step",
    "StepReport",
    "Unit",
    "UnitManifest",
    "UnitReport",
    "Workspace",
    "add_file",
    "add_shard",
    "commits_since",
    "discard",
    "is_live",
    "is_stale",
    "lease_folder",
    "leased",
    "name_before",
    "pending",
    "put_back",
    "read_mark",
    "read_report",
    "rebuild_shard",
    "remove",
    "report_path",
    "rollover_lease",
    "set_aside",
    "staged_path",
    "strays",
    "sweep_unit",
    "swept_groups",
    "take_lease",
    "take_rollover",
    "take_step_lease",
    "waiting_groups",
    "write_report",
]
