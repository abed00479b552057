"""`custody search`: events that match a query."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from custody.cli.options import answering, answering_own, as_of_option, json_option, whole_option
from custody.cli.output import answered, clean, print_json, print_table, stderr, time_text, traffic_text
from custody.errors import InvalidInputError
from custody.repository import SearchResult, StoredEvent
from custody.store import Traffic, counted

if TYPE_CHECKING:
    from custody.read.search import Bucket
    from custody.read.time_travel import AsOf


@click.command()
@click.argument("query", default="")
@click.option("--limit", "-n", type=click.IntRange(min=1), default=20, show_default=True, help="Events to print.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Events to pass over first, from the cursor on.")
@click.option("--oldest", is_flag=True, help="Oldest first.")
@click.option("--cursor", help="Go on behind the page that printed this cursor; events that came since change no page.")
@click.option("--facet", "facets", multiple=True, help="Count the matches by this field, or by day; may be repeated.")
@click.option("--top", type=click.IntRange(min=1), help="With --facet: so many values of each, the most frequent.")
@click.option("--zone", help="With --facet day: days of this zone, such as Asia/Kolkata, not of UTC.")
@click.option(
    "--buckets",
    type=click.IntRange(1, 1000),
    help="Count the matches in so many spans of time, of the same length, from --since until --until.",
)
@click.option("--since", help="With --buckets: from this time on.")
@click.option("--until", help="With --buckets: until this time; until now without it.")
@click.option("--structured", is_flag=True, help="QUERY is JSON (docs/query.md).")
@as_of_option
@click.option("--writer", "-w", help="Only the events of this writer; needed with a REVISION where there are several.")
@click.option(
    "--explain",
    is_flag=True,
    help="Say what was asked of shards and of an object store, and how long it took.",
)
@whole_option
@json_option
@click.pass_obj
def search(
    repository: Path,
    query: str,
    limit: int,
    offset: int,
    oldest: bool,
    cursor: str | None,
    facets: tuple[str, ...],
    top: int | None,
    zone: str | None,
    buckets: int | None,
    since: str | None,
    until: str | None,
    structured: bool,
    as_of: AsOf | None,
    writer: str | None,
    explain: bool,
    whole: bool,
    as_json: bool,
) -> None:
    """Print the events that match QUERY, newest first; without QUERY all of them.

    Fields, ranges, wildcards, AND, OR and NOT: docs/query.md.

    \b
    Example:
      custody -r demo search "event_type:SEND AND event_time:[2026-03-01 TO 2026-03-31]"
    """
    parsed = _structured(query) if structured else query
    if facets:
        counts = answering_own(repository).facets(parsed, facets, writer=writer, as_of=as_of, zone=zone)
        _print_facets(counts, top, as_json)
        return
    if buckets is not None:
        ends = _ends(since, until)
        _print_buckets(answering_own(repository).histogram(parsed, *ends, buckets, writer=writer, as_of=as_of), as_json)
        return
    opened = answering(repository)
    # Only custody's own repository keeps earlier states.
    search = opened.search if as_of is None else partial(answering_own(repository).search, as_of=as_of)
    with counted() as counter:
        result = search(parsed, limit=limit, offset=offset, oldest_first=oldest, cursor=cursor, writer=writer)
    talk = stderr()
    for notice in result.notices:
        talk.print(clean(notice))
    if result.lost:
        talk.print(f"{result.lost} of the {result.total} events cannot be read and were passed over for this page.")
    events = [StoredEvent(item.writer, answered(item.event, opened.settings, whole=whole)) for item in result.events]
    if as_json:
        print_json(json_document(result, events, counter.traffic if explain else None))
        return
    print_table(
        f"{result.total} events",
        ("writer", "event#", "time", "type", "component", "FlowFile", "filename"),
        [_row(stored) for stored in events],
    )
    if result.cursor is not None:
        talk.print(f"next page: --cursor {result.cursor}")
    if explain:
        _print_explained(result, counter.traffic)


def _structured(text: str) -> dict[str, object]:
    try:
        document = msgspec.json.decode(text or "{}")
    # JSON that is nested too deeply ends in a RecursionError.
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInputError(f"query: expected JSON, got {error}.") from error
    if not isinstance(document, dict):
        raise InvalidInputError(f"query: expected a JSON object, got {json.dumps(document)[:80]}.")
    return document


def json_document(result: SearchResult, events: Sequence[StoredEvent], asked: Traffic | None) -> dict[str, object]:
    """Return what `--json` prints of a search; `asked` is what it asked of an object store, to explain it."""
    document: dict[str, object] = {
        "total": result.total,
        "events": [_document(stored) for stored in events],
        "cursor": result.cursor,
        "lost": result.lost,
        "as_of": result.as_of,
        "notices": result.notices,
    }
    if asked is not None:
        document["explain"] = {writer: msgspec.to_builtins(done) for writer, done in result.explained.items()}
        document["store"] = msgspec.to_builtins(asked)
    return document


def _ends(since: str | None, until: str | None) -> tuple[int, int]:
    """Return the first and the last millisecond that options name."""
    from custody.clock import SystemClock
    from custody.query.times import time_span

    now_ms = SystemClock().now_ms()
    if since is None:
        raise click.UsageError("--buckets needs --since, the time that the first span begins at.")
    return time_span(since, now_ms)[0], now_ms if until is None else time_span(until, now_ms)[1]


def _print_buckets(answer: tuple[Sequence[Bucket], tuple[str, ...]], as_json: bool) -> None:
    buckets, notices = answer
    total = sum(one.events for one in buckets)
    if as_json:
        print_json({"buckets": buckets, "total": total, "notices": notices})
        return
    talk = stderr()
    for notice in notices:
        talk.print(clean(notice))
    rows = [(time_text(one.first_ms), time_text(one.last_ms), one.events) for one in buckets]
    print_table(f"{total} events", ("from", "to", "events#"), rows)


def _print_facets(facets: tuple[dict[str, Counter[str]], tuple[str, ...]], top: int | None, as_json: bool) -> None:
    counts, notices = facets
    talk = stderr()
    for notice in notices:
        talk.print(clean(notice))
    if as_json:
        document: dict[str, object] = {name: dict(values.most_common(top)) for name, values in counts.items()}
        print_json({**document, "notices": notices} if notices else document)
        return
    for name, values in counts.items():
        print_table("", (name, "events#"), values.most_common(top), f"{name}: no events")


def _print_explained(result: SearchResult, asked: Traffic) -> None:
    print_table(
        "",
        ("writer", "shards#", "not opened#", "searched#", "only counted#", "scanned logs of#", "blocks#", "ms#"),
        [
            (writer, e.shards, e.pruned, e.searched, e.counted, e.scanned, e.blocks, round(e.seconds * 1000, 3))
            for writer, e in result.explained.items()
        ],
    )
    rows = [
        (
            writer,
            e.pruned - e.pruned_by_statistics - e.pruned_by_filters,
            e.pruned_by_statistics,
            e.pruned_by_filters,
            e.scanned_blocks,
            e.scanned_blocks_pruned,
        )
        for writer, e in result.explained.items()
        if e.pruned_by_statistics or e.pruned_by_filters or e.scanned_blocks
    ]
    if rows:
        columns = (
            "writer",
            "ruled out by time#",
            "by statistics of logs#",
            "by filters of terms#",
            "blocks of scanned logs#",
            "not read#",
        )
        print_table("", columns, rows)
    if asked.count:
        stderr().print(traffic_text(asked))


def _document(stored: StoredEvent) -> dict[str, object]:
    return {"writer": stored.writer, "event": stored.event}


def _row(stored: StoredEvent) -> tuple[object, ...]:
    event = stored.event
    component = event.component_name or event.component_type
    return (
        stored.writer,
        event.event_id,
        time_text(event.event_time),
        event.event_type,
        component,
        event.flowfile_uuid,
        event.filename,
    )
