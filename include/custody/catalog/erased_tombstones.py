"""Remnants: tombstones whose events were erased, reduced to the sources' own numbers and to whole groups.

An ingest checks them before it stores an event, so that a forgotten one does not come back. Nothing of an event's
content is kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog.state import CatalogState
from custody.catalog.tombstones import is_remnant
from custody.catalog.transaction_pb2 import AddTombstone, SourceKeys

_Numbers = npt.NDArray[np.int64]


def source_keys(table: pa.Table) -> list[SourceKeys]:
    """Return the keys in the columns source_node and source_ordinal, by node; events that lack one have no key."""
    node, ordinal = table.column("source_node"), table.column("source_ordinal")
    numbered = table.filter(pc.and_(node.is_valid(), ordinal.is_valid()))
    keys = []
    for name in sorted(numbered.column("source_node").unique().to_pylist()):
        own = numbered.filter(pc.equal(numbered.column("source_node"), name)).column("source_ordinal")
        numbers = np.asarray(own.combine_chunks()).astype(np.int64)
        keys.append(_runs(name, numbers, numbers))
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
        firsts, lasts = zip(*map(_bounds, by_node[node]), strict=True)
        erased.append(_runs(node, np.concatenate(firsts), np.concatenate(lasts)))
    return AddTombstone(id=uuid.uuid4().bytes, erased=erased, erased_groups=sorted(groups), created_ms=now_ms)


def erased_among(stones: Iterable[AddTombstone], node: str, ordinals: Sequence[int] | _Numbers) -> set[int]:
    """Return which of a node's ordinals belong to erased events."""
    candidates = np.array(ordinals, np.int64)
    erased: set[int] = set()
    for stone in stones:
        for keys in stone.erased:
            if keys.node == node:
                firsts, lasts = _bounds(keys)
                # Runs are sorted and disjoint, so the last one that begins at or before a number is the only one that
                # can hold it.
                places = np.searchsorted(firsts, candidates, side="right") - 1
                erased.update(candidates[(places >= 0) & (candidates <= lasts[places])].tolist())
    return erased


def live_groups(state: CatalogState) -> frozenset[int]:
    """Return the journal groups that count as live: those whose events live files hold, were erased, or expired."""
    held = state.files.groups()
    # A group without live events still counts, or its journals would be rolled over again and the events come back.
    held.update(*(mark.groups for mark in state.marks.values()))
    return frozenset(held.union(*(stone.erased_groups for stone in state.tombstones.values() if is_remnant(stone))))


def _bounds(keys: SourceKeys) -> tuple[_Numbers, _Numbers]:
    """Return the first and the last number of each run, each of shape (runs,)."""
    firsts = np.array(keys.firsts, np.int64)
    # In 64 bits: a count may exceed the signed range, and the sum then wraps into the right last number.
    return firsts, firsts + (np.array(keys.counts, np.uint64) - np.uint64(1)).astype(np.int64)


def _runs(node: str, firsts: _Numbers, lasts: _Numbers) -> SourceKeys:
    """Return ranges as runs without gaps; sums wrap at the greatest number, and then compare as they should."""
    # Runs keep a remnant small: a source numbers its events one after the other, and whole stretches are erased.
    order = np.argsort(firsts)
    firsts, lasts = firsts[order], np.maximum.accumulate(lasts[order])
    begins = np.ones(len(firsts), np.bool_)
    begins[1:] = (firsts[1:] > lasts[:-1]) & (firsts[1:] != lasts[:-1] + 1)
    ends = np.roll(begins, -1)  # a run ends where the next one begins; the last one's successor is the first
    starts, counts = firsts[begins], (lasts[ends] - firsts[begins]).astype(np.uint64) + np.uint64(1)
    return SourceKeys(node=node, firsts=starts.tolist(), counts=counts.tolist())
