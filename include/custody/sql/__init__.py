"""Room `sql`: the engine of SQL, in a process of its own that has limits of memory and time."""

from custody.sql.client import Asking, EngineFailedError, Limits, LogGoneError
from custody.sql.protocol import Given, LogPart

__all__ = ["Asking", "EngineFailedError", "Given", "Limits", "LogGoneError", "LogPart"]
