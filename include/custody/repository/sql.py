"""SQL over all events: DuckDB inside this process.

The engine gets three tables and nothing else: no file, no network, no extension and no variable of this process can be
reached from a query, its settings are locked, and only one SELECT is run. The logs are scanned by pyarrow, which reads
the columns and blocks that the query needs and verifies the checksum of every page; DuckDB's own reader of Parquet does
not verify them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, Self, TypeVar

import duckdb
import pyarrow as pa

from custody.config import Settings
from custody.errors import CorruptionError, InvalidInputError
from custody.repository import sql_transactions
from custody.repository.sql_sources import SqlSources

_BATCH_ROWS = 2048
_INTERRUPT_SECONDS = 0.05
_T = TypeVar("_T")


class SqlResult:
    """The rows of a query, which runs while they are read. To be closed, or used as a context.

    The engine works in a thread of its own, so that an interrupt of the caller (Ctrl-C) stops it at once.

    Raises:
        InvalidInputError: the query cannot be read, is not one SELECT, or asks for what is not allowed.
        CorruptionError: as `batches`.
    """

    def __init__(self, settings: Settings, sources: SqlSources, text: str, seconds_max: float | None = None) -> None:
        self._sources = sources
        self._seconds_max = seconds_max or settings.query.sql_seconds_max
        # A long history takes a while to read: only for those who ask for it.
        is_asked = sql_transactions.NAME in text.lower()
        transactions = sources.transactions() if is_asked else sql_transactions.SCHEMA.empty_table()
        self._deadline = time.monotonic() + self._seconds_max
        self._spill = tempfile.TemporaryDirectory(prefix="custody-sql-")
        self._running: Future[Any] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="custody-sql")
        self._connection = _connect(settings, sources, self._spill.name, transactions)
        try:
            self._reader: pa.RecordBatchReader = self._run(lambda: self._ask(text))
        except BaseException:
            self.close()
            raise

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._reader.schema

    @property
    def notices(self) -> tuple[str, ...]:
        """What could not be read and was left out."""
        return tuple(self._sources.notices)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises:
            CorruptionError: a log is damaged; the message names file, block and events.
            InvalidInputError: the query failed, or took longer than it may.
        """
        while (batch := self._run(lambda: next(self._reader, None))) is not None:
            yield batch

    def close(self) -> None:
        """Stop the query, and remove what it put aside."""
        if self._running is not None:
            self._running.cancel()
            # Again and again: an interrupt that comes before the engine has begun is lost.
            while not self._running.done():
                self._connection.interrupt()
                wait([self._running], _INTERRUPT_SECONDS)
        self._thread.shutdown()
        self._connection.close()
        self._spill.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, text: str) -> pa.RecordBatchReader:
        statements = self._connection.extract_statements(text)
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            raise InvalidInputError("SQL: expected one SELECT (or DESCRIBE, SHOW, SUMMARIZE), got something else.")
        return self._connection.sql(text).to_arrow_reader(_BATCH_ROWS)

    def _run(self, step: Callable[[], _T]) -> _T:
        self._running = running = self._thread.submit(step)
        try:
            return running.result(max(self._deadline - time.monotonic(), 0))
        except TimeoutError:
            self._connection.interrupt()
            raise InvalidInputError(
                f"SQL: stopped after {self._seconds_max:g} seconds, the limit of query.sql_seconds_max or --timeout."
            ) from None
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            for damage in self._sources.damage():
                raise CorruptionError(f"{damage} The option --skip-damaged leaves it out.") from error
            raise InvalidInputError(f"SQL: {error}") from error


def _connect(settings: Settings, sources: SqlSources, spill: str, transactions: pa.Table) -> duckdb.DuckDBPyConnection:
    query = settings.query
    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": f"{query.sql_memory_bytes}B",
            "temp_directory": spill,
            "max_temp_directory_size": f"{query.sql_spill_bytes_max}B",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        },
    )
    if sources.buried is not None and sources.buried.num_rows:
        connection.register("stored", sources.events)
        connection.register("buried", sources.buried)
        connection.execute("CREATE VIEW events AS SELECT * FROM stored ANTI JOIN buried USING (writer, event_id)")
    else:
        connection.register("events", sources.events)
    connection.register("logs", sources.logs)
    connection.register(sql_transactions.NAME, transactions)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection
