"""One attempt at a step: it writes its rounds as Parquet into the attempt's folder, and the tables of the database.

A walk over the graph is a loop of joins, one level of the graph a round. The result of a round is written at once and
read back: the plan of the next round then begins at files, and an executor that is lost costs one round. The number of
its rows is read from the footers of its files, without another Spark job.

Tables are merged from sorted runs. Spark sorts what each of its tasks has and writes it as a run, without sending rows
around; steps that walk in arrays write runs themselves. One task for each range of keys then merges the runs into a
file with row groups of an exact size and an index beside it, which Spark's own writer cannot do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from custody.errors import InvalidInputError
from custody.swh.build import Build, StepOutput
from custody.swh.table_file import GROUP_ROWS, WrittenFile
from custody.swh.tables import TABLES
from custody.swh.walks.array_ranges import Room
from custody.swh.walks.sorted_runs import Range, cut_ranges, merge_range
from custody.vfs import PosixFileSystem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


ROWS_OF_A_FILE = 4_000_000
BYTES_OF_AN_ARC = 120
"""Memory of the task that makes the arrays, for each arc that it has in memory (measured, docs/swh.md)."""
BYTES_OF_A_NODE = 40
"""Memory of a task that walks, for each directory, content and root (measured, docs/swh.md)."""
# The default of the setting `swh.memory_bytes`; of larger graphs the arrays are made by ranges.
ARCS_IN_ARRAYS = 30_000_000
HISTORY = "history"
"""Under which name the first step keeps the arcs from origins down to revisions."""
_RUN_BYTES = 2 << 20
# Arrow and syncs leave the interpreter's lock, walks do not.
_DRIVER_THREADS = 2
_Unit = TypeVar("_Unit")
_Made = TypeVar("_Made")
_WRITTEN_FILE = msgspec.json.Decoder(WrittenFile)
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of files and row groups of tables, in rows; and the number of arcs that may be in memory at once."""

    file_rows: int = ROWS_OF_A_FILE
    group_rows: int = GROUP_ROWS
    arcs_in_arrays: int = ARCS_IN_ARRAYS
    """Arcs from directories, or of histories; none: everything is walked by joins."""

    @classmethod
    def of_memory(cls, memory_bytes: int) -> Sizes:
        """Return the sizes with which a task takes so much memory."""
        return cls(arcs_in_arrays=memory_bytes // BYTES_OF_AN_ARC)

    @property
    def room(self) -> Room:
        """What may be in memory where not all arcs are: half of the memory is for arcs, half for numbers of nodes."""
        half = self.arcs_in_arrays * BYTES_OF_AN_ARC // 2
        return Room(max(half // BYTES_OF_AN_ARC, 1), half // BYTES_OF_A_NODE)


@dataclass(frozen=True, slots=True)
class Written:
    """Rows that were written, as a DataFrame that reads them."""

    frame: DataFrame
    rows: int
    folder: Path


@dataclass(slots=True, kw_only=True)
class Rounds:
    """The folder of an attempt, into which a loop writes what each of its rounds found."""

    started_session: SparkSession | None
    """None where all that is done are tasks that are not worth the start of a session."""
    attempt: Path
    rounds: int = 0

    @property
    def session(self) -> SparkSession:
        """The session, for what only Spark does."""
        assert self.started_session is not None  # noqa: S101 - who has none asks for tasks alone
        return self.started_session

    def checkpoint(self, frame: DataFrame, *, by: str | None = None) -> Written:
        """Write what a round found and return it as files, `by` a column into folders, until the step ends."""
        return self._write(frame, self._next(), by)

    def runs(self, frame: DataFrame, order: Sequence[str]) -> Written:
        """Write rows as runs: each file sorted, in row groups so small that a range of keys is few of them."""
        folder = self._next()
        sorted_rows = frame.sortWithinPartitions(*order)
        sorted_rows.write.option("parquet.block.size", _RUN_BYTES).parquet(url_of(folder))
        return Written(frame, rows_in(folder), folder)

    def folder(self) -> Path:
        """Make a folder that tasks write into; it is removed when the step ends."""
        folder = self._next()
        PosixFileSystem().make_directory(folder)
        return folder

    def each(self, units: Sequence[_Unit], task: Callable[[_Unit], _Made]) -> list[_Made]:
        """Do a task for each unit in Spark's Python workers, or here without a session; what a task returns is small.

        Raises:
            InvalidInputError: the graph breaks a rule that the task knows.
        """
        if not units:
            return []
        guarded = partial(_result_or_refusal, task)
        results: list[_Made | InvalidInputError]
        if self.started_session is None:
            with ThreadPoolExecutor(_DRIVER_THREADS) as threads:
                results = list(threads.map(guarded, units))
        else:
            results = self.session.sparkContext.parallelize(units, len(units)).map(guarded).collect()
        made: list[_Made] = []
        for one in results:
            if isinstance(one, InvalidInputError):
                raise one
            made.append(one)
        return made

    def _next(self) -> Path:
        # A new folder each time: a DataFrame of an earlier round still reads its own files.
        folder = self.attempt / "rounds" / f"{self.rounds:06}"
        self.rounds += 1
        return folder

    def several(self, parts: list[Written]) -> DataFrame:
        """Return the rows of several rounds as one DataFrame."""
        folders = [url_of(part.folder) for part in parts]
        return self.session.read.schema(parts[0].frame.schema).parquet(*folders)

    def _write(self, frame: DataFrame, folder: Path, by: str | None) -> Written:
        (frame.write if by is None else frame.write.partitionBy(by)).parquet(url_of(folder))
        return Written(self.session.read.schema(frame.schema).parquet(url_of(folder)), rows_in(folder), folder)


@dataclass(slots=True, kw_only=True)
class Work(Rounds):
    """The tools of a step: the session, the build, and its attempt's folder."""

    build: Build
    step: str
    sizes: Sizes = field(default_factory=Sizes)
    files: list[WrittenFile] = field(default_factory=list)
    rows_kept: dict[str, int] = field(default_factory=dict)
    walks: str = ""
    attempt_name: str = ""
    """Who does this, where that was said."""
    started: float = field(default_factory=time.monotonic)

    def keep(self, name: str, frame: DataFrame, *, by: str | None = None) -> Written:
        """Write rows that later steps read, `by` a column into folders."""
        written = self._write(frame, self.attempt / "kept" / name, by)
        self.rows_kept[name] = written.rows
        return written

    def read(self, step: str, name: str) -> DataFrame:
        """Return the rows that an earlier step keeps for later ones."""
        folder = self.build.intermediate(step, name)
        return self.session.read.schema(_schema(folder)).parquet(url_of(folder))

    def finish(self) -> StepOutput:
        """Publish the attempt as the step's output."""
        output = StepOutput(
            step=self.step,
            files=tuple(self.files),
            kept=self.rows_kept,
            rounds=self.rounds,
            seconds=round(time.monotonic() - self.started, 3),
            walks=self.walks,
            attempt=self.attempt_name,
        )
        return self.build.finish(self.attempt, output)


def _result_or_refusal(task: Callable[[_Unit], _Made], unit: _Unit) -> _Made | InvalidInputError:
    """Do a task; its own refusal is an answer: to do it again would change nothing."""
    try:
        return task(unit)
    except InvalidInputError as error:
        return error


def rows_in(folder: Path) -> int:
    """Return how many rows the files of a folder, and of those in it, hold, from their footers."""
    return sum(pq.read_metadata(path).num_rows for path in folder.rglob("*.parquet"))


def any_in(folder: Path, column: str) -> bool:
    """Return whether a column of truth values is true in any row, from the statistics in the footers."""
    for path in folder.glob("*.parquet"):
        metadata = pq.read_metadata(path)
        place = metadata.schema.names.index(column)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        seen = [group.column(place).statistics for group in groups if group.num_rows]
        # Without statistics nothing is known, and one more round does no harm.
        if any(statistics is None or not statistics.has_min_max or statistics.max for statistics in seen):
            return True
    return False


def _schema(folder: Path) -> StructType:
    """The columns of what was written; to ask Spark would cost a job."""
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    # One file is enough: all files of a folder have the same columns.
    schema = pq.read_schema(next(folder.glob("*.parquet")))
    if schema.metadata and _SPARK_SCHEMA in schema.metadata:
        return StructType.fromJson(json.loads(schema.metadata[_SPARK_SCHEMA]))
    # What tasks write are numbers and paths.
    return StructType(
        [StructField(field.name, LongType() if pa.types.is_integer(field.type) else BinaryType()) for field in schema]
    )


def url_of(path: Path) -> str:
    """Return what Spark calls a path of this machine; it takes names as they are, so that nothing is escaped."""
    return f"file://{path.absolute()}"


def write_table(work: Work, name: str, rows: DataFrame) -> None:
    """Write rows as the table of that name; ids as bigint, dates as seconds in bigint."""
    spec = TABLES[name]
    columns = [column for column in spec.schema.names if column != spec.key or not spec.derives_key]
    order = [column for column in spec.order if column in columns]
    merge_runs(work, name, work.runs(rows.select(*columns), order).folder)


def merge_runs(work: Work, name: str, folder: Path) -> None:
    """Write the runs of a folder as the table of that name."""
    runs = sorted(folder.glob("*.parquet"))
    target = work.attempt / "tables" / name
    PosixFileSystem().make_directory(target)
    # By the footers of the runs: no row is read to find out how keys are spread.
    ranges = cut_ranges(runs, TABLES[name], work.sizes.file_rows)
    files = work.each(
        ranges, partial(_merge, name, runs, target, work.sizes.group_rows, work.build.description.footer())
    )
    work.files += [_WRITTEN_FILE.decode(file) for file in files if file]


def _merge(name: str, runs: list[Path], folder: Path, group_rows: int, footer: Mapping[str, str], part: Range) -> bytes:
    """Write one range in a Python worker; return its description, nothing for an empty one."""
    fs = PosixFileSystem()
    target = folder / f"{part.number:05}.parquet"
    # A task that Spark tries again finds what its first try left.
    fs.remove(target)
    fs.remove(target.with_suffix(".ef"))
    spec = TABLES[name].with_footer(footer)
    written = merge_range(fs, spec, runs, part, target, group_rows=group_rows)
    return msgspec.json.encode(written) if written is not None else b""
