"""Room `sql`: the engine of SQL, in a process of its own that has limits of memory and time."""

from custody.sql.client import EngineFailedError, EngineQuery, LogGoneError, QueryLimits
from custody.sql.protocol import AskedOfColumn, LogPart, QueryInput, ReadQuery, StoredTable

__all__ = [
    "AskedOfColumn",
    "EngineFailedError",
    "EngineQuery",
    "LogGoneError",
    "LogPart",
    "QueryInput",
    "QueryLimits",
    "ReadQuery",
    "StoredTable",
]
