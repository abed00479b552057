"""The SQL engine's process: one query, run by DuckDB over logs that Arrow scans.

Nothing of a repository is known here. The events are one data set of columns: all logs, with the checksums of their
pages verified, and the live tail, without the events that must not be given out. The process takes from itself,
before it reads the query, what it may not use: memory, time, files, network and extensions.
"""

from __future__ import annotations

import mmap
import os
import re
import resource
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from custody.model.masking import AttributeMask
from custody.sql.allowed import QueryRefusedError, read_query
from custody.sql.masked import MaskedDataset
from custody.sql.protocol import (
    END,
    FRAME_BYTES,
    NAMES,
    PROBLEM,
    ROWS,
    SCHEMA,
    EngineLimits,
    EngineProblem,
    LogPart,
    QueryInput,
    StoredTable,
    read_input,
    receive_frame,
    send_frame,
)
from custody.vfs.mapped import map_file

_TIME = pa.timestamp("ms", tz="UTC")
PARQUET_FORMAT = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)
_BATCH_ROWS = 2048
_STACK_BYTES = 8 << 20
# Besides the pools of DuckDB and Arrow, which have a thread for each core.
_THREADS_BESIDE = 16
# Errors of the text alone: damage to a log causes none of them.
_UNREAD = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException, duckdb.SyntaxException)
_ADVICE = re.compile(r"\n+(?:Possible solutions:|See also ).*", re.DOTALL)  # settings, which are locked
_PLACE = re.compile(r"\n+LINE (\d+): ?([^\n]*)\n( *)\^[^\n]*")
_SHOWN = 40


class LogFileGoneError(Exception):
    """The file of a log is not there any more; the text is its path."""


class _RowError(Exception):
    pass


class _Request(msgspec.Struct):
    text: str
    tables: list[str]
    columns: dict[str, str]
    event_columns: list[str] = []


_REQUEST = msgspec.json.Decoder(_Request)


def run(limits: dict[str, int], spill: str, memory: int) -> int:
    """Answer the query that comes over the control pipe; return the exit code of the process."""
    allowed = msgspec.convert(limits, EngineLimits)
    # Before the query is read, so that nothing of it runs without limits.
    _limit(allowed)
    with os.fdopen(0, "rb") as control, os.fdopen(1, "wb", buffering=1 << 16) as results:
        try:
            _answer(control, results, allowed, spill, memory)
        except (EOFError, BrokenPipeError):
            return 1  # no client waits for the answer
        except Exception as error:  # noqa: BLE001 - whatever it is, the client has to be told
            send_frame(results, PROBLEM, msgspec.json.encode(_problem(error)))
    return 0


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
    # Last: it locks the settings above.
    connection.execute("SET lock_configuration = true")
    return connection


def register(connection: duckdb.DuckDBPyConnection, query_input: QueryInput) -> None:
    """Give the engine the tables that a query may read; it has no others."""
    events, mask = event_dataset(query_input), AttributeMask(query_input.masks)
    connection.register("events", MaskedDataset(events, mask) if mask else events)
    for name, table in query_input.tables.items():
        connection.register(name, table)
    for name, stored in query_input.stored.items():
        connection.register(name, _opened(name, stored))


def event_dataset(query_input: QueryInput) -> ds.Dataset:
    """Return the events that may be given out; filters and projections of a scan reach the files.

    Raises:
        LogFileGoneError: a log expired since it was looked up.
    """
    schema = query_input.tail.schema
    tail = ds.dataset(query_input.tail)
    fragments = [_fragment(part, schema) for part in query_input.logs]
    stored = ds.FileSystemDataset(fragments, schema, PARQUET_FORMAT) if fragments else None
    hidden = [_is_hidden(name.as_py(), query_input.hidden) for name in pc.unique(query_input.hidden.column("writer"))]
    # Only logs have hidden events: the tail comes without them.
    if stored is None:
        return tail
    events = ds.dataset([stored, tail])
    for one in hidden:
        events = events.filter(~one)
    return events


def on_one_line(text: str) -> str:
    """Return a message as one line, with the place that the engine draws below it in words."""
    drawn = _PLACE.search(text)
    place = ""
    if drawn:
        before = len(f"LINE {drawn[1]}: ")
        at = drawn[2][max(len(drawn[3]) - before, 0) :].strip()
        shown = at if len(at) <= _SHOWN else f"{at[:_SHOWN]}…"
        place = f" (line {drawn[1]}, at {shown})" if shown else f" (line {drawn[1]}, at its end)"
        text = text[: drawn.start()] + text[drawn.end() :]
    return " ".join(_ADVICE.sub("", text).split()) + place


def _answer(control: BinaryIO, results: BinaryIO, limits: EngineLimits, spill: str, memory: int) -> None:
    connection = connect(limits, spill)
    request = _REQUEST.decode(receive_frame(control))
    read = read_query(connection, request.text, request.tables, request.columns, request.event_columns)
    send_frame(results, NAMES, msgspec.json.encode(read))
    # Sent before the input comes: the client makes `transactions` only for queries that read it, and leaves out the
    # logs that cannot hold what is asked for.
    register(connection, read_input(receive_frame(control), memory))
    reader = connection.sql(request.text).to_arrow_reader(_BATCH_ROWS)
    send_frame(results, SCHEMA, reader.schema.serialize())
    while (batch := next(reader, None)) is not None:
        for payload in _payloads(batch, limits.row_bytes):
            send_frame(results, ROWS, payload)
    send_frame(results, END, b"")


def _limit(limits: EngineLimits) -> None:
    """Limit the resources of this process, for good.

    Mapped files do not count, memory that is written to does. The stacks of threads count as a whole though next to
    nothing of them is used, so they come on top.
    """
    threads = 2 * (os.cpu_count() or 1) + _THREADS_BESIDE
    data = limits.process_bytes + threads * _STACK_BYTES
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    stack = _STACK_BYTES if hard == resource.RLIM_INFINITY else min(_STACK_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, hard))
    for kind, value in (
        (resource.RLIMIT_DATA, data),
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        # A core file would hold events.
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _payloads(batch: pa.RecordBatch, row_bytes_max: int) -> Iterator[memoryview]:
    """Yield a batch as Arrow streams of about FRAME_BYTES each."""
    if batch.num_rows > 1 and batch.nbytes > FRAME_BYTES:
        # Halved until it fits: rows differ too much in size to count them.
        middle = batch.num_rows // 2
        yield from _payloads(batch.slice(0, middle), row_bytes_max)
        yield from _payloads(batch.slice(middle), row_bytes_max)
        return
    # A single row cannot be halved, and the client holds a whole frame in memory.
    if batch.num_rows == 1 and batch.nbytes > row_bytes_max:
        raise _RowError(batch.nbytes)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    yield memoryview(stream.getvalue())


def _problem(error: Exception) -> EngineProblem:
    text = on_one_line(str(error))
    if isinstance(error, _RowError):
        return EngineProblem("row", text)
    if isinstance(error, LogFileGoneError):
        return EngineProblem("gone", text)
    if isinstance(error, MemoryError | duckdb.OutOfMemoryException):
        return EngineProblem("memory", text)
    if isinstance(error, QueryRefusedError):
        return EngineProblem("query", str(error))
    return EngineProblem("query" if isinstance(error, _UNREAD) else "run", text)


def _opened(name: str, stored: StoredTable) -> ds.Dataset:
    """Open a table by the function that the client named; this room knows nothing of what its files are."""
    module, function = stored.opener.split(":")
    try:
        opened: ds.Dataset = getattr(import_module(module), function)(name, stored.files)
    except FileNotFoundError as error:
        raise LogFileGoneError(str(error.filename)) from error
    return opened


def _is_hidden(writer: str, hidden: pa.Table) -> pc.Expression:
    ids = hidden.filter(pc.equal(hidden.column("writer"), writer)).column("event_id").combine_chunks()
    low, high = pc.min_max(ids).values()
    # The bounds let a log whose ids are outside of them be scanned without a look at each id.
    return (
        (ds.field("writer") == writer)
        & (ds.field("event_id") >= low)
        & (ds.field("event_id") <= high)
        & ds.field("event_id").isin(ids)
    )


def _fragment(part: LogPart, schema: pa.Schema) -> ds.Fragment:
    """Return a log as a part of the data set, with what all its events have in common, so that scans can skip it."""
    common = (
        (ds.field("writer") == part.writer)
        & (ds.field("event_id") >= part.first_event_id)
        & (ds.field("event_id") <= part.last_event_id)
        & (ds.field("event_time") >= pa.scalar(part.first_event_time_ms, _TIME))
        & (ds.field("event_time") <= pa.scalar(part.last_event_time_ms, _TIME))
    )
    for name, value in part.lacks.items():
        common &= ds.field(name) == pa.scalar(value, schema.field(name).type)
    # Mapped once and read from memory, so that the bytes whose footer was checked are those that are scanned.
    source = pa.BufferReader(pa.py_buffer(_mapped(part)))
    return PARQUET_FORMAT.make_fragment(source, partition_expression=common, row_groups=part.blocks)


def _mapped(part: LogPart) -> memoryview | mmap.mmap:
    """Return a log, mapped; one whose footer is damaged is copied, with the footer that it should have."""
    path = Path(os.fsdecode(part.path))
    try:
        data = map_file(path)
    except FileNotFoundError as error:
        raise LogFileGoneError(str(path)) from error
    if part.footer is None:
        return data
    start, footer = part.footer
    whole = mmap.mmap(-1, start + len(footer))
    whole[:start] = data[:start]
    whole[start:] = footer
    return whole
