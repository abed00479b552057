"""DuckDB over Parquet: of the searched values, and of the event logs themselves."""

from __future__ import annotations

from abc import abstractmethod
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from benchmarks.index.peers.base import Answer, InProcess
from benchmarks.index.peers.values import sql_of
from benchmarks.index.workload import LIMIT, Question, Rows
from custody.eventlog import LogOptions, log_metadata, write_log
from custody.vfs import PosixFileSystem


class _DuckDb(InProcess):
    """Asks tables `events` and, by `where`, what else lies in the folder."""

    _db: duckdb.DuckDBPyConnection
    _type = "event_type"

    @abstractmethod
    def where(self, question: Question) -> tuple[str, list[object]]:
        """Return the condition in SQL, and its values."""

    def ask(self, question: Question) -> Answer:
        where, values = self.where(question)
        if question.wanted == "total":
            return int(self._all(f"select count(*) from events where {where}", values)[0][0])  # noqa: S608
        if question.wanted == "facet":
            return dict(self._all(f"select {self._type}, count(*) from events where {where} group by 1", values))  # noqa: S608
        listed = f"select event_id from events where {where} order by event_id desc limit {LIMIT}"  # noqa: S608
        return [row[0] for row in self._all(listed, values)]

    def _all(self, asked: str, values: list[object]) -> list[Any]:
        return self._db.execute(asked, values).fetchall()


class DuckDbValues(_DuckDb):
    """DuckDB over Parquet files of the searched values alone, as terms: what a table made for searching would be."""

    name = "DuckDB (values)"

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

    def where(self, question: Question) -> tuple[str, list[object]]:
        return sql_of(question, "duckdb")


class DuckDbLogs(_DuckDb):
    """DuckDB over custody's event logs: what is asked without any index, letters of either case alike."""

    name = "DuckDB"
    _type = "lower(event_type)"

    def __init__(self, folder: Path) -> None:
        self.about = f"DuckDB {version('duckdb')} over custody's event logs, no index; bytes are those of the logs"
        self._folder = folder
        folder.mkdir()
        self._pieces = 0

    def prepare(self, rows: Rows) -> Any:
        return rows.table

    def add(self, prepared: Any) -> None:
        path = self._folder / f"{self._pieces:04d}.parquet"
        write_log(PosixFileSystem(), path, prepared, log_metadata(prepared, "main", "provenance"), LogOptions())
        self._pieces += 1

    def finish(self) -> None:
        self._db = duckdb.connect()
        self._db.execute(f"create view events as from read_parquet('{self._folder}/*.parquet')")

    def where(self, question: Question) -> tuple[str, list[object]]:
        where: list[str] = ["true"]
        values: list[object] = []
        for pair in question.terms:
            where.append(_is(pair[0], "= ?"))
            values += [pair[1]] * where[-1].count("?")
        for pair in question.without:
            where.append(f"not coalesce({_is(pair[0], '= ?')}, false)")
            values.append(pair[1])
        if question.any_of:
            where.append(_is(question.any_of[0][0], f"in ({','.join('?' * len(question.any_of))})"))
            values += [text for _, text in question.any_of] * (where[-1].count("?") // len(question.any_of))
        if question.prefix:
            where.append(f"starts_with({_value(question.prefix[0])}, ?)")
            values.append(question.prefix[1])
        if question.suffix:
            where.append(f"ends_with({_value(question.suffix[0])}, ?)")
            values.append(question.suffix[1])
        if question.times:
            where.append("event_time between make_timestamptz(? * 1000) and make_timestamptz(? * 1000)")
            values += question.times
        return " and ".join(where), values


def _is(name: str, wanted: str) -> str:
    """Return the condition of a field; a uuid may also be a parent's or a child's."""
    if name != "flowfile_uuid":
        return f"{_value(name)} {wanted}"
    listed = (f"len(list_filter({column}, lambda one: one {wanted})) > 0" for column in ("parent_uuids", "child_uuids"))
    return f"(flowfile_uuid {wanted} or {' or '.join(listed)})"


def _value(name: str) -> str:
    """Return the field's value, an attribute's as it is after the event."""
    if name != "filename" and not name.startswith("attribute."):
        return f"lower({name})"
    key = name.removeprefix("attribute.")
    return f"lower(coalesce(updated_attributes['{key}'], previous_attributes['{key}']))"
