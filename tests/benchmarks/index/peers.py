"""The indexes that are compared. Each gets the same events, made into its input outside the clock."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import duckdb
import pyarrow.parquet as pq
from whoosh import fields, index, query
from whoosh.codec.whoosh3 import W3Codec

from custody.index import Shards, build_shard
from custody.query.bounds import time_bounds
from custody.vfs import PosixFileSystem
from tests.benchmarks.index.workload import ATTRIBUTES, LIMIT, NUMBERS, SEVERAL, SINGLE, Question, Rows

Answer = list[int] | int | dict[str, int]


TIMED = 3
"""How often a question is asked by the clock, after it was asked to warm up."""


class Cost(NamedTuple):
    """Seconds on the wall and of CPU time."""

    wall: float
    cpu: float


class Peer(Protocol):
    """An index that is filled piece by piece and then asked."""

    name: str
    about: str

    def prepare(self, rows: Rows) -> Any:
        """Return the input of `add`; not measured."""
        ...

    size_bytes: int | None
    """Of the index; None for all files of the folder."""

    def add(self, prepared: Any) -> Cost | None:
        """Index a piece, durably; return what it cost where this process's clocks do not tell."""
        ...

    def finish(self) -> None:
        """Make ready for questions."""
        ...

    def measure(self, question: Question) -> tuple[Answer | None, list[float]]:
        """Return the answer and how long it took each time, in ms; None where there is no such question."""
        ...

    def agrees(self, answer: Answer, expected: Answer) -> bool:
        """Whether an answer is the right one."""
        ...

    def close(self) -> None:
        """Let go of what is no memory of this process."""
        ...


class _InProcess:
    """What the peers in this process have in common."""

    size_bytes: int | None = None

    def ask(self, question: Question) -> Answer:
        """Answer."""
        raise NotImplementedError

    def measure(self, question: Question) -> tuple[Answer | None, list[float]]:
        answer = self.ask(question)  # warm
        times = []
        for _ in range(TIMED):
            begun = time.perf_counter()
            answer = self.ask(question)
            times.append((time.perf_counter() - begun) * 1000)
        return answer, times

    def agrees(self, answer: Answer, expected: Answer) -> bool:
        return answer == expected

    def close(self) -> None:
        """Nothing is held."""


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


class Custody(_InProcess):
    """custody's shards, one a piece, and custody's reader."""

    name = "custody"

    def __init__(self, folder: Path) -> None:
        self.about = "shards of a piece each, all fields of custody, words of details too; synced"
        self._folder = folder
        self._fs = PosixFileSystem()
        self._shards = Shards(self._fs)
        self._built: list[tuple[Path, int, int]] = []

    def prepare(self, rows: Rows) -> Any:
        return rows.table

    def add(self, prepared: Any) -> None:
        path = self._folder / f"{len(self._built):04d}"
        build_shard(self._fs, path, prepared, ATTRIBUTES)
        self._built.append((path, 0, 0))

    def finish(self) -> None:
        self._built.reverse()
        for number, (path, _, _) in enumerate(self._built):
            zones = self._shards.open(path).numbers("event_time").zones
            self._built[number] = path, int(zones[0].min()), int(zones[1].max())

    def visits(self, counts: Sequence[int], repeats: int) -> dict[int, dict[str, list[float]]]:
        """Return how long questions take that have to visit so many shards, in ms; their times prune the others."""
        found: dict[int, dict[str, list[float]]] = {}
        for count in counts:
            newest = self._built[:count]
            times = min(first for _, first, _ in newest), max(last for _, _, last in newest)
            asked = {
                "a uuid that no shard has": Question(terms=(("flowfile_uuid", "none"),), times=times),
                "exact total of a type": Question(terms=(("event_type", "route"),), times=times, wanted="total"),
            }
            found[count] = {name: [] for name in asked}
            for name, question in asked.items():
                for _ in range(repeats):
                    found[count][name] += self.measure(question)[1]
        return found

    def ask(self, question: Question) -> Answer:
        asked = as_whoosh(question)
        low, high = time_bounds(asked)
        paths = [path for path, first, last in self._built if first <= high and last >= low]
        if question.wanted == "total":
            return sum(self._shards.open(path).count(asked) for path in paths)
        if question.wanted == "facet":
            counts: dict[str, int] = {}
            for path in paths:
                for name, count in self._shards.open(path).facet(asked, "event_type").items():
                    counts[name] = counts.get(name, 0) + count
            return counts
        found: list[int] = []
        for path in paths:
            found += self._shards.open(path).search(asked, LIMIT - len(found)).tolist()
            if len(found) >= LIMIT:
                break
        return found


class StockWhoosh(_InProcess):
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
            return {name: len(found) for name, found in groups.items()}
        found = self._searcher.search(asked, limit=LIMIT, sortedby="event_id", reverse=True)
        return [hit["event_id"] for hit in found]


class SqliteTrees(_InProcess):
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
        where, values = _sql(question, "like")
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


def _sql(question: Question, like: str) -> tuple[str, list[object]]:
    where: list[str] = ["true"]
    values: list[object] = []
    for name, term in question.terms:
        if name in SEVERAL:
            where.append("event_id in (select event_id from several where field = ? and term = ?)")
            values += [name, term]
        else:
            where.append(f"{name.replace('.', '_')} = ?")
            values.append(term)
    for name, term in question.without:
        where.append(
            f"{name.replace('.', '_')} is not ?" if like == "like" else f"{name.replace('.', '_')} is distinct from ?"
        )
        values.append(term)
    if question.any_of:
        marks = ",".join("?" * len(question.any_of))
        where.append(f"event_id in (select event_id from several where field = ? and term in ({marks}))")  # noqa: S608
        values += [question.any_of[0][0], *(term for _, term in question.any_of)]
    if question.prefix:
        name, text = question.prefix
        where.append(f"{name} >= ? and {name} < ?")
        values += [text, text[:-1] + chr(ord(text[-1]) + 1)]
    if question.suffix:
        where.append(f"{question.suffix[0]} like ?")
        values.append("%" + question.suffix[1])
    if question.times:
        where.append("event_time between ? and ?")
        values += question.times
    return " and ".join(where), values


class DuckDb(_InProcess):
    """DuckDB over Parquet files of the same values, no index."""

    name = "DuckDB"

    def __init__(self, folder: Path) -> None:
        self.about = f"DuckDB {version('duckdb')}: Parquet of the searched values, zstd, no index; files not synced"
        self._folder = folder
        folder.mkdir()
        self._pieces = 0

    def prepare(self, rows: Rows) -> Any:
        return rows.columns

    def add(self, prepared: Any) -> None:
        for name, table in zip(("events", "several"), prepared, strict=True):
            pq.write_table(table, self._folder / f"{name}-{self._pieces:04d}.parquet", compression="zstd")
        self._pieces += 1

    def finish(self) -> None:
        self._db = duckdb.connect()
        for name in ("events", "several"):
            self._db.execute(f"create view {name} as from read_parquet('{self._folder}/{name}-*.parquet')")

    def ask(self, question: Question) -> Answer:
        where, values = _sql(question, "duckdb")
        if question.wanted == "total":
            return int(self._db.execute(f"select count(*) from events where {where}", values).fetchall()[0][0])  # noqa: S608
        if question.wanted == "facet":
            return dict(
                self._db.execute(f"select event_type, count(*) from events where {where} group by 1", values).fetchall()  # noqa: S608
            )
        rows = self._db.execute(
            f"select event_id from events where {where} order by event_id desc limit {LIMIT}",  # noqa: S608
            values,
        )
        return [row[0] for row in rows.fetchall()]


class Tantivy(_InProcess):
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
            found = self._searcher.aggregate(asked, {"types": {"terms": {"field": "event_type", "size": 1000}}})
            return {bucket["key"]: bucket["doc_count"] for bucket in found["types"]["buckets"]}
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


def _nifi(folder: Path) -> Peer:
    # Needs Java, and this module.
    from tests.benchmarks.index.nifi_peer import Nifi

    return Nifi(folder)


PEERS: dict[str, Callable[[Path], Peer]] = {
    "custody": Custody,
    "nifi": _nifi,
    "tantivy": Tantivy,
    "sqlite": SqliteTrees,
    "duckdb": DuckDb,
    "whoosh": StockWhoosh,
}
