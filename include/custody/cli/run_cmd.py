"""`custody run`: the Spark jobs without Airflow, for development and scripts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from custody.cli.options import dry_run_option, json_option
from custody.cli.output import clean, print_json, print_table, size_text, stderr
from custody.config import load_settings
from custody.export.export_steps import EXPORT_STEPS
from custody.maintenance.maintenance_steps import MAINTENANCE_STEPS
from custody.recovery import STEPS
from custody.repository import Repository
from custody.spark.submit import run_job
from custody.workspace import StepReport, UnitReport

_NGSI = "ngsi_to_hdfs"


@click.command()
@click.argument("step", type=click.Choice(["all", *STEPS, *MAINTENANCE_STEPS, *EXPORT_STEPS, _NGSI]))
@click.option("--verbose", "-v", is_flag=True, help="Show Spark's log.")
@click.option("--take-over", is_flag=True, help="Take the work over from an attempt that lives; it then ends with 19.")
@click.option("--until", help="Of ngsi_to_hdfs: what arrived before this instant is written, full batch or not.")
@dry_run_option
@json_option
@click.pass_obj
def run(
    repository: Path, step: str, verbose: bool, take_over: bool, until: str | None, dry_run: bool, as_json: bool
) -> None:
    """Submit the Spark job of STEP; `all` runs every step of a rollover in one driver.

    ngsi_to_hdfs writes the notifications that are due to their files on HDFS.

    The master is the setting spark.master. The exit code is the job's: 14 when another attempt holds a writer's lease,
    19 when another one took over. With --dry-run no job is submitted: what waits for each step now is shown, to which
    the steps before it would add.

    \b
    Example:
      custody -r demo run all --dry-run
      custody -r demo run all
    """
    if until is not None and step != _NGSI:
        raise click.UsageError(f"--until belongs to {_NGSI}")
    if dry_run:
        _show_waiting(repository, step, as_json=as_json)
        return
    settings = load_settings(repository)
    talk = stderr()
    reports: list[StepReport] = []

    def on_line(line: str) -> None:
        report = _report(line)
        if report is None:
            if verbose:
                talk.print(clean(line))
            return
        reports.append(report)
        if as_json:
            print_json(report)
        else:
            talk.print(f"{report.step}: {report.units} units, {report.events} events, {report.seconds:.1f} s")

    arguments = ["--take-over"] * take_over + (["--until", until] if until is not None else [])
    code, tail = run_job(step, settings, on_line, os.environ, arguments=arguments)
    # No report says why the job failed: the end of its log has to.
    if code != 0 and not any(report.failed for report in reports):
        for line in tail:
            talk.print(clean(line))
    if not as_json:
        print_table(
            "",
            ("step", "unit", "events#", "read#", "written#", "seconds#", "result"),
            [_row(report.step, unit) for report in reports for unit in report.details],
        )
    sys.exit(code)


class StepPlan(msgspec.Struct, frozen=True):
    """What waits for a step; of the sink the kinds of work stand for units."""

    step: str
    units: tuple[str, ...]


def _show_waiting(repository: Path, step: str, *, as_json: bool) -> None:
    """Print what waits for each step that would run, read from disk; nothing is locked."""
    if step == _NGSI:
        plans = [StepPlan(step, tuple(_waiting_for_sink(repository)))]
    else:
        settings, known = load_settings(repository), {**STEPS, **MAINTENANCE_STEPS, **EXPORT_STEPS}
        names = STEPS if step == "all" else [step]
        plans = [StepPlan(name, tuple(map(str, known[name].units(settings)))) for name in names]
    if as_json:
        for plan in plans:
            print_json(plan)
        return
    rows = [(plan.step, unit) for plan in plans for unit in plan.units]
    print_table("nothing is changed with --dry-run", ("step", "unit"), rows, "nothing waits")


def _waiting_for_sink(repository: Path) -> Iterator[str]:
    # Imported here: the other steps need no sink.
    from custody.ngsi_sink.opening import sink_backlog
    from custody.ngsi_sink.tables import PendingTables
    from custody.spark.hive import hive_folder
    from custody.vfs import PosixFileSystem

    opened = Repository.open(repository)
    backlog = sink_backlog(opened)
    tables = PendingTables(PosixFileSystem(), hive_folder(opened.settings)).all()
    if backlog.unfinished:
        yield "a batch that was not finished"
    if backlog.notifications:
        yield f"notifications: at least {backlog.notifications}"
    if backlog.resubmitted:
        yield f"entries of the quarantine that were submitted again: {backlog.resubmitted}"
    if tables:
        yield f"tables: {len(tables)}"


def _report(line: str) -> StepReport | None:
    # Spark's own log comes between the reports: only a report's line is decoded.
    if not line.startswith('{"step":'):
        return None
    try:
        return msgspec.json.decode(line, type=StepReport)
    except msgspec.DecodeError:
        return None


def _row(step: str, unit: UnitReport) -> tuple[object, ...]:
    result = unit.error or unit.note or "done"
    sizes = size_text(unit.bytes_in), size_text(unit.bytes)
    return step, unit.unit, unit.events, *sizes, f"{unit.seconds:.3f}", result
