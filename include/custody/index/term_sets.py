"""Sets of terms that are looked up in shard after shard: what is the same for all shards is computed once."""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict, defaultdict
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from whoosh import query

Hashes = npt.NDArray[np.uint32]
# A query is asked of many shards in a row; a few more allow for several threads.
_QUESTIONS_KEPT = 16


def encoded(text: str | bytes) -> bytes:
    """Return a term in the form in which a dictionary holds it."""
    return text.encode("utf-8", "replace") if isinstance(text, str) else bytes(text)


class TermSet:
    """Distinct terms of one field."""

    def __init__(self, terms: Iterable[bytes]) -> None:
        self.terms = tuple(dict.fromkeys(terms))
        self._hashed: dict[bytes, tuple[list[bytes], Hashes]] = {}

    def __len__(self) -> int:
        return len(self.terms)

    def hashed(self, prefix: bytes) -> tuple[list[bytes], Hashes]:
        """Return the terms with a shard's prefix of the field, and the hash of each, shape (terms,)."""
        hashed = self._hashed.get(prefix)
        if hashed is None:
            keys = [prefix + term for term in self.terms]
            hashed = keys, np.fromiter(map(zlib.crc32, keys), np.uint32, len(keys))
            # Without a lock: two threads compute the same value. Shards number their fields alike, so there are few
            # prefixes.
            self._hashed[prefix] = hashed
        return hashed


class Alternatives:
    """An OR, taken apart: the terms of each field, and all other parts."""

    def __init__(self, question: query.Or) -> None:
        terms: dict[str, list[bytes]] = defaultdict(list)
        self.others: list[query.Query] = []
        for part in question.children():
            if type(part) is query.Term:
                terms[part.fieldname].append(encoded(part.text))
            else:
                self.others.append(part)
        self.terms = {name: TermSet(texts) for name, texts in terms.items()}


class _AlternativesCache:
    """The last queries taken apart, by identity of the query objects: comparing them would take as long again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[int, tuple[query.Or, Alternatives]] = OrderedDict()

    def __call__(self, question: query.Or) -> Alternatives:
        entry = self._found.get(id(question))
        if entry is not None:  # the query is held here too, so no other object can have its id
            return entry[1]
        alternatives_of = Alternatives(question)
        with self._lock:
            # The question is kept beside its answer, so that its id cannot be given to another object.
            self._found[id(question)] = question, alternatives_of
            while len(self._found) > _QUESTIONS_KEPT:
                self._found.popitem(last=False)
        return alternatives_of


alternatives = _AlternativesCache()
"""Take an OR apart, once for all shards that are asked."""
