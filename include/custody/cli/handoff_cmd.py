"""`custody handoff`: sealed groups and contents of this machine go to the store, so that its disks may be lost."""

from __future__ import annotations

from pathlib import Path

import click

from custody.cli.options import json_option
from custody.cli.output import print_json, print_table, size_text, stderr, working
from custody.errors import ConfigurationError
from custody.repository import Repository


@click.command()
@json_option
@click.pass_obj
def handoff(repository: Path, as_json: bool) -> None:
    """Hand sealed groups and contents of this machine over to the store, and say what is not handed over yet.

    Step `rollover` of a pass does the same where it runs beside the containers; elsewhere this has to run on the
    producer's machine, again and again. It may run beside a live writer, whose open group, and files of contents of the
    last minute, are what is left. It needs journal.handoff = "store", content.handoff = "store", or both. The exit code
    is 15 if other events were handed over under the same ids, and 19 if another machine claimed the writer's name.

    \b
    Example:
      custody -r demo handoff --json
    """
    opened = Repository.open(repository)
    hands_contents_over = opened.settings.content.handoff != "off"
    if opened.settings.journal.handoff == "off" and not hands_contents_over:
        raise ConfigurationError(
            "journal.handoff and content.handoff are off: nobody reads what is handed over. Set one of them to 'store'."
        )
    # Contents first: an event in the store finds its content there.
    with working("handing over contents"):
        contents = opened.hand_over_contents() if hands_contents_over else []
    with working("handing over sealed groups"):
        groups = opened.hand_over() if opened.settings.journal.handoff != "off" else []
    left, left_contents = opened.not_handed_over(), opened.contents_not_handed_over()
    if as_json:
        print_json(
            {
                "handed_over": groups,
                "not_handed_over": left,
                "contents_handed_over": contents,
                "contents_not_handed_over": left_contents,
            }
        )
        return
    rows = [(item.writer, item.first_event_id, item.events, item.journals, item.bytes) for item in groups]
    print_table("", ("writer", "group#", "events#", "journals#", "bytes#"), rows, "nothing waited to be handed over")
    if any(item.claims for item in contents):
        of_contents = [(item.writer, item.claims, size_text(item.bytes)) for item in contents if item.claims]
        print_table("", ("writer", "files of contents#", "size#"), of_contents)
    for problem in (problem for item in contents for problem in item.problems):
        stderr().print(f"not handed over: {problem}", markup=False)
    for writer, waiting in left.items():
        if waiting.groups:
            text = f"{writer}: not handed over yet: {waiting.groups} groups with {waiting.events} events"
            stderr().print(text, markup=False)
    for writer, files in left_contents.items():
        if files.claims:
            text = f"{writer}: not handed over yet: {files.claims} files of contents, {size_text(files.bytes)}"
            stderr().print(text, markup=False)
