"""`custody forget`: hides events from all answers, and with --erase erases them to the last copy."""

from __future__ import annotations

import getpass
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from custody.cli.consent import Consent, asks_first
from custody.cli.options import json_option
from custody.cli.output import clean, print_json, print_table, stderr
from custody.errors import ExitCode, InvalidInputError, LockedError
from custody.repository import Erasure, EventSelection, Repository

_LOOKS_SECONDS = 5.0
"""How often an erasure that is waited for goes on."""


@click.command()
@click.option("--event-id", "event_ids", type=int, multiple=True, help="Events with this id; with --writer.")
@click.option("--flowfile", "uuids", multiple=True, help="Events of the FlowFile with this uuid.")
@click.option("--attribute", "pairs", multiple=True, help="NAME=VALUE: a FlowFile attribute before or after the event.")
@click.option("--from", "from_ms", type=int, default=0, help="Events from this time on, in ms since the epoch.")
@click.option("--to", "to_ms", type=int, default=0, help="Events before this time, in ms since the epoch.")
@click.option("--writer", help="Only events of this writer; otherwise of all of them.")
@click.option("--reason", required=True, help="Why; it stays in the catalog.")
@click.option("--who", help="Who asks for it; the user of this process if not given.")
@click.option(
    "--erase",
    is_flag=True,
    help="Erase the events to the last copy that custody can reach, and keep a certificate of what went where.",
)
@click.option("--wait", is_flag=True, help="With --erase: go on until it is done, or waits for a legal hold.")
@asks_first
@json_option
@click.pass_obj
def forget(
    repository: Path,
    event_ids: tuple[int, ...],
    uuids: tuple[str, ...],
    pairs: tuple[str, ...],
    from_ms: int,
    to_ms: int,
    writer: str | None,
    reason: str,
    who: str | None,
    erase: bool,
    wait: bool,
    consent: Consent,
    as_json: bool,
) -> None:
    """Let no answer give out events that fulfil all conditions given; later events are not meant.

    A tombstone in the catalog hides them, at once, from search, lineage, SQL and reading by id. An ingest does not
    bring them back. Without --erase the events stay on disk: `custody compact` writes the live logs anew without them,
    and the former logs stay for earlier revisions until `custody catalog prune` and `custody catalog gc` took them.

    With --erase all copies go: logs, index, contents, the history before, quarantined pieces, queued FlowFiles, ended
    jobs and reports that name the values. Journals are rolled over first, and readers of earlier revisions have
    `retention.grace`. What is not done then goes on with --wait, with `custody run retention_erase`, or with the DAG
    provenance_retention. A legal hold wins: `custody erasures` names what it keeps. The reason and the names of the
    conditions stay in the certificate, their values do not.

    \b
    Example:
      custody -r demo forget --attribute customer=4711 --reason "request of 2026-03-02" --yes
      custody -r demo forget --attribute customer=4711 --reason "request 17" --erase --wait --yes
    """
    conditions = EventSelection(
        event_ids=event_ids, flowfile_uuids=uuids, from_ms=from_ms, to_ms=to_ms, attributes=attribute_pairs(pairs)
    )
    opened = Repository.open(repository)
    if event_ids and writer is None:
        raise InvalidInputError("--event-id: expected --writer with it, because each writer counts its own event ids.")
    if wait and not erase:
        raise InvalidInputError("--wait: expected --erase with it, because to forget takes no time.")
    before = None if consent.yes else _show_plan(opened, conditions, writer, erase=erase, as_json=as_json)
    if not consent.ask("Erase these events?" if erase else "Forget these events?"):
        return
    if erase:
        erasure = _erase(opened, conditions, reason, writer, who or getpass.getuser(), before, wait=wait)
        print_erasure(erasure, as_json=as_json)
        sys.exit(ExitCode.SOME_WORK_FAILED if wait and not erasure.is_over else ExitCode.DONE)
    tombstones = opened.forget(conditions, reason, writer, who=who or getpass.getuser(), before=before)
    if as_json:
        print_json(tombstones)
    else:
        rows = [(item.writer, item.tombstone, item.revision) for item in tombstones]
        print_table("", ("writer", "tombstone", "revision#"), rows)


def _show_plan(
    opened: Repository, conditions: EventSelection, writer: str | None, *, erase: bool, as_json: bool
) -> Mapping[str, int]:
    """Show what would be forgotten or erased; return the ends of the events that were counted, by writer."""
    found = opened.plan_erase(conditions, writer) if erase else None
    plan = opened.plan_forget(conditions, writer) if found is None else found.forget
    for notice in plan.notices:
        stderr().print(clean(notice))
    if as_json:
        print_json(plan.events if found is None else found)
        return plan.before
    print_table(f"would be {'erased' if erase else 'forgotten'}", ("writer", "events#"), list(plan.events.items()))
    if plan.held:
        print_table("stays on disk, hidden", ("hold", "events#"), list(plan.held.items()))
    if found is not None and found.traces:
        rows = [(kind, place) for kind, places in found.traces.items() for place in places]
        print_table("would be removed, too", ("kind", "place"), rows)
    if found is not None and found.kept:
        print_table("stays", ("what and why",), [(text,) for text in found.kept])
    return plan.before


def _erase(
    opened: Repository,
    conditions: EventSelection,
    reason: str,
    writer: str | None,
    who: str,
    before: Mapping[str, int] | None,
    *,
    wait: bool,
) -> Erasure:
    """Request an erasure and do what can be done now; with `wait` until it is done or waits for a hold."""
    erasure = opened.erase(conditions, reason, writer, who=who, before=before)
    while True:
        if erasure.is_over:
            return erasure
        # Journals have to become live before they can go.
        for report in opened.roll_over():
            for unit in report.details:
                if unit.error is not None:
                    stderr().print(clean(f"{report.step} {unit.unit}: {unit.error}"))
        try:
            erasure = opened.continue_erasure(erasure.id)
        except LockedError:
            if not wait:
                raise
        if erasure.is_over or not wait or not erasure.waiting:
            return erasure
        stderr().print(clean(f"erasure {erasure.id} waits: {'; '.join(erasure.waiting)}"))
        time.sleep(_LOOKS_SECONDS)


def print_erasure(erasure: Erasure, *, as_json: bool) -> None:
    """Print a request of erasure, or its certificate."""
    if as_json:
        print_json(erasure)
        return
    rows = [
        ("erasure", erasure.id),
        ("state", erasure.state),
        ("conditions", ", ".join(erasure.conditions)),
        ("events", erasure.events),
        *(("waits", text) for text in erasure.waiting),
        *((f"held by {name}", f"{count} events") for name, count in erasure.held.items()),
        *((copy.how, f"{copy.kind}: {copy.place}") for copy in erasure.copies),
        *(("stays", text) for text in erasure.kept),
        *(("out of reach", text) for text in erasure.out_of_reach),
    ]
    print_table("", ("", "value"), rows)
    if not erasure.is_over:
        stderr().print(
            "not done yet: custody run retention_erase, or the DAG provenance_retention, goes on with it", markup=False
        )


def attribute_pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return the attributes that options NAME=VALUE name.

    Raises:
        InvalidInputError: one is not of this form.
    """
    return dict(_pair(text) for text in texts)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise InvalidInputError(f"--attribute: expected NAME=VALUE, got {text!r}.")
    return name, value
