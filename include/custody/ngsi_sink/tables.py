"""Hive tables of destinations: notes of the tables that are pending, and the pass that makes them.

A destination is noted on disk before its batch is written, and the note is removed once its table exists. So neither a
crash nor a Hive that is away costs a table: the next run makes the tables of all notes. Tables are extras: one that
cannot be made is reported and fails no batch. Who makes them is a `TableMaker`: a HiveServer2
(`custody.ngsi_sink.hive_server`), or Spark (`custody.spark.hive`).
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from custody.errors import CorruptionError, CustodyError
from custody.ngsi.hive import HiveTable, hive_table, not_a_place, unreadable_columns
from custody.ngsi.naming import Destination
from custody.ngsi.parameters import Parameters
from custody.ngsi.rendering import ColumnsByLocation
from custody.ngsi_sink.target import Target
from custody.vfs import FileSystem

_NOTES = "tables"
_ANSWER_SECONDS_MAX = 5.0
_COLUMNS_SHOWN = 10
_DESTINATION = msgspec.json.Decoder(Destination)


@dataclass(frozen=True, slots=True)
class TablesReport:
    """The result for the pending tables: how many were made, and how many wait."""

    made: int = 0
    """New tables."""
    extended: int = 0
    """Tables that got columns."""
    waiting: int = 0
    """Tables that could not be made; they are tried again with the next batch."""
    problems: tuple[str, ...] = ()


class TablesUnavailableError(CustodyError):
    """Hive does not answer: tables wait until it does."""

    hint = "Mend Hive, and run the sink again."


class TableMaker(Protocol):
    """What makes tables."""

    def definition(self, destination: Destination, columns: ColumnsByLocation) -> HiveTable:
        """Return the table of a destination; `columns` are those of attributes, in the column modes."""
        ...

    def ensure(self, table: HiveTable) -> tuple[bool, bool]:
        """Make a table, or bring it to its columns; return whether it is new and whether it got some.

        Raises:
            TablesUnavailableError: Hive is away.
            Exception: this table cannot be made.
        """
        ...


class PendingTables:
    """The notes of tables that are to be made or extended: one file each, in a folder."""

    def __init__(self, fs: FileSystem, folder: Path) -> None:
        self._fs = fs
        self._folder = folder / _NOTES

    def note(self, destinations: Iterable[Destination]) -> None:
        """Remember destinations whose tables are to be made or looked at.

        Durability: on return they are remembered, also after power loss.
        """
        self._fs.make_directory(self._folder)
        for destination in destinations:
            path = self._path(destination)
            # Every batch notes its destinations; while a note is there only the first one costs a sync.
            if not self._fs.exists(path):
                self._fs.write_durably(path, msgspec.json.encode(destination))

    def all(self) -> list[Destination]:
        """Return the destinations that were noted and are not done.

        Raises:
            CorruptionError: a note cannot be read; without it its table comes with the next batch of its destination.
        """
        destinations = []
        for name in self._fs.list(self._folder):
            path = self._folder / name
            # A note that is still being written, or was when a crash came, has a temporary name.
            if path.suffix != ".json":
                continue
            try:
                destinations.append(_DESTINATION.decode(self._fs.read(path)))
            except msgspec.DecodeError as error:
                raise CorruptionError(f"{path}: expected a destination, got {error}. Remove the file.") from error
        return destinations

    def done(self, destination: Destination) -> None:
        """Remove the note of a destination: its table exists."""
        # Not synced: a note that comes back after a power loss costs one more look at a table that exists.
        self._fs.remove(self._path(destination))

    def _path(self, destination: Destination) -> Path:
        # A destination whose files are separated by time has one table, so one note.
        key = f"{destination.database}.{destination.table}".encode()
        return self._folder / f"{hashlib.sha256(key).hexdigest()}.json"


def ensure_pending(pending: PendingTables, maker: TableMaker, columns: ColumnsByLocation) -> TablesReport:
    """Make the tables of all notes, or bring them to their columns; nothing is raised for one that cannot be made."""
    created = extended = 0
    problems: list[str] = []
    for destination in pending.all():
        table = maker.definition(destination, columns)
        name = f"{table.database}.{table.name}"
        if reason := not_a_place(table.location):
            # No retry can help: it is reported again each time that its destination gets data.
            problems.append(f"{name}: no table at {reason}")
            pending.done(destination)
            continue
        try:
            is_new, is_longer = maker.ensure(table)
        except TablesUnavailableError as error:
            # The others would wait as long for the same answer.
            problems.append(str(error))
            break
        except Exception as error:  # noqa: BLE001 - clients raise errors of many kinds; this table waits, the others are made
            problems.append(f"{name}: {_first_line(error)}")
            continue
        # After the table exists: a crash in between costs one more look at it.
        pending.done(destination)
        created, extended = created + is_new, extended + is_longer
        if (is_new or is_longer) and (unreadable := unreadable_columns(table, columns.get(destination.location, ()))):
            problems.append(
                f"{name}: Hive's reader of JSON does not find {', '.join(map(repr, unreadable))[:300]}: no column "
                "can be called so, or another attribute differs in case only. Choose another ngsi.file_format to "
                "query them."
            )
    return TablesReport(created, extended, len(pending.all()), tuple(problems))


def other_columns(table: HiveTable, had: Sequence[str]) -> str | None:
    """Return why a table with these columns is not that of a destination, None where it is or only lacks some."""
    existing = [name.lower() for name in had]
    names = [name.lower() for name, _ in table.columns]
    # Columns are only ever added at the end: those of a table of ours are the first ones of the destination's.
    if existing == names[: len(existing)]:
        return None
    # The first ones that differ: a table of the column modes may have hundreds.
    pairs = enumerate(zip(existing, names, strict=False))
    first = next((place for place, (one, other) in pairs if one != other), len(names))
    return (
        f"expected a table with the columns {_listed(names, first)}, got {_listed(existing, first)}. "
        "See who else made a table of this name; drop or rename it."
    )


def _listed(names: Sequence[str], first: int) -> str:
    start = max(0, first - 1)
    shown = ", ".join(names[start : start + _COLUMNS_SHOWN]) or "none"
    return f"{'…, ' if start else ''}{shown}{', …' if len(names) > start + _COLUMNS_SHOWN else ''}"


def spark_table(
    destination: Destination, parameters: Parameters, columns: ColumnsByLocation, target: Target
) -> HiveTable:
    """Return the table of a destination as Spark makes it, at the place of its files.

    `columns` are those of attributes, by location, in the column modes. The dialect is Spark's unless the settings say
    otherwise: the SerDe of `hive` for JSON is not in Spark, and its delimited fields do not read back.
    """
    dialect = parameters.values.hive_dialect_used
    spark_parameters = replace(parameters, values=parameters.values.model_copy(update={"hive_dialect": dialect}))
    return hive_table(
        destination,
        spark_parameters,
        attributes=columns.get(destination.location, ()),
        location=location(destination, parameters, target),
    )


def location(destination: Destination, parameters: Parameters, target: Target) -> str:
    """Return the folder of a destination with its file system, as Spark takes it: not encoded.

    Spark does not read all of `webhdfs`: with a REST backend the place is that of `ngsi.hive_location`, without one
    that of Spark's own file system (`spark.hadoop.fs.defaultFS`).
    """
    values = parameters.values
    if values.hive_location is not None:
        return f"{values.hive_location.rstrip('/')}{destination.location}"
    if values.backend == "rest":
        return destination.location
    return unquote(target.uri(destination.location))


def metastore_problem(parameters: Parameters) -> str | None:
    """Return why the metastore of the settings cannot be reached, None where it answers or is the embedded one.

    A connection is tried here first, for Hive's client would try for minutes.
    """
    uris = parameters.values.hive_metastore_uri
    if uris is None:
        return None
    reasons = [silence(urlsplit(uri).hostname or "", urlsplit(uri).port or 0) for uri in uris.split(",")]
    return None if None in reasons else f"metastore: {'; '.join(str(reason) for reason in reasons)}"


def hive_server_problem(parameters: Parameters) -> str | None:
    """Return why a HiveServer2 that is named beside a metastore cannot be reached, None where it answers or none is.

    Only people need it: it reads the tables of a metastore that it shares with Spark.
    """
    values = parameters.values
    if values.hive_metastore_uri is None or not {"hive_host", "hive_port"} & values.model_fields_set:
        return None
    reason = silence(values.hive_host, values.hive_port)
    return None if reason is None else f"HiveServer{values.hive_server_version}: {reason}"


def silence(host: str, port: int) -> str | None:
    """Return why a host does not answer at a port, None where it does."""
    try:
        with socket.create_connection((host, port), timeout=_ANSWER_SECONDS_MAX):
            return None
    except OSError as error:
        return f"{host}:{port} does not answer ({error})"


def _first_line(error: Exception) -> str:
    if isinstance(error, CustodyError):
        return str(error)
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
