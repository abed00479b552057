"""`custody repair`: shows what would mend the damage, and does it."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from custody.cli.consent import Consent, asks_first
from custody.cli.findings_output import deep_option, level_of
from custody.cli.options import json_option
from custody.cli.output import print_json, print_table, stderr
from custody.clock import SystemClock
from custody.config import load_settings
from custody.errors import CorruptionError, ExitCode
from custody.maintenance.findings import damages
from custody.maintenance.repair import RepairAction, RepairReport
from custody.maintenance.repair import plan_repairs as plan_repairs
from custody.maintenance.repair import repair_repository as run_repairs
from custody.vfs import PosixFileSystem


@click.command()
@asks_first
@click.option("--accept-loss", is_flag=True, help="Also give up events that nothing holds any more, and note them.")
@click.option(
    "--from",
    "copies",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder with copies of damaged files, such as a restored backup; below it they may have any names.",
)
@deep_option
@json_option
@click.pass_obj
def repair(
    repository: Path, consent: Consent, accept_loss: bool, copies: Path | None, deep: bool, as_json: bool
) -> None:
    """Look at everything as `custody verify` does, print what would mend it, and do that.

    What can be read is kept, what was damaged goes to the quarantine or stays where it is, unlisted. The catalog is
    told which events are lost, and, before they are changed, which files are mended and why. What was done stands in a
    report in the folder of runs. docs/damage.md has the actions.

    Where events would be lost, the plan says which file of a backup would save them and where to put it, and nothing is
    given up without --accept-loss. With --from what is damaged or gone is restored from an intact copy in a folder:
    logs, contents, journals, transactions. A loss that was noted before is taken back by a copy too.

    Exit code 0 when nothing is damaged (any more), 1 when an action failed, 20 when damage is left.

    \b
    Example:
      custody -r demo repair --dry-run
      custody -r demo repair --yes
      custody -r demo repair --yes --from restored-backup
    """
    settings, fs, clock = load_settings(repository), PosixFileSystem(), SystemClock()
    level = level_of(quick=False, deep=deep)
    talk = stderr()

    def on_done(action: RepairAction) -> None:
        if not as_json:
            talk.print(f"{action.what} {action.target}: {action.error or action.outcome}", markup=False)

    if not consent.yes:
        outcome = plan_repairs(settings, fs, clock, level, copies=copies)
        _print(outcome, as_json=as_json, accept_loss=accept_loss, is_plan=True)
    if consent.yes or (outcome.actions and consent.ask("Do this?")):
        outcome = run_repairs(settings, fs, clock, level, accept_loss=accept_loss, copies=copies, on_done=on_done)
        _print(outcome, as_json=as_json, accept_loss=accept_loss, is_plan=False)
    if any(action.error is not None for action in outcome.actions):
        sys.exit(ExitCode.SOME_WORK_FAILED)
    if damages(outcome.before if outcome.after is None else outcome.after):
        sys.exit(CorruptionError.exit_code)


def _print(outcome: RepairReport, *, as_json: bool, accept_loss: bool, is_plan: bool) -> None:
    if as_json:
        remaining = outcome.before if outcome.after is None else outcome.after
        document = {
            "actions": [msgspec.to_builtins(action) for action in outcome.actions],
            "damage_before": [item.document() for item in damages(outcome.before)],
            "damage_left": [item.document() for item in damages(remaining)],
            "report": outcome.report,
            "notices": outcome.notices,
        }
        print_json(document)
        return
    rows = [
        (
            action.what,
            action.writer,
            action.target,
            action.events or None,
            _outcome(action, accept_loss),
            _because(action),
        )
        for action in outcome.actions
    ]
    title = f"{len(rows)} actions to do" if is_plan else f"{len(rows)} actions"
    print_table(title, ("action", "writer", "what", "events lost#", "outcome", "because"), rows)
    for notice in outcome.notices:
        stderr().print(notice, markup=False)
    if outcome.report:
        stderr().print(f"report: {outcome.report}", markup=False)


def _because(action: RepairAction) -> str:
    is_open = action.outcome is None and action.wanted
    return f"{action.reason} {action.wanted}" if is_open else action.reason


def _outcome(action: RepairAction, accept_loss: bool) -> str:
    if action.outcome is None and action.error is None:
        return "needs a copy, or --accept-loss" if action.accept_loss and not accept_loss else "to do"
    return action.error or action.outcome or ""
