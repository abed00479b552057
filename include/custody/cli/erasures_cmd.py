"""`custody erasures`: requests to erase events to the last copy, and the certificates of those that are done."""

from __future__ import annotations

from pathlib import Path

import click

from custody.cli.forget_cmd import print_erasure
from custody.cli.options import json_option
from custody.cli.output import print_json, print_table, time_text
from custody.errors import NotFoundError
from custody.repository import Repository


@click.command()
@click.argument("erasure_id", metavar="[ID]", required=False)
@json_option
@click.pass_obj
def erasures(repository: Path, erasure_id: str | None, as_json: bool) -> None:
    """Print the requests of `custody forget --erase`, or with ID what was removed or overwritten where.

    A request that is `done` is a certificate: it names each copy that went, what custody cannot reach, and no value.
    `open` ones say what they wait for, `held` ones which legal holds keep which events; `custody run retention_erase`
    goes on with both.

    \b
    Example:
      custody -r demo erasures
      custody -r demo erasures 0123456789abcdef0123456789abcdef --json
    """
    listed = Repository.open(repository).erasures()
    if erasure_id is not None:
        chosen = [erasure for erasure in listed if erasure.id == erasure_id]
        if not chosen:
            raise NotFoundError(f"no erasure {erasure_id[:64]!r}. List them: custody erasures")
        print_erasure(chosen[0], as_json=as_json)
        return
    if as_json:
        print_json(listed)
        return
    rows = [
        (
            each.id,
            time_text(each.requested_ms),
            each.state,
            each.events,
            sum(each.held.values()),
            ", ".join(each.conditions),
            each.reason,
            "" if each.finished_ms is None else time_text(each.finished_ms),
        )
        for each in listed
    ]
    columns = ("erasure", "requested", "state", "events#", "held#", "conditions", "reason", "finished")
    print_table("", columns, rows, "no erasures")
