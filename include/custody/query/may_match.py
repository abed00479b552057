"""Whether any event within bounds of some columns can match a query: what cannot need not be opened.

The bounds are those that the catalog keeps of a log, or of a block of it. A condition on another column, and one whose
terms the bounds do not tell, may always match.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from whoosh import query

from custody.catalog import AddFile
from custody.catalog.pruning import Bounds, known_log
from custody.eventlog import TableOfContents
from custody.index import QueryEvaluator, TermSet
from custody.index.terms import term as indexed_term
from custody.query.shard_set import fields_of

IDENTIFIER_COLUMNS = frozenset({"source_node"})
"""Columns with bounds whose whole value is the one term of the field of the same name."""


_KNOWN = IDENTIFIER_COLUMNS | {"file_size", "lineage_start_date", "source_ordinal"}
"""Columns with bounds that a search can ask for, besides the event time, of which each shard has bounds too."""


def columns_asked(question: query.Query) -> frozenset[str]:
    """Return which columns with bounds a query asks for; without any, bounds rule out nothing."""
    return _KNOWN & fields_of(question)


def may_match_file(question: query.Query, file: AddFile, columns: frozenset[str]) -> bool:
    """Whether an event of a log can match, by the bounds of some columns in its entry."""
    return MayMatch(known_log(file, columns).bounds).evaluate(question)


def blocks_that_may_match(question: query.Query, file: AddFile, toc: TableOfContents) -> list[int]:
    """Return the blocks of a log that can hold a match."""
    blocks = known_log(file, columns_asked(question) | {"event_time"}, toc).blocks
    # Nothing is known of a log whose entry is damaged.
    if len(blocks) != len(toc.blocks):
        return list(range(len(toc.blocks)))
    return [number for number, bounds in enumerate(blocks) if MayMatch(bounds).evaluate(question)]


class MayMatch(QueryEvaluator[bool]):
    """Answers False only where no event within the bounds can match."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def all(self) -> bool:
        """Every event matches."""
        return True

    def none(self) -> bool:
        """No event matches."""
        return False

    def any_term(self, name: str) -> bool:
        """Return False where no event has a value."""
        return not (name in self._bounds and self._bounds[name] is None)

    def term(self, name: str, text: str) -> bool:
        """Return False where all events have another value."""
        term = self._only_term(name)
        return self.any_term(name) if term is None else term == text

    def prefix(self, name: str, text: str) -> bool:
        """Return False where the only value begins with another text."""
        term = self._only_term(name)
        return self.any_term(name) if term is None else term.startswith(text)

    def wildcard(self, name: str, pattern: str) -> bool:
        """Return False where no event has a value."""
        return self.any_term(name)

    def phrase(self, name: str, words: Sequence[str]) -> bool:
        """Return False where no event has a value."""
        return self.any_term(name)

    def number_range(self, name: str, first: int | None, last: int | None) -> bool:
        """Return False where all numbers lie outside of the range."""
        if not self.any_term(name):
            return False
        bounds = self._bounds.get(name)
        if bounds is None or not isinstance(bounds[0], int) or not isinstance(bounds[1], int):
            return True
        return (first is None or bounds[1] >= first) and (last is None or bounds[0] <= last)

    def term_range(self, question: query.TermRange) -> bool:
        """Return False where no event has a value."""
        return self.any_term(question.fieldname)

    def intersect(self, parts: Iterable[bool]) -> bool:
        """Return whether all parts may match."""
        return all(parts)

    def unite(self, parts: Iterable[bool], terms: Mapping[str, TermSet]) -> bool:
        """Return whether a part or a term may match."""
        return any(parts) or any(self._any_of(name, terms[name]) for name in terms)

    def complement(self, part: bool) -> bool:
        """Return True: that a part may match does not say that all events do."""
        return True

    def _any_of(self, name: str, terms: TermSet) -> bool:
        return any(self.term(name, term.decode()) for term in terms.terms)

    def _only_term(self, name: str) -> str | None:
        """Return the one term that all values have, None where the bounds do not tell."""
        bounds = self._bounds.get(name) if name in IDENTIFIER_COLUMNS else None
        if bounds is None or bounds[0] != bounds[1] or not isinstance(bounds[0], bytes):
            return None
        return indexed_term(bounds[0].decode())
