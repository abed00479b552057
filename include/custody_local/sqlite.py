"""SQLite as Airflow's database: a transaction that begins with a savepoint takes the write lock at once.

Airflow makes each run of a backfill below a savepoint that nothing precedes. For SQLite that begins a read transaction;
where another process commits between its first query and its first change, the change fails at once with "database is
locked", however long the time-out. Airflow then removes the runs that it had made, and the scheduler that already works
on one of them ends. (Python's sqlite3 begins a transaction by itself before a change, not before a savepoint.)
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Self

_NESTED = "SAVEPOINT"


class SavepointCursor(sqlite3.Cursor):
    """A cursor whose outermost savepoint lies in a transaction, which waits for the lock as changes do."""

    def execute(  # type: ignore[override]  # typeshed's own names for what may be a parameter
        self, sql: str, parameters: Sequence[object] | Mapping[str, object] = (), /
    ) -> Self:
        """Execute one statement, after a BEGIN where it is an outermost savepoint."""
        if sql.startswith(_NESTED) and not self.connection.in_transaction:
            super().execute("BEGIN IMMEDIATE")
        return super().execute(sql, parameters)


class SavepointConnection(sqlite3.Connection):
    """A connection whose cursors are `SavepointCursor`."""

    def cursor(  # type: ignore[override]
        self, factory: Callable[[sqlite3.Connection], sqlite3.Cursor] = SavepointCursor
    ) -> sqlite3.Cursor:
        """Return a new cursor."""
        return super().cursor(factory)


CONNECT_ARGUMENTS: dict[str, object] = {"factory": SavepointConnection}
"""What Airflow gives to `sqlite3.connect`: its setting `[database] sql_alchemy_connect_args` names this."""
