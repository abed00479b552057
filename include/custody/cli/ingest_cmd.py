"""`custody ingest`: files of events become acknowledged events."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from custody.capture import Format
from custody.cli.options import dry_run_option, json_option
from custody.cli.output import clean, print_json, print_table, size_text, stderr
from custody.config import EVENT_SUFFIXES
from custody.errors import ExitCode, NotFoundError
from custody.freed_memory import keep_freed_memory
from custody.repository import FilePreview, FileReport, Repository

AUTO = "auto"
_PROBLEMS_SHOWN = 20
_NAMES_SHOWN = 5
Report = TypeVar("Report")


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
@click.option("--recursive", "-R", "is_deep", is_flag=True, help="Look into the folders of folders too.")
@dry_run_option
@json_option
@click.pass_obj
def ingest(
    repository: Path,
    files: tuple[Path, ...],
    node: str | None,
    format_name: str,
    is_deep: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Store the events of FILES, each event once.

    Read are NiFi's Site-to-Site provenance (nifi: JSON arrays or one event a line; nifi-avro), the events
    of NiFi's REST interface (nifi-rest), OpenLineage run events (openlineage) and NGSI notifications (ngsi), each
    plain or gzip. A folder stands for the *.json, *.ndjson, *.jsonl, *.gz and *.avro files in it; what else is in it is
    named. Where there is nothing to read the exit code is 12. What cannot be stored goes to the quarantine, the rest is
    kept; the exit code is then 1. With --dry-run the files are read and compared with what is stored, and nothing is
    changed; the exit code is 1 where a file or a part of it would be refused.

    \b
    Example:
      custody -r demo ingest --dry-run landing/
      custody -r demo ingest landing/
    """
    format = None if format_name == AUTO else Format(format_name)
    opened, paths = Repository.open(repository), _expand(files, is_deep=is_deep)
    if dry_run:
        _show_preview(_preview(opened, paths, format, node), as_json=as_json)
        return
    keep_freed_memory()
    reports = _ingest(opened, paths, format, node)
    if as_json:
        print_json(reports)
    else:
        columns = ("file", "read#", "stored#", "repeated#", "rejected#", "warned#", "writer", "event ids")
        print_table("", columns, [_row(report) for report in reports])
    _show_problems([problem for report in reports for problem in report.problems])
    if any(report.rejected for report in reports):
        sys.exit(ExitCode.SOME_WORK_FAILED)


def _expand(paths: Sequence[Path], *, is_deep: bool) -> list[Path]:
    """Return the files that are meant, and say what is passed over in folders.

    Raises:
        NotFoundError: there is none.
    """
    files: list[Path] = []
    talk = stderr()
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        files_here, strange, folders = _split_folder(path, is_deep=is_deep)
        files += files_here
        endings = ", ".join(EVENT_SUFFIXES)
        if strange:
            text = f"{path}: passed over {_named(strange, 'file')} that do not end in {endings}; to read one, name it"
            talk.print(clean(text))
        if folders:
            talk.print(clean(f"{path}: passed over {_named(folders, 'folder')}; --recursive reads them too"))
    if not files:
        where = ", ".join(map(str, paths))
        raise NotFoundError(f"{where}: expected files that end in {', '.join(EVENT_SUFFIXES)}, found none.")
    return files


def _split_folder(folder: Path, *, is_deep: bool) -> tuple[list[Path], list[Path], list[Path]]:
    """Return the files of events in a folder, what else is in it, and the folders in it that were not looked into."""
    files: list[Path] = []
    strange: list[Path] = []
    folders: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            # A link may lead back to a folder above it, and the walk would not end.
            if is_deep and not path.is_symlink():
                for collected, more in zip((files, strange, folders), _split_folder(path, is_deep=True), strict=True):
                    collected += more
            else:
                folders.append(path)
        else:
            (files if path.suffix in EVENT_SUFFIXES and path.is_file() else strange).append(path)
    return files, strange, folders


def _named(paths: Sequence[Path], what: str) -> str:
    """Return how many there are and what the first of them are called."""
    names = ", ".join(path.name for path in paths[:_NAMES_SHOWN]) + (", …" if len(paths) > _NAMES_SHOWN else "")
    return f"{len(paths)} {what}{'' if len(paths) == 1 else 's'} ({names})"


def _ingest(repository: Repository, files: Sequence[Path], format: Format | None, node: str | None) -> list[FileReport]:
    with repository.ingest() as work:
        return _each_file(files, lambda path, advance: work.file(path, format=format, node=node, progress=advance))


def _preview(
    repository: Repository, files: Sequence[Path], format: Format | None, node: str | None
) -> list[FilePreview]:
    work = repository.ingest_preview()
    return _each_file(files, lambda path, advance: work.preview(path, format=format, node=node, progress=advance))


def _each_file(files: Sequence[Path], read: Callable[[Path, Callable[[int], None]], Report]) -> list[Report]:
    """Return what `read` makes of each file, and show how far it is."""
    reports = []
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=stderr(), transient=True, disable=not sys.stderr.isatty())
    with bar as progress:
        total = progress.add_task("all files", total=sum(path.stat().st_size for path in files))
        done = 0
        for path in files:
            start = done

            # `start` as a default: a closure would see the value of a later file.
            def advance(count: int, start: int = start) -> None:
                progress.update(total, completed=start + count)

            progress.update(total, description=path.name)
            reports.append(read(path, advance))
            done += path.stat().st_size
            progress.update(total, completed=done)
    return reports


def _show_preview(previews: Sequence[FilePreview], *, as_json: bool) -> None:
    if as_json:
        print_json(previews)
    else:
        columns = ("file", "format", "bytes#", "read#", "to store#", "repeated#", "rejected#", "warned#", "result")
        print_table("nothing is changed with --dry-run", columns, map(_preview_row, previews))
    _show_problems([problem for item in previews for problem in (*filter(None, [item.refusal]), *item.problems)])
    if any(item.rejected or item.refusal for item in previews):
        sys.exit(ExitCode.SOME_WORK_FAILED)


def _preview_row(item: FilePreview) -> tuple[object, ...]:
    result = "would be refused" if item.refusal else "stored already" if item.is_stored else ""
    counts = (item.read, item.to_store, item.repeated, item.rejected, item.warned)
    return (Path(item.file).name, item.format, size_text(item.bytes), *counts, result)


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
