"""`custody ingest`: files of events become acknowledged events."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from custody.capture import Format
from custody.cli.output import clean, json_option, print_json, print_table, stderr
from custody.config import EVENT_SUFFIXES
from custody.repository import FileReport, Repository

EXIT_REJECTED = 1
AUTO = "auto"
_PROBLEMS_SHOWN = 20


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--node", help="Name of the NiFi node, for events that do not say theirs.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice([AUTO, *(format.value for format in Format)]),
    default=AUTO,
    show_default=True,
    help="What the files are; auto looks at the content of each.",
)
@json_option
@click.pass_obj
def ingest(repository: Path, files: tuple[Path, ...], node: str | None, format_name: str, as_json: bool) -> None:
    """Store the events of FILES, each event once.

    Read are NiFi's Site-to-Site provenance (nifi: JSON arrays or one event a line; nifi-avro), the events
    of NiFi's REST interface (nifi-rest), OpenLineage run events (openlineage) and NGSI notifications (ngsi), each
    plain or gzip. A folder stands for the *.json, *.ndjson, *.jsonl, *.gz and *.avro files in it. What
    cannot be stored goes to the quarantine, the rest is kept; the exit code is then 1.

    \b
    Example:
      custody -r demo ingest landing/
    """
    format = None if format_name == AUTO else Format(format_name)
    reports = _ingest(Repository.open(repository), _expand(files), format, node)
    if as_json:
        print_json(reports)
    else:
        columns = ("file", "read#", "stored#", "repeated#", "rejected#", "warned#", "writer", "event ids")
        print_table("", columns, [_row(report) for report in reports])
    _show_problems([problem for report in reports for problem in report.problems])
    if any(report.rejected for report in reports):
        sys.exit(EXIT_REJECTED)


def _expand(files: Sequence[Path]) -> list[Path]:
    return [found for path in files for found in (_in_folder(path) if path.is_dir() else [path])]


def _in_folder(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in EVENT_SUFFIXES and path.is_file())


def _ingest(repository: Repository, files: Sequence[Path], format: Format | None, node: str | None) -> list[FileReport]:
    reports = []
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with repository.ingest() as work, Progress(*columns, console=stderr(), transient=True) as progress:
        total = progress.add_task("all files", total=sum(path.stat().st_size for path in files))
        done = 0
        for path in files:
            start = done

            def advance(count: int, start: int = start) -> None:
                progress.update(total, completed=start + count)

            progress.update(total, description=path.name)
            reports.append(work.file(path, format=format, node=node, progress=advance))
            done += path.stat().st_size
            progress.update(total, completed=done)
    return reports


def _row(report: FileReport) -> tuple[object, ...]:
    ids = "" if report.first_event_id is None else f"{report.first_event_id} to {report.last_event_id}"
    name = Path(report.file).name
    counts = (report.read, report.stored, report.repeated, report.rejected, report.warned)
    return (name, *counts, report.writer, ids)


def _show_problems(problems: Sequence[str]) -> None:
    talk = stderr()
    for problem in problems[:_PROBLEMS_SHOWN]:
        talk.print(clean(problem))
    if len(problems) > _PROBLEMS_SHOWN:
        talk.print(f"… and {len(problems) - _PROBLEMS_SHOWN} more: custody quarantine list")
