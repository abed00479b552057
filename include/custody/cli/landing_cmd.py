"""`custody landing`: what lies in the landing folders, and what became of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from custody.cli.options import json_option
from custody.cli.output import print_json, print_table, size_text, time_text
from custody.clock import SystemClock
from custody.config import load_settings
from custody.landing import Interval, LandedFile, landed_files, parse_instant
from custody.vfs import PosixFileSystem


@click.command()
@click.option(
    "--start", help="Start of the interval, ISO 8601; UTC without an offset. A day before its end if not given."
)
@click.option("--end", help="End of the interval; now if not given.")
@json_option
@click.pass_obj
def landing(repository: Path, start: str | None, end: str | None, as_json: bool) -> None:
    """Print the files in the landing folders of an interval: which wait, and what became of the others.

    The folder is the setting landing.folder; the DAG provenance_ingest takes files from it.

    \b
    Example:
      custody -r demo landing --start 2026-11-10T07:00 --end 2026-11-10T08:00
    """
    until = parse_instant(end) if end else datetime.now(UTC)
    since = parse_instant(start) if start else until - timedelta(days=1)
    interval = Interval.parse(since.isoformat(), until.isoformat())
    files = landed_files(PosixFileSystem(), load_settings(repository), interval, SystemClock().now_ms())
    if as_json:
        print_json(files)
        return
    waiting = sum(file.waits for file in files)
    columns = ("file", "bytes#", "written", "state", "stored#", "repeated#", "rejected#")
    print_table(f"{len(files)} files, {waiting} wait", columns, [_row(file) for file in files])


def _row(file: LandedFile) -> tuple[object, ...]:
    taken = file.taken
    if file.waits:
        state = "waits" if taken is None else "changed, waits"
    else:
        state = "taken" if file.is_quiet else "being written"
    counts = ("", "", "") if taken is None else (taken.stored, taken.repeated, taken.rejected)
    return file.file, size_text(file.bytes), time_text(file.modified_ms), state, *counts
