"""`custody backup` and `custody restore`: a repository at one moment in a target elsewhere, and back."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from custody.backup import (
    BackupManifest,
    BackupReport,
    BackupTarget,
    RestoreReport,
    UnreadableBackup,
    back_up,
    verify_backup,
)
from custody.backup import restore as restore_backup
from custody.cli.findings_output import bar, print_findings, verdict
from custody.cli.options import json_option
from custody.cli.output import clean, print_json, print_table, size_text, stderr, stdout, time_text
from custody.config import load_settings
from custody.errors import CorruptionError, ExitCode
from custody.maintenance.findings import damages
from custody.vfs import PosixFileSystem


@click.command()
@click.argument("target")
@click.option("--list", "is_list", is_flag=True, help="Print the backups in TARGET; make none.")
@click.option("--verify", "is_verify", is_flag=True, help="Read every byte of a backup in TARGET; make none.")
@click.option("--at", "number", type=click.IntRange(min=1), help="With --verify: the backup; default: the newest.")
@click.option("--keep", type=click.IntRange(min=1), help="Afterwards keep so many backups, and remove older ones.")
@click.option("--bytes-per-second", type=click.IntRange(min=1), help="Read no more than that. Default: no bound.")
@click.option("--with-secrets", is_flag=True, help="Take passwords and tokens in custody.toml along.")
@click.option("--accept-older", is_flag=True, help="Go on where TARGET has a later state, as after a restore.")
@json_option
@click.pass_obj
def backup(
    repository: Path,
    target: str,
    is_list: bool,
    is_verify: bool,
    number: int | None,
    keep: int | None,
    bytes_per_second: int | None,
    with_secrets: bool,
    accept_older: bool,
    as_json: bool,
) -> None:
    """Back the repository up in TARGET, a folder or the URL of a bucket, while events are stored and passes run.

    A backup is the repository at one moment. It has all that was acknowledged before it began. After the first one
    only files that are new are copied. It counts once its manifest is written, last; the next one goes on where a
    killed one ended.

    Exit code 0 when the backup is whole, 1 when files are missing or damaged that the catalogs list; with --verify 20
    when a backup is damaged.

    \b
    Example:
      custody -r demo backup /backups/demo
      custody -r demo backup s3://backups/demo --keep 30
      custody backup /backups/demo --list --json
    """
    if is_list and is_verify:
        raise click.UsageError("give --list or --verify, not both")
    if number is not None and not is_verify:
        raise click.UsageError("--at belongs to --verify")
    if is_list:
        _list(target, as_json=as_json)
    elif is_verify:
        _verify(target, number, as_json=as_json)
    else:
        settings = load_settings(repository)
        with bar() as show:
            report = back_up(
                settings,
                target,
                bytes_per_second=bytes_per_second,
                with_secrets=with_secrets,
                accept_older=accept_older,
                keep=keep,
                progress=show,
            )
        _print_report(report, as_json=as_json)
        if not report.is_whole:
            sys.exit(ExitCode.SOME_WORK_FAILED)


@click.command()
@click.argument("target")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--at", "number", type=click.IntRange(min=1), help="The backup; default: the newest.")
@click.option("--store", help="Place of the store, a folder or the URL of a bucket. Default: in FOLDER.")
@click.option("--as-configured", is_flag=True, help="Containers, stripes and contents where custody.toml has them.")
@click.option("--ids-from", type=click.IntRange(min=0), help="First event id that is given out; see docs/backup.md.")
@json_option
def restore(
    target: str,
    folder: Path,
    number: int | None,
    store: str | None,
    as_configured: bool,
    ids_from: int | None,
    as_json: bool,
) -> None:
    """Make a repository in FOLDER, which has to be empty, of a backup in TARGET, and verify it.

    Every byte is compared with its checksum, and the end of each writer's history with the one that the backup states.
    New events get ids far above those of the backup, because the original may have given out more since. What the
    original has stored since is not there.

    An interrupted restore leaves no repository; the same command goes on with it. Exit code 0 when the verification
    found nothing damaged, 20 when it did.

    \b
    Example:
      custody restore /backups/demo demo-restored
      custody restore s3://backups/demo demo --at 12 --store s3://provenance/demo-2
    """
    with bar() as show:
        report = restore_backup(
            target,
            folder,
            number=number,
            store=store,
            as_configured=as_configured,
            ids_from=ids_from,
            progress=show,
        )
    if as_json:
        print_json({**_restored(report), "findings": [item.document() for item in report.findings]})
    else:
        _print_restored(report)
    if damages(report.findings):
        sys.exit(CorruptionError.exit_code)


def _open(target: str) -> BackupTarget:
    opened = BackupTarget(target, PosixFileSystem(), Path.cwd())
    opened.open()
    return opened


def _list(target: str, *, as_json: bool) -> None:
    found = _open(target).manifests()
    if as_json:
        print_json(
            [
                {"number": item.number, "problem": item.problem} if isinstance(item, UnreadableBackup) else item
                for item in found
            ]
        )
        return
    rows = [
        (
            item.number,
            time_text(item.moment_ms),
            item.host,
            sum(end.live_events + end.waiting_events for end in item.ends),
            max((end.newest_event_id for end in item.ends), default=-1),
            item.files,
            size_text(item.bytes),
            size_text(item.bytes_new),
            "" if not (item.missing or item.damaged) else f"{len(item.missing)} missing, {len(item.damaged)} damaged",
        )
        for item in found
        if isinstance(item, BackupManifest)
    ]
    columns = ("backup#", "moment", "host", "events#", "newest id#", "files#", "size#", "new#", "not whole")
    print_table(f"{len(rows)} backups", columns, rows)
    for item in found:
        if isinstance(item, UnreadableBackup):
            stderr().print(clean(f"backup {item.number} cannot be read: {item.problem}"))


def _verify(target: str, number: int | None, *, as_json: bool) -> None:
    opened = _open(target)
    manifest = opened.newest() if number is None else opened.manifest(number)
    if manifest is None:
        raise click.UsageError(f"{target}: there is no whole backup to verify")
    with bar() as show:
        problems = verify_backup(opened, manifest, show)
    if as_json:
        print_json({"number": manifest.number, "files": manifest.files, "bytes": manifest.bytes, "problems": problems})
    else:
        for problem in problems:
            stdout().print(clean(problem))
        found = f"{len(problems)} problems" if problems else "all as it was written"
        stdout().print(f"backup {manifest.number}: {manifest.files} files, {size_text(manifest.bytes)}: {found}")
    if problems:
        sys.exit(CorruptionError.exit_code)


def _print_report(report: BackupReport, *, as_json: bool) -> None:
    manifest = report.manifest
    if as_json:
        print_json(report)
        return
    rows = [
        (end.writer, end.revision, end.live_events, end.waiting_events, end.newest_event_id) for end in manifest.ends
    ]
    columns = ("writer", "revision#", "live events#", "waiting#", "newest id#")
    print_table(f"backup {manifest.number}, moment {time_text(manifest.moment_ms)}", columns, rows)
    stdout().print(
        f"{manifest.files} files, {size_text(manifest.bytes)}, of which {size_text(manifest.bytes_new)} are new"
        + (f"; {manifest.flowfiles} FlowFiles in queues" if manifest.flowfiles else "")
    )
    if report.pruned:
        stdout().print(f"{len(report.pruned)} older backups removed, {size_text(report.bytes_freed)} freed")
    for name in manifest.secrets_left_out:
        stderr().print(clean(f"not in the backup: the value of {name}"))
    for path in manifest.missing:
        stderr().print(clean(f"missing, so not in the backup: {path}"))
    for path in manifest.damaged:
        stderr().print(clean(f"damaged, and so in the backup: {path}. See: custody verify"))


def _restored(report: RestoreReport) -> dict[str, object]:
    return {
        "backup": report.number,
        "moment_ms": report.moment_ms,
        "folder": report.folder,
        "writers": report.writers,
        "flowfiles": report.flowfiles,
        "files": report.files,
        "bytes": report.bytes,
        "secrets_left_out": report.secrets_left_out,
    }


def _print_restored(report: RestoreReport) -> None:
    rows = [
        (
            item.end.writer,
            item.end.revision,
            item.end.live_events,
            item.end.waiting_events,
            item.end.newest_event_id,
            item.first_event_id or "",
        )
        for item in report.writers
    ]
    columns = ("writer", "revision#", "live events#", "waiting#", "newest id#", "ids go on at#")
    print_table(f"{report.folder}: backup {report.number}, moment {time_text(report.moment_ms)}", columns, rows)
    print_findings(report.findings)
    stdout().print(f"{report.files} files, {size_text(report.bytes)}: {verdict(report.findings)}")
    for name in report.secrets_left_out:
        stderr().print(clean(f"set it again, it is not in the backup: {name}"))
    stderr().print(
        clean(
            "What the original stored after that moment is not here. If it still runs, stop it before anything is sent "
            "here: exports and the NGSI sink go on from where they were at that moment (docs/backup.md)."
        )
    )
