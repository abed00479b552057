"""`custody compact`: erases forgotten events from the disk, and merges small logs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from custody.cli.options import dry_run_option, json_option
from custody.cli.output import print_json, print_table, size_text, stderr
from custody.repository import CompactionReport, Repository


@click.command()
@click.option("--writer", "-w", help="Only logs of this writer; otherwise of all of them.")
@dry_run_option
@json_option
@click.pass_obj
def compact(repository: Path, writer: str | None, dry_run: bool, as_json: bool) -> None:
    """Write live logs anew without the events that were forgotten, and small neighbours as one log.

    Of an event that these logs hold twice (one number of one source, equal in everything) the first one stays.

    Event ids stay as they are. The former logs are listed no more, and stay on disk with all their events, forgotten
    ones included, as long as an earlier revision can be asked for: until `custody catalog prune`, which keeps two later
    checkpoints, and `custody catalog gc`, which keeps its trash for a week. `custody forget --erase` erases events to
    the last copy. Events that are not live yet are left to a later call. The exit code is 1 if some logs could not be
    written anew.

    \b
    Example:
      custody -r demo compact --dry-run
      custody -r demo compact
    """
    opened = Repository.open(repository)
    if dry_run:
        plans = opened.compactions(writer)
        if as_json:
            print_json(plans)
        else:
            rows = [
                (item.writer, len(item.paths), item.events, item.forgotten, size_text(item.bytes)) for item in plans
            ]
            planned = ("writer", "logs#", "events#", "to erase#", "bytes#")
            print_table("nothing is changed with --dry-run", planned, rows, "no logs to write anew")
        return
    talk = stderr()

    def on_done(report: CompactionReport) -> None:
        if not as_json:
            talk.print(f"{report.writer}: {report.logs_before} logs became {report.logs_after}", markup=False)

    reports = opened.compact(writer, on_done=on_done)
    if as_json:
        print_json(reports)
    else:
        columns = (
            "writer",
            "logs#",
            "after#",
            "erased#",
            "stored twice#",
            "bytes#",
            "after#",
            "tombstones removed#",
            "result",
        )
        print_table("", columns, map(_row, reports), "no logs to write anew")
    sys.exit(int(any(report.error is not None for report in reports)))


def _row(report: CompactionReport) -> tuple[object, ...]:
    sizes = size_text(report.bytes_before), size_text(report.bytes_after)
    counts = report.writer, report.logs_before, report.logs_after, report.erased, report.repeated
    return *counts, *sizes, report.tombstones_removed, report.error or report.note or f"revision {report.revision}"
