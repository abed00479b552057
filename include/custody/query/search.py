"""Searching what a catalog lists: all live shards, without the events whose log is gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from whoosh import query

from custody.catalog import AddShard, CatalogState
from custody.errors import CorruptionError, NotFoundError
from custody.index import Shards

EventIds = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Found:
    """The ids of all events that match, newest first, and what went wrong on the way."""

    event_ids: EventIds
    notices: tuple[str, ...]


def search_state(
    shards: Shards,
    state: CatalogState,
    shard_path: Callable[[AddShard], Path],
    scan_logs: Callable[[AddShard, query.Query], EventIds],
    question: query.Query,
) -> Found:
    """Ask every live shard; the logs of one that cannot be read are scanned, which is slower and named in the notices.

    `scan_logs` gives the ids of the events of a shard's logs that match, found without the shard.
    """
    parts: list[EventIds] = []
    notices: list[str] = []
    for shard in state.shards.values():
        try:
            parts.append(shards.open(shard_path(shard)).search(question))
        except (NotFoundError, CorruptionError) as error:
            notices.append(f"{shard.documents} events were searched without an index, which is slow: {error}")
            parts.append(scan_logs(shard, question))
    found = np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)
    return Found(_live(state, found)[::-1], tuple(notices))


def _live(state: CatalogState, event_ids: EventIds) -> EventIds:
    """Drop ids that no live log holds: the shard outlived their log."""
    files = sorted(state.files.values(), key=lambda file: file.first_event_id)
    firsts = np.array([file.first_event_id for file in files], np.int64)
    lasts = np.array([file.last_event_id for file in files], np.int64)
    if not files:
        return event_ids[:0]
    holder = np.searchsorted(firsts, event_ids, side="right") - 1
    return event_ids[(holder >= 0) & (event_ids <= lasts[holder])]
