"""`custody retention`: what would go, and letting it go."""

from __future__ import annotations

from pathlib import Path

import click

from custody.cli.consent import Consent, asks_first
from custody.cli.groups import CommandGroup
from custody.cli.options import json_option
from custody.cli.output import print_json, print_table, size_text, stderr, time_text, working
from custody.errors import StorageError
from custody.repository import Plan, Repository


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
    found = Repository.open(repository).plan_retention()
    if as_json:
        print_json(found)
        return
    _print_plan(found, "nothing is changed by a plan")
    if found.problem is not None:
        stderr().print(f"custody: {found.problem}", markup=False)


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
        done = opened.apply_retention()
    if as_json:
        print_json(done)
    else:
        _print_plan(done.plan, "")
        rows = [(name, unit.unit, size_text(unit.bytes), unit.note) for name in done.steps for unit in done.steps[name]]
        print_table("", ("step", "unit", "deleted#", "result"), rows)
    if done.plan.problem is not None:
        raise StorageError(done.plan.problem)


def _print_plan(found: Plan, title: str) -> None:
    rows = [
        (log.writer, log.path, log.why, log.events, time_text(log.last_event_time_ms), size_text(log.bytes))
        for log in found.expiring
    ]
    columns = ("writer", "event log", "why", "events#", "last event", "on disk#")
    print_table(title, columns, rows, "nothing expires")
    if found.held:
        held = [(log.writer, log.path, ", ".join(log.holds), size_text(log.bytes)) for log in found.held]
        print_table("", ("writer", "held event log", "holds", "on disk#"), held)
    if found.hiding:
        hiding = [(rule.rule, time_text(rule.before_ms) if rule.before_ms else "no more") for rule in found.hiding]
        print_table("", ("hidden by", "events before"), hiding)
    limit = "none" if found.limit_bytes is None else size_text(found.limit_bytes)
    sizes = size_text(found.used_bytes), size_text(found.waiting_bytes), size_text(found.after_bytes), limit
    print_table("", ("on disk#", "to be deleted#", "after#", "limit#"), [sizes])
