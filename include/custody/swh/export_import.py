"""The import of Software Heritage's graph export: its ORC (or Parquet) tables become a graph of nodes and edges.

The export is read as it is published: a folder for each table with any number of files in it, hashes as hexadecimal
text, and no ids of nodes. The ids come from the files of the compressed graph where those are given
(`<prefix>.node2swhid.bin`), so that the tables share ids with that version of swh-graph; else they are given out in the
order of the identifiers. Dates come from the compressed graph, too, where it has them.

Rows stream through DuckDB, which joins hashes with ids and goes to disk where its memory ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc

from custody.errors import ConflictError, InvalidInputError, NotFoundError, StorageError
from custody.swh.graph import FORMATS, GRAPH_DESCRIPTION, GRAPH_SCHEMAS, GraphDescription
from custody.swh.swhid import HASH_BYTES, ObjectType
from custody.vfs import FileSystem, temporary

if TYPE_CHECKING:
    import duckdb

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "content": ("sha1_git",),
    "skipped_content": ("sha1_git",),
    "directory": ("id",),
    "directory_entry": ("directory_id", "name", "type", "target"),
    "revision": ("id", "date", "committer_date", "directory"),
    "revision_history": ("id", "parent_id"),
    "release": ("id", "date", "target", "target_type"),
    "snapshot": ("id",),
    "snapshot_branch": ("snapshot_id", "name", "target", "target_type"),
    "origin": ("url",),
    "origin_visit_status": ("origin", "snapshot"),
}
"""The tables of an export, and their columns that are read."""
_MAY_LACK = frozenset({"skipped_content"})
"""Tables that an old export does not have."""
_HEXADECIMAL = 2 * HASH_BYTES
_TYPES: tuple[ObjectType, ...] = (
    ObjectType.CONTENT,
    ObjectType.DIRECTORY,
    ObjectType.ORIGIN,
    ObjectType.RELEASE,
    ObjectType.REVISION,
    ObjectType.SNAPSHOT,
)
"""Types of nodes by swh-graph's numbers."""
_NODE = np.dtype([("version", "u1"), ("type", "u1"), ("sha1_git", f"V{HASH_BYTES}")])
"""A node in `node2swhid.bin`."""
_NO_DATE = np.iinfo(np.int64).min
_BATCH_ROWS = 1 << 18
_NODES_AT_ONCE = 1 << 20
_NAMES = "CASE {0} WHEN 'file' THEN 'cnt' WHEN 'content' THEN 'cnt' WHEN 'directory' THEN 'dir' " + (
    "WHEN 'revision' THEN 'rev' WHEN 'release' THEN 'rel' WHEN 'snapshot' THEN 'snp' ELSE {0} END"
)
# Every edge by the identifiers of its ends. An alias is a branch's other name, and no edge.
_EDGES: Mapping[str, str] = {
    "directory_entry": f"SELECT 'dir', directory_id, {_NAMES.format('type')}, target, name FROM part",
    "revision": "SELECT 'rev', id, 'dir', directory, NULL::BLOB FROM part WHERE directory IS NOT NULL",
    "revision_history": "SELECT 'rev', id, 'rev', parent_id, NULL::BLOB FROM part",
    "release": f"SELECT 'rel', id, {_NAMES.format('target_type')}, target, NULL::BLOB FROM part "
    "WHERE target IS NOT NULL",
    "snapshot_branch": f"SELECT 'snp', snapshot_id, {_NAMES.format('target_type')}, target, name FROM part "
    "WHERE target IS NOT NULL AND target_type <> 'alias'",
    "origin_visit_status": "SELECT DISTINCT 'ori', sha1(origin), 'snp', snapshot, NULL::BLOB FROM part "
    "WHERE snapshot IS NOT NULL",
}
_NODES: Mapping[str, str] = {
    "content": "SELECT 'cnt', sha1_git FROM part WHERE sha1_git IS NOT NULL",
    "skipped_content": "SELECT 'cnt', sha1_git FROM part WHERE sha1_git IS NOT NULL",
    "directory": "SELECT 'dir', id FROM part",
    "revision": "SELECT 'rev', id FROM part",
    "release": "SELECT 'rel', id FROM part",
    "snapshot": "SELECT 'snp', id FROM part",
    "origin": "SELECT 'ori', sha1(url) FROM part",
}


@dataclass(frozen=True, slots=True)
class ImportedExport:
    """The size of an imported graph, and what was left out of it."""

    nodes: int
    edges: int
    revisions: int
    """Revisions and releases."""
    origins: int
    absent: int
    """Edges from or to a node that the compressed graph does not have: the two are of different versions."""
    version: str


def import_export(
    fs: FileSystem,
    export: Path,
    out: Path,
    *,
    version: str,
    compressed: Path | None = None,
    memory_bytes: int = 4 << 30,
    threads: int = 2,
) -> ImportedExport:
    """Write the graph of an export to the new folder `out`.

    Args:
        fs: takes the graph.
        export: the folder that has a folder for each table.
        out: the graph's folder.
        version: name of this version of the graph; the tables of a build and the catalog carry it.
        compressed: prefix of the files of the compressed graph, such as `graph/2024-12-06/compressed/graph`.
        memory_bytes: what the joins may use before they go to disk, beside `out`.
        threads: of the joins.

    Durability: on return the graph survives power loss. Before, `out` does not exist.

    Raises:
        ConflictError: `out` exists.
        NotFoundError: a table, or a file of the compressed graph, is not there.
        InvalidInputError: a file cannot be read as its ending says, lacks a column, or has a hash that is none.
    """
    if fs.exists(out):
        raise ConflictError(f"{out}: expected a folder that does not exist yet. Choose another one.")
    tables = {name: _files(fs, export, name) for name in _COLUMNS}
    fs.make_directory(out.parent)
    draft = temporary(out)
    fs.add_directory(draft)
    try:
        with _Joins(draft / "spill", memory_bytes, threads) as joins:
            joins.load(tables)
            joins.number(None if compressed is None else _identifiers(fs, compressed))
            dates = None if compressed is None else _dates(fs, compressed)
            imported = _write(fs, draft, joins, dates, version)
        fs.remove_tree(draft / "spill")
        description = GraphDescription(version=version, source=str(export))
        fs.write_durably(draft / GRAPH_DESCRIPTION, msgspec.json.format(msgspec.json.encode(description), indent=1))
        fs.sync_directory(draft)
        fs.rename(draft, out)
    except BaseException:
        fs.remove_tree(draft)
        raise
    fs.sync_directory(out.parent)
    return imported


def _files(fs: FileSystem, export: Path, table: str) -> list[Path]:
    """Return the files of a table."""
    folder = export / table
    for form in FORMATS:
        names = [name for name in fs.list(folder) if name.endswith(f".{form}")]
        if names:
            return [folder / name for name in names]
    if table in _MAY_LACK:
        return []
    raise NotFoundError(
        f"export {export}: expected a folder {table} of .orc or .parquet files, found none. The export has a folder "
        f"for each of {', '.join(_COLUMNS)}; fetch it whole, for example with `aws s3 sync`."
    )


def _batches(file: Path, table: str) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a file that are read, some rows at a time."""
    columns = list(_COLUMNS[table])
    try:
        if file.suffix == ".orc":
            source = orc.ORCFile(file)
            _require(file, source.schema.names, columns)
            for number in range(source.nstripes):
                yield _plain(file, source.read_stripe(number, columns))
        else:
            parquet = pq.ParquetFile(file)
            _require(file, parquet.schema_arrow.names, columns)
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=columns):
                yield _plain(file, batch)
    except (pa.ArrowException, ValueError, OSError) as error:
        if isinstance(error, InvalidInputError):
            raise
        form = file.suffix[1:]
        raise InvalidInputError(f"{file}: expected a whole {form} file, got: {error}. Fetch it anew.") from error


def _require(file: Path, names: Sequence[str], columns: Sequence[str]) -> None:
    for column in columns:
        if column not in names:
            raise InvalidInputError(f"{file}: expected a column {column!r}, found {', '.join(names)}.")


def _plain(file: Path, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose times are seconds and whose texts are texts."""
    names, arrays = batch.schema.names, list(batch.columns)
    for place, (name, array) in enumerate(zip(names, arrays, strict=True)):
        if pa.types.is_timestamp(array.type):
            seconds = np.floor_divide(array.cast(pa.timestamp("ns")).cast(pa.int64()).fill_null(0), 1_000_000_000)
            arrays[place] = pa.array(seconds, pa.int64(), mask=np.asarray(array.is_null()))
        elif pa.types.is_struct(array.type) and array.type.get_field_index("seconds") >= 0:
            # The export in Parquet keeps seconds and microseconds apart.
            seconds = pc.if_else(array.is_valid(), array.field("seconds").cast(pa.int64()), None)
            arrays[place] = seconds
        elif name != "name" and not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
            raise InvalidInputError(f"{file}: column {name!r}: expected text, got {array.type}.")
    return pa.record_batch(arrays, names=names)


def _identifiers(fs: FileSystem, prefix: Path) -> np.ndarray:
    """Return the nodes of a compressed graph in the order of their ids, mapped."""
    path = prefix.with_name(prefix.name + ".node2swhid.bin")
    data = _mapped(fs, path)
    if len(data) % _NODE.itemsize:
        raise InvalidInputError(
            f"{path}: expected {_NODE.itemsize} bytes a node, got {len(data)} in all. Fetch it anew."
        )
    nodes = np.frombuffer(data, _NODE)
    if (len(nodes) and (nodes["version"] != 1).any()) or (len(nodes) and nodes["type"].max() >= len(_TYPES)):
        raise InvalidInputError(f"{path}: expected identifiers of version 1 and types 0 to 5, got others.")
    return nodes


def _dates(fs: FileSystem, prefix: Path) -> Mapping[str, np.ndarray]:
    """Return the dates of all nodes by the column that they become, big-endian seconds, mapped."""
    dates = {}
    for column, name in (("author_ts", "author_timestamp"), ("committer_ts", "committer_timestamp")):
        path = prefix.with_name(f"{prefix.name}.property.{name}.bin")
        dates[column] = np.frombuffer(_mapped(fs, path), ">i8")
    return dates


def _mapped(fs: FileSystem, path: Path) -> memoryview:
    if not fs.exists(path):
        raise NotFoundError(
            f"{path}: expected a file of the compressed graph, found none. Give the prefix of its files, such as "
            "compressed/graph for compressed/graph.node2swhid.bin."
        )
    return fs.view(path)


class _Joins:
    """The nodes and edges of an export in DuckDB."""

    def __init__(self, spill: Path, memory_bytes: int, threads: int) -> None:
        self._settings: dict[str, Any] = {
            "memory_limit": f"{memory_bytes // (1 << 20)}MiB",
            "threads": threads,
            "temp_directory": str(spill),
            "preserve_insertion_order": "false",
        }
        self._file = spill.with_name("joins.duckdb")
        self._connection: duckdb.DuckDBPyConnection

    def __enter__(self) -> _Joins:
        import duckdb

        self._connection = duckdb.connect(str(self._file), config=self._settings)
        self._connection.execute("CREATE TABLE known (type VARCHAR, hash BLOB)")
        self._connection.execute(
            "CREATE TABLE arcs (src_type VARCHAR, src BLOB, dst_type VARCHAR, dst BLOB, name BLOB)"
        )
        self._connection.execute("CREATE TABLE dates (type VARCHAR, hash BLOB, author_ts BIGINT, committer_ts BIGINT)")
        self._connection.execute("CREATE TABLE urls (hash BLOB, url VARCHAR)")
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._file.unlink(missing_ok=True)

    def load(self, tables: Mapping[str, Sequence[Path]]) -> None:
        """Read all tables, a file at a time."""
        for table, files in tables.items():
            for file in files:
                for batch in _batches(file, table):
                    self._add(table, file, batch)

    def number(self, identifiers: np.ndarray | None) -> None:
        """Give the nodes their ids."""
        run = self._connection.execute
        if identifiers is None:
            # Targets, too: an object that the archive only heard of is a node of the graph.
            run(
                "CREATE TABLE nodes AS SELECT (row_number() OVER (ORDER BY type, hash)) - 1 AS id, type, hash FROM "
                "(SELECT DISTINCT type, hash FROM (SELECT type, hash FROM known UNION ALL "
                "SELECT src_type, src FROM arcs UNION ALL SELECT dst_type, dst FROM arcs))"
            )
            return
        run("CREATE TABLE nodes (id BIGINT, type VARCHAR, hash BLOB)")
        names = np.array([str(kind) for kind in _TYPES], object)
        for start in range(0, len(identifiers), _NODES_AT_ONCE):
            piece = identifiers[start : start + _NODES_AT_ONCE]
            hashes = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(HASH_BYTES), len(piece), [None, pa.py_buffer(piece["sha1_git"].tobytes())]
            )
            columns = {"id": np.arange(start, start + len(piece)), "type": names[piece["type"]]}
            part = pa.table({**columns, "hash": hashes.cast(pa.binary())})
            self._connection.register("part", part)
            run("INSERT INTO nodes SELECT id, type, hash FROM part")
            self._connection.unregister("part")

    def query(self, text: str) -> Iterator[pa.RecordBatch]:
        """Yield the batches of an answer."""
        yield from self._connection.sql(text).to_arrow_reader(_BATCH_ROWS)

    def count(self, text: str) -> int:
        """Return the one number of an answer."""
        row = self._connection.execute(text).fetchone()
        return int(row[0]) if row else 0

    def _add(self, table: str, file: Path, batch: pa.RecordBatch) -> None:
        import duckdb

        self._connection.register("part", pa.Table.from_batches([batch]))
        try:
            if table in _NODES:
                self._connection.execute(f"INSERT INTO known SELECT a, {_hash('b')} FROM ({_NODES[table]}) AS t(a, b)")
            if table in _EDGES:
                self._connection.execute(
                    f"INSERT INTO arcs SELECT a, {_hash('b')}, c, {_hash('d')}, e "
                    f"FROM ({_EDGES[table]}) AS t(a, b, c, d, e)"
                )
            if table in ("revision", "release"):
                committer = "committer_date" if table == "revision" else "NULL::BIGINT"
                self._connection.execute(
                    f"INSERT INTO dates SELECT '{table[:3]}', {_hash('id')}, date, {committer} FROM part"
                )
            if table == "origin":
                self._connection.execute("INSERT INTO urls SELECT DISTINCT unhex(sha1(url)), url FROM part")
        except (duckdb.InvalidInputException, duckdb.ConversionException) as error:
            raise InvalidInputError(
                f"{file}: expected hashes of {_HEXADECIMAL} hexadecimal digits, got: {str(error)[:200]}"
            ) from error
        except duckdb.Error as error:
            raise StorageError(f"{file}: could not be joined: {str(error)[:500]}") from error
        finally:
            self._connection.unregister("part")


def _hash(column: str) -> str:
    """Return the SQL for the bytes of a hash; another text is an error of the query."""
    return (
        f"CASE WHEN length({column}) = {_HEXADECIMAL} THEN unhex({column}) "
        f"ELSE error('a hash of ' || coalesce(length({column}), 0) || ' characters') END"
    )


_JOINED = (
    "FROM arcs JOIN nodes s ON s.type = src_type AND s.hash = src JOIN nodes d ON d.type = dst_type AND d.hash = dst"
)
_ANSWERS = {
    "nodes": "SELECT id, type, hash FROM nodes ORDER BY id",
    "edges": f"SELECT s.id, d.id, src_type, dst_type, coalesce(name, ''::BLOB) {_JOINED}",
    "timestamps": "SELECT n.id, d.author_ts, d.committer_ts FROM dates d "
    "JOIN nodes n ON n.type = d.type AND n.hash = d.hash",
    "origins": "SELECT n.id, u.url FROM urls u JOIN nodes n ON n.type = 'ori' AND n.hash = u.hash",
}


def _write(
    fs: FileSystem, folder: Path, joins: _Joins, dates: Mapping[str, np.ndarray] | None, version: str
) -> ImportedExport:
    rows = {}
    for name, text in _ANSWERS.items():
        schema = GRAPH_SCHEMAS[name].with_metadata({"graph_version": version})
        rows[name] = 0
        with (
            fs.create(folder / f"{name}.parquet") as file,
            pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer,
        ):
            for batch in joins.query(text):
                columns = [column.cast(kind) for column, kind in zip(batch.columns, schema.types, strict=True)]
                if name == "timestamps" and dates is not None:
                    columns[1:] = _dated(columns[0], dates)
                writer.write_batch(pa.record_batch(columns, schema=schema))
                rows[name] += batch.num_rows
            writer.close()
            file.sync()
    absent = joins.count("SELECT count(*) FROM arcs") - rows["edges"]
    return ImportedExport(rows["nodes"], rows["edges"], rows["timestamps"], rows["origins"], absent, version)


def _dated(ids: pa.Array, dates: Mapping[str, np.ndarray]) -> list[pa.Array]:
    """Return the dates that a compressed graph has of some nodes."""
    places = ids.to_numpy()
    chosen = [dates[name][places].astype(np.int64) for name in ("author_ts", "committer_ts")]
    return [pa.array(values, pa.int64(), mask=values == _NO_DATE) for values in chosen]
