"""`custody replay`: FlowFiles are sent again, by plans that are made, looked at and run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from custody.cli.consent import Consent, asks_first
from custody.cli.groups import CommandGroup
from custody.cli.options import json_option
from custody.cli.output import clean, print_json, print_table, size_text, stderr, time_text, working
from custody.errors import BackpressureError
from custody.read.time_travel import parse_as_of
from custody.replay import Refusal, ReplayCheck, ReplayPlan, ReplayReport, read_plan, save_plan
from custody.replay.replay_documents import check_overview, plan_overview, replay_overview
from custody.repository import Repository
from custody.vfs import PosixFileSystem


@click.group(cls=CommandGroup)
def replay() -> None:
    """Send FlowFiles again into the queues that they came from, each once."""


@replay.command("plan")
@click.argument("query", required=False)
@click.option("--event", "event_ids", type=int, multiple=True, help="The event with this id; may be repeated.")
@click.option(
    "--as-of",
    metavar="TIME|REVISION",
    help="Among the events that were live then; WRITER:REVISION,… names a revision of each writer.",
)
@click.option("--writer", "-w", help="Only the events of this writer; needed with --event where there are several.")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write the plan to this new file."
)
@json_option
@click.pass_obj
def plan_replay(
    repository: Path,
    query: str | None,
    event_ids: tuple[int, ...],
    as_of: str | None,
    writer: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Say which of the events that match QUERY can be replayed, how many bytes that is, and why others cannot.

    Nothing is sent. With -o the plan becomes a file, which `custody replay run` takes. Reasons and their codes:
    docs/replay.md.

    \b
    Example:
      custody -r demo replay plan "component_id:dag.sort AND event_time:2026-03-02" -o march-2.plan
    """
    if (query is None) != bool(event_ids):
        raise click.UsageError("give either a QUERY, which is '' for all events, or --event.")
    opened = Repository.open(repository)
    moment = None if as_of is None else parse_as_of(as_of)
    with working("looking at events and contents"):
        plan = opened.plan_replay(query or "", event_ids=event_ids, writer=writer, as_of=moment)
    if output is not None:
        save_plan(PosixFileSystem(), output, plan)
    for notice in plan.notices:
        stderr().print(clean(notice))
    if as_json:
        overview = msgspec.to_builtins(plan_overview(plan))
        print_json({**overview, "file": None if output is None else str(output)})
        return
    _print_plan(plan)
    if output is not None:
        stderr().print(clean(f"written to {output}; custody replay run {output} sends them"))


@replay.command("run")
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--user", help="Who asks for it; the user of this process if not given.")
@click.option("--skip-changed", is_flag=True, help="Pass over events that cannot be replayed any more.")
@asks_first
@json_option
@click.pass_obj
def run_replay(
    repository: Path, plan: Path, user: str | None, skip_changed: bool, consent: Consent, as_json: bool
) -> None:
    """Send the FlowFiles of the file PLAN again, each once; run again, it goes on where it stopped.

    The plan is refused when something that it rests on has changed: events, contents, queues. A queue that is full
    stops the run; let its consumer work and run the plan again.

    \b
    Example:
      custody -r demo replay run march-2.plan --user alice --yes
    """
    opened = Repository.open(repository)
    whole = read_plan(PosixFileSystem(), plan)
    if not consent.yes:
        with working("looking at events and contents"):
            check = opened.check_replay(whole)
        print_json(check_overview(whole, check)) if as_json else _print_check(whole, check)
        if not check.left and not check.changed:
            return
    if not consent.ask("Send these FlowFiles again?"):
        return
    with _bar() as advance:
        report = opened.replay(whole, user=user, skip_changed=skip_changed, on_progress=advance)
    print_json(replay_overview(report)) if as_json else _print_report(report)
    if report.stopped is not None:
        error = BackpressureError(f"replay plan {report.plan}: {report.stopped}")
        error.hint = "Let the consumer of the queue work, or raise the queue's bounds; then run the plan again."
        raise error


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr(), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("FlowFiles", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _print_plan(plan: ReplayPlan) -> None:
    revisions = ", ".join(f"{writer} {revision}" for writer, revision in sorted(plan.revisions.items()))
    print_table(
        f"plan {plan.id}",
        ("", "value"),
        [
            ("can be replayed", f"{len(plan.events)} events"),
            ("bytes", f"{plan.bytes} ({size_text(plan.bytes)})"),
            ("cannot", f"{len(plan.refused)} events"),
            ("made", time_text(plan.made_ms)),
            ("repository", plan.repository),
            ("revisions", revisions),
        ],
    )
    if plan.queues:
        print_table("", ("queue", "FlowFiles#"), sorted(plan.queues.items()))
    if plan.refused:
        print_table("", ("reason", "events#"), [(code, count) for code, count in plan.refused_by_code.items()])
        _print_refusals(plan.refused)


def _print_refusals(refused: list[Refusal]) -> None:
    """Print one event of each reason."""
    talk = stderr()
    first = {item.code: item for item in reversed(refused)}
    for item in first.values():
        talk.print(clean(item.message))
    if len(refused) > len(first):
        talk.print(f"and {len(refused) - len(first)} more; --json names all")


def _print_check(plan: ReplayPlan, check: ReplayCheck) -> None:
    rows = [("done", check.done), ("to be sent", check.left), ("bytes", check.left_bytes)]
    print_table(f"plan {plan.id}", ("", "number#"), [*rows, ("changed since", len(check.changed))])
    _print_refusals(check.changed)


def _print_report(report: ReplayReport) -> None:
    rows = [("sent", report.replayed), ("bytes", report.bytes), ("done before", report.done_before)]
    print_table(f"plan {report.plan}", ("", "number#"), [*rows, ("passed over", len(report.skipped))])
    _print_refusals(report.skipped)
