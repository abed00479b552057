"""`custody recover`: shows what interrupted work left, and deals with it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from custody.cli.options import dry_run_option, json_option
from custody.cli.output import print_json, print_table, stderr
from custody.recovery import Leftover
from custody.repository import Repository


@click.command()
@dry_run_option
@click.option("--take-over", is_flag=True, help="Take the work over from an attempt that lives; it then ends with 19.")
@click.option("--adopt", is_flag=True, help="Bring journals of another incarnation in, as a writer of their own.")
@click.option(
    "--accept-earlier", is_flag=True, help="Go on for good from a state that is earlier than one that was seen."
)
@json_option
@click.pass_obj
def recover(repository: Path, dry_run: bool, take_over: bool, adopt: bool, accept_earlier: bool, as_json: bool) -> None:
    """Deal with what interrupted work left: seal a dead writer's journals, remove what no transaction lists.

    Step `recover` of a pass does the same, so that nobody has to call this; it needs no Spark and makes a repository
    ready after a crash in seconds. Nothing that a kept revision lists is touched, and nothing that a live process works
    on. Journals that another machine wrote under the same writer name, or that came back with a container which was
    given up, are told, and brought in with --adopt: they keep their event ids and get a writer name of their own.

    Where the catalog is of an earlier moment than one that was seen, or its store is away, nothing is touched and the
    exit code is 25; with --accept-earlier that state counts from then on, and no event id is given out twice. The exit
    code is 1 if something could not be done, 14 if another attempt holds a writer's lease.

    \b
    Example:
      custody -r demo recover --dry-run
      custody -r demo recover
    """
    opened = Repository.open(repository)
    if dry_run:
        findings = opened.recoverable()
        if as_json:
            print_json(findings)
        else:
            _print("nothing is changed with --dry-run", findings)
        return
    reports = opened.recover(take_over=take_over, adopt=adopt, accept_earlier=accept_earlier)
    if as_json:
        print_json(reports)
    else:
        _print("", [item for report in reports.values() for item in report.findings])
        for writer, report in reports.items():
            stderr().print(f"{writer}: {report}", markup=False)
            if report.accepted is not None:
                stderr().print(f"{writer}: from here on the earlier state counts. {report.accepted}", markup=False)
            for item in report.adopted:
                stderr().print(f"{writer}: adopted as writer {item.writer}: {item.path}", markup=False)
    sys.exit(int(any(report.errors for report in reports.values())))


def _print(title: str, findings: Iterable[Leftover]) -> None:
    rows = [(item.writer, item.path, item.what, item.action, item.error or item.why) for item in findings]
    print_table(title, ("writer", "path", "what", "action", "why"), rows, "nothing was left by interrupted work")
