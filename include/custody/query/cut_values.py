"""Values that are longer than the index has them: where a shard cannot tell, its logs are asked.

A shard notes the fields that have such values. A condition whose text is shorter than all terms that were cut means the
same for the term as for the value; of a longer one, and of a pattern, only the record knows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from whoosh import query

from custody.index import ByQuestion, TermFacts, leaves


class LongConditions:
    """What a query asks of long values: for each field the longest text, and whether there is a pattern."""

    def __init__(self, question: query.Query) -> None:
        self._longest: dict[str, int] = {}
        self._patterns: set[str] = set()
        for leaf in leaves(question):
            # First, as a question may have thousands of these.
            if type(leaf) is query.Term:
                self._add(leaf.fieldname, leaf.text)
            elif isinstance(leaf, query.Wildcard):
                self._patterns.add(leaf.fieldname)
            elif isinstance(leaf, query.TermRange):
                for end in (leaf.start, leaf.end):
                    self._add(leaf.fieldname, "" if end is None else end)
            elif isinstance(leaf, (query.Term, query.Prefix)):
                self._add(leaf.fieldname, leaf.text)

    def unanswerable(self, shard: TermFacts) -> set[str]:
        """Return the fields of which a shard cannot tell what matches, because values of them were cut."""
        if shard.cut is not None and not shard.cut:
            return set()  # as nearly all: each shard of a search is asked
        fields = {name for name, longest in self._longest.items() if _may_be_cut(shard, name, longest)}
        # Of an old shard nobody knows; there a pattern is compared with the beginning of a value.
        return fields | self._patterns.intersection(shard.cut or ())

    def _add(self, name: str, text: str | bytes) -> None:
        characters = len(text if isinstance(text, str) else text.decode())
        if characters >= self._longest.get(name, 0):
            self._longest[name] = characters


long_conditions = ByQuestion(LongConditions)
"""Return what a query asks of long values."""


def has_cut_names(shard: TermFacts, name: str, names: Collection[str]) -> bool:
    """Whether some of the terms of a field that a shard gave may be the beginnings of longer values."""
    return any(_may_be_cut(shard, name, len(text)) for text in names)


def _may_be_cut(shard: TermFacts, name: str, characters: int) -> bool:
    least = shard.whole_below(name)
    return least is not None and characters >= least


@dataclass(slots=True)
class CutShards:
    """Shards that were asked in their logs because of cut values, with the number of their events, and the fields."""

    names: dict[str, int] = field(default_factory=dict)
    fields: set[str] = field(default_factory=set)

    def add(self, name: str, events: int, fields: Collection[str]) -> None:
        """Take note of a shard."""
        self.names[name] = events
        self.fields.update(fields)

    def notices(self) -> list[str]:
        """Say which fields it is about, if any."""
        if not self.names:
            return []
        return [
            f"{sum(self.names.values())} events were searched in the logs, which is slow: the index has only the "
            f"beginning of long values of {', '.join(sorted(self.fields))} (query.attribute_characters_max)"
        ]
