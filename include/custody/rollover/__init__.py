"""Room `rollover`: from sealed groups to live event logs, one idempotent step after the other."""

from custody.rollover.history import read_report, report_path, write_report
from custody.rollover.manifest import UnitManifest, staged_path
from custody.rollover.pending import Pending, pending
from custody.rollover.publish import add_file, add_shard, is_stale, rebuild_shard
from custody.rollover.report import StepReport, UnitReport
from custody.rollover.steps import STEPS, Step, Unit
from custody.rollover.workspace import LogFiles, Workspace

__all__ = [
    "STEPS",
    "LogFiles",
    "Pending",
    "Step",
    "StepReport",
    "Unit",
    "UnitManifest",
    "UnitReport",
    "Workspace",
    "add_file",
    "add_shard",
    "is_stale",
    "pending",
    "read_report",
    "rebuild_shard",
    "report_path",
    "staged_path",
    "write_report",
]
