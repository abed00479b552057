"""`custody run`: the Spark jobs without Airflow, for development and scripts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import msgspec

from custody.cli.options import json_option
from custody.cli.output import clean, print_json, print_table, size_text, stderr
from custody.config import load_settings
from custody.maintenance.maintenance_steps import MAINTENANCE_STEPS
from custody.recovery import STEPS
from custody.spark.submit import run_job
from custody.workspace import StepReport, UnitReport

_NGSI = "ngsi_to_hdfs"


@click.command()
@click.argument("step", type=click.Choice(["all", *STEPS, *MAINTENANCE_STEPS, _NGSI]))
@click.option("--verbose", "-v", is_flag=True, help="Show Spark's log.")
@click.option("--take-over", is_flag=True, help="Take the work over from an attempt that lives; it then ends with 19.")
@click.option("--until", help="Of ngsi_to_hdfs: what arrived before this instant is written, full batch or not.")
@json_option
@click.pass_obj
def run(repository: Path, step: str, verbose: bool, take_over: bool, until: str | None, as_json: bool) -> None:
    """Submit the Spark job of STEP; `all` runs every step of a rollover in one driver.

    ngsi_to_hdfs writes the notifications that are due to their files on HDFS.

    The master is the setting spark.master. The exit code is the job's: 14 when another attempt holds a writer's lease,
    19 when another one took over.

    \b
    Example:
      custody -r demo run all
    """
    if until is not None and step != _NGSI:
        raise click.UsageError(f"--until belongs to {_NGSI}")
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
