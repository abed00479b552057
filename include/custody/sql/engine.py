"""The engine's process: one query, run by DuckDB over logs that Arrow scans. Nothing of a repository is known here."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from typing import BinaryIO

import duckdb
import msgspec
import pyarrow as pa

from custody.sql.allowed import RefusedError, names_of
from custody.sql.channel import END, FRAME_BYTES, NAMES, PROBLEM, ROWS, SCHEMA, EngineLimits, Problem, receive, send
from custody.sql.given import Given, read
from custody.sql.scanning import GoneError, events_of
from custody.sql.texts import on_one_line

_BATCH_ROWS = 2048
_STACK_BYTES = 8 << 20
_THREADS_BESIDE = 16
_UNREAD = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException, duckdb.SyntaxException)


def run(limits: dict[str, int], spill: str, memory: int) -> int:
    """Answer the query that comes over the control pipe; return the exit code of the process."""
    allowed = msgspec.convert(limits, EngineLimits)
    _limit(allowed)
    with os.fdopen(0, "rb") as control, os.fdopen(1, "wb", buffering=1 << 16) as results:
        try:
            _answer(control, results, allowed, spill, memory)
        except (EOFError, BrokenPipeError):
            return 1  # nobody waits for the answer
        except Exception as error:  # noqa: BLE001 - whatever it is, who asked has to be told
            send(results, PROBLEM, msgspec.json.encode(_problem(error)))
    return 0


def _answer(control: BinaryIO, results: BinaryIO, limits: EngineLimits, spill: str, memory: int) -> None:
    connection = connect(limits, spill)
    asked = msgspec.json.decode(receive(control), type=_Asked)
    names = names_of(connection, asked.text, asked.tables)
    send(results, NAMES, msgspec.json.encode(sorted(names)))
    register(connection, read(receive(control), memory))
    reader = connection.sql(asked.text).to_arrow_reader(_BATCH_ROWS)
    send(results, SCHEMA, reader.schema.serialize())
    while (batch := next(reader, None)) is not None:
        for payload in _payloads(batch, limits.row_bytes):
            send(results, ROWS, payload)
    send(results, END, b"")


def register(connection: duckdb.DuckDBPyConnection, given: Given) -> None:
    """Give the engine what a query may be asked of; it has no other relation."""
    connection.register("events", events_of(given))
    for name, table in given.tables.items():
        connection.register(name, table)


class _Asked(msgspec.Struct):
    text: str
    tables: list[str]


def _limit(limits: EngineLimits) -> None:
    """Take what the process may not take away from it, for good.

    What is mapped of files does not count, memory that is written to does. The stacks of threads count as a whole
    though next to nothing of them is used, so they come on top.
    """
    threads = 2 * (os.cpu_count() or 1) + _THREADS_BESIDE
    data = limits.process_bytes + threads * _STACK_BYTES
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    stack = _STACK_BYTES if hard == resource.RLIM_INFINITY else min(_STACK_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, hard))
    for kind, value in (
        (resource.RLIMIT_DATA, data),
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def connect(limits: EngineLimits, spill: str) -> duckdb.DuckDBPyConnection:
    """Return an engine that reaches no file, no network and no extension; its settings are locked."""
    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": f"{limits.engine_bytes}B",
            "temp_directory": spill if limits.spill_bytes else "",
            "max_temp_directory_size": f"{limits.spill_bytes}B",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        },
    )
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _payloads(batch: pa.RecordBatch, row_bytes_max: int) -> Iterator[memoryview]:
    """Yield a batch as Arrow streams of about FRAME_BYTES each."""
    if batch.num_rows > 1 and batch.nbytes > FRAME_BYTES:
        middle = batch.num_rows // 2
        yield from _payloads(batch.slice(0, middle), row_bytes_max)
        yield from _payloads(batch.slice(middle), row_bytes_max)
        return
    if batch.num_rows == 1 and batch.nbytes > row_bytes_max:
        raise _RowError(batch.nbytes)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    yield memoryview(stream.getvalue())


class _RowError(Exception):
    pass


def _problem(error: Exception) -> Problem:
    text = on_one_line(str(error))
    if isinstance(error, _RowError):
        return Problem("row", text)
    if isinstance(error, GoneError):
        return Problem("gone", text)
    if isinstance(error, MemoryError | duckdb.OutOfMemoryException):
        return Problem("memory", text)
    if isinstance(error, RefusedError):
        return Problem("query", str(error))
    return Problem("query" if isinstance(error, _UNREAD) else "run", text)
