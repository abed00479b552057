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
from custody.index import DAY, STANDARD_FIELDS, UTC_DAYS, Days, OpenShard, day_name, identifier_fields
from custody.query.cut_values import CutShards, has_cut_names, long_conditions
from custody.query.joined_shards import ShardChoice
from custody.query.scan import Columns, Scan
from custody.query.shard_set import EventIds, OldShards, ShardSet, fields_of

# A facet has one code a document, so of several terms it would count one only.
SEVERAL_VALUES = ("flowfile_uuid", "content_claim_container", "content_claim_section", "content_claim_identifier")
"""Fields that may have several terms an event, or none."""
Facets = dict[str, Counter[str]]


def facet_fields(attributes: Iterable[str], standard: Iterable[str] = STANDARD_FIELDS) -> list[str]:
    """Return the names of the fields that have facets: those with one value an event, and `day`."""
    fields_of_one = (field.name for field in identifier_fields(attributes, standard))
    return [DAY, *(name for name in fields_of_one if name not in SEVERAL_VALUES)]


def check_facets(fields: Sequence[str], attributes: Iterable[str], standard: Iterable[str] = STANDARD_FIELDS) -> None:
    """Raise InvalidInputError unless each field is indexed and has one value an event, or is `day`."""
    known = facet_fields(attributes, standard)
    for field in fields:
        if field not in known:
            raise InvalidInputError(f"facet {field!r}: expected one of {', '.join(known)}.")


def facets_of(
    live: ShardSet,
    choice: ShardChoice,
    log_tables: Callable[[AddShard], Iterable[pa.Table]],
    readable: Callable[[EventIds], npt.NDArray[np.bool_]],
    question: query.Query,
    fields: Sequence[str],
    attributes: Sequence[str],
    days: Days = UTC_DAYS,
) -> tuple[Facets, list[str]]:
    """Return the counts over the live shards that were chosen as those that can match, and notices.

    A shard is answered from its logs when it cannot be read, is older than a field, has events that must not be given
    out, or has matching events that are not `readable` any more.
    """
    counts: Facets = {field: Counter() for field in fields}
    ask = _IndexFacets(live, readable, question, fields, days)
    for number in choice.numbers.tolist():
        shard = live.live.shards[number]
        shard_counts = ask.counts(shard)
        if shard_counts is not None:
            for field, values in shard_counts.items():
                counts[field].update(values)
            continue
        # Nothing was added for this shard so far: counts are taken from index or logs, never from both.
        for table in log_tables(shard):
            facets_of_table(counts, table, question, attributes, days)
    return counts, ask.all_notices()


class _IndexFacets:
    """Counts that shards give, without a look at events, and why some do not."""

    def __init__(
        self,
        live: ShardSet,
        readable: Callable[[EventIds], npt.NDArray[np.bool_]],
        question: query.Query,
        fields: Sequence[str],
        days: Days,
    ) -> None:
        self._days = days
        self._live = live
        self._readable = readable
        self._question = question
        self._fields = fields
        self._needed = fields_of(question).union(fields) - {DAY}
        self._conditions = long_conditions(question)
        self._old, self._cut = OldShards(), CutShards()
        self._notices: list[str] = []

    def counts(self, shard: AddShard) -> dict[str, dict[str, int]] | None:
        """Return the counts of a shard; None when its logs have to tell them."""
        # The index counts without looking at events, so every event of the shard has to be one that may be counted.
        if not self._live.is_whole(shard) or len(self._live.buried_in(shard)):
            return None
        try:
            opened = self._live.current(shard, self._needed, self._old)
            return None if opened is None else self._counted(shard, opened)
        except (NotFoundError, CorruptionError, FormatVersionError) as error:
            # The next query opens the shard anew, and sees it repaired; this one goes on with the logs.
            self._live.opened.forget(self._live.path(shard))
            self._notices.append(f"{shard.documents} events were searched without an index, which is slow: {error}")
            return None

    def all_notices(self) -> list[str]:
        """Say which shards were passed over, and why."""
        return [*self._notices, *self._old.notices(), *self._cut.notices()]

    def _counted(self, shard: AddShard, opened: OpenShard) -> dict[str, dict[str, int]] | None:
        about = opened.description
        cut = self._conditions.unanswerable(about)
        # The index still knows events whose block is damaged: they would be counted although nobody can read them.
        if not cut and not self._readable(opened.search(self._question)).all():
            return None
        counts = {} if cut else {field: opened.facet(self._question, field, self._days) for field in self._fields}
        # Two values with the same beginning would be counted as one.
        cut |= {name for name, values in counts.items() if name != DAY and has_cut_names(about, name, values)}
        if cut:
            self._cut.add(shard.name, shard.documents, cut)
        return None if cut else counts


def facets_of_table(
    counts: Facets,
    table: pa.Table | Columns,
    question: query.Query,
    attributes: Sequence[str],
    days: Days = UTC_DAYS,
) -> None:
    """Add the counts of a table of events that no index holds."""
    scan = Scan(table, attributes)
    matching = scan.match(question)
    for field, counter in counts.items():
        if field == DAY:
            times = scan.numbers("event_time")[0][matching]
            found, day_counts = np.unique(days.of(times), return_counts=True)
            counter.update(dict(zip(map(day_name, found.tolist()), day_counts.tolist(), strict=True)))
            continue
        values = scan.values(field)
        if values is not None and len(values.rows):
            numbers = np.bincount(values.codes[matching[values.rows]], minlength=len(values.terms))
            for name, count in zip(values.terms.to_pylist(), numbers.tolist(), strict=True):
                if count:
                    counter[name] += count
