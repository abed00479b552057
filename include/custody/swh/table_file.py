"""The files of a table: written sorted, with an index beside each, and read by key.

A file has small row groups and pages, since a point query decodes a page. It carries statistics, page indexes and page
checksums as well, for other readers of Parquet. The indexes choose the file, the pages and the rows of a query.

Everything that is read is checked: the head and the blocks of the index, each page by its checksum, and that the rows
of a key are where the index says that they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from custody.errors import CorruptionError, InvalidInputError
from custody.eventlog.hashing_file import HashingSink
from custody.format.number_sets import distinct
from custody.made_types import made_at_import
from custody.store import carried
from custody.swh.index_file import INDEX_SUFFIX, KeyIndex, mmap_random, read_index
from custody.swh.pages import PageCache, PageReader, find_pages
from custody.swh.swhid import ObjectType
from custody.swh.tables import DATE, HASH_KEY, TableSpec, hash_keys
from custody.vfs import FileSystem

if TYPE_CHECKING:
    from custody.store.ranged_file import RangedFile

GROUP_ROWS = 4096
"""Rows of a row group: measured, docs/swh.md."""
_ZSTD_LEVEL = 3
_WHOLE_PAGE_BYTES = 1 << 30
"""Pages are cut at rows, the same ones in all columns, and never at bytes."""
_PAGES_AT_ONCE = 128
"""Pages that are decoded together: at most half a million rows."""
_PARALLEL = 16
"""So many indexes come from an object store at a time."""
_ALL = 1 << 62
"""More rows than there are, and few enough to be added to a place."""
_TYPE = "type"


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


made_at_import(WrittenFile)


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
                group_keys = np.asarray(group.column(spec.key).combine_chunks())
                # The index and every question rest on this order, so it is checked and not trusted.
                if (keys and group_keys[0] < keys[-1][-1]) or (group_keys[1:] < group_keys[:-1]).any():
                    raise InvalidInputError(f"{target}: expected rows sorted by {spec.key}, got others.")
                keys.append(distinct(group_keys))
                firsts.append(group_keys[:: spec.page_rows])
                writer.write_table(group, row_group_size=group_rows)
                rows += group.num_rows
            if spec.schema.metadata:
                # Of the graph, not of the columns: its version, where it has one.
                writer.add_key_value_metadata(spec.schema.metadata)
        sink.flush()
        file.sync()
        size, digest = file.tell(), sink.sha256
    written = fs.view(target)
    metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(written)))
    columns, places = find_pages(written, metadata, spec.page_rows, target)
    index = KeyIndex.of(distinct(np.concatenate(keys)), columns, np.concatenate(firsts), places, digest.digest())
    data = index.encode()
    # The index after its file, whose digest it carries; neither counts before the step is renamed as a whole.
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


class StoredFile(Protocol):
    """A file of an object store, which has its index beside it."""

    def ranged(self) -> RangedFile | None:
        """Return the file to be read by ranges, None where there is a copy of the whole."""

    def ranged_index(self) -> RangedFile | None:
        """Return the index to be read by ranges; None where it is small, or here already: it was fetched whole then."""

    def forget_index(self) -> None:
        """Remove what is here of the index."""

    def fetch(self) -> object:
        """Fetch the whole, unless the copy that is here is whole."""


class IndexedTable:
    """All files of one table; their indexes are read by the first question.

    Args:
        paths: the files, with their SHA-256 where the catalog tells it.
        cache: what was decoded lately, of all tables; None keeps nothing.
        stored: of files in an object store, how they are read; the paths are those of their copies then.
    """

    def __init__(
        self,
        fs: FileSystem,
        spec: TableSpec,
        paths: Mapping[Path, bytes | None],
        cache: PageCache | None = None,
        stored: Mapping[Path, StoredFile] = MappingProxyType({}),
    ) -> None:
        self.spec = spec
        self._fs = fs
        self._paths = dict(sorted(paths.items()))
        self._cache = PageCache(0) if cache is None else cache
        self._stored = stored
        self._readers: dict[tuple[str, ...], PageReader] = {}

    @cached_property
    def files(self) -> list[TableFile]:
        """The files with their indexes.

        Raises:
            CorruptionError: the head of an index is damaged, or another one is in its place.
            StorageError: the store refuses.
        """

        def opened(path: Path) -> TableFile:
            return TableFile(self._fs, path, self._cache, self._paths[path], self._stored.get(path))

        if not self._stored or len(self._paths) < 2:
            return [opened(path) for path in self._paths]
        # Each waits for its index to come from the store.
        with ThreadPoolExecutor(min(_PARALLEL, len(self._paths))) as threads:
            return list(threads.map(carried(opened), self._paths))

    def pages_of(self, keys: np.ndarray) -> int:
        """Return how many pages the rows of some keys (sorted, all different) are in.

        Raises:
            CorruptionError: an index is damaged.
        """
        held = ((file.index, file.index.held(keys)) for file in self.files)
        return sum(len(index.pages.of_keys(keys_held)) for index, keys_held in held if len(keys_held))

    def rows(self, keys: np.ndarray, columns: Sequence[str] | None = None, first: int | None = None) -> pa.Table:
        """Return the rows of some keys, sorted as the table is; the key is among the columns.

        Some hundred pages at a time are decoded whole in memory; of the others only the rows that match stay.

        Args:
            keys: uint64, in any order, repeated or not.
            columns: which other columns; all of them when not given.
            first: of each key only so many rows, the first ones in the table's order.

        Raises:
            CorruptionError: a file is damaged.
        """
        sought = distinct(keys) if len(keys) > 1 else keys
        others = self.spec.schema.names if columns is None else columns
        names = (self.spec.key, *(name for name in others if name != self.spec.key))
        # Without a lock: threads that make a reader at the same time make equal ones.
        reader = self._readers.get(names)
        if reader is None:
            reader = self._readers[names] = PageReader(self.spec, names)
        parts = [part for file in self.files for part in file.rows(sought, reader, first)] if len(sought) else []
        if not parts:
            return pa.table([pa.array([], self.spec.schema.field(name).type) for name in names], names=names)
        return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


class TableFile:
    """A file that is open for point queries, by any number of threads; it is mapped by the first that needs it.

    Args:
        sha256: what the catalog says of the file; None takes any index that is whole.
        stored: how it is read, where it lies in an object store.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        cache: PageCache,
        sha256: bytes | None = None,
        stored: StoredFile | None = None,
    ) -> None:
        self._fs = fs
        self._path = path
        self._cache = cache
        self._stored = stored
        self._is_fetched_anew = False
        self._ranged = None if stored is None else stored.ranged()
        index_path = path.with_suffix(INDEX_SUFFIX)
        if stored is None:
            self.index = read_index(fs, index_path, sha256)
            return
        try:
            self.index = read_index(fs, index_path, sha256, stored.ranged_index())
        except CorruptionError:
            # What is here of it may be damaged, its length too, where the store's is whole.
            stored.forget_index()
            self.index = read_index(fs, index_path, sha256, stored.ranged_index())

    def rows(self, keys: np.ndarray, reader: PageReader, first: int | None = None) -> list[pa.Table]:
        """Return the rows of some keys (uint64, sorted, all different), in the order of the file.

        Args:
            reader: of the columns that are wanted; the key is the first of them.
            first: of each key only so many rows.

        Raises:
            CorruptionError: the file is damaged.
        """
        if len(keys) == 1:
            return self._rows_of_one(int(keys[0]), reader, first)
        held = self.index.held(keys)
        pages = self.index.pages.of_keys(held) if len(held) else []
        quota = np.full(len(held), _ALL if first is None else first)
        seen = np.zeros(len(held), bool)
        parts: list[pa.Table] = []
        for start in range(0, len(pages), _PAGES_AT_ONCE):
            rows = self._rows(pages[start : start + _PAGES_AT_ONCE], reader)
            values = rows.column(0).chunk(0).to_numpy()
            begin, end = values.searchsorted(held, "left"), values.searchsorted(held, "right")
            seen |= begin < end
            end = np.minimum(end, begin + quota)
            quota -= end - begin
            if (begin < end).any():
                parts.append(rows.take(pa.array(_between(begin, end))))
            if not quota.any():
                break
        # The index is exact: a key that it holds and that no page has is damage, and no empty answer.
        if not seen.all():
            self._refuse(f"expected rows of the key {held[~seen][0]}, as its index says, got none")
        return parts

    def _rows_of_one(self, key: int, reader: PageReader, first: int | None) -> list[pa.Table]:
        """The same for one key, which plain integers are faster for than arrays."""
        if not self.index.holds(key):
            return []
        pages = self.index.pages.of_key(key)
        sought = np.uint64(key)
        quota = _ALL if first is None else first
        parts: list[pa.Table] = []
        for part in _parts(pages, _PAGES_AT_ONCE if first is None else 1):
            rows = self._rows(part, reader)
            values = rows.column(0).chunk(0).to_numpy()
            begin, end = int(values.searchsorted(sought, "left")), int(values.searchsorted(sought, "right"))
            if begin < end:
                parts.append(rows.slice(begin, min(end - begin, quota)))
                quota -= parts[-1].num_rows
            if parts and not quota:
                break
        if not parts:
            self._refuse(f"expected rows of the key {key}, as its index says, got none")
        return parts

    def _rows(self, pages: Sequence[int], reader: PageReader) -> pa.Table:
        if len(pages) > 1:
            return self._read(pages, reader)
        return self._cache.get((self._path, pages[0], reader.columns), lambda: self._read(pages, reader))

    def _read(self, pages: Sequence[int], reader: PageReader) -> pa.Table:
        if self._ranged is not None:
            reader.fetch(self._ranged, self.index.pages, pages)
        try:
            return reader.read(self._data, self.index.pages, pages)
        # A number that was flipped in a page's head may ask for more memory than there is.
        except (OSError, ValueError, pa.ArrowException, MemoryError) as error:
            # A copy on this disk may be damaged where the store's file is whole.
            if self._stored is not None and self._ranged is None and not self._is_fetched_anew:
                self._is_fetched_anew = True
                self._stored.fetch()
                self.__dict__.pop("_data", None)
                return self._read(pages, reader)
            self._refuse(f"pages {pages[0]} to {pages[-1]} cannot be read: {error}", error)

    @cached_property
    def _data(self) -> memoryview:
        return mmap_random(self._fs, self._path) if self._ranged is None else self._ranged.view

    def _refuse(self, what: str, cause: BaseException | None = None) -> NoReturn:
        raise CorruptionError(f"{self._path}: {what}. Build the database anew.") from cause


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
        # Else other readers would take types for a dictionary, which they are only here.
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
            rest = rows % group_rows
            waiting, rows = [whole.slice(rows - rest)], rest
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


@cache
def _type_names() -> pa.StringArray:
    """Return the dictionary of types: the same in all row groups, so that pages of several are decoded together."""
    # When it is needed: to make an array of a list imports pandas where it is installed, and a plan of the retention
    # imports this module and encodes nothing.
    return pa.array([kind.value for kind in ObjectType], pa.string())


def _types(spec: TableSpec, values: pa.Array) -> pa.Array:
    places = pc.index_in(values, _type_names()).cast(pa.int8())
    if places.null_count:
        raise InvalidInputError(f"table {spec.name}: column {_TYPE!r}: expected one of {_type_names().to_pylist()}.")
    return pa.DictionaryArray.from_arrays(places, _type_names())


def _one_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


def _parts(pages: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Pages, some at a time: from a few on twice as many each time, as the first ones are often enough."""
    start = 0
    while start < len(pages):
        yield pages[start : start + size]
        start += size
        size = min(2 * size, _PAGES_AT_ONCE)


def _between(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return all places from each start up to before its end."""
    lengths = end - begin
    starts = np.repeat(begin - (np.cumsum(lengths) - lengths), lengths)
    places: np.ndarray = starts + np.arange(len(starts))
    return places
