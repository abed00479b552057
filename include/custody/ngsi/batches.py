"""How events become batches, and when a batch that cannot be written is tried again; pure functions of times in ms."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from custody.ngsi.parameters import Parameters

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Batch(Generic[Item]):
    """Events that are written together, in the order of their arrival, and when they are due."""

    items: tuple[Item, ...]
    due_ms: int


def cut(events: Iterable[tuple[int, Item]], *, size: int, timeout_ms: int) -> Iterator[Batch[Item]]:
    """Yield the batches of events that arrive at times in ascending order.

    A batch is due when it has `size` events, or `timeout_ms` after its first one, whichever comes first. An event that
    comes after that belongs to the next batch.
    """
    open_since, items = 0, list[Item]()
    for at_ms, item in events:
        if items and at_ms >= open_since + timeout_ms:
            yield Batch(tuple(items), open_since + timeout_ms)
            items = []
        if not items:
            open_since = at_ms
        items.append(item)
        if len(items) == size:
            yield Batch(tuple(items), at_ms)
            items = []
    if items:
        yield Batch(tuple(items), open_since + timeout_ms)


def waits_ms(parameters: Parameters) -> Iterator[int]:
    """Yield how long to wait before each retry; it ends when the batch is to be put aside, with -1 never."""
    return retry_waits_ms(parameters.values.batch_ttl, parameters.retry_intervals_ms)


def retry_waits_ms(ttl: int, intervals_ms: Sequence[int]) -> Iterator[int]:
    """Yield the wait before each of `ttl` retries, or before endless ones where it is -1; the last one is repeated."""
    waits = itertools.chain(intervals_ms, itertools.repeat(intervals_ms[-1]))
    return waits if ttl < 0 else itertools.islice(waits, ttl)
