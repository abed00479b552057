"""`custody run`: the steps of a pipeline without Airflow, as Spark jobs or in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from custody.cli.options import dry_run_option, json_option
from custody.cli.output import clean, print_json, print_table, size_text, stderr
from custody.config import Settings, load_settings
from custody.errors import ConfigurationError
from custody.repository import Repository, open_repository
from custody.repository.local_pass import ALL_STEPS, PASSES, UnitsDone, run_locally, steps_of
from custody.repository.pluggable import OWN
from custody.workspace import StepReport, UnitReport, exit_code

_NGSI = "ngsi_to_hdfs"
_STEP_REPORT = msgspec.json.Decoder(StepReport)


@click.command()
@click.argument("step", type=click.Choice([*PASSES, *ALL_STEPS, _NGSI]), metavar="STEP")
@click.option("--local", is_flag=True, help="Do the steps in this process, without Spark and Java.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Of --local: threads for units.")
@click.option("--run-id", help="Keep the reports under this run, in the folder runs.")
@click.option("--verbose", "-v", is_flag=True, help="Show Spark's log.")
@click.option("--take-over", is_flag=True, help="Take the work over from an attempt that lives; it then ends with 19.")
@click.option("--until", help="Of ngsi_to_hdfs: what arrived before this instant is written, full batch or not.")
@dry_run_option
@json_option
@click.pass_obj
def run(
    repository: Path,
    step: str,
    local: bool,
    workers: int,
    run_id: str | None,
    verbose: bool,
    take_over: bool,
    until: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Submit the Spark job of STEP, or do its work in this process with --local.

    \b
    STEP  all             the steps of a rollover in one driver: recover, rollover,
                          compress, index, commit, checkpoint, sweep
          retention_all   the steps of the retention: retention_plan, _mark, _expire,
                          _drop_shards, _prune, _collect_garbage, _check
          compact, rebuild, scrub   of the maintenance
          ngsi_to_hdfs    writes the notifications that are due to their files on HDFS
          or the name of one step

    The master is the setting spark.master. The exit code is the job's: 14 when another attempt holds a writer's lease,
    19 when another one took over; --local has the same. With --dry-run nothing is done: what waits for each step now is
    shown, to which the steps before it would add.

    \b
    Example:
      custody -r demo run all --dry-run
      custody -r demo run all
      custody -r demo run all --local
    """
    if until is not None and step != _NGSI:
        raise click.UsageError(f"--until belongs to {_NGSI}")
    if local and step == _NGSI:
        raise click.UsageError(f"{_NGSI} needs Spark: run it without --local")
    if workers > 1 and not local:
        raise click.UsageError("--workers belongs to --local; Spark's are in the setting spark.master")
    if dry_run:
        _show_waiting(repository, step, as_json=as_json)
        return
    settings = load_settings(repository)
    shown = _ShownReports(as_json=as_json)
    if settings.repository.implementation != OWN:
        reports = _run_elsewhere(repository, step, workers, take_over, run_id) if local else None
        if reports is None:
            raise ConfigurationError(
                f"repository.implementation {settings.repository.implementation!r}: its housekeeping is "
                "`custody run all --local`; other steps and Spark jobs work on custody's own files."
            )
        for report in reports:
            shown.add(report)
        code = max(map(exit_code, reports), default=0)
    elif local:
        with _unit_bar() as on_units:
            run_locally(
                steps_of(step),
                settings,
                workers=workers,
                take_over=take_over,
                run_id=run_id,
                on_step=shown.add,
                on_units=on_units,
            )
        code = exit_code(shown.reports[-1])
    else:
        arguments = [
            *(["--take-over"] if take_over else []),
            *(["--until", until] if until is not None else []),
            *(["--run-id", run_id] if run_id is not None else []),
        ]
        code = _submit(step, settings, arguments, shown, verbose=verbose)
    shown.finish()
    sys.exit(code)


def _run_elsewhere(
    repository: Path, step: str, workers: int, take_over: bool, run_id: str | None
) -> Sequence[StepReport] | None:
    """Let another implementation do its pass; None for what only custody's own files have."""
    if step != "all":
        return None
    return open_repository(repository).roll_over(workers=workers, take_over=take_over, run_id=run_id)


class _ShownReports:
    """The reports of a run so far, each printed as soon as it is there, and a table of all units at the end."""

    def __init__(self, *, as_json: bool) -> None:
        self.reports: list[StepReport] = []
        self._as_json = as_json
        self._talk = stderr()

    def add(self, report: StepReport) -> None:
        self.reports.append(report)
        if self._as_json:
            print_json(report)
        else:
            self._talk.print(f"{report.step}: {report.units} units, {report.events} events, {report.seconds:.1f} s")

    def finish(self) -> None:
        if not self._as_json:
            print_table(
                "",
                ("step", "unit", "events#", "read#", "written#", "seconds#", "result"),
                [_row(report.step, unit) for report in self.reports for unit in report.details],
            )


def _submit(step: str, settings: Settings, arguments: Sequence[str], shown: _ShownReports, *, verbose: bool) -> int:
    """Submit a Spark job and show its reports; return its exit code."""
    # Imported here: a pass in this process needs nothing of Spark.
    from custody.spark.submit import run_job

    talk = stderr()

    def on_line(line: str) -> None:
        report = _report(line)
        if report is not None:
            shown.add(report)
        elif verbose:
            talk.print(clean(line))

    try:
        code, tail = run_job(step, settings, on_line, os.environ, arguments=arguments)
    except ConfigurationError as error:
        if step == _NGSI:
            raise
        raise ConfigurationError(f"{error} Without Spark and Java: custody run {step} --local") from error
    # No report says why the job failed: the end of its log has to.
    if code != 0 and not any(report.failed for report in shown.reports):
        for line in tail:
            talk.print(clean(line))
    return code


@contextmanager
def _unit_bar() -> Iterator[UnitsDone]:
    # Reports go to stdout meanwhile: rich would send them to the terminal, beside a file or a pipe.
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=stderr(), transient=True, redirect_stdout=False, disable=not sys.stderr.isatty()
    ) as progress:
        task = progress.add_task("", total=None)
        yield lambda step, done, total: progress.update(task, description=step, completed=done, total=total)


class StepPlan(msgspec.Struct, frozen=True):
    """What waits for a step; of the sink the kinds of work stand for units."""

    step: str
    units: tuple[str, ...]


def _show_waiting(repository: Path, step: str, *, as_json: bool) -> None:
    """Print what waits for each step that would run, read from disk; nothing is locked."""
    if step == _NGSI:
        plans = [StepPlan(step, tuple(_waiting_for_sink(repository)))]
    else:
        settings = load_settings(repository)
        plans = [StepPlan(name, tuple(map(str, ALL_STEPS[name].units(settings)))) for name in steps_of(step)]
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
        return _STEP_REPORT.decode(line)
    except msgspec.DecodeError:
        return None


def _row(step: str, unit: UnitReport) -> tuple[object, ...]:
    result = unit.error or unit.note or "done"
    sizes = size_text(unit.bytes_in), size_text(unit.bytes)
    return step, unit.unit, unit.events, *sizes, f"{unit.seconds:.3f}", result
