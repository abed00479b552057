"""Footers of Parquet files, as the catalog keeps them: the footer itself, typed statistics, blooms, column types."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from custody.catalog.transaction_pb2 import AddFile, ColumnStatistics, FileStatistics, Value
from custody.errors import CorruptionError

FOOTER_BYTES_MAX = 64 << 10
"""A compressed footer that is longer is left out: the file has it."""
_FOOTER_BYTES_READ_MAX = 1 << 30
"""No footer of so few compressed bytes is longer; what says so is damaged."""
# Every reader of the catalog loads these; what is larger stays in the file.
BLOOM_BYTES_MAX = 64 << 10
_BOUND_BYTES_MAX = 256
_INTEGER_MAX = (1 << 63) - 1
_UNORDERED = frozenset({"DECIMAL", "FLOAT16"})
"""Types whose raw values are bytes that do not sort as the values do."""
_TAIL = struct.Struct("<I4s")
_MAGIC = b"PAR1"
_ZSTD = pa.Codec("zstd")

GetRange = Callable[[int, int], bytes]
"""Reads (start, length) of a file; a negative start counts from the end."""


def read_footer(get_range: GetRange, where: object) -> bytes:
    """Return a Parquet file's footer by two reads: the last 8 bytes, then the footer.

    Raises:
        CorruptionError: the file does not end as a Parquet file does.
    """
    tail = get_range(-_TAIL.size, _TAIL.size)
    length, magic = _TAIL.unpack(tail) if len(tail) == _TAIL.size else (0, b"")
    if magic != _MAGIC:
        raise CorruptionError(f"{where} @end: expected a Parquet file, got other bytes.")
    footer = get_range(-_TAIL.size - length, length)
    if len(footer) != length:
        raise CorruptionError(f"{where} @end: expected a footer of {length} bytes, got {len(footer)}.")
    return footer


def parse_footer(footer: bytes, where: object) -> pq.FileMetaData:
    """Return a footer as pyarrow's metadata.

    Raises:
        CorruptionError: it is no footer.
    """
    try:
        return pq.read_metadata(pa.BufferReader(_MAGIC + footer + _TAIL.pack(len(footer), _MAGIC)))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise CorruptionError(f"{where} @end: expected a Parquet footer, got {error}.") from error


def describe(file: AddFile, get_range: GetRange) -> None:
    """Set a file's footer, statistics and schema fingerprint from the file itself."""
    footer = read_footer(get_range, file.path)
    metadata = parse_footer(footer, file.path)
    compressed = _ZSTD.compress(footer, asbytes=True)
    # Long footers would make every reader of the catalog pay for them; whoever needs one reads it from the file.
    if len(compressed) <= FOOTER_BYTES_MAX:
        file.footer, file.footer_bytes = compressed, len(footer)
    file.statistics = statistics_of(metadata, get_range).SerializeToString(deterministic=True)
    file.schema_fingerprint = fingerprint(metadata.schema.to_arrow_schema())


def stored_footer(file: AddFile) -> pq.FileMetaData | None:
    """Return the metadata that a file's entry carries, None when it carries none."""
    if not file.footer:
        return None
    # The length is a claim of the catalog: a damaged one must not make the decompressor allocate it.
    if file.footer_bytes > _FOOTER_BYTES_READ_MAX:
        raise CorruptionError(
            f"{file.path}: footer_bytes: expected at most {_FOOTER_BYTES_READ_MAX}, got {file.footer_bytes}."
        )
    try:
        footer = _ZSTD.decompress(file.footer, file.footer_bytes, asbytes=True)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise CorruptionError(f"{file.path}: footer: expected a compressed footer, got {error}.") from error
    return parse_footer(footer, file.path)


def footer_of(file: AddFile, get_range: GetRange) -> pq.FileMetaData:
    """Return a file's metadata: as its entry carries it, else from the file itself; `get_range` reads that.

    A checkpoint leaves footers out, and so does an entry whose footer is large.

    Raises:
        CorruptionError: the entry's footer, or the file's, is none.
    """
    stored = stored_footer(file)
    return parse_footer(read_footer(get_range, file.path), file.path) if stored is None else stored


def fingerprint(schema: pa.Schema) -> bytes:
    """Return the SHA-256 of the columns' names, types and nullability, in their order."""
    lines = [f"{field.name}\0{field.type}\0{'null' if field.nullable else 'value'}\n" for field in schema]
    return hashlib.sha256("".join(lines).encode()).digest()


def statistics_of(metadata: pq.FileMetaData, get_range: GetRange) -> FileStatistics:
    """Return bounds, nulls and blooms of the columns that the writer kept statistics of."""
    columns = [_column(metadata, number, get_range) for number in range(metadata.num_columns)]
    return FileStatistics(columns=[column for column in columns if column is not None])


def _column(metadata: pq.FileMetaData, number: int, get_range: GetRange) -> ColumnStatistics | None:
    chunks = [metadata.row_group(group).column(number) for group in range(metadata.num_row_groups)]
    chunk_statistics = [chunk.statistics for chunk in chunks if chunk.is_stats_set and chunk.statistics is not None]
    blooms = _blooms(chunks, get_range)
    # One row group without statistics may hold any value, so the file as a whole has no bounds.
    if len(chunk_statistics) != len(chunks) or not all(each.has_null_count for each in chunk_statistics):
        return ColumnStatistics(column=chunks[0].path_in_schema, blooms=blooms) if blooms else None
    bounded = [each for each in chunk_statistics if each.has_min_max]
    statistics = ColumnStatistics(
        column=chunks[0].path_in_schema if chunks else "",
        nulls=sum(each.null_count for each in chunk_statistics),
        blooms=blooms,
    )
    # A row group without bounds and with values would make the others' bounds wrong.
    if not bounded or any(not each.has_min_max and each.num_values for each in chunk_statistics):
        return statistics if chunks else None
    bounds = _bounds(bounded)
    if bounds is None:
        return statistics
    low, high = bounds
    # A long bound is left out, not cut: a cut maximum would lie below values of the file.
    if len(str(low)) + len(str(high)) <= _BOUND_BYTES_MAX:
        statistics.minimum.CopyFrom(value_of(low))
        statistics.maximum.CopyFrom(value_of(high))
    return statistics


def block_bounds(
    metadata: pq.FileMetaData, columns: Collection[str]
) -> list[dict[str, tuple[int | bytes, int | bytes] | None]]:
    """Return, for each row group, the least and the greatest value of some columns; None for one without any value.

    A column whose bounds are not known is left out. Texts are UTF-8.
    """
    numbers = [n for n in range(metadata.num_columns) if metadata.schema.column(n).path in columns]
    return [_block_bounds(metadata.row_group(group), numbers) for group in range(metadata.num_row_groups)]


def _block_bounds(
    row_group: pq.RowGroupMetaData, numbers: Iterable[int]
) -> dict[str, tuple[int | bytes, int | bytes] | None]:
    found: dict[str, tuple[int | bytes, int | bytes] | None] = {}
    for number in numbers:
        chunk = row_group.column(number)
        known = chunk.statistics if chunk.is_stats_set else None
        if known is None:
            continue
        if known.has_null_count and not known.has_min_max and known.num_values == 0:
            found[chunk.path_in_schema] = None
            continue
        bounds = _bounds([known]) if known.has_min_max else None
        if bounds is not None:
            low, high = (each.encode() if isinstance(each, str) else each for each in bounds)
            if isinstance(low, int | bytes) and not isinstance(low, bool):
                found[chunk.path_in_schema] = low, high
    return found


def _bounds(statistics: list[pq.Statistics]) -> tuple[Any, Any] | None:
    """Return the least and the greatest value; None where the raw values have another order, or do not fit."""
    kind = statistics[0].logical_type.type
    if kind in _UNORDERED:
        return None
    low: Any
    high: Any
    # The raw value of an unsigned number is that of the signed one with the same bits. Of others it is as good, and
    # the value that Arrow makes of it costs the import of pandas (`custody.model.plain_arrays`).
    if kind == "INT":
        low, high = min(each.min for each in statistics), max(each.max for each in statistics)
    else:
        low, high = min(each.min_raw for each in statistics), max(each.max_raw for each in statistics)
    if kind == "STRING":
        low, high = low.decode(), high.decode()
    return None if isinstance(high, int) and high > _INTEGER_MAX else (low, high)


def value_of(value: Any) -> Value:  # noqa: ANN401 - whatever Parquet's statistics hold
    """Return a typed value."""
    if isinstance(value, bool):
        return Value(flag=value)
    if isinstance(value, int):
        return Value(integer=value)
    if isinstance(value, float):
        return Value(number=value)
    return Value(text=value) if isinstance(value, str) else Value(binary=bytes(value))


def _blooms(chunks: list[pq.ColumnChunkMetaData], get_range: GetRange) -> list[bytes]:
    """Return the bloom filters of a column's row groups: all of them or none."""
    places = [(chunk.bloom_filter_offset, chunk.bloom_filter_length) for chunk in chunks]
    if not places or any(offset is None or length is None for offset, length in places):
        return []
    if sum(length for _, length in places) > BLOOM_BYTES_MAX:
        return []
    return [get_range(offset, length) for offset, length in places]
