"""`custody scrub`: reads the next part of the repository, so that damage is found before the data are needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from custody.cli.findings_output import bar, print_findings
from custody.cli.options import dry_run_option, json_option
from custody.cli.output import print_json, print_table, size_text, time_text
from custody.clock import SystemClock
from custody.config import Settings, load_settings
from custody.errors import CorruptionError
from custody.maintenance.findings import damages
from custody.maintenance.scrub import ScrubRound, ScrubSlice, ScrubState, is_scrub_behind, next_slice, scrub_once
from custody.vfs import PosixFileSystem


@click.command()
@click.option("--bytes", "bytes_max", type=click.IntRange(min=1), help="Read so many bytes, not what is due.")
@click.option("--all", "whole", is_flag=True, help="Go on to the end of the round.")
@dry_run_option
@json_option
@click.pass_obj
def scrub(repository: Path, bytes_max: int | None, whole: bool, dry_run: bool, as_json: bool) -> None:
    """Read the part of the repository that is due, and keep how far it is and what was found.

    A round takes maintenance.scrub_days; `custody verify --last` prints what the scrub knows. Exit code 20 when that
    is damage.

    \b
    Example:
      custody -r demo scrub --dry-run
      custody -r demo scrub
      custody -r demo scrub --all
    """
    settings = load_settings(repository)
    if dry_run:
        _, due = next_slice(settings, PosixFileSystem(), SystemClock(), bytes_max=bytes_max, whole=whole)
        _print_due(due, as_json=as_json)
        return
    with bar() as show:
        progress = scrub_once(
            settings,
            PosixFileSystem(),
            SystemClock(),
            bytes_max=bytes_max,
            whole=whole,
            on_piece=lambda read, total: show("scrub", read, total),
        )
    print_scrub(settings, progress, as_json=as_json)


def _print_due(due: ScrubSlice, *, as_json: bool) -> None:
    """Print the pieces that a run would read."""
    size = sum(piece.bytes for piece in due.pieces)
    if as_json:
        print_json({"round": due.round, "bytes": size, "is_last": due.is_last, "pieces": due.pieces})
        return
    end = "to the end of the round" if due.is_last else "the round goes on behind them"
    title = f"{len(due.pieces)} pieces, {size_text(size)}, {end}; nothing is changed with --dry-run"
    rows = [(piece.writer or "all", piece.kind, piece.name, size_text(piece.bytes)) for piece in due.pieces]
    print_table(title, ("writer", "kind", "piece", "bytes#"), rows)


def print_scrub(settings: Settings, scrub: ScrubState, *, as_json: bool) -> None:
    """Print how far the scrub is and what it knows; exit code 20 when that is damage."""
    behind = is_scrub_behind(settings, scrub, SystemClock().now_ms())
    findings = scrub.latest()
    if as_json:
        document: dict[str, Any] = {
            "last_run_ms": scrub.last_run_ms,
            "is_behind": behind,
            "rounds": [_document(item) for item in (scrub.current, scrub.former) if item is not None],
            "findings": [item.document() for item in findings],
        }
        print_json(document)
    else:
        rounds = [item for item in (scrub.current, scrub.former) if item is not None]
        rows = [
            (
                item.number,
                time_text(item.started_ms or None),
                time_text(item.finished_ms),
                item.pieces,
                size_text(item.bytes),
                len(item.findings) + item.left_out,
            )
            for item in rounds
        ]
        title = "the round takes longer than maintenance.scrub_days" if behind else ""
        print_table(title, ("round#", "begun", "ended", "check units#", "bytes#", "findings#"), rows)
        print_findings(findings)
    if damages(findings):
        sys.exit(CorruptionError.exit_code)


def _document(item: ScrubRound) -> dict[str, Any]:
    return {
        "number": item.number,
        "started_ms": item.started_ms or None,
        "finished_ms": item.finished_ms,
        "pieces": item.pieces,
        "bytes": item.bytes,
        "findings": len(item.findings) + item.left_out,
    }
