"""One file of a table as it is written: sorted, in small row groups, with its index beside it.

A row group is what a point query decodes, so it is small. Files carry statistics, page indexes and page checksums as
well, for readers of other makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from custody.errors import InvalidInputError
from custody.eventlog.sink import HashingSink
from custody.swh.index_file import INDEX_SUFFIX, KeyIndex, footer_digest
from custody.swh.tables import DATE, HASH_KEY, TableSpec, hash_keys
from custody.vfs import FileSystem

GROUP_ROWS = 4096
"""Rows of a row group: measured, docs/swh.md."""

_ZSTD_LEVEL = 3


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
    rows = 0
    with fs.create(target) as file, HashingSink(file) as sink:
        with pq.ParquetWriter(sink, spec.schema, **_options(spec)) as writer:
            for group in chain([first], groups):
                found = np.asarray(group.column(spec.key).combine_chunks())
                if (keys and found[0] < keys[-1][-1]) or (found[1:] < found[:-1]).any():
                    raise InvalidInputError(f"{target}: expected rows sorted by {spec.key}, got others.")
                keys.append(np.unique(found))
                writer.write_table(group, row_group_size=group_rows)
                rows += group.num_rows
        sink.flush()
        file.sync()
        size, digest = file.tell(), sink.sha256.hexdigest()
    firsts = np.array([group[0] for group in keys], np.uint64)
    index = KeyIndex.of(np.unique(np.concatenate(keys)), firsts, footer_digest(fs.view(target), target))
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
        sha256=digest,
        index_bytes=len(data),
        index_sha256=index_digest,
        first_key=index.first,
        last_key=index.last,
    )


def _options(spec: TableSpec) -> dict[str, object]:
    numbers = [field.name for field in spec.schema if field.type in (pa.uint64(), DATE)]
    return {
        "compression": "zstd",
        "compression_level": _ZSTD_LEVEL,
        "use_dictionary": [name for name in spec.schema.names if name == "type"],
        "column_encoding": {spec.key: "DELTA_BINARY_PACKED"},
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
    return pa.table(columns, schema=spec.schema)


def _one_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
