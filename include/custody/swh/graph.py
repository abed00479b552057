"""A graph as tables: nodes, edges, timestamps and origins, each one file or a folder of files, Parquet or ORC.

The tables are those of a Software Heritage export with the ids of one graph build. Columns that are not named here are
allowed and not looked at. The layout is described in docs/swh.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import orc

from custody.errors import InvalidInputError, NotFoundError, StorageError
from custody.swh.swhid import HASH_BYTES
from custody.vfs import FileSystem

FORMATS = ("parquet", "orc")
GRAPH_DESCRIPTION = "graph.json"
"""The file beside the tables that says of which version they are; a graph may lack it."""


class GraphDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Which graph the tables hold."""

    version: str = ""
    """Name of the version of the graph whose ids they use."""
    source: str = ""
    """Where they were made from."""


_DESCRIPTION = msgspec.json.Decoder(GraphDescription)


# The end of a Parquet or ORC file, with the statistics of its columns.
_FOOTER_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Column:
    """The requirement on a column: a text for messages and the test of an Arrow type."""

    expected: str
    fits: Callable[[pa.DataType], bool]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


_ID = Column("int64 or uint64", lambda kind: kind in (pa.int64(), pa.uint64()))
_SECONDS = Column("int64, seconds since the epoch", lambda kind: kind == pa.int64())
_TYPE = Column("string", _is_text)
_TEXT = Column("string", _is_text)
_HASH = Column(f"binary of {HASH_BYTES} bytes", lambda kind: kind == pa.binary(HASH_BYTES) or _is_binary(kind))
_NAME = Column("binary or string", lambda kind: _is_text(kind) or _is_binary(kind))

TABLES: Mapping[str, Mapping[str, Column]] = MappingProxyType(
    {
        "nodes": {"id": _ID, "type": _TYPE, "sha1_git": _HASH},
        "edges": {"src": _ID, "dst": _ID, "src_type": _TYPE, "dst_type": _TYPE, "name": _NAME},
        "timestamps": {"id": _ID, "author_ts": _SECONDS},
        "origins": {"id": _ID, "url": _TEXT},
    }
)
"""The columns of each table that are read."""


GRAPH_SCHEMAS: Mapping[str, pa.Schema] = {
    "nodes": pa.schema([("id", pa.int64()), ("type", pa.string()), ("sha1_git", pa.binary(HASH_BYTES))]),
    "edges": pa.schema(
        [
            ("src", pa.int64()),
            ("dst", pa.int64()),
            ("src_type", pa.string()),
            ("dst_type", pa.string()),
            ("name", pa.binary()),
        ]
    ),
    "timestamps": pa.schema([("id", pa.int64()), ("author_ts", pa.int64()), ("committer_ts", pa.int64())]),
    "origins": pa.schema([("id", pa.int64()), ("url", pa.string())]),
}
"""The tables as an import writes them."""


@dataclass(frozen=True, slots=True)
class GraphTable:
    """One table of a graph: its files, in the order of their names, and the types of the columns that are read."""

    name: str
    format: str
    files: tuple[Path, ...]
    types: Mapping[str, pa.DataType]

    def dataset(self) -> ds.Dataset:
        """Return the table for pyarrow."""
        return ds.dataset([str(file) for file in self.files], format=self.format)

    def rows(self) -> int:
        """Return how many rows it has, from the footers of its files."""
        if self.format == "parquet":
            return sum(pq.read_metadata(file).num_rows for file in self.files)
        return sum(orc.ORCFile(file).nrows for file in self.files)

    def size(self, fs: FileSystem) -> int:
        """Return how many bytes its files have."""
        return sum(map(fs.size, self.files))


@dataclass(frozen=True, slots=True)
class Graph:
    """The tables of one graph build."""

    folder: Path
    tables: Mapping[str, GraphTable]
    version: str = ""
    """Name of the version of the graph; empty where nothing names it."""

    def fingerprint(self, fs: FileSystem) -> str:
        """Return what changes when a file of the graph is exchanged: a digest of names, sizes, times and footers."""
        digest = hashlib.sha256()
        for table in self.tables.values():
            for file in table.files:
                # Not all bytes: a graph may be hundreds of gigabytes. Size and time alone do not tell a file from one
                # that takes its place within a tick of the clock.
                digest.update(f"{table.name} {file.name} {fs.size(file)} {fs.modified_ms(file)}\n".encode())
                digest.update(fs.view(file)[-_FOOTER_BYTES:])
        return digest.hexdigest()


def open_graph(fs: FileSystem, folder: Path) -> Graph:
    """Find the tables of a graph and check the columns of every file; no row is read.

    Raises:
        NotFoundError: a table is not there.
        InvalidInputError: a file is no Parquet or ORC, lacks a column, or has one of another type.
    """
    tables = MappingProxyType({name: _open_table(fs, folder, name) for name in TABLES})
    return Graph(folder, tables, _version(fs, folder / GRAPH_DESCRIPTION))


def _version(fs: FileSystem, path: Path) -> str:
    if not fs.exists(path):
        return ""
    try:
        return _DESCRIPTION.decode(fs.read(path)).version
    except msgspec.DecodeError as error:
        raise InvalidInputError(f"{path}: expected an object with the key version, got: {error}.") from error


def _open_table(fs: FileSystem, folder: Path, name: str) -> GraphTable:
    kind, files = _files(fs, folder, name)
    types: dict[str, pa.DataType] = {}
    for file in files:
        schema = _schema(file, kind)
        for column, rule in TABLES[name].items():
            types[column] = _checked(file, schema, column, rule, types.get(column))
    return GraphTable(name, kind, tuple(files), MappingProxyType(types))


def _files(fs: FileSystem, folder: Path, name: str) -> tuple[str, list[Path]]:
    # Parquet before ORC, a file before a folder: where there are several, the first one counts.
    for kind in FORMATS:
        single = folder / f"{name}.{kind}"
        if fs.exists(single) and not fs.is_directory(single):
            return kind, [single]
        several = [folder / name / file for file in fs.list(folder / name) if file.endswith(f".{kind}")]
        if several:
            return kind, several
    raise NotFoundError(
        f"graph {folder}: expected the table {name} as {name}.parquet, {name}.orc, or a folder {name} of such files, "
        f"found none. A graph of a git repository of your own is made by: custody swh import-git."
    )


def _schema(file: Path, kind: str) -> pa.Schema:
    try:
        return pq.read_schema(file) if kind == "parquet" else orc.ORCFile(file).schema
    except OSError as error:
        raise StorageError(f"{file}: cannot be read: {error}") from error
    except (pa.ArrowException, ValueError) as error:
        raise InvalidInputError(f"{file}: expected a {kind} file, got something else ({error}).") from error


def _checked(file: Path, schema: pa.Schema, name: str, rule: Column, before: pa.DataType | None) -> pa.DataType:
    if name not in schema.names:
        raise InvalidInputError(f"{file}: expected a column {name!r} ({rule.expected}), found {schema.names}.")
    kind = schema.field(name).type
    if not rule.fits(kind):
        raise InvalidInputError(f"{file}: column {name!r}: expected {rule.expected}, got {kind}.")
    if before is not None and kind != before:
        raise InvalidInputError(f"{file}: column {name!r}: expected {before} as in the files before it, got {kind}.")
    return kind
