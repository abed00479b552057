"""tantivy by its Python package."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.index.peers.base import Answer, InProcess
from benchmarks.index.workload import LIMIT, NUMBERS, SEVERAL, SINGLE, Question, Rows


class Tantivy(InProcess):
    """tantivy by its Python package, one thread."""

    name = "tantivy"

    def __init__(self, folder: Path) -> None:
        tantivy = import_module("tantivy")  # of the benchmark's own packages

        self._t = tantivy
        self.about = (
            f"tantivy {version('tantivy')} (Python): one writer thread, raw terms, fast fields for order and time"
        )
        builder = tantivy.SchemaBuilder()
        for name in (*SINGLE, *SEVERAL):
            fast = name == "event_type"
            builder.add_text_field(_plain(name), tokenizer_name="raw", index_option="basic", fast=fast)
        for name in ("event_id", *NUMBERS):
            builder.add_integer_field(name, indexed=name != "event_id", fast=True)
        self._schema = builder.build()
        folder.mkdir()
        self._index = tantivy.Index(self._schema, path=str(folder))
        self._writer = self._index.writer(heap_size=512_000_000, num_threads=1)

    def prepare(self, rows: Rows) -> Any:
        return [{_plain(k): v for k, v in row.items() if v is not None and v != []} for row in rows.documents]

    def add(self, prepared: Any) -> None:
        for row in prepared:
            self._writer.add_document(self._t.Document(**row))
        self._writer.commit()

    def finish(self) -> None:
        self._writer.wait_merging_threads()
        self._index.reload()
        self._searcher = self._index.searcher()

    def ask(self, question: Question) -> Answer:
        asked = self._query(question)
        if question.wanted == "total":
            return int(self._searcher.search(asked, limit=1, count=True).count)
        if question.wanted == "facet":
            buckets = self._searcher.aggregate(asked, {"types": {"terms": {"field": "event_type", "size": 1000}}})
            return {bucket["key"]: bucket["doc_count"] for bucket in buckets["types"]["buckets"]}
        result = self._searcher.search(asked, limit=LIMIT, count=False, order_by_field="event_id")
        return [key for key, _ in result.hits]

    def _query(self, question: Question) -> Any:
        q, o = self._t.Query, self._t.Occur

        def term(pair: tuple[str, str]) -> Any:
            return q.term_query(self._schema, _plain(pair[0]), pair[1], "basic")

        parts = [(o.Must, term(pair)) for pair in question.terms]
        parts += [(o.MustNot, term(pair)) for pair in question.without]
        if question.any_of:
            name = _plain(question.any_of[0][0])
            parts.append((o.Must, q.term_set_query(self._schema, name, [text for _, text in question.any_of])))
        if question.prefix:
            parts.append((o.Must, q.regex_query(self._schema, question.prefix[0], _escaped(question.prefix[1]) + ".*")))
        if question.suffix:
            parts.append((o.Must, q.regex_query(self._schema, question.suffix[0], ".*" + _escaped(question.suffix[1]))))
        if question.times:
            kind = self._t.FieldType.Integer
            parts.append((o.Must, q.range_query(self._schema, "event_time", kind, *question.times)))
        return q.boolean_query(parts) if parts else q.all_query()


def _plain(name: str) -> str:
    return name.replace(".", "_")


def _escaped(text: str) -> str:
    return "".join(letter if letter.isalnum() else "\\" + letter for letter in text)


def add_packages(folder: Path) -> None:
    """Let packages of the benchmark's own be imported."""
    if folder.exists():
        sys.path.append(str(folder))
