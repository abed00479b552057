"""`custody lineage`: the tree of what led to a FlowFile and of what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text
from rich.tree import Tree

from custody.cli.options import answering, answering_own, as_of_option, json_option, whole_option, writer_option
from custody.cli.output import answered, clean, print_json, stderr, stdout, time_text
from custody.clock import SystemClock
from custody.errors import InvalidInputError, NotFoundError
from custody.lineage import (
    Bounds,
    Cut,
    ExportFormat,
    FlowFileNode,
    Lineage,
    NodeKind,
    StartingPoint,
    StartKind,
    Toward,
    export,
)
from custody.model import Event
from custody.query.times import time_span
from custody.repository import ProvenanceRepository, Repository
from custody.repository.lineage_api import ALTERNATE_IDENTIFIER_FIELD

if TYPE_CHECKING:
    from custody.read.time_travel import AsOf

_LINES_SHOWN = 40
_CUT_NAMED = 5


@click.command()
@click.argument("what", nargs=-1, required=True)
@click.option("--parents", "direction", flag_value="parents", help="Only what the event WHAT came from, one step.")
@click.option("--children", "direction", flag_value="children", help="Only what the event WHAT made, one step.")
@click.option(
    "--direction",
    "toward",
    type=click.Choice([str(side) for side in Toward]),
    default=str(Toward.BOTH),
    help="Only what led to WHAT (up), only what came of it (down), or both, however far.",
)
@click.option("--depth", type=click.IntRange(min=0), help="At most so many generations away from WHAT.")
@click.option("--since", metavar="TIME", help="Only events from this time on, as in queries: 2026-03-01, 3 hours ago.")
@click.option("--until", metavar="TIME", help="Only events up to this time.")
@click.option(
    "--events", "events_max", type=click.IntRange(min=1), help="At most so many events; else query.lineage_events_max."
)
@click.option("--failed", is_flag=True, help="Only what failed, and the way to it from WHAT.")
@click.option(
    "--export",
    "form",
    type=click.Choice([str(form) for form in ExportFormat]),
    help="Print nodes and edges in this format, with references and whether contents can be had.",
)
@click.option("--all", "everything", is_flag=True, help=f"Print every line, not only {_LINES_SHOWN}.")
@click.option("--only-writer", metavar="WRITER", help="Only events of this writer.")
@as_of_option
@writer_option
@whole_option
@json_option
@click.pass_obj
def lineage(
    repository: Path,
    what: tuple[str, ...],
    direction: str | None,
    toward: str,
    depth: int | None,
    since: str | None,
    until: str | None,
    events_max: int | None,
    failed: bool,
    form: str | None,
    everything: bool,
    only_writer: str | None,
    as_of: AsOf | None,
    writer: str | None,
    whole: bool,
    as_json: bool,
) -> None:
    """Print the lineage of WHAT: a FlowFile's uuid, an alternate identifier of it, or the id of an event of it.

    A run of OpenLineage is named by its id, a dataset by NAMESPACE/NAME. Several give one lineage. A prefix says
    which kind a name is of: flowfile=, identifier=, event=WRITER:ID, run= or dataset=.

    It is a tree from what it came from down to what came of it: below each FlowFile its events and what was made of it.
    What leads to WHAT stands first. It goes on across equal alternate identifiers, which the end of the tree lists.
    Bounds cut it; each FlowFile that has more behind a bound says so.

    \b
    Example:
      custody -r demo lineage 42
      custody -r demo lineage 42 --all | less
      custody -r demo lineage erp:batch-17
      custody -r demo lineage 42 --children
      custody -r demo lineage dataset=s3://lake/orders --direction up
      custody -r demo lineage 42 --depth 2 --export svg > lineage.svg
    """
    opened = answering(repository)
    bounds = replace(_bounds(opened, depth, since, until, events_max), toward=Toward(toward))
    if direction is not None:
        event_id = _event_id(what)
        own = answering_own(repository)
        starts: tuple[str, ...] = (own.get(event_id, writer, as_of=as_of).flowfile_uuid,)
        graph = own.expand(event_id, direction, writer, bounds, as_of=as_of)
    else:
        points = [StartingPoint.of(word) for word in what]
        if isinstance(opened, Repository):
            # Without a revision the writer only says whose event is meant: its relatives may be anybody's.
            of = only_writer or (writer if isinstance(as_of, int) else None)
            graph = opened.lineage_from(points, bounds, event_writer=writer, writer=of, as_of=as_of)
        elif as_of is not None or only_writer is not None:
            # Only custody's own repository keeps earlier states; it refuses another one.
            raise click.UsageError("--as-of and --only-writer need a repository of custody's own.")
        else:
            graph = _of_another(opened, points, writer, bounds)
        starts = graph.starts
    if failed:
        graph = graph.only_failures()
    graph = graph.with_events(partial(answered, settings=opened.settings, whole=whole))
    for notice in graph.notices:
        stderr().print(clean(notice))
    if form is not None:
        click.echo(export(answering_own(repository).diagram(graph), ExportFormat(form)), nl=False)
    elif as_json:
        print_json(_document(graph))
    else:
        _print_tree(graph, starts, None if everything else _LINES_SHOWN)
    _say_cut(graph, bounds)


def _of_another(
    opened: ProvenanceRepository, points: Sequence[StartingPoint], writer: str | None, bounds: Bounds
) -> Lineage:
    """Return the lineage by another implementation: of FlowFiles by uuid or event, or else of alternate identifiers."""
    events = [point.text for point in points if point.kind is StartKind.EVENT]
    names = [point.text for point in points if point.kind is not StartKind.EVENT]
    uuids = [opened.get(_event_id((text,)), writer).flowfile_uuid for text in events]
    try:
        return opened.lineage([*uuids, *names], bounds)
    except NotFoundError:
        if not names or ALTERNATE_IDENTIFIER_FIELD not in opened.settings.index.fields:
            raise
        return opened.lineage((), bounds, identifiers=names)


def _event_id(what: Sequence[str]) -> int:
    if len(what) != 1 or not what[0].isdecimal():
        raise click.UsageError(f"--parents and --children need the id of an event, got {' '.join(what)!r}.")
    return int(what[0])


def _bounds(
    opened: ProvenanceRepository, depth: int | None, since: str | None, until: str | None, events_max: int | None
) -> Bounds:
    now_ms = SystemClock().now_ms()
    first = None if since is None else time_span(since, now_ms)[0]
    last = None if until is None else time_span(until, now_ms)[1]
    if first is not None and last is not None and last < first:
        raise InvalidInputError(f"until: expected a time from {since} on, got {until}.")
    return Bounds(events_max or opened.settings.query.lineage_events_max, depth, first, last)


def _document(graph: Lineage) -> dict[str, object]:
    return {
        "events": graph.events,
        "is_complete": graph.is_complete,
        "nodes": list(graph.nodes.values()),
        "notices": graph.notices,
        "unknown_events": graph.unknown_events,
        "cut": graph.cut,
        "identifiers": graph.identifiers,
        "as_of": graph.as_of,
        "starts": graph.starts,
    }


def _say_cut(graph: Lineage, bounds: Bounds) -> None:
    if graph.is_complete:
        return
    if Cut.SIZE in graph.cut.values() or graph.events == bounds.events_max:
        stderr().print(f"cut after {graph.events} events (query.lineage_events_max, --events)")
    named = list(graph.cut.items())
    for uuid, cut in named[:_CUT_NAMED]:
        stderr().print(clean(f"FlowFile {uuid} has more behind the bound of {cut}"))
    if len(named) > _CUT_NAMED:
        stderr().print(f"… {len(named) - _CUT_NAMED} more FlowFiles have more; --json names them")


def _print_tree(graph: Lineage, starts: Sequence[str], lines_max: int | None) -> None:
    several = len({writer for node in graph.nodes.values() for writer in node.writers}) > 1
    lines: list[tuple[int, Text]] = []
    generations = 0
    for depth, node, again in graph.walk(toward=starts[0] if starts else None):
        generations = max(generations, depth + 1)
        lines.append((depth, clean(_label(node, again, node.uuid in starts))))
        # The events of a FlowFile that several lead to are printed once.
        if not again:
            lines += [(depth + 1, clean(_line(*told, several))) for told in _told(node)]
    for unknown in graph.unknown_events:
        event = f"event {unknown.event_id}" + (f" of {unknown.writer}" if several else "")
        lines.append((0, clean(f"unknown {event}, which cannot be read, of FlowFile {', '.join(unknown.uuids)}")))
    lines += [
        (0, clean(f"alternate identifier {identifier} of FlowFile {', '.join(uuids)}"))
        for identifier, uuids in graph.identifiers.items()
    ]
    tree = Tree(clean(f"{graph.events} events of {len(graph.nodes)} FlowFiles, {_counted(generations, 'generation')}"))
    # The last branch of each depth: the walk gives a node before what is below it.
    branches = {-1: tree}
    for depth, text in lines[:lines_max]:
        branches[depth] = branches[depth - 1].add(text)
    if lines_max is not None and len(lines) > lines_max:
        tree.add(clean(f"… {len(lines) - lines_max} more lines; --all prints them, --json gives them to programs"))
    stdout().print(tree)


def _told(node: FlowFileNode) -> Iterator[tuple[Event, str, bool]]:
    # Another implementation may not say what failed.
    failed = node.events_failed or (False,) * len(node.events)
    return zip(node.events, node.writers, failed, strict=True)


def _line(event: Event, writer: str, failed: bool, several: bool) -> str:
    component = event.component_name or event.component_type
    line = f"{time_text(event.event_time)} {event.event_type} · {component} · event {event.event_id}"
    line += " · failed" if failed else ""
    # Each writer counts its own ids.
    return f"{line} of {writer}" if several else line


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


_KINDS = {
    NodeKind.FLOWFILE: "FlowFile",
    NodeKind.RUN: "run",
    NodeKind.JOB: "job",
    NodeKind.DATASET: "dataset",
    NodeKind.UNKNOWN: "unknown FlowFile",
}


def _label(node: FlowFileNode, again: bool, is_start: bool) -> str:
    label = f"{_KINDS[node.kind]} {node.uuid}" + (f" ({node.label})" if node.label else "")
    failed = " · failed" if node.failed else ""
    return label + failed + (" … see above" if again else "") + _more(node) + (" ← asked for" if is_start else "")


def _more(node: FlowFileNode) -> str:
    return "" if node.cut is None else f" … more behind the bound of {node.cut}"
