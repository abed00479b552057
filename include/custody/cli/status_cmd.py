"""`custody status`: what is live, what waits, and the room that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from custody.cli.options import json_option
from custody.cli.output import clean, print_json, print_table, size_text, stderr, time_text
from custody.cli.queue_cmd import print_queues
from custody.repository import Repository

if TYPE_CHECKING:
    from custody.repository.status import RepositoryStatus

_STATES = {"new": "empty, made on first use"}


@click.command()
@json_option
@click.pass_obj
def status(repository: Path, as_json: bool) -> None:
    """Show what is live, what waits, what is in the quarantine, and the room that all of it takes.

    \b
    Example:
      custody -r demo status --json
    """
    state = Repository.open(repository).status()
    if as_json:
        print_json(state)
        return
    rows = [
        (
            writer.writer,
            "yes" if writer.is_held else "no",
            writer.events_live,
            writer.events_waiting,
            writer.events_lost or None,
            f"{writer.logs} ({size_text(writer.log_bytes)})",
            f"{writer.shards} ({size_text(writer.shard_bytes)})",
            writer.revision if writer.revision >= 0 else "none",
            time_text(writer.last_commit_ms),
        )
        for writer in state.writers
    ]
    columns = ("writer", "held", "live events#", "waiting#", "lost#", "logs#", "shards#", "revision#", "last commit")
    print_table(f"{state.root} ({state.slots_taken} of {state.slots} writer slots taken)", columns, rows)
    pending = state.pending
    print_table(
        "",
        ("sealed groups#", "abandoned journals#", "live journals#", "staged units#", "in quarantine#"),
        [
            (
                pending.sealed_groups,
                pending.abandoned_journals,
                pending.live_journals,
                pending.staged_units,
                state.quarantined,
            )
        ],
    )
    _say_uncertain_times(state)
    _say_not_handed_over(state)
    budget = state.budget
    used = size_text(budget.used_bytes)
    if budget.limit_bytes is not None:
        used += f" of {size_text(budget.limit_bytes)} ({100 * budget.used_bytes // budget.limit_bytes} %)"
    kinds = ", ".join(f"{kind} {size_text(size)}" for kind, size in budget.kinds.items())
    print_table(
        "",
        ("on disk#", "to be deleted#", "holds#", "of that"),
        [(used, size_text(budget.waiting_bytes), budget.holds, kinds)],
    )
    disks = [
        (
            disk.folder,
            _STATES.get(disk.state, disk.state),
            "" if disk.free_bytes is None else size_text(disk.free_bytes),
        )
        for disk in state.disks
    ]
    print_table("", ("disk", "state", "free#"), disks)
    if state.stripes:
        rows_of_stripes = [
            (
                stripe.name,
                stripe.folder,
                f"{_STATES.get(stripe.state, stripe.state)}{', retired' if stripe.is_retired else ''}",
                f"{stripe.logs} ({size_text(stripe.log_bytes)})",
                "" if stripe.free_bytes is None else size_text(stripe.free_bytes),
            )
            for stripe in state.stripes
        ]
        print_table("", ("stripe", "folder", "state", "logs#", "free#"), rows_of_stripes)
    # One container that is there is what everybody has: it lies in the store.
    if len(state.content_containers) > 1 or any(item.state != "ok" for item in state.content_containers):
        rows_of_contents = [
            (
                f"{item.writer}/{item.name}",
                item.folder,
                _STATES.get(item.state, item.state),
                "" if item.free_bytes is None else size_text(item.free_bytes),
            )
            for item in state.content_containers
        ]
        print_table("", ("content container", "folder", "state", "free#"), rows_of_contents)
    if state.queues:
        print_queues(state.queues)
    if state.scrub is not None:
        scrub = state.scrub
        cells = (
            time_text(scrub.last_run_ms),
            f"{scrub.pieces} check units, {size_text(scrub.bytes)}",
            time_text(scrub.last_round_ms),
            scrub.damaged,
            "yes" if scrub.is_behind else "no",
        )
        headings = ("last scrub", "this round", "last round ended", "damaged#", "takes too long")
        print_table("", headings, [cells])
    talk = stderr()
    for notice in state.notices:
        talk.print(clean(notice))


def _say_uncertain_times(state: RepositoryStatus) -> None:
    for writer in state.writers:
        if writer.uncertain_times is not None:
            stderr().print(f"writer {writer.writer!r}: {writer.uncertain_times}", markup=False)


def _say_not_handed_over(state: RepositoryStatus) -> None:
    groups = state.pending.groups_not_handed_over
    if groups:
        stderr().print(f"{groups} groups are on this machine's disks alone: custody handoff")
    for waiting in state.contents_not_handed_over:
        if waiting.claims:
            text = f"{waiting.writer}: {waiting.claims} files of contents ({size_text(waiting.bytes)}) are on this "
            stderr().print(f"{text}machine's disks alone: custody handoff", markup=False)
