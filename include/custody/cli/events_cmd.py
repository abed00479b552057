"""`custody event` and `custody events`: one event in full, and events in the order of their ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from custody.capture import event_to_json
from custody.cli.options import (
    Command,
    answering,
    answering_own,
    as_of_option,
    json_option,
    whole_option,
    writer_option,
)
from custody.cli.output import answered, clean, print_json, print_table, stderr, stdout, time_text, traffic_text
from custody.model import Event
from custody.store import counted

if TYPE_CHECKING:
    from custody.read.time_travel import AsOf

_TIMES = {"event_time", "flowfile_entry_date", "lineage_start_date"}


def _nifi_option(command: Command) -> Command:
    return click.option("--nifi", is_flag=True, help="Print NiFi's Site-to-Site JSON instead.")(command)


@click.command()
@click.argument("event_id", type=click.IntRange(min=0))
@writer_option
@as_of_option
@_nifi_option
@click.option("--explain", is_flag=True, help="Say what was asked of an object store.")
@whole_option
@json_option
@click.pass_obj
def event(
    repository: Path,
    event_id: int,
    writer: str | None,
    as_of: AsOf | None,
    nifi: bool,
    explain: bool,
    whole: bool,
    as_json: bool,
) -> None:
    """Print the event with the id EVENT_ID in full.

    \b
    Example:
      custody -r demo event 42
    """
    opened = answering(repository)
    # Only custody's own repository keeps earlier states.
    with counted() as counter:
        stored = (
            opened.get(event_id, writer)
            if as_of is None
            else answering_own(repository).get(event_id, writer, as_of=as_of)
        )
    if explain and counter.traffic.count:
        stderr().print(traffic_text(counter.traffic))
    shown = answered(stored, opened.settings, whole=whole)
    if nifi:
        # The format of exchange: whoever takes it in gets the record.
        print_json(event_to_json(stored))
    elif as_json:
        print_json(shown)
    else:
        _print_event(shown)


@click.command()
@click.option("--from", "first", type=click.IntRange(min=0), default=0, show_default=True, help="First event id.")
@click.option("--count", "-n", type=click.IntRange(min=1), default=20, show_default=True, help="Events to print.")
@writer_option
@as_of_option
@_nifi_option
@whole_option
@json_option
@click.pass_obj
def events(
    repository: Path,
    first: int,
    count: int,
    writer: str | None,
    as_of: AsOf | None,
    nifi: bool,
    whole: bool,
    as_json: bool,
) -> None:
    """Print events in the order of their ids, those included that are not live yet.

    With --as-of only those that were live then.

    With --json or --nifi each event is one line.

    \b
    Example:
      custody -r demo events --from 1000 --count 50 --json
    """
    opened = answering(repository)
    # Only custody's own repository keeps earlier states.
    page = (
        opened.events(first, count, writer)
        if as_of is None
        else answering_own(repository).events(first, count, writer, as_of=as_of)
    )
    if nifi or as_json:
        for item in page:
            print_json(event_to_json(item) if nifi else answered(item, opened.settings, whole=whole))
    else:
        rows = [
            (item.event_id, time_text(item.event_time), item.event_type, item.component_type, item.flowfile_uuid)
            for item in page
        ]
        print_table("", ("event#", "time", "type", "component", "FlowFile"), rows, "no events")
    talk = stderr()
    for notice in getattr(page, "notices", ()):  # another implementation may have none
        talk.print(clean(notice))


def _print_event(event: Event) -> None:
    rows: list[tuple[str, object]] = []
    for name, value in {"event_id": event.event_id, **msgspec.structs.asdict(event)}.items():
        if value in (None, (), {}) or name in ("previous_attributes", "updated_attributes"):
            continue
        rows.append((name, time_text(value) if name in _TIMES else _plain(value)))
    print_table("", ("field", "value"), rows)
    # A dict keeps the order of the names.
    names = dict.fromkeys([*event.previous_attributes, *event.updated_attributes])
    if names:
        print_table("attributes", ("name", "before", "after"), [_attribute(event, name) for name in names])
    else:
        stdout().print(clean("no attributes"))


def _attribute(event: Event, name: str) -> tuple[str, object, object]:
    before = event.previous_attributes.get(name)
    if name not in event.updated_attributes:
        return name, before, before
    after = event.updated_attributes[name]
    return name, before, "(removed)" if after is None else after


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(value)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
