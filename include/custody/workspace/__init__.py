"""Room `workspace`: one writer's files, and what all steps share: leases, staged units, reports of runs."""

from custody.workspace.run_reports import StepReport, UnitReport, read_report, report_path, write_report
from custody.workspace.step_lease import (
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
from custody.workspace.unit_manifest import UnitManifest, staged_path
from custody.workspace.workspace import ROLLOVER_LEASE, LogFiles, Workspace

__all__ = [
    "ROLLOVER_LEASE",
    "LogFiles",
    "StepReport",
    "UnitManifest",
    "UnitReport",
    "Workspace",
    "discard",
    "lease_folder",
    "leased",
    "name_before",
    "put_back",
    "read_report",
    "remove",
    "report_path",
    "rollover_lease",
    "set_aside",
    "staged_path",
    "take_lease",
    "take_rollover",
    "take_step_lease",
    "write_report",
]
