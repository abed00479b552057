"""SQLite, by b-trees and by its full-text index."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from benchmarks.index.peers.base import Answer, InProcess
from benchmarks.index.peers.values import sql_of
from benchmarks.index.workload import LIMIT, NUMBERS, SEVERAL, SINGLE, Question, Rows


class SqliteTrees(InProcess):
    """SQLite: a table with an index a column, and a table of the fields with several values."""

    name = "SQLite"

    def __init__(self, folder: Path) -> None:
        self.about = f"SQLite {sqlite3.sqlite_version}: b-tree indexes; synchronous=FULL, WAL"
        folder.mkdir()
        self._db = sqlite3.connect(folder / "events.db", isolation_level=None)
        self._db.executescript("pragma journal_mode=wal; pragma synchronous=full; pragma cache_size=-262144")
        self._columns = [name.replace(".", "_") for name in SINGLE] + list(NUMBERS)
        listed = ", ".join(f"{name} text" for name in self._columns[: len(SINGLE)])
        numbers = ", ".join(f"{name} integer" for name in NUMBERS)
        self._db.execute(f"create table events (event_id integer primary key, {listed}, {numbers})")
        self._db.execute("create table several (field text, term text, event_id integer)")
        for name in self._columns:
            self._db.execute(f"create index by_{name} on events ({name}, event_id)")
        self._db.execute("create index by_term on several (field, term, event_id)")

    def prepare(self, rows: Rows) -> Any:
        events, several = [], []
        for row in rows.documents:
            singles = [(row[name] or [None])[0] for name in SINGLE]
            events.append((row["event_id"], *singles, *(row[name] for name in NUMBERS)))
            several += [(name, term, row["event_id"]) for name in SEVERAL for term in row[name]]
        return events, several

    def add(self, prepared: Any) -> None:
        events, several = prepared
        self._db.execute("begin")
        self._db.executemany(f"insert into events values ({','.join('?' * (1 + len(self._columns)))})", events)  # noqa: S608
        self._db.executemany("insert into several values (?, ?, ?)", several)
        self._db.execute("commit")

    def finish(self) -> None:
        self._db.execute("pragma wal_checkpoint(truncate)")
        self._db.execute("analyze")

    def ask(self, question: Question) -> Answer:
        where, values = sql_of(question, "like")
        if question.wanted == "total":
            return int(self._db.execute(f"select count(*) from events where {where}", values).fetchone()[0])  # noqa: S608
        if question.wanted == "facet":
            return dict(
                self._db.execute(
                    f"select event_type, count(*) from events where {where} group by 1",  # noqa: S608
                    values,
                )
            )
        rows = self._db.execute(
            f"select event_id from events where {where} order by event_id desc limit {LIMIT}",  # noqa: S608
            values,
        )
        return [row[0] for row in rows]


class SqliteWords(InProcess):
    """SQLite's full-text index: a column a field, a term a word; times and types beside it, for what FTS5 has not."""

    name = "SQLite FTS5"

    def __init__(self, folder: Path) -> None:
        self.about = f"SQLite {sqlite3.sqlite_version} FTS5: contentless, detail=column; synchronous=FULL, WAL"
        folder.mkdir()
        self._db = sqlite3.connect(folder / "words.db", isolation_level=None)
        self._db.executescript("pragma journal_mode=wal; pragma synchronous=full; pragma cache_size=-262144")
        listed = ", ".join(name.replace(".", "_") for name in (*SINGLE, *SEVERAL))
        tokenizer = "unicode61 remove_diacritics 0 categories ''L* M* N* Co P* S*''"
        self._db.execute(
            f"create virtual table words using fts5({listed}, content='', detail=column, tokenize='{tokenizer}')"
        )
        self._db.execute("create table events (event_id integer primary key, event_type text, event_time integer)")
        self._db.execute("create index by_time on events (event_time, event_type)")

    def prepare(self, rows: Rows) -> Any:
        words, events = [], []
        for row in rows.documents:
            texts = (" ".join(_word(term) for term in row[name] or ()) for name in (*SINGLE, *SEVERAL))
            words.append((row["event_id"], *texts))
            events.append((row["event_id"], (row["event_type"] or [None])[0], row["event_time"]))
        return words, events

    def add(self, prepared: Any) -> None:
        words, events = prepared
        columns = ", ".join(name.replace(".", "_") for name in (*SINGLE, *SEVERAL))
        marks = ",".join("?" * (1 + len(SINGLE) + len(SEVERAL)))
        self._db.execute("begin")
        self._db.executemany(f"insert into words (rowid, {columns}) values ({marks})", words)  # noqa: S608
        self._db.executemany("insert into events values (?, ?, ?)", events)
        self._db.execute("commit")

    def finish(self) -> None:
        self._db.execute("insert into words (words) values ('optimize')")
        self._db.execute("pragma wal_checkpoint(truncate)")
        self._db.execute("analyze")

    def measure(self, question: Question) -> tuple[Answer | None, list[float]]:
        # No index of FTS5's finds the end of a word, unless every word is cut into its trigrams.
        return (None, []) if question.suffix else super().measure(question)

    def ask(self, question: Question) -> Answer:
        matched = self._matched(question)
        where = ["true"] if matched is None else ["words match ?"]
        values: list[object] = [] if matched is None else [matched]
        table, key = ("events", "event_id") if matched is None else ("words", "words.rowid")
        if question.times:
            table = table if matched is None else "words join events on events.event_id = words.rowid"
            where.append("event_time between ? and ?")
            values += question.times
        asked = f"from {table} where {' and '.join(where)}"
        if question.wanted == "total":
            return int(self._db.execute(f"select count(*) {asked}", values).fetchone()[0])
        if question.wanted == "facet":
            return dict(self._db.execute(f"select event_type, count(*) {asked} group by 1", values))
        return [row[0] for row in self._db.execute(f"select {key} {asked} order by 1 desc limit {LIMIT}", values)]

    def _matched(self, question: Question) -> str | None:
        """Return the question in FTS5's language, None when it has no terms."""
        wanted = [_term(*pair) for pair in question.terms]
        if question.any_of:
            wanted.append("(" + " OR ".join(_term(*pair) for pair in question.any_of) + ")")
        if question.prefix:
            wanted.append(_term(*question.prefix) + "*")
        if not wanted:
            return None
        return " AND ".join(wanted) + "".join(f" NOT {_term(*pair)}" for pair in question.without)


def _term(field: str, text: str) -> str:
    word = _word(text).replace('"', '""')
    return f'{field.replace(".", "_")} : "{word}"'


def _word(text: str) -> str:
    """Return a term as one word: what separates words becomes a letter of nobody's."""
    return "\ue000".join(text.split())
