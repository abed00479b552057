"""Doing what was planned, one action after the other, and keeping a report of it in the folder of runs.

Each action can be done again, and each leaves what a second repair goes on from. After a round everything is looked at
again, because one repair shows what the damage before it hid.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from custody.clock import Clock
from custody.config import Settings
from custody.errors import CustodyError
from custody.maintenance.findings import Finding, Level
from custody.maintenance.repair import catalogs, contents, logs, others
from custody.maintenance.repair.actions import Action
from custody.maintenance.repair.planning import plan
from custody.maintenance.verification import verify_repository
from custody.vfs import FileSystem
from custody.workspace import StepReport, UnitReport, Workspace, write_report

_ROUNDS_MAX = 5
_DO: dict[str, Callable[[Workspace, Action], str]] = {
    # What needs accepting is done only when it was accepted.
    "mend-catalog": lambda at, action: catalogs.mend_chain(at, accept_loss=action.accept_loss),
    "write-copies": lambda at, action: catalogs.write_copies(at),
    "forget-again": lambda at, action: catalogs.forget_again(at, action.target.split(",")),
    "set-object-aside": lambda at, action: catalogs.set_object_aside(at, action.target),
    "note-history": lambda at, action: catalogs.note_history(at, [int(n) for n in action.target.split(",")]),
    "list-again": lambda at, action: catalogs.list_again(at, action.target.split(",")),
    "write-checkpoint": lambda at, action: catalogs.write_checkpoint(at),
    "restore-state": lambda at, action: others.restore_state(at, Path(action.target)),
    "rename-journal": lambda at, action: others.rename_journal(at, Path(action.target)),
    "redo-unit": lambda at, action: others.redo_unit(at, int(action.target)),
    "restore-log": lambda at, action: logs.restore(at, action.target),
    "roll-over": lambda at, action: others.roll_over(at, int(action.target)),
    "rewrite-log": lambda at, action: logs.rewrite(at, action.target),
    "give-up-log": lambda at, action: logs.give_up(at, action.target),
    "rewrite-toc": lambda at, action: logs.rewrite_toc(at, action.target),
    "rebuild-shard": lambda at, action: others.rebuild(at, action.target),
    "mend-content": lambda at, action: contents.mend(at, action.target),
    "mend-quarantine": lambda at, action: others.mend_quarantine(at, action.target, action.reason),
    "drop-record": lambda at, action: others.drop_record(at, Path(action.target), action.reason),
    "drop-entry": lambda at, action: others.drop_entry(at, action.target, action.reason),
    "note-ids": lambda at, action: catalogs.note_ids(at),
}


class Repaired(msgspec.Struct, kw_only=True):
    """What was planned or done, what was found before, and, when something was done, what is left."""

    actions: list[Action]
    before: list[Finding]
    after: list[Finding] | None = None
    report: str | None = None
    """Where the outcomes are kept."""


def plan_repair(settings: Settings, fs: FileSystem, clock: Clock, level: Level = Level.DEFAULT) -> Repaired:
    """Look at everything and say what would be done; changes nothing."""
    found = _found(settings, fs, clock, level)
    return Repaired(actions=plan(found, partial(_workspace, settings, fs, clock)), before=found)


def repair(
    settings: Settings,
    fs: FileSystem,
    clock: Clock,
    level: Level = Level.DEFAULT,
    *,
    accept_loss: bool = False,
    on_done: Callable[[Action], None] = lambda action: None,
) -> Repaired:
    """Do what can be done; only with `accept_loss` also what gives up events that are lost.

    Durability: on return what the outcomes say survives power loss, and so does the report.

    Raises:
        LockedError: another repair goes on.
    """
    fs.make_directory(settings.maintenance_folder)
    with fs.lock(settings.maintenance_folder / "LOCK"):
        result = plan_repair(settings, fs, clock, level)
        run_id, started = f"repair-{clock.now_ms()}", time.monotonic()
        done: list[Action] = []
        planned = result.actions
        for _ in range(_ROUNDS_MAX):
            known = {action.key for action in done}
            todo = [action for action in planned if action.key not in known and (accept_loss or not action.accept_loss)]
            if not todo:
                break
            for action in todo:
                done.append(_done(_workspace(settings, fs, clock, action.writer), action))
                on_done(done[-1])
                result.report = str(_keep(settings, fs, run_id, done, time.monotonic() - started))
            result.after = _found(settings, fs, clock, level)
            planned = plan(result.after, partial(_workspace, settings, fs, clock))
        left = [action for action in planned if action.key not in {item.key for item in done}]
        result.actions = [*done, *left]
        return result


def _found(settings: Settings, fs: FileSystem, clock: Clock, level: Level) -> list[Finding]:
    workspaces = [Workspace(settings, item.writer, fs, clock) for item in Workspace.all(settings, fs)]
    return verify_repository(workspaces, settings, fs, level).findings


def _workspace(settings: Settings, fs: FileSystem, clock: Clock, writer: str | None) -> Workspace:
    """Return a workspace that knows nothing from before: an action may have changed what was read."""
    return Workspace(settings, writer or settings.repository.writer, fs, clock)


def _done(workspace: Workspace, action: Action) -> Action:
    try:
        return msgspec.structs.replace(action, outcome=_DO[action.what](workspace, action))
    except (CustodyError, OSError) as error:
        return msgspec.structs.replace(action, error=str(error))


def _keep(settings: Settings, fs: FileSystem, run_id: str, done: list[Action], seconds: float) -> Path:
    units = [
        UnitReport(
            unit=f"{action.what} {action.writer or ''} {action.target}",
            events=action.events,
            note=action.outcome,
            error=action.error,
        )
        for action in done
    ]
    return write_report(fs, settings.runs, run_id, StepReport.of("repair", str(settings.root), seconds, units))
