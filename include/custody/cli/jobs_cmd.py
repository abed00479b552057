"""`custody jobs`: long work that the pages and the API began, and how far it is."""

from __future__ import annotations

from pathlib import Path

import click

from custody.cli.options import json_option
from custody.cli.output import print_json, print_table, time_text


@click.command()
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=20, show_default=True, help="Jobs to print.")
@json_option
@click.pass_obj
def jobs(repository: Path, limit: int, as_json: bool) -> None:
    """Print long work that was begun in the pages or by the API, newest first, and how far each is.

    \b
    Example:
      custody -r demo jobs
      custody -r demo jobs --limit 100 --json
    """
    from custody.clock import SystemClock
    from custody.repository import Repository
    from custody.serving.jobs import Jobs
    from custody.vfs import PosixFileSystem

    settings = Repository.open(repository).settings
    kept, total = Jobs(PosixFileSystem(), settings.jobs, settings.root, SystemClock()).newest(limit)
    if as_json:
        print_json({"items": [job.shown for job in kept], "total": total})
        return
    rows = [
        (
            time_text(job.created_ms),
            job.kind,
            job.state,
            job.subject,
            job.done if job.total is None else f"{job.done} of {job.total}",
            job.unit,
            job.user,
            "" if job.problem is None else job.problem.detail,
        )
        for job in kept
    ]
    print_table(
        f"{total} jobs", ("begun", "kind", "state", "about", "done#", "of what", "who", "problem"), rows, "no jobs"
    )
