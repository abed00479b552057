"""The workload: sample events in bulk, and ten shapes of questions with values that occur in them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.eventlog.bulk import tables
from custody.index import identifier_fields, integers, to_arrow

ATTRIBUTES = ("order.region", "batch.id")
LIMIT = 1000
UUIDS = 100
SINGLE: tuple[str, ...] = (
    *("event_type", "component_id", "component_type", "component_name", "process_group_id", "transit_uri"),
    *("filename", "relationship", "source_queue_identifier", "source_node", "attribute.order.region"),
)
SEVERAL = ("flowfile_uuid", "content_claim_container", "content_claim_section", "content_claim_identifier")
NUMBERS = ("event_time", "lineage_start_date", "file_size", "source_ordinal")


@dataclass(frozen=True, slots=True)
class Question:
    """All of these at once; the newest LIMIT events are wanted, or what `wanted` says."""

    terms: tuple[tuple[str, str], ...] = ()
    without: tuple[tuple[str, str], ...] = ()
    any_of: tuple[tuple[str, str], ...] = ()
    prefix: tuple[str, str] | None = None
    suffix: tuple[str, str] | None = None
    times: tuple[int, int] | None = None
    wanted: str = "newest"
    """newest: ids; total: how many; facet: how many by event type."""


class Rows:
    """Events as the peers take them: columns, or values by field, row by row."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @cached_property
    def documents(self) -> list[dict[str, Any]]:
        """The rows, made when a peer wants them, outside the clock."""
        rows = self.table.num_rows
        columns: dict[str, list[Any]] = {"event_id": self.table.column("event_id").to_pylist()}
        for searched in identifier_fields(ATTRIBUTES):
            if searched.name in (*SINGLE, *SEVERAL):
                columns[searched.name] = list(searched.values(self.table).lists(rows))
        for name in NUMBERS:
            columns[name] = self.table.column(name).cast(pa.int64()).to_pylist()
        names = list(columns)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    @cached_property
    def columns(self) -> tuple[pa.Table, pa.Table]:
        """The same as tables: events, and (field, term, event_id) of the fields with several values."""
        return _columnar(self.table)


def _columnar(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the searched values as columns: one row an event, and one row a value of the fields with several."""
    ids = table.column("event_id").combine_chunks()
    columns: dict[str, pa.Array] = {"event_id": ids}
    several = []
    for searched in identifier_fields(ATTRIBUTES):
        values = searched.values(table)
        if searched.name in SINGLE:
            codes = np.full(table.num_rows, -1, np.int32)
            codes[values.rows] = values.codes
            columns[_plain(searched.name)] = values.terms.take(to_arrow(codes, codes < 0))
        elif searched.name in SEVERAL:
            names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(values.rows), np.int8)), [searched.name])
            of = {"field": names.cast(pa.string()), "term": values.terms.take(to_arrow(values.codes))}
            several.append(pa.table({**of, "event_id": ids.take(to_arrow(values.rows))}))
    for name in NUMBERS:
        columns[name] = table.column(name).cast(pa.int64())
    return pa.table(columns), pa.concat_tables(several)


def _plain(name: str) -> str:
    return name.replace(".", "_")


def pieces(events: int, size: int) -> Iterator[pa.Table]:
    """Yield the events in pieces of a shard's size."""
    waiting: list[pa.Table] = []
    for table in tables(events):
        waiting.append(_known_to_nifi(table))
        if sum(part.num_rows for part in waiting) >= size:
            whole = pa.concat_tables(waiting)
            yield whole.slice(0, size)
            waiting = [whole.slice(size)] if whole.num_rows > size else []
    if waiting and waiting[0].num_rows:
        yield pa.concat_tables(waiting)


def _known_to_nifi(table: pa.Table) -> pa.Table:
    """Call an UPLOAD a SEND: it came with NiFi 2."""
    at = table.schema.get_field_index("event_type")
    column = pc.replace_substring_regex(table.column(at), "^UPLOAD$", "SEND")
    return table.set_column(at, table.schema.field(at), column)


def shapes(sample: pa.Table, count: int, seed: int = 7) -> dict[str, list[Question]]:
    """Return `count` questions of each shape, with values of a piece of the events."""
    chance = random.Random(seed)  # noqa: S311
    sample_values = {searched.name: searched.values(sample) for searched in identifier_fields(ATTRIBUTES)}
    rows = [chance.randrange(sample.num_rows) for _ in range(count * UUIDS)]
    values = {name: _by_row(sample_values[name].lists(sample.num_rows), rows) for name in (*SINGLE, "flowfile_uuid")}
    times = integers(sample.column("event_time").cast(pa.int64()), np.int64)
    low, high = int(times.min()), int(times.max())
    hour = (high - low) // 20

    def one(name: str, at: int) -> tuple[str, str]:
        return name, values[name][at % len(values[name])]

    def span(at: int) -> tuple[int, int]:
        start = low + (high - low) * at // count
        return start, start + hour

    turns = range(count)
    return {
        "rare uuid": [Question(terms=(one("flowfile_uuid", n),)) for n in turns],
        "type + time": [Question(terms=(one("event_type", n),), times=span(n)) for n in turns],
        "three terms": [
            Question(terms=(one("event_type", n), one("component_id", n), one("attribute.order.region", n)))
            for n in turns
        ],
        "prefix": [Question(prefix=("filename", one("filename", n)[1][:7])) for n in turns],
        "wildcard": [Question(suffix=("filename", one("filename", n)[1][-6:])) for n in turns],
        "not": [Question(terms=(one("event_type", n),), without=(one("component_id", n + 1),)) for n in turns],
        "newest": [Question() for _ in turns],
        "total": [Question(terms=(one("event_type", n),), wanted="total") for n in turns],
        "facet": [Question(times=span(n), wanted="facet") for n in turns],
        "uuid set": [Question(any_of=tuple(one("flowfile_uuid", n * UUIDS + k) for k in range(UUIDS))) for n in turns],
    }


def _by_row(lists: list[list[str]], rows: list[int]) -> list[str]:
    return [lists[row][0] for row in rows if lists[row]]
