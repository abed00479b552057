"""`custody retention`: the plan of what expires, and its execution."""

from __future__ import annotations

from pathlib import Path

import click

from custody.cli.consent import Consent, asks_first
from custody.cli.groups import CommandGroup
from custody.cli.options import json_option
from custody.cli.output import print_json, print_table, size_text, stderr, time_text, working
from custody.errors import StorageError
from custody.repository import Repository, RetentionPlan


@click.group(cls=CommandGroup)
def retention() -> None:
    """Let events go that are too old, or for which there is no room."""


@retention.command("plan")
@json_option
@click.pass_obj
def plan(repository: Path, as_json: bool) -> None:
    """Show what would go and why, what is held, and the room on disk before and after; nothing is changed.

    \b
    Example:
      custody -r demo retention plan
    """
    expected = Repository.open(repository).plan_retention()
    if as_json:
        print_json(expected)
        return
    _print_plan(expected, "nothing is changed by a plan")
    if expected.problem is not None:
        stderr().print(f"custody: {expected.problem}", markup=False)


@retention.command("apply")
@asks_first
@json_option
@click.pass_obj
def apply(repository: Path, consent: Consent, as_json: bool) -> None:
    """Take out of the catalog what the plan names, and delete what was taken out longer ago than retention.grace.

    The command can be stopped and run again at any time. If the limit cannot be kept although all went that may go, it
    says why and ends with exit code 17.

    \b
    Example:
      custody -r demo retention apply --yes
    """
    opened = Repository.open(repository)
    if not consent.yes:
        expected = opened.plan_retention()
        print_json(expected) if as_json else _print_plan(expected, "would be done")
    if not consent.ask("Let these event logs go?"):
        return
    with working("deleting what has expired"):
        report = opened.apply_retention()
    if as_json:
        print_json(report)
    else:
        _print_plan(report.plan, "")
        rows = [
            (name, unit.unit, size_text(unit.bytes), unit.note) for name in report.steps for unit in report.steps[name]
        ]
        print_table("", ("step", "unit", "deleted#", "result"), rows)
    if report.plan.problem is not None:
        raise StorageError(report.plan.problem)


def _print_plan(plan_shown: RetentionPlan, title: str) -> None:
    rows = [
        (log.writer, log.path, log.why, log.events, time_text(log.last_event_time_ms), size_text(log.bytes))
        for log in plan_shown.expiring
    ]
    columns = ("writer", "event log", "why", "events#", "last event", "on disk#")
    print_table(title, columns, rows, "nothing expires")
    if plan_shown.held:
        held = [(log.writer, log.path, ", ".join(log.holds), size_text(log.bytes)) for log in plan_shown.held]
        print_table("", ("writer", "held event log", "holds", "on disk#"), held)
    if plan_shown.hiding:
        hiding = [(rule.rule, time_text(rule.before_ms) if rule.before_ms else "no more") for rule in plan_shown.hiding]
        print_table("", ("hidden by", "events before"), hiding)
    if plan_shown.history:
        rows_of_history = [
            (each.writer, each.floor_before, each.floor, each.newest, each.why or "", "; ".join(each.limited_by))
            for each in plan_shown.history
        ]
        names = ("writer", "earliest revision#", "afterwards#", "newest#", "why", "kept by")
        print_table("", names, rows_of_history)
    limit = "none" if plan_shown.limit_bytes is None else size_text(plan_shown.limit_bytes)
    sizes = (
        size_text(plan_shown.used_bytes),
        size_text(plan_shown.waiting_bytes),
        size_text(plan_shown.after_bytes),
        limit,
    )
    print_table("", ("on disk#", "to be deleted#", "after#", "limit#"), [sizes])
