"""`custody lineage`: what led to a FlowFile and what came of it."""

from __future__ import annotations

from pathlib import Path

import click
from rich.tree import Tree

from custody.cli.output import clean, json_option, print_json, stderr, stdout, time_text, writer_option
from custody.lineage import FlowFileNode, Lineage
from custody.repository import Repository

_NODES_SHOWN = 200


@click.command()
@click.argument("what")
@writer_option
@json_option
@click.pass_obj
def lineage(repository: Path, what: str, writer: str | None, as_json: bool) -> None:
    """Print the lineage of WHAT: a FlowFile's uuid, or the id of an event of it.

    \b
    Example:
      custody -r demo lineage 42
    """
    opened = Repository.open(repository)
    uuid = opened.get(int(what), writer).flowfile_uuid if what.isdecimal() else what
    found = opened.lineage([uuid])
    for notice in found.notices:
        stderr().print(clean(notice))
    if as_json:
        nodes = list(found.nodes.values())
        told = {"events": found.events, "is_complete": found.is_complete, "nodes": nodes, "notices": found.notices}
        print_json(told)
    else:
        _print_tree(found, uuid)
    if not found.is_complete:
        stderr().print(f"cut after {found.events} events (query.lineage_events_max)")


def _print_tree(found: Lineage, uuid: str) -> None:
    tree = Tree(clean(f"{found.events} events of {len(found.nodes)} FlowFiles"))
    several = len({writer for node in found.nodes.values() for writer in node.writers}) > 1
    branches = {-1: tree}
    for number, (depth, node, again) in enumerate(found.walk()):
        if number == _NODES_SHOWN:
            tree.add(clean(f"… {len(found.nodes)} FlowFiles in all; --json prints them"))
            break
        branches[depth] = branches[depth - 1].add(clean(_label(node, again, node.uuid == uuid)))
        if not again:
            for event, whose in zip(node.events, node.writers, strict=True):
                component = event.component_name or event.component_type
                line = f"{time_text(event.event_time)} {event.event_type} · {component} · event {event.event_id}"
                # Each writer counts its own ids.
                branches[depth].add(clean(f"{line} of {whose}" if several else line))
    stdout().print(tree)


def _label(node: FlowFileNode, again: bool, asked: bool) -> str:
    name = node.events[-1].filename if node.events else None
    label = f"FlowFile {node.uuid}" + (f" ({name})" if name else "")
    return label + (" … see above" if again else "") + (" ← asked for" if asked else "")
