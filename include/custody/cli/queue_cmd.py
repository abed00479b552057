"""`custody queue`: the queues in which FlowFiles wait between steps."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from custody.cli.consent import Consent, asks_first
from custody.cli.groups import CommandGroup
from custody.cli.options import DURATION, json_option
from custody.cli.output import clean, print_json, print_table, size_text, stderr, time_text
from custody.errors import NotFoundError
from custody.model import AttributeMask
from custody.repository import Component, Repository

if TYPE_CHECKING:
    from custody.config import Settings
    from custody.flowfile_repository import Connection, FlowFileLook, QueuedFlowFile, QueueStatus

_DROPPED_AT_ONCE = 500
_WAIT_SECONDS = 10.0
_UNBOUNDED = "0 for no bound."


@click.group(cls=CommandGroup)
def queue() -> None:
    """Look at the queues in which FlowFiles wait, make them, change their bounds, empty them."""


@queue.command("list")
@json_option
@click.pass_obj
def list_queues(repository: Path, as_json: bool) -> None:
    """List the queues: how much waits, and since when.

    Nothing is locked or changed, and no writer slot is needed.

    \b
    Example:
      custody -r demo queue list
    """
    queues = Repository.open(repository).queues().queues()
    if as_json:
        for status in queues:
            print_json(status)
        return
    print_queues(queues)


def print_queues(queues: Sequence[QueueStatus]) -> None:
    """Print the table of queues."""
    rows = [
        (
            status.connection.name,
            status.count,
            size_text(status.content_bytes),
            status.taken or None,
            status.penalised or None,
            f"{status.swapped} in {status.swap_files} files" if status.swapped else None,
            "" if status.oldest_ms is None else time_text(status.oldest_ms),
            f"full: {_bounds(status.connection)}" if status.is_full else _bounds(status.connection),
        )
        for status in queues
    ]
    columns = ("queue", "FlowFiles#", "content#", "taken#", "penalised#", "swapped", "oldest waits since", "bounds")
    print_table("", columns, rows, "no queues")


@queue.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="The first so many.")
@json_option
@click.pass_obj
def show(repository: Path, name: str, limit: int, as_json: bool) -> None:
    """Show the first FlowFiles of the queue NAME with their attributes, in the order in which they would be taken.

    Those that a session works on come last. Nothing is locked or changed.

    \b
    Example:
      custody -r demo queue show orders --limit 3
    """
    opened = Repository.open(repository)
    flowfiles = [_shown(item, opened.settings) for item in opened.queues().flowfiles(name, limit)]
    if as_json:
        for item in flowfiles:
            print_json(item)
        return
    rows = [
        (
            item.flowfile.uuid,
            f"{item.state}, swapped" if item.is_swapped else item.state,
            time_text(item.queued_ms),
            size_text(item.flowfile.size),
            ", ".join(f"{name}={value}" for name, value in sorted(item.flowfile.attributes.items()) if name != "uuid"),
        )
        for item in flowfiles
    ]
    print_table("", ("FlowFile", "state", "waits since", "content#", "attributes"), rows, "no FlowFiles")


def _shown(item: QueuedFlowFile, settings: Settings) -> QueuedFlowFile:
    """Return a FlowFile as commands show it: without the values that are given to nobody."""
    shown = AttributeMask(settings.query.mask_attributes).values(item.flowfile.attributes)
    return msgspec.structs.replace(item, flowfile=msgspec.structs.replace(item.flowfile, attributes=shown))


@queue.command()
@click.argument("name")
@click.option(
    "--prioritizer",
    "prioritizers",
    multiple=True,
    help="oldest, newest, attribute:NAME or MODULE:FUNCTION; the most important first.",
)
@click.option("--fifo", is_flag=True, help="First in, first out: no prioritizers any more.")
@click.option("--count-max", type=click.IntRange(min=0), help=f"Full from so many FlowFiles on; {_UNBOUNDED}")
@click.option("--bytes-max", type=click.IntRange(min=0), help=f"Full from so many bytes of content on; {_UNBOUNDED}")
@click.option(
    "--expiration",
    "expiration_ms",
    type=DURATION,
    help="How old a FlowFile may become, counted from its entry into the flow, such as 30s or 7d; 0s for ever.",
)
@click.option("--consumer", help="The DAG that consumes the queue; an empty text for none.")
@json_option
@click.pass_obj
def connect(
    repository: Path,
    name: str,
    prioritizers: tuple[str, ...],
    fifo: bool,
    count_max: int | None,
    bytes_max: int | None,
    expiration_ms: int | None,
    consumer: str | None,
    as_json: bool,
) -> None:
    """Make the queue NAME, or give it other bounds; what is not given stays as it is.

    FlowFiles that wait already keep the priorities that they have.

    \b
    Example:
      custody -r demo queue connect orders --prioritizer attribute:priority --count-max 5000 --expiration 7d
    """
    from custody.flowfile_repository import Connection

    if fifo and prioritizers:
        raise click.UsageError("give --prioritizer or --fifo, not both")
    values = {"count_max": count_max, "bytes_max": bytes_max, "expiration_ms": expiration_ms}
    changes: dict[str, object] = {key: value for key, value in values.items() if value is not None}
    if fifo or prioritizers:
        changes["prioritizers"] = prioritizers
    if consumer is not None:
        changes["consumer"] = consumer or None
    with Repository.open(repository).flowfiles(wait_seconds=_WAIT_SECONDS) as flow:
        before = {one.name: one for one in flow.queues.connections()}.get(name, Connection(name=name))
        after = msgspec.structs.replace(before, **changes)
        flow.queues.connect(after)
    if as_json:
        print_json(after)
    else:
        stderr().print(clean(f"connected {name}: {_bounds(after)}"))


@queue.command()
@click.argument("name")
@json_option
@click.pass_obj
def remove(repository: Path, name: str, as_json: bool) -> None:
    """Remove the queue NAME, which has to be empty.

    \b
    Example:
      custody -r demo queue remove orders
    """
    with Repository.open(repository).flowfiles(wait_seconds=_WAIT_SECONDS) as flow:
        flow.queues.disconnect(name)
    if as_json:
        print_json({"removed": name})
    else:
        stderr().print(clean(f"removed {name}"))


@queue.command()
@click.argument("name")
@click.option("--reason", required=True, help="Why; the DROP events say it.")
@click.option("--flowfile", "uuids", multiple=True, help="Only the FlowFile with this uuid.")
@click.option("--who", help="Who asks for it; the user of this process if not given.")
@asks_first
@json_option
@click.pass_obj
def drop(
    repository: Path,
    name: str,
    reason: str,
    uuids: tuple[str, ...],
    who: str | None,
    consent: Consent,
    as_json: bool,
) -> None:
    """Take FlowFiles out of the queue NAME and out of the flow; a DROP event tells of each.

    Penalised ones go, too. Those that a session works on stay, and the answer says how many. The exit code is 12 when
    there is no such queue.

    \b
    Example:
      custody -r demo queue drop orders --reason "sent twice by the shop" --dry-run
      custody -r demo queue drop orders --reason "sent twice by the shop" --yes
    """
    opened = Repository.open(repository)
    planned = _status_of(opened.queues(), name)
    if not consent.yes:
        may_go = planned.count - planned.taken
        _print_dropped(name, min(may_go, len(uuids)) if uuids else may_go, planned, is_done=False, as_json=as_json)
    if not (consent.yes or consent.ask("Drop them?")):
        return
    dropped = _drop(opened, planned, reason, frozenset(uuids), who or getpass.getuser())
    _print_dropped(name, dropped, _status_of(opened.queues(), name), is_done=True, as_json=as_json)


def _drop(repository: Repository, planned: QueueStatus, reason: str, uuids: frozenset[str], who: str) -> int:
    """Drop FlowFiles in several commits; return how many. It can be broken off and repeated."""
    name, dropped = planned.connection.name, 0
    component = Component(id="custody.queue.drop", type="DropQueue", name=f"custody queue drop, {who}")
    with repository.flowfiles(wait_seconds=_WAIT_SECONDS) as flow:
        # What comes in meanwhile was not part of the plan, and its producer may never stop.
        while dropped < planned.count:
            with flow.session(component) as session:
                count = min(_DROPPED_AT_ONCE, planned.count - dropped)
                chosen = session.get_many(
                    name, count, (lambda item: item.uuid in uuids) if uuids else None, with_penalised=True
                )
                for flowfile in chosen:
                    session.remove(flowfile, reason)
            if not chosen:
                break
            dropped += len(chosen)
    return dropped


@queue.command()
@json_option
@click.pass_obj
def checkpoint(repository: Path, as_json: bool) -> None:
    """Write a snapshot of all queues now, and take back what dead processes had taken.

    Processes that have the queues open do so by themselves (flowfiles.checkpoint_seconds).

    \b
    Example:
      custody -r demo queue checkpoint
    """
    opened = Repository.open(repository)
    with opened.flowfiles(wait_seconds=_WAIT_SECONDS) as flow:
        flow.queues.checkpoint()
    queues = opened.queues().queues()
    count, content_bytes = sum(one.count for one in queues), sum(one.content_bytes for one in queues)
    if as_json:
        print_json({"queues": len(queues), "flowfiles": count, "content_bytes": content_bytes})
    else:
        stderr().print(f"snapshot of {len(queues)} queues with {count} FlowFiles, {size_text(content_bytes)}")


def _status_of(look: FlowFileLook, name: str) -> QueueStatus:
    queues = look.queues()
    for status in queues:
        if status.connection.name == name:
            return status
    names = ", ".join(status.connection.name for status in queues) or "none"
    raise NotFoundError(f"there is no queue {name!r}. There are: {names}.")


def _print_dropped(name: str, count: int, left: QueueStatus, *, is_done: bool, as_json: bool) -> None:
    stays = left.count if is_done else left.count - count
    if as_json:
        print_json({"queue": name, "flowfiles": count, "stay": stays, "taken": left.taken, "is_applied": is_done})
        return
    what = "dropped" if is_done else "would be dropped"
    stderr().print(clean(f"{name}: {count} FlowFiles {what}, {stays} stay ({left.taken} of them being worked on)"))


def _bounds(connection: Connection) -> str:
    parts = [f"by {name}" for name in connection.prioritizers]
    if connection.count_max:
        parts.append(f"up to {connection.count_max} FlowFiles")
    if connection.bytes_max:
        parts.append(f"up to {size_text(connection.bytes_max)}")
    if connection.expiration_ms:
        parts.append(f"for {connection.expiration_ms / 1000:g} s")
    if connection.consumer:
        parts.append(f"consumed by {connection.consumer}")
    return ", ".join(parts) or "none"
