"""`custody handoff`: sealed groups of this machine go to the store, so that its disks may be lost."""

from __future__ import annotations

from pathlib import Path

import click

from custody.cli.options import json_option
from custody.cli.output import print_json, print_table, stderr, working
from custody.repository import Repository


@click.command()
@json_option
@click.pass_obj
def handoff(repository: Path, as_json: bool) -> None:
    """Hand the sealed groups of this machine over to the store, and say what is not handed over yet.

    Step `rollover` of a pass does the same where it runs beside the containers; elsewhere this has to run on the
    producer's machine, again and again. It may run beside a live writer, whose open group is what is left. It needs
    journal.handoff = "store". The exit code is 15 if other events were handed over under the same ids, and 19 if
    another machine claimed the writer's name.

    \b
    Example:
      custody -r demo handoff --json
    """
    opened = Repository.open(repository)
    with working("handing over sealed groups"):
        groups = opened.hand_over()
    left = opened.not_handed_over()
    if as_json:
        print_json({"handed_over": groups, "not_handed_over": left})
        return
    rows = [(item.writer, item.first_event_id, item.events, item.journals, item.bytes) for item in groups]
    print_table("", ("writer", "group#", "events#", "journals#", "bytes#"), rows, "nothing waited to be handed over")
    for writer, waiting in left.items():
        if waiting.groups:
            text = f"{writer}: not handed over yet: {waiting.groups} groups with {waiting.events} events"
            stderr().print(text, markup=False)
