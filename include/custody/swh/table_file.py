"""One file of a table as it is written: sorted, in small row groups and pages, with its index beside it.

A page is what a point query decodes, so it is small. Files carry statistics, page indexes and page checksums as well,
for readers of other makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from custody.errors import InvalidInputError
from custody.eventlog.hashing_file import HashingSink
from custody.swh.index_file import INDEX_SUFFIX, KeyIndex
from custody.swh.pages import find_pages
from custody.swh.swhid import ObjectType
from custody.swh.tables import DATE, HASH_KEY, TableSpec, hash_keys
from custody.vfs import FileSystem

GROUP_ROWS = 4096
"""Rows of a row group: measured, docs/swh.md."""

_ZSTD_LEVEL = 3
_WHOLE_PAGE_BYTES = 1 << 30
"""Pages are cut at rows, the same ones in all columns, and never at bytes."""
_TYPE = "type"
_TYPES = pa.array([kind.value for kind in ObjectType], pa.string())
"""The dictionary of types: the same in all row groups, so that pages of several are decoded together."""


class WrittenFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a table, by its name in the table's folder; sizes in bytes, digests in hexadecimal digits."""

    table: str
    name: str
    rows: int
    bytes: int
    sha256: str
    index_bytes: int
    index_sha256: str
    first_key: int
    last_key: int


def write_table_file(
    fs: FileSystem, spec: TableSpec, source: Sequence[Path], target: Path, *, group_rows: int = GROUP_ROWS
) -> WrittenFile | None:
    """Write the rows of sorted Parquet files as one file of a table, and its index; None if there is no row.

    Durability: on return both files are synced; their names are for the caller to make durable.

    Raises:
        InvalidInputError: a value does not fit its column, or rows are not sorted.
    """
    batches = (pa.table(batch) for path in source for batch in pq.ParquetFile(path).iter_batches(group_rows))
    return write_tables(fs, spec, batches, target, group_rows=group_rows)


def write_tables(
    fs: FileSystem, spec: TableSpec, source: Iterable[pa.Table], target: Path, *, group_rows: int = GROUP_ROWS
) -> WrittenFile | None:
    """Write sorted rows, some at a time, as one file of a table, and its index; None if there is no row.

    Durability: on return both files are synced; their names are for the caller to make durable.

    Raises:
        InvalidInputError: a value does not fit its column, or rows are not sorted.
    """
    groups = _row_groups(spec, source, group_rows)
    first = next(groups, None)
    if first is None:
        return None
    keys: list[np.ndarray] = []
    firsts: list[np.ndarray] = []
    rows = 0
    with fs.create(target) as file, HashingSink(file) as sink:
        with pq.ParquetWriter(sink, first.schema, **_options(spec)) as writer:
            for group in chain([first], groups):
                found = np.asarray(group.column(spec.key).combine_chunks())
                if (keys and found[0] < keys[-1][-1]) or (found[1:] < found[:-1]).any():
                    raise InvalidInputError(f"{target}: expected rows sorted by {spec.key}, got others.")
                keys.append(np.unique(found))
                firsts.append(found[:: spec.page_rows])
                writer.write_table(group, row_group_size=group_rows)
                rows += group.num_rows
        sink.flush()
        file.sync()
        size, digest = file.tell(), sink.sha256
    written = fs.view(target)
    metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(written)))
    columns, places = find_pages(written, metadata, spec.page_rows, target)
    index = KeyIndex.of(np.unique(np.concatenate(keys)), columns, np.concatenate(firsts), places, digest.digest())
    data = index.encode()
    path = target.with_suffix(INDEX_SUFFIX)
    with fs.create(path) as file, HashingSink(file) as sink:
        sink.write(data)
        sink.flush()
        file.sync()
        index_digest = sink.sha256.hexdigest()
    return WrittenFile(
        table=spec.name,
        name=target.name,
        rows=rows,
        bytes=size,
        sha256=digest.hexdigest(),
        index_bytes=len(data),
        index_sha256=index_digest,
        first_key=index.first,
        last_key=index.last,
    )


def _options(spec: TableSpec) -> dict[str, object]:
    numbers = [field.name for field in spec.schema if field.type in (pa.uint64(), DATE)]
    compressed = [name for name in spec.schema.names if name not in spec.raw]
    return {
        "compression": {name: "zstd" if name in compressed else "none" for name in spec.schema.names},
        "compression_level": dict.fromkeys(compressed, _ZSTD_LEVEL),
        "use_dictionary": [name for name in spec.schema.names if name == _TYPE],
        "column_encoding": dict.fromkeys((spec.key, *spec.delta), "DELTA_BINARY_PACKED"),
        "max_rows_per_page": spec.page_rows,
        "data_page_size": _WHOLE_PAGE_BYTES,
        # Else other readers would be told that types are a dictionary, which they are only here.
        "store_schema": False,
        "write_statistics": numbers,
        "write_page_index": True,
        "write_page_checksum": True,
        "sorting_columns": [pq.SortingColumn(spec.schema.get_field_index(name)) for name in spec.order],
    }


def _row_groups(spec: TableSpec, source: Iterable[pa.Table], group_rows: int) -> Iterator[pa.Table]:
    """The rows in tables of `group_rows`, the last one smaller; whatever the row groups of the source are."""
    waiting: list[pa.Table] = []
    rows = 0
    for table in source:
        waiting.append(_converted(spec, table))
        rows += table.num_rows
        if rows >= group_rows:
            whole = pa.concat_tables(waiting)
            for start in range(0, rows - group_rows + 1, group_rows):
                yield whole.slice(start, group_rows).combine_chunks()
            left = rows % group_rows
            waiting, rows = [whole.slice(rows - left)], left
    if rows:
        yield pa.concat_tables(waiting).combine_chunks()


def _converted(spec: TableSpec, table: pa.Table) -> pa.Table:
    """The columns as they are on disk: Spark knows neither unsigned integers nor seconds nor binaries of one size."""
    columns = []
    for field in spec.schema:
        if field.name == HASH_KEY:
            hashes = table.column("sha1_git").cast(spec.schema.field("sha1_git").type).combine_chunks()
            columns.append(pa.array(hash_keys(_one_chunk(hashes)), field.type))
            continue
        try:
            columns.append(table.column(field.name).cast(field.type))
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                f"table {spec.name}: column {field.name!r}: expected {field.type}: {error}."
            ) from error
        if columns[-1].null_count:
            raise InvalidInputError(
                f"table {spec.name}: column {field.name!r}: expected a value in each row, got none."
            )
        if field.name == _TYPE:
            columns[-1] = _types(spec, _one_chunk(columns[-1]))
    fields = [field.with_type(column.type) for field, column in zip(spec.schema, columns, strict=True)]
    return pa.table(columns, schema=pa.schema(fields))


def _types(spec: TableSpec, values: pa.Array) -> pa.Array:
    places = pc.index_in(values, _TYPES).cast(pa.int8())
    if places.null_count:
        raise InvalidInputError(f"table {spec.name}: column {_TYPE!r}: expected one of {_TYPES.to_pylist()}.")
    return pa.DictionaryArray.from_arrays(places, _TYPES)


def _one_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
