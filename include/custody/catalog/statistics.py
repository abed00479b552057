"""The table of statistics beside a checkpoint: what a query needs to choose files, as Parquet for any engine.

One row a live file: where it is, what it holds, its footer, and for each column with statistics `min_<column>`,
`max_<column>` and `nulls_<column>`, typed. The table is a copy of what the catalog says elsewhere: when it is lost or
damaged, the same rows are made again from the state, which takes longer. The next table is made from the last one and
from what changed since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from google.protobuf.message import DecodeError

from custody.catalog.codec import decode
from custody.catalog.keys import CatalogObjects
from custody.catalog.state import CatalogState
from custody.catalog.transaction_pb2 import AddFile, FileStatistics, Transaction
from custody.errors import CorruptionError, CustodyError
from custody.format.names import statistics_file
from custody.model.plain_arrays import array_of

_FIXED = pa.schema(
    [
        ("path", pa.string()),
        ("table", pa.string()),
        ("partition", pa.string()),
        ("size_bytes", pa.int64()),
        ("rows", pa.int64()),
        ("first_event_id", pa.int64()),
        ("last_event_id", pa.int64()),
        ("first_event_time", pa.timestamp("ms", tz="UTC")),
        ("last_event_time", pa.timestamp("ms", tz="UTC")),
        ("schema_version", pa.int64()),
        ("schema_fingerprint", pa.binary()),
        ("sha256", pa.binary()),
        ("footer", pa.binary()),
        ("footer_bytes", pa.int64()),
    ]
)
_FOOTER = ("footer", "footer_bytes")
# Keys in the table's footer, part of the format; tables of earlier releases have the first one only.
_KEY = "custody_catalog"
_DIGEST_KEY = "custody_sha256"
_NO_DIGEST = b"0" * 64
_TEXT_OF_64 = b"\x18\x40"
"""How Thrift's compact form begins the value of a pair: its type, and the length 64."""
_EARLIER_KEYS = frozenset({b"ARROW:schema", _KEY.encode()})
_TYPES = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "text": pa.string(),
    "binary": pa.binary(),
    "flag": pa.bool_(),
}


def table_key(objects: CatalogObjects, state: CatalogState) -> str:
    """Return where the table of a state's checkpoint lies."""
    return objects.folder(state.revision) + statistics_file(state.uuid)


def write_statistics(objects: CatalogObjects, state: CatalogState, table: pa.Table) -> None:
    """Write the table of a state beside its checkpoint."""
    sink = pa.BufferOutputStream()
    # Says whose table it is: a table of another revision under this name is not used.
    marked = table.replace_schema_metadata({_KEY: f"{state.catalog_id}:{state.revision}"})
    with pq.ParquetWriter(sink, marked.schema, compression="zstd", write_page_checksum=True) as writer:
        writer.write_table(marked)
        writer.add_key_value_metadata({_DIGEST_KEY: _NO_DIGEST.decode()})
    data = sink.getvalue().to_pybytes()
    start = _digest_place(data)
    # A pyarrow that encodes metadata otherwise would leave a table without its digest: fail here, not in every reader.
    if start is None:
        raise AssertionError(f"{table_key(objects, state)}: pyarrow wrote the metadata in another form")
    # The digest covers the file with zeros in the digest's own place, so that it can stand in the file itself.
    data = data[:start] + hashlib.sha256(data).hexdigest().encode() + data[start + len(_NO_DIGEST) :]
    objects.store.put(table_key(objects, state), data)


def statistics_table(objects: CatalogObjects, state: CatalogState) -> pa.Table:
    """Return the table of a state: rows of the last checkpoint's table that still hold, and new ones for the rest."""
    last = _last_table(objects, state)
    if last is None:
        return rows_of(state.files.values())
    live = array_of(list(state.files), pa.string())
    # Files do not change, so a row holds for as long as its file is live; only new files are decoded.
    reused = last.filter(pc.is_in(last.column("path"), live))
    paths, digests = reused.column("path").to_pylist(), reused.column("sha256").to_pylist()
    changed = state.files.changed_since(dict(zip(paths, digests, strict=True)))
    if changed:  # a log that was mended is listed again under its name
        reused = reused.filter(pc.invert(pc.is_in(reused.column("path"), array_of(changed, pa.string()))))
    reused_paths = set(reused.column("path").to_pylist())
    fresh = rows_of(state.files[path] for path in state.files if path not in reused_paths)
    return pa.concat_tables([reused, fresh], promote_options="permissive") if fresh.num_rows else reused


def read_statistics(objects: CatalogObjects, state: CatalogState, columns: list[str] | None = None) -> pa.Table | None:
    """Return the table beside the checkpoint of this very state, None when it is lost, damaged or of another one."""
    try:
        table = _opened(objects.store.get(table_key(objects, state)))
        mark = (table.schema_arrow.metadata or {}).get(_KEY.encode(), b"").decode()
        return table.read(columns, use_threads=False) if mark == f"{state.catalog_id}:{state.revision}" else None
    # The table is only a copy, so any damage means: make the rows again from the state.
    except (CustodyError, OSError, pa.ArrowException, ValueError):
        return None


def is_table_of(table: pa.Table, state: CatalogState) -> bool:
    """Whether a table says of each file of a state what the state says; footers are in transactions alone."""
    expected = rows_of(state.files.values()).drop_columns(list(_FOOTER))
    if set(expected.column_names) - set(table.column_names):
        return False
    own = table.select(expected.column_names).cast(expected.schema)
    return bool(own.sort_by("path").equals(expected.sort_by("path")))


def _opened(data: bytes) -> pq.ParquetFile:
    """Return a table whose every byte is as it was written.

    The file carries, in its metadata, the SHA-256 of itself with zeros in that place. Tables of earlier releases carry
    none: of these the pages have checksums.

    Raises:
        CorruptionError: a byte changed.
    """
    table = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    start = _digest_place(data)
    if start is None:
        if set(table.metadata.metadata or {}) - _EARLIER_KEYS:
            raise CorruptionError("the metadata of the table of statistics was changed.")
        return table
    stop = start + len(_NO_DIGEST)
    if hashlib.sha256(data[:start] + _NO_DIGEST + data[stop:]).hexdigest().encode() != data[start:stop]:
        raise CorruptionError("expected another SHA-256: the table of statistics was changed.")
    return table


def _digest_place(data: bytes) -> int | None:
    """Return where in the footer the digest is, None when there is none."""
    mark = _DIGEST_KEY.encode() + _TEXT_OF_64
    # From the end: the footer comes last, and data pages may hold the same bytes by chance.
    place = data.rfind(mark)
    return None if place < 0 else place + len(mark)


def rows_of(files: Iterable[AddFile]) -> pa.Table:
    """Return the table of some files.

    Raises:
        CorruptionError: what the catalog says of a file is no statistics.
    """
    listed = list(files)
    fixed = [array_of([_fixed(file, field) for file in listed], field.type) for field in _FIXED]
    table = pa.Table.from_arrays(fixed, schema=_FIXED)
    for name, values, kind in _typed([_statistics(file) for file in listed]):
        table = table.append_column(name, array_of(values, kind))
    return table


def _statistics(file: AddFile) -> FileStatistics:
    try:
        return FileStatistics.FromString(file.statistics)
    except DecodeError as error:
        raise CorruptionError(f"{file.path}: statistics: expected a FileStatistics, got {error}.") from error


def _fixed(file: AddFile, field: pa.Field) -> object:
    value: object = getattr(file, f"{field.name}_ms" if field.name.endswith("event_time") else field.name)
    return None if value == b"" or (field.name == "footer_bytes" and not file.footer) else value


def _typed(statistics: list[FileStatistics]) -> list[tuple[str, list[Any], pa.DataType]]:
    by_file = [{column.column: column for column in each.columns} for each in statistics]
    typed_columns: list[tuple[str, list[Any], pa.DataType]] = []
    for name in sorted({name for columns in by_file for name in columns}):
        of_column = [columns.get(name) for columns in by_file]
        kinds = {kind for each in of_column if each is not None and (kind := each.minimum.WhichOneof("kind"))}
        typed_columns.append(
            (f"nulls_{name}", [None if each is None else each.nulls for each in of_column], pa.int64())
        )
        if len(kinds) == 1:  # a column that changed its type between files has no common bounds
            [kind] = kinds
            for bound in ("minimum", "maximum"):
                values = [_bound(each, bound, kind) for each in of_column]
                typed_columns.append((f"{bound[:3]}_{name}", values, _TYPES[kind]))
    return typed_columns


def _bound(column: Any, bound: str, kind: str) -> Any:  # noqa: ANN401 - any of the types of Value
    value = None if column is None else getattr(column, bound)
    return None if value is None or value.WhichOneof("kind") != kind else getattr(value, kind)


def _last_table(objects: CatalogObjects, state: CatalogState) -> pa.Table | None:
    """Return the table of the newest checkpoint that the hint names; its rows hold as long as their files are live."""
    try:
        hint: Transaction = decode(objects.store.get(objects.hint), objects.hint)
        folder = objects.folder(hint.revision)
        names = [item for item in objects.at(hint.revision) if item.is_checkpoint and item.uuid.bytes == hint.uuid]
        if not names or hint.catalog_id != state.catalog_id.bytes or hint.revision > state.revision:
            return None
        return _opened(objects.store.get(folder + statistics_file(names[0].uuid))).read(use_threads=False)
    except (CustodyError, OSError, pa.ArrowException, ValueError):
        return None
