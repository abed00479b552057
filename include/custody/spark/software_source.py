"""The tables of software as a data source of Spark: `spark.read.format("custody-software")`.

Each file is a task. The option `keys` goes to the index of keys: files whose keys lie elsewhere get no task, and of the
others a task reads the pages of the keys only. Everything else reads whole files, with the checksum of each page. Files
in an object store are fetched where a task reads them: of the pages of keys these alone, else all of the file.

Conditions are not pushed down: Spark 4.2 keeps what a source in Python took for one query of a DataFrame, and gives the
next one, without a condition, the same few rows.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from custody.catalog.file_reference import FileReference
from custody.clock import SystemClock
from custody.config import Settings, load_settings
from custody.errors import ConflictError, InvalidInputError, NotFoundError
from custody.spark.own_disk import reading_disk
from custody.swh.publishing import database_catalog, published_state
from custody.swh.sql_tables import (
    KEYS_MAX,
    disk_schema,
    keyed_table,
    ranges_of,
    referenced_table,
    rows_of_keys,
)
from custody.swh.tables import TABLES
from custody.vfs import PosixFileSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT = "custody-software"


def register_software(session: SparkSession) -> None:
    """Make the format known to a session."""
    session.dataSource.register(SoftwareSource)


class SoftwareSource(DataSource):  # type: ignore[misc]
    """One table of the published database. Options: `repository`, `table`, `revision` of its catalog, `keys`.

    Raises:
        InvalidInputError: an option is missing or no such table exists.
        NotFoundError: nothing is published.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns as Spark's types."""
        schema: StructType = from_arrow_schema(spark_schema(self._table()))
        return schema

    def reader(self, schema: StructType) -> SoftwareReader:
        """Return a reader of the files that are live now: a plan that runs later reads those."""
        table, options = self._table(), self.options
        if "repository" not in options:
            raise InvalidInputError(f"{FORMAT}: expected the option repository, the folder of a repository, got none.")
        revision = options.get("revision")
        if revision is not None and not revision.isdecimal():
            raise InvalidInputError(f"{FORMAT}: option revision: expected a whole number, got {revision!r}.")
        settings, fs = load_settings(Path(options["repository"])), PosixFileSystem()
        catalog = database_catalog(settings, fs, SystemClock())
        state = published_state(catalog, None if revision is None else int(revision))
        listed = catalog.objects.files
        files = [FileReference.of(listed, file) for file in state.files.values() if file.table == table]
        return SoftwareReader(settings, table, files, _keys(options.get("keys")))

    def _table(self) -> str:
        table = self.options.get("table")
        if table not in TABLES:
            raise InvalidInputError(f"{FORMAT}: option table: expected one of {', '.join(TABLES)}, got {table!r}.")
        return str(table)


@dataclass
class TableFilePart(InputPartition):  # type: ignore[misc]
    """A file of the table, which one task reads."""

    file: FileReference


class SoftwareReader(DataSourceReader):  # type: ignore[misc]
    """Reads files of one table, whole or by some keys."""

    def __init__(
        self, settings: Settings, table: str, files: Sequence[FileReference], keys: set[int] | None = None
    ) -> None:
        self._settings = settings
        self._table = table
        self._files = sorted(files, key=lambda file: Path(file.path))
        self._keys = keys

    def partitions(self) -> Sequence[TableFilePart]:
        """Return the files that may have rows; of an object store the heads of their indexes are fetched for keys.

        Raises:
            CorruptionError: the head of an index is damaged.
            StorageError: the store refuses.
        """
        parts = [TableFilePart(file) for file in self._files]
        if self._keys is None:
            return parts
        ranges = ranges_of(referenced_table(PosixFileSystem(), self._settings, TABLES[self._table], self._files))
        return [
            part
            for part, (first, last) in zip(parts, ranges, strict=True)
            if any(first <= key <= last for key in self._keys)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file.

        Raises:
            CorruptionError: the file is damaged.
            ConflictError: it is gone since the load.
            StorageError: the store or the disk refuses.
        """
        if not isinstance(partition, TableFilePart):
            # Where no file has a row, Spark runs one task all the same, without a file.
            return
        schema = spark_schema(self._table)
        try:
            with reading_disk(self._settings) as here:
                for rows in self._rows(here, partition.file):
                    yield from rows.cast(schema).to_batches()
        except (NotFoundError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ENOENT:
                raise
            raise ConflictError(
                f"{partition.file}: gone since the read was planned: another build was published. Load the table again."
            ) from error

    def _rows(self, here: Settings, file: FileReference) -> Iterator[pa.Table]:
        fs, spec = PosixFileSystem(), TABLES[self._table]
        keys = None if self._keys is None else sorted(self._keys)
        if keys is not None:
            found = rows_of_keys(referenced_table(fs, here, spec, [file]), keys)
            if found is not None:
                yield found.select(spec.schema.names).cast(disk_schema(spec))
                return
        stored = file.files(here, fs)
        path = file.where(None) if stored is None else stored.path(file.path)
        table = keyed_table(fs, spec, {path: file.sha256})
        condition = None if keys is None else ds.field(spec.key).isin(pa.array(keys, table.schema.field(spec.key).type))
        for batch in table.scanner(filter=condition).to_batches():
            if batch.num_rows:
                yield pa.table(batch)


def spark_schema(table: str) -> pa.Schema:
    """Return the columns in types that Spark has: ids as signed numbers, dates in microseconds."""
    other = {pa.uint64(): pa.int64(), pa.timestamp("ms", tz="UTC"): pa.timestamp("us", tz="UTC")}
    fields = [field.with_type(other.get(field.type, field.type)) for field in disk_schema(TABLES[table])]
    return pa.schema([field.with_type(pa.binary()) if _is_hash(field) else field for field in fields])


def _is_hash(field: pa.Field) -> bool:
    return bool(pa.types.is_fixed_size_binary(field.type))


def _keys(text: str | None) -> set[int] | None:
    """Return the keys of the option, which are whole numbers with commas between them."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len(parts) > KEYS_MAX:
        raise InvalidInputError(f"{FORMAT}: option keys: expected up to {KEYS_MAX} whole numbers, got {text!r}.")
    return {int(part) for part in parts}
