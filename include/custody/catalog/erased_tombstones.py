"""Remnants: tombstones whose events were erased, reduced to the sources' own numbers and to whole groups.

An ingest checks them before it stores an event, so that a forgotten one does not come back. Of a run of numbers the
times are kept, since a source may give its numbers again to later events. Nothing of an event's content is kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog.state import CatalogState
from custody.catalog.tombstones import is_remnant
from custody.catalog.transaction_pb2 import AddTombstone, SourceKeys

_Numbers = npt.NDArray[np.int64]
_INT64 = np.iinfo(np.int64)


def source_keys(table: pa.Table) -> list[SourceKeys]:
    """Return the keys in the columns source_node, source_ordinal and event_time, by node.

    Events that lack node or ordinal have no key.
    """
    node, ordinal = table.column("source_node"), table.column("source_ordinal")
    numbered = table.filter(pc.and_(node.is_valid(), ordinal.is_valid()))
    keys = []
    for name in sorted(numbered.column("source_node").unique().to_pylist()):
        own = numbered.filter(pc.equal(numbered.column("source_node"), name))
        numbers, times = (_numbers(own.column(column)) for column in ("source_ordinal", "event_time"))
        keys.append(_runs(name, _Runs(numbers, numbers, times, times)))
    return keys


def merged_remnant(parts: Iterable[AddTombstone], now_ms: int) -> AddTombstone:
    """Return one tombstone, with an id of its own, that says what several remnants say."""
    by_node: dict[str, list[SourceKeys]] = {}
    groups: set[int] = set()
    for part in parts:
        groups.update(part.erased_groups)
        for keys in part.erased:
            by_node.setdefault(keys.node, []).append(keys)
    erased = []
    for node in sorted(by_node):
        columns = zip(*map(_bounds, by_node[node]), strict=True)
        erased.append(_runs(node, _Runs(*map(np.concatenate, columns))))
    return AddTombstone(id=uuid.uuid4().bytes, erased=erased, erased_groups=sorted(groups), created_ms=now_ms)


def erased_among(
    stones: Iterable[AddTombstone], node: str, ordinals: Sequence[int] | _Numbers
) -> dict[int, list[tuple[int, int]]]:
    """Return which of a node's ordinals belong to erased events: for each the times, ms, between which those were."""
    candidates = np.array(ordinals, np.int64)
    erased: dict[int, list[tuple[int, int]]] = {}
    for stone in stones:
        for keys in stone.erased:
            if keys.node == node:
                runs = _bounds(keys)
                # Runs are sorted and disjoint, so the last one that begins at or before a number is the only one that
                # can hold it.
                places = np.searchsorted(runs.firsts, candidates, side="right") - 1
                held = (places >= 0) & (candidates <= runs.lasts[places])
                found = (column[places[held]].tolist() for column in (runs.first_times, runs.last_times))
                for ordinal, first, last in zip(candidates[held].tolist(), *found, strict=True):
                    erased.setdefault(ordinal, []).append((first, last))
    return erased


def live_groups(state: CatalogState) -> frozenset[int]:
    """Return the journal groups that count as live: those whose events live files hold, were erased, or expired."""
    held = state.files.groups()
    # A group without live events still counts, or its journals would be rolled over again and the events come back.
    held.update(*(mark.groups for mark in state.marks.values()))
    return frozenset(held.union(*(stone.erased_groups for stone in state.tombstones.values() if is_remnant(stone))))


class _Runs(NamedTuple):
    """Runs of numbers, each column of shape (runs,); times in ms."""

    firsts: _Numbers
    lasts: _Numbers
    first_times: _Numbers
    last_times: _Numbers


def _numbers(column: pa.ChunkedArray) -> _Numbers:
    return np.asarray(column.cast(pa.int64()).combine_chunks()).astype(np.int64)


def _bounds(keys: SourceKeys) -> _Runs:
    """Return the runs of some keys."""
    firsts = np.array(keys.firsts, np.int64)
    # In 64 bits: a count may exceed the signed range, and the sum then wraps into the right last number.
    lasts = firsts + (np.array(keys.counts, np.uint64) - np.uint64(1)).astype(np.int64)
    if not keys.first_times_ms:
        return _Runs(firsts, lasts, np.full(len(firsts), _INT64.min), np.full(len(firsts), _INT64.max))
    return _Runs(firsts, lasts, np.array(keys.first_times_ms, np.int64), np.array(keys.last_times_ms, np.int64))


def _runs(node: str, runs: _Runs) -> SourceKeys:
    """Return ranges as runs without gaps; sums wrap at the greatest number, and then compare as they should."""
    # Runs keep a remnant small: a source numbers its events one after the other, and whole stretches are erased.
    order = np.argsort(runs.firsts)
    firsts, lasts = runs.firsts[order], np.maximum.accumulate(runs.lasts[order])
    begins = np.ones(len(firsts), np.bool_)
    begins[1:] = (firsts[1:] > lasts[:-1]) & (firsts[1:] != lasts[:-1] + 1)
    ends = np.roll(begins, -1)  # a run ends where the next one begins; the last one's successor is the first
    starts, counts = firsts[begins], (lasts[ends] - firsts[begins]).astype(np.uint64) + np.uint64(1)
    places = np.flatnonzero(begins)
    earliest = np.minimum.reduceat(runs.first_times[order], places) if len(places) else runs.first_times
    latest = np.maximum.reduceat(runs.last_times[order], places) if len(places) else runs.last_times
    return SourceKeys(
        node=node,
        firsts=starts.tolist(),
        counts=counts.tolist(),
        first_times_ms=earliest.tolist(),
        last_times_ms=latest.tolist(),
    )
