"""What is made of a query once for all shards and all steps of a search, kept for the last queries.

By identity of the query objects, which nobody changes once they are asked: comparing them would take as long again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from whoosh import query

Asked = TypeVar("Asked", bound=query.Query)
Made = TypeVar("Made")
# A query is asked of many shards in a row; a few more allow for several threads.
_QUESTIONS_KEPT = 16


class ByQuestion(Generic[Asked, Made]):
    """A function of a query that remembers what it returned; may be called by several threads."""

    def __init__(self, make: Callable[[Asked], Made]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: OrderedDict[int, tuple[Asked, Made]] = OrderedDict()

    def __call__(self, question: Asked) -> Made:
        """Return what is made of a query."""
        entry = self._made.get(id(question))
        if entry is not None:  # the query is held here too, so no other object can have its id
            return entry[1]
        made = self._make(question)
        with self._lock:
            # The question is kept beside its answer, so that its id cannot be given to another object.
            self._made[id(question)] = question, made
            while len(self._made) > _QUESTIONS_KEPT:
                self._made.popitem(last=False)
        return made
