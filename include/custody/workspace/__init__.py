"""Room `workspace`: one writer's files, and what all steps share: snapshots, leases, staged units, reports of runs."""

from custody.workspace.removal import discard, name_before_removal, put_back, removal_name, remove
from custody.workspace.run_reports import StepReport, UnitReport, read_report, report_path, write_report
from custody.workspace.snapshot import Moment, attempts, look, look_undisturbed, read_at_one_moment
from custody.workspace.step import Step, Unit
from custody.workspace.step_lease import (
    lease_folder,
    leased,
    rollover_lease,
    take_lease,
    take_rollover,
    take_step_lease,
)
from custody.workspace.step_run import Start, UnitRunner, exit_code, run_pass, run_step, run_unit
from custody.workspace.unit_manifest import UnitManifest, staged_path
from custody.workspace.workspace import ROLLOVER_LEASE, LogFiles, Workspace, not_absorbed, writer_names

__all__ = [
    "ROLLOVER_LEASE",
    "LogFiles",
    "Moment",
    "Start",
    "Step",
    "StepReport",
    "Unit",
    "UnitManifest",
    "UnitReport",
    "UnitRunner",
    "Workspace",
    "attempts",
    "discard",
    "exit_code",
    "lease_folder",
    "leased",
    "look",
    "look_undisturbed",
    "name_before_removal",
    "not_absorbed",
    "put_back",
    "read_at_one_moment",
    "read_report",
    "removal_name",
    "remove",
    "report_path",
    "rollover_lease",
    "run_pass",
    "run_step",
    "run_unit",
    "staged_path",
    "take_lease",
    "take_rollover",
    "take_step_lease",
    "write_report",
    "writer_names",
]
