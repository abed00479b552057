"""`custody runs`: which runs of steps there were, and what each step did with its units."""

from __future__ import annotations

from pathlib import Path

import click

from custody.cli.options import json_option
from custody.cli.output import clean, print_json, print_table, stderr, time_text


@click.command()
@click.argument("run", required=False)
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=20, show_default=True, help="Runs to print.")
@json_option
@click.pass_obj
def runs(repository: Path, run: str | None, limit: int, as_json: bool) -> None:
    """Print the runs of steps whose reports are kept, newest first; or what the steps of RUN, one of them, did.

    \b
    Example:
      custody -r demo runs
      custody -r demo runs scheduled__2026-03-01-5f0c2a91 --json
    """
    from custody.repository import Repository
    from custody.workspace.run_reports import list_runs, read_run, report_place

    place = report_place(Repository.open(repository).settings)
    if run is not None:
        steps = read_run(*place, run)
        if as_json:
            print_json({"run": run, "steps": steps})
            return
        rows = [
            (step.step, unit.unit, unit.events, round(unit.seconds, 3), unit.error or unit.note or "")
            for step in steps
            for unit in step.details
        ]
        print_table(run, ("step", "unit", "events#", "seconds#", "note"), rows, f"{run}: no unit had anything to do")
        return
    items, total, notices = list_runs(*place, limit)
    if as_json:
        print_json({"items": items, "total": total, "notices": notices})
        return
    for notice in notices:
        stderr().print(clean(notice))
    columns = ("last report", "run", "steps", "units#", "events#", "failed#", "seconds#")
    listed = [
        (
            time_text(one.last_ms),
            one.run,
            ", ".join(one.steps),
            one.units,
            one.events,
            one.failed,
            round(one.seconds, 3),
        )
        for one in items
    ]
    print_table(f"{total} runs", columns, listed)
