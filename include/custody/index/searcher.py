"""Searching one shard: which events match a query, as event ids, newest first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from whoosh import index, query

from custody.errors import CorruptionError, NotFoundError
from custody.index.fields import POINTER_COLUMN

EventIds = npt.NDArray[np.int64]


def search_shard(path: Path, question: query.Query) -> EventIds:
    """Return the ids of all events of a shard that match, newest first.

    Raises:
        NotFoundError: the shard's folder is gone.
        CorruptionError: it is no index, or a damaged one.
    """
    if not path.is_dir():
        raise NotFoundError(f"index shard {path} is gone. Make it again: custody run index")
    try:
        return _search(path, question)
    except Exception as error:
        raise CorruptionError(
            f"index shard {path}: expected a Whoosh index, got {error!r}. "
            "Remove its folder and make it again: custody run index"
        ) from error


def _search(path: Path, question: query.Query) -> EventIds:
    shard = index.open_dir(str(path), readonly=True)
    with shard.searcher() as searcher:
        documents = list(searcher.docs_for_query(question))
        if not documents:
            return np.empty(0, np.int64)
        pointers = searcher.reader().column_reader(POINTER_COLUMN)
        return np.fromiter((pointers[number] for number in sorted(documents)), np.int64, len(documents))
