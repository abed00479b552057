"""Whoosh as it comes."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from whoosh import fields, index, query
from whoosh.codec.whoosh3 import W3Codec

from benchmarks.index.peers.base import Answer, InProcess
from benchmarks.index.workload import LIMIT, NUMBERS, SEVERAL, SINGLE, Question, Rows


def as_whoosh(question: Question) -> query.Query:
    """Return the query of Whoosh's that asks the same."""
    parts: list[query.Query] = [query.Term(*term) for term in question.terms]
    parts += [query.Not(query.Term(*term)) for term in question.without]
    if question.any_of:
        parts.append(query.Or([query.Term(*term) for term in question.any_of]))
    if question.prefix:
        parts.append(query.Prefix(*question.prefix))
    if question.suffix:
        parts.append(query.Wildcard(question.suffix[0], "*" + question.suffix[1]))
    if question.times:
        parts.append(query.NumericRange("event_time", *question.times))
    return parts[0] if len(parts) == 1 else query.And(parts) if parts else query.Every()


class StockWhoosh(InProcess):
    """Whoosh as its documentation has it, with the settings that serve best."""

    name = "Whoosh"

    def __init__(self, folder: Path) -> None:
        self.about = (
            f"Whoosh-Reloaded {version('Whoosh-Reloaded')}: add_document, limitmb=4096, numbers in 8-bit steps; no sync"
        )
        schema = fields.Schema(event_id=fields.NUMERIC(int, 64, stored=True, sortable=True, shift_step=0))
        for name in (*SINGLE, *SEVERAL):
            schema.add(name, fields.ID())
        for name in NUMBERS:
            schema.add(name, fields.NUMERIC(int, 64, signed=True, shift_step=8, sortable=True))
        folder.mkdir()
        self._index = index.create_in(str(folder), schema)

    def prepare(self, rows: Rows) -> Any:
        return [{k: v for k, v in row.items() if v is not None and v != []} for row in rows.documents]

    def add(self, prepared: Any) -> None:
        writer = self._index.writer(limitmb=4096, codec=W3Codec())
        for row in prepared:
            writer.add_document(**row)
        writer.commit(merge=False)

    def finish(self) -> None:
        self._searcher = self._index.searcher()

    def ask(self, question: Question) -> Answer:
        asked = as_whoosh(question)
        if question.wanted == "total":
            return sum(1 for _ in self._searcher.docs_for_query(asked))
        if question.wanted == "facet":
            groups = self._searcher.search(asked, groupedby="event_type", limit=None).groups("event_type")
            return {name: len(documents) for name, documents in groups.items()}
        documents = self._searcher.search(asked, limit=LIMIT, sortedby="event_id", reverse=True)
        return [hit["event_id"] for hit in documents]
