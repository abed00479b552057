"""`custody lineage`: the tree of what led to a FlowFile and of what came of it."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text
from rich.tree import Tree

from custody.cli.options import json_option, writer_option
from custody.cli.output import clean, print_json, stderr, stdout, time_text
from custody.lineage import FlowFileNode, Lineage
from custody.model import Event
from custody.repository import Repository

_LINES_SHOWN = 40


@click.command()
@click.argument("what")
@click.option("--all", "everything", is_flag=True, help=f"Print every line, not only {_LINES_SHOWN}.")
@writer_option
@json_option
@click.pass_obj
def lineage(repository: Path, what: str, everything: bool, writer: str | None, as_json: bool) -> None:
    """Print the lineage of WHAT: a FlowFile's uuid, or the id of an event of it.

    It is a tree from what it came from down to what came of it: below each FlowFile its events and what was made of it.
    What leads to WHAT stands first.

    \b
    Example:
      custody -r demo lineage 42
      custody -r demo lineage 42 --all | less
    """
    opened = Repository.open(repository)
    uuid = opened.get(int(what), writer).flowfile_uuid if what.isdecimal() else what
    graph = opened.lineage([uuid])
    for notice in graph.notices:
        stderr().print(clean(notice))
    if as_json:
        nodes = list(graph.nodes.values())
        document = {"events": graph.events, "is_complete": graph.is_complete, "nodes": nodes, "notices": graph.notices}
        print_json(document)
    else:
        _print_tree(graph, uuid, None if everything else _LINES_SHOWN)
    if not graph.is_complete:
        stderr().print(f"cut after {graph.events} events (query.lineage_events_max)")


def _print_tree(graph: Lineage, uuid: str, lines_max: int | None) -> None:
    several = len({writer for node in graph.nodes.values() for writer in node.writers}) > 1
    lines: list[tuple[int, Text]] = []
    generations = 0
    for depth, node, again in graph.walk(toward=uuid):
        generations = max(generations, depth + 1)
        lines.append((depth, clean(_label(node, again, node.uuid == uuid))))
        # The events of a FlowFile that several lead to are printed once.
        if not again:
            lines += [(depth + 1, clean(_line(*pair, several))) for pair in zip(node.events, node.writers, strict=True)]
    tree = Tree(clean(f"{graph.events} events of {len(graph.nodes)} FlowFiles, {_counted(generations, 'generation')}"))
    # The last branch of each depth: the walk gives a node before what is below it.
    branches = {-1: tree}
    for depth, text in lines[:lines_max]:
        branches[depth] = branches[depth - 1].add(text)
    if lines_max is not None and len(lines) > lines_max:
        tree.add(clean(f"… {len(lines) - lines_max} more lines; --all prints them, --json gives them to programs"))
    stdout().print(tree)


def _line(event: Event, writer: str, several: bool) -> str:
    component = event.component_name or event.component_type
    line = f"{time_text(event.event_time)} {event.event_type} · {component} · event {event.event_id}"
    # Each writer counts its own ids.
    return f"{line} of {writer}" if several else line


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _label(node: FlowFileNode, again: bool, is_start: bool) -> str:
    name = node.events[-1].filename if node.events else None
    label = f"FlowFile {node.uuid}" + (f" ({name})" if name else "")
    return label + (" … see above" if again else "") + (" ← asked for" if is_start else "")
