"""The tables of software as a data source of Spark: `spark.read.format("custody-software")`.

Each file is a task. The option `keys` goes to the index of keys: files whose keys lie elsewhere get no task, and of the
others a task reads the pages of the keys only. Everything else reads whole files, with the checksum of each page.

Conditions are not pushed down: Spark 4.2 keeps what a source in Python took for one query of a DataFrame, and gives the
next one, without a condition, the same few rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from custody.clock import SystemClock
from custody.config import load_settings
from custody.errors import InvalidInputError
from custody.swh.publishing import database_catalog, published_state
from custody.swh.sql_tables import KEYS_MAX, disk_schema, files_of, keyed_table, ranges_of
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
        return SoftwareReader(table, files_of(state, catalog.objects.files, table), _keys(options.get("keys")))

    def _table(self) -> str:
        table = self.options.get("table")
        if table not in TABLES:
            raise InvalidInputError(f"{FORMAT}: option table: expected one of {', '.join(TABLES)}, got {table!r}.")
        return str(table)


@dataclass
class TableFilePart(InputPartition):  # type: ignore[misc]
    """A file of the table, which one task reads."""

    path: Path
    sha256: bytes


class SoftwareReader(DataSourceReader):  # type: ignore[misc]
    """Reads files of one table, whole or by some keys."""

    def __init__(self, table: str, files: dict[Path, bytes], keys: set[int] | None = None) -> None:
        self._table = table
        self._files = files
        self._keys = keys

    def partitions(self) -> Sequence[TableFilePart]:
        """Return the files that may have rows."""
        files = [TableFilePart(path, sha256) for path, sha256 in sorted(self._files.items())]
        if self._keys is None:
            return files
        ranges = ranges_of(PosixFileSystem(), TABLES[self._table], self._files)
        return [
            file
            for file, (first, last) in zip(files, ranges, strict=True)
            if any(first <= key <= last for key in self._keys)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file.

        Raises:
            CorruptionError: the file is damaged.
        """
        if not isinstance(partition, TableFilePart):
            # Where no file has a row, Spark runs one task all the same, without a file.
            return
        spec = TABLES[self._table]
        table = keyed_table(PosixFileSystem(), spec, {partition.path: partition.sha256})
        kind = table.schema.field(spec.key).type
        keys = None if self._keys is None else ds.field(spec.key).isin(pa.array(sorted(self._keys), kind))
        schema = spark_schema(self._table)
        for batch in table.scanner(filter=keys).to_batches():
            if batch.num_rows:
                yield from pa.table(batch).cast(schema).to_batches()


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
