"""Room `workspace`: one writer's files, and what all steps share: snapshots, leases, staged units, reports of runs."""

from typing import TYPE_CHECKING

from custody.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from custody.workspace.removal import discard, name_before_removal, put_back, removal_name, remove
    from custody.workspace.run_reports import (
        FILES_MAX,
        ReportPlace,
        StepReport,
        UnitReport,
        file_uri,
        read_report,
        report_path,
        report_place,
        reports_of_run,
        write_report,
    )
    from custody.workspace.snapshot import Moment, attempts, look, look_undisturbed, read_at_one_moment
    from custody.workspace.step import Step, Unit
    from custody.workspace.step_lease import (
        lease_of_unit,
        lease_place,
        leased,
        rollover_lease,
        take_lease,
        take_rollover,
        take_step_lease,
    )
    from custody.workspace.step_run import Start, UnitRunner, exit_code, run_pass, run_step, run_unit
    from custody.workspace.unit_manifest import UnitManifest, staged_path
    from custody.workspace.workspace import (
        ROLLOVER_LEASE,
        LogFiles,
        Workspace,
        not_absorbed,
        without_archives,
        writer_names,
        writer_names_and_places,
    )

__all__ = [
    "FILES_MAX",
    "ROLLOVER_LEASE",
    "LogFiles",
    "Moment",
    "ReportPlace",
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
    "file_uri",
    "lease_of_unit",
    "lease_place",
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
    "report_place",
    "reports_of_run",
    "rollover_lease",
    "run_pass",
    "run_step",
    "run_unit",
    "staged_path",
    "take_lease",
    "take_rollover",
    "take_step_lease",
    "without_archives",
    "write_report",
    "writer_names",
    "writer_names_and_places",
]

# Imported when they are used, so that a command loads what it needs and no more.
_MODULES = {
    "custody.workspace.removal": (
        "discard",
        "name_before_removal",
        "put_back",
        "removal_name",
        "remove",
    ),
    "custody.workspace.run_reports": (
        "FILES_MAX",
        "ReportPlace",
        "StepReport",
        "UnitReport",
        "file_uri",
        "read_report",
        "report_path",
        "report_place",
        "reports_of_run",
        "write_report",
    ),
    "custody.workspace.snapshot": (
        "Moment",
        "attempts",
        "look",
        "look_undisturbed",
        "read_at_one_moment",
    ),
    "custody.workspace.step": (
        "Step",
        "Unit",
    ),
    "custody.workspace.step_lease": (
        "lease_of_unit",
        "lease_place",
        "leased",
        "rollover_lease",
        "take_lease",
        "take_rollover",
        "take_step_lease",
    ),
    "custody.workspace.step_run": (
        "Start",
        "UnitRunner",
        "exit_code",
        "run_pass",
        "run_step",
        "run_unit",
    ),
    "custody.workspace.unit_manifest": (
        "UnitManifest",
        "staged_path",
    ),
    "custody.workspace.workspace": (
        "ROLLOVER_LEASE",
        "LogFiles",
        "Workspace",
        "not_absorbed",
        "without_archives",
        "writer_names",
        "writer_names_and_places",
    ),
}

if not TYPE_CHECKING:  # a checker would take every name for one that is here
    __getattr__ = lazy_exports(__name__, _MODULES)
