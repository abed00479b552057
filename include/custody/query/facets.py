"""Facets: the number of matching events for each value of a field, or for each day; exact, over all events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from whoosh import query

from custody.catalog import AddShard
from custody.errors import CorruptionError, FormatVersionError, InvalidInputError, NotFoundError
from custody.index import DAY, DAY_MS, STANDARD_FIELDS, day_name, identifier_fields
from custody.query.scan import Scan
from custody.query.shard_set import EventIds, OldShards, ShardSet, fields_of, time_bounds

# A facet has one code a document, so of several terms it would count one only.
SEVERAL_VALUES = ("flowfile_uuid", "content_claim_container", "content_claim_section", "content_claim_identifier")
"""Fields that may have several terms an event, or none."""
Facets = dict[str, Counter[str]]


def check_facets(fields: Sequence[str], attributes: Iterable[str], standard: Iterable[str] = STANDARD_FIELDS) -> None:
    """Raise InvalidInputError unless each field is indexed and has one value an event, or is `day`."""
    fields_of_one = (field.name for field in identifier_fields(attributes, standard))
    known = [DAY, *(name for name in fields_of_one if name not in SEVERAL_VALUES)]
    for field in fields:
        if field not in known:
            raise InvalidInputError(f"facet {field!r}: expected one of {', '.join(known)}.")


def facets_of(
    live: ShardSet,
    log_tables: Callable[[AddShard], Iterable[pa.Table]],
    readable: Callable[[EventIds], npt.NDArray[np.bool_]],
    question: query.Query,
    fields: Sequence[str],
    attributes: Sequence[str],
) -> tuple[Facets, list[str]]:
    """Return the counts over all live shards, and notices.

    A shard is answered from its logs when it cannot be read, is older than a field, has events that must not be given
    out, or has matching events that are not `readable` any more.
    """
    counts: Facets = {field: Counter() for field in fields}
    notices: list[str] = []
    old = OldShards()
    needed = fields_of(question).union(fields) - {DAY}
    low, high = time_bounds(question)
    for shard in live.state.shards.values():
        if shard.first_event_time_ms > high or shard.last_event_time_ms < low:
            continue
        shard_counts = None
        # The index counts without looking at events, so every event of the shard has to be one that may be counted.
        if live.is_whole(shard) and not len(live.buried_in(shard)):
            try:
                opened = live.current(shard, needed, old)
                # The index still knows events whose block is damaged: they would be counted although nobody can read
                # them.
                if opened is not None and readable(opened.search(question)).all():
                    shard_counts = {field: opened.facet(question, field) for field in fields}
            except (NotFoundError, CorruptionError, FormatVersionError) as error:
                # The next query opens the shard anew, and sees it repaired; this one goes on with the logs.
                live.opened.forget(live.path(shard))
                notices.append(f"{shard.documents} events were searched without an index, which is slow: {error}")
        if shard_counts is not None:
            for field, values in shard_counts.items():
                counts[field].update(values)
            continue
        # Nothing was added for this shard so far: counts are taken from index or logs, never from both.
        for table in log_tables(shard):
            facets_of_table(counts, table, question, attributes)
    return counts, notices + old.notices()


def facets_of_table(counts: Facets, table: pa.Table, question: query.Query, attributes: Sequence[str]) -> None:
    """Add the counts of a table of events that no index holds."""
    scan = Scan(table, attributes)
    matching = scan.match(question)
    for field, counter in counts.items():
        if field == DAY:
            days, day_counts = np.unique(scan.numbers("event_time")[0][matching] // DAY_MS, return_counts=True)
            counter.update(dict(zip(map(day_name, days.tolist()), day_counts.tolist(), strict=True)))
            continue
        values = scan.values(field)
        if values is not None and len(values.rows):
            numbers = np.bincount(values.codes[matching[values.rows]], minlength=len(values.terms))
            for name, count in zip(values.terms.to_pylist(), numbers.tolist(), strict=True):
                if count:
                    counter[name] += count
