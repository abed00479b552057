"""Client of the SQL engine: starts its process, hands over query and input, takes the rows frame by frame, ends it.

The client keeps the time: whatever the engine does, its process is killed when the time is over. The system keeps the
memory: it gives the engine's process no more than it may have.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

import msgspec
import pyarrow as pa

import custody
from custody.errors import CustodyError, InvalidInputError
from custody.sql import watchdog
from custody.sql.protocol import HEAD, PROBLEM, QUERY, EngineProblem, QueryInput, ReadQuery, send_frame, write_input

# A start takes 0.3 s on a quiet machine: this only ends one that hangs.
_START_SECONDS = 120.0
_END_SECONDS = 2.0
_STDERR_BYTES = 2000
_SIGNALS_FROM = 128
_READ_QUERY = msgspec.json.Decoder(ReadQuery)
_ENGINE_PROBLEM = msgspec.json.Decoder(EngineProblem)
# Nothing else of the environment reaches the engine, where a query might read it.
_KEPT_VARIABLES = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR")
# One thread for numpy, which computes nothing here; free memory goes back to the system instead of being reserved.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


@dataclass(frozen=True)
class QueryLimits:
    """The resources that one query may take. Bytes; seconds of the clock from the moment when it starts."""

    engine_bytes: int
    process_bytes: int
    spill_bytes: int
    row_bytes: int
    seconds: float


class EngineFailedError(InvalidInputError):
    """The query failed while it ran, maybe because of what it read."""


class LogGoneError(CustodyError):
    """A log expired after it was looked up."""


class EngineQuery:
    """One query and the process that answers it. To be closed; several may be open at once, in any thread.

    Raises:
        InvalidInputError: the query is no text.
    """

    def __init__(
        self,
        text: str,
        tables: Collection[str],
        limits: QueryLimits,
        columns: Mapping[str, str] | None = None,
        event_columns: Sequence[str] = (),
    ) -> None:
        asked = {
            "text": text,
            "tables": sorted(tables),
            "columns": dict(columns or {}),
            "event_columns": list(event_columns),
        }
        try:
            request = json.dumps(asked, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError(f"SQL: expected valid Unicode, got a lone surrogate @{error.start}.") from error
        self._limits = limits
        self._deadline = time.monotonic() + _START_SECONDS
        # Memory without a name: it is gone with the last process that has it.
        self._memory = os.memfd_create("custody-sql")
        # A file and no pipe: nobody reads it while the engine runs, and a full pipe would stop the engine.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        spill = Path(tempfile.gettempdir()) / f"custody-sql-{os.urandom(12).hex()}"
        self._process = self._start(spill)
        # Also for a caller who never closes: with the object, or with this process.
        self._end = weakref.finalize(self, _end, self._process, self._memory, self._stderr, spill)
        self._send(request)

    def read(self) -> ReadQuery:
        """Return the tables that the query reads, and what it asks of the columns of `columns`.

        Raises:
            InvalidInputError: the query cannot be read, or names what is not allowed.
        """
        return _READ_QUERY.decode(self._next_frame())

    def tables(self) -> frozenset[str]:
        """Return the tables that the query reads; raises as `read`."""
        return frozenset(self.read().tables)

    def start(self, query_input: QueryInput) -> pa.Schema:
        """Run the query, and return the columns of its result; its time begins now.

        Raises:
            InvalidInputError, LogGoneError: as `next_batches`.
        """
        # The start of the engine and the look-up of the input do not count as the query's own time.
        self._deadline = time.monotonic() + self._limits.seconds
        self._send(write_input(query_input, self._memory))
        return pa.ipc.read_schema(pa.py_buffer(self._next_frame()))

    def next_batches(self) -> list[pa.RecordBatch]:
        """Return the next rows, none at the end.

        Raises:
            InvalidInputError: the query cannot be run, or went beyond a limit.
            EngineFailedError: it failed while it ran, maybe because of what it read.
        """
        payload = self._next_frame()
        if not payload:
            return []
        with pa.ipc.open_stream(payload) as stream:
            return list(stream)

    def close(self) -> None:
        """End the process, and remove what it spilled."""
        self._end()

    def _start(self, spill: Path) -> subprocess.Popen[bytes]:
        arguments = {
            "client": os.getpid(),
            "path": [str(Path(custody.__file__).parents[1]), *(place for place in sys.path if place)],
            "spill": str(spill),
            "input": self._memory,
            "limits": {
                "engine_bytes": self._limits.engine_bytes,
                "process_bytes": self._limits.process_bytes,
                "spill_bytes": self._limits.spill_bytes,
                "row_bytes": self._limits.row_bytes,
                # For the case that no client is left to look at the clock.
                "cpu_seconds": math.ceil(
                    (self._limits.seconds + _END_SECONDS) * (os.cpu_count() or 1) + _START_SECONDS
                ),
            },
        }
        return subprocess.Popen(  # noqa: S603 - this Python, by full path, without a shell
            # Isolated: neither variables of the environment nor a user's site decide what is imported.
            [sys.executable, "-I", "-S", watchdog.__file__, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            pass_fds=[self._memory],
            env=_ENVIRONMENT | {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            cwd="/",
            start_new_session=True,  # an interrupt from the terminal is for the client
        )

    def _send(self, payload: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # its end is reported when the answer is read
            send_frame(cast(BinaryIO, self._process.stdin), QUERY, payload)

    def _next_frame(self) -> bytes:
        """Return the payload of the next frame, empty at the end."""
        kind, length = HEAD.unpack(self._read_exactly(HEAD.size))
        payload = self._read_exactly(length)
        if kind == PROBLEM:
            raise self._problem_error(_ENGINE_PROBLEM.decode(payload))
        return payload

    def _read_exactly(self, length: int) -> bytes:
        parts = []
        number = cast(BinaryIO, self._process.stdout).fileno()
        # By descriptor, not by the buffered file: bytes in a buffer would not wake the poll.
        poll = select.poll()
        poll.register(number, select.POLLIN)
        while length:
            seconds = self._deadline - time.monotonic()
            if seconds <= 0 or not poll.poll(seconds * 1000):
                raise self._timeout_error()
            part = os.read(number, min(length, 1 << 20))
            if not part:
                raise self._end_error()
            parts.append(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _problem_error(self, problem: EngineProblem) -> CustodyError:
        limits = self._limits
        if problem.kind == "gone":
            return LogGoneError(problem.text)
        if problem.kind == "run":
            return EngineFailedError(f"SQL: {problem.text}")
        if problem.kind == "memory":
            return InvalidInputError(f"SQL: {self._memory_text()} The engine said: {problem.text}")
        if problem.kind == "row":
            return InvalidInputError(
                f"SQL: a row of the result has {problem.text} bytes, expected at most {limits.row_bytes}, the limit of "
                "query.sql_row_bytes_max. Ask for fewer or shorter columns."
            )
        return InvalidInputError(f"SQL: {problem.text}")

    def _memory_text(self) -> str:
        limits = self._limits
        return (
            f"the query needs more memory than it may take, {limits.engine_bytes} bytes in the engine "
            f"(query.sql_memory_bytes) and {limits.process_bytes} in its process (query.sql_process_bytes_max), and "
            f"{limits.spill_bytes} bytes of temporary files (query.sql_spill_bytes_max)."
        )

    def _timeout_error(self) -> InvalidInputError:
        return InvalidInputError(
            f"SQL: stopped after {self._limits.seconds:g} seconds, the limit of query.sql_seconds_max or --timeout."
        )

    def _end_error(self) -> InvalidInputError:
        """Return why the process ended without an answer."""
        # Negative where a signal ended the watchdog itself.
        code = abs(self._process.wait())
        if code == watchdog.SPILLED:
            return InvalidInputError(
                f"SQL: the query spills more than {self._limits.spill_bytes} bytes to disk, the limit of "
                f"query.sql_spill_bytes_max, because it needs more memory than {self._limits.engine_bytes} bytes "
                "(query.sql_memory_bytes)."
            )
        # The watchdog adds this to the number of the signal that ended the engine.
        code %= _SIGNALS_FROM
        if code == signal.SIGXCPU:
            return self._timeout_error()
        self._stderr.seek(max(self._stderr.seek(0, os.SEEK_END) - _STDERR_BYTES, 0))
        message = " ".join(self._stderr.read().decode(errors="replace").split())
        how = signal.Signals(code).name if code in set(signal.Signals) else f"exit code {code}"
        return InvalidInputError(
            f"SQL: the engine's process ended by {how} before the answer did. Most often {self._memory_text()}"
            + (f" It said: {message}" if message else "")
        )


def _end(process: subprocess.Popen[bytes], memory: int, stderr: IO[bytes], spill: Path) -> None:
    """End a process, wait for it, and remove what it spilled; the watchdog does the same where no client is left."""
    with contextlib.suppress(OSError):
        # The end of the control pipe tells the watchdog to end the engine.
        cast(BinaryIO, process.stdin).close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        # The engine dies with the watchdog.
        process.kill()
        process.wait()
    with cast(BinaryIO, process.stdout) as results:
        # The engine holds the other end: once that is closed, nothing is spilled any more and the removal is final.
        while select.select([results], [], [], _END_SECONDS)[0] and os.read(results.fileno(), 1 << 20):
            pass
    shutil.rmtree(spill, ignore_errors=True)  # noqa: TID251 - a temporary folder needs no durability
    os.close(memory)
    stderr.close()
