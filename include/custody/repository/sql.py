"""SQL over all events: DuckDB in a process of its own.

The engine gets three tables and nothing else: no file, no network, no extension and no variable of this process can be
reached from a query, its settings are locked, and only one SELECT is run. The logs are scanned by pyarrow, which reads
the columns and blocks that the query needs and verifies the checksum of every page; DuckDB's own reader of Parquet does
not verify them. What must not be given out is left out by the scan, so that the engine never has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import pyarrow as pa

from custody.config import Settings
from custody.errors import ConflictError, CorruptionError, InvalidInputError
from custody.repository import sql_transactions
from custody.repository.sql_sources import LOGS, SqlSources
from custody.sql import Asking, EngineFailedError, Given, Limits, LogGoneError

_ATTEMPTS = 10
_TABLES = ("events", "logs", sql_transactions.NAME)


class SqlResult:
    """The rows of a query, which runs while they are read. To be closed, or used as a context.

    The engine works in a process of its own, which is killed when the query took too long, needs too much memory, or
    is interrupted (Ctrl-C), and when this process ends. `sources` looks up what is asked, anew if that is gone.

    Raises:
        InvalidInputError: the query cannot be read, is not one SELECT, asks for what is not allowed, or as `batches`.
        CorruptionError: as `batches`.
    """

    def __init__(
        self, settings: Settings, sources: Callable[[], SqlSources], text: str, seconds_max: float | None = None
    ) -> None:
        query = settings.query
        self._limits = Limits(
            engine_bytes=min(query.sql_memory_bytes, query.sql_process_bytes_max // 2),
            process_bytes=query.sql_process_bytes_max,
            spill_bytes=query.sql_spill_bytes_max,
            row_bytes=query.sql_row_bytes_max,
            seconds=seconds_max or query.sql_seconds_max,
        )
        for _ in range(_ATTEMPTS):
            try:
                self._begin(sources, text)
            except LogGoneError:
                continue  # it expired since it was looked up, or looking it up again says that it is lost
            return
        raise ConflictError("SQL: logs expire too fast to be read. Try again.")

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._schema

    @property
    def notices(self) -> tuple[str, ...]:
        """What could not be read and was left out."""
        return tuple(self._sources.notices)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises:
            CorruptionError: a log is damaged; the message names file, block and events.
            InvalidInputError: the query failed, or needs more time, memory or room than it may take.
        """
        while True:
            with self._damage_named():
                found = self._asking.next()
            if not found:
                return
            yield from found

    def close(self) -> None:
        """Stop the query, and remove what it put aside."""
        self._asking.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, sources: Callable[[], SqlSources], text: str) -> None:
        # The engine starts while the sources are looked up.
        self._asking = Asking(text, _TABLES, self._limits)
        try:
            self._sources = found = sources()
            with self._damage_named():
                # A long history takes a while to read: only for those who ask for it.
                is_asked = sql_transactions.NAME in self._asking.names()
                transactions = found.transactions() if is_asked else sql_transactions.SCHEMA.empty_table()
                tables = {LOGS: found.logs, sql_transactions.NAME: transactions}
                self._schema = self._asking.begin(Given(found.parts, found.tail, found.buried, tables))
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        """Look for the damage that made a query fail."""
        try:
            yield
        except EngineFailedError as error:
            for damage in self._sources.damage():
                raise CorruptionError(f"{damage} The option --skip-damaged leaves it out.") from error
            raise InvalidInputError(str(error)) from error.__cause__
