"""Events as a data source of Spark: `spark.read.format("custody")`, and `spark.readStream` by commit.

A read gives the events of all writers at one moment, that of its load: those of live logs, each log a task, and those
that were acknowledged and are in no log yet. A stream gives each event once, when it is live.

Executors need the repository's store and no folder of the driver: of logs in an object store they fetch the blocks that
may hold what is asked for, into a folder of their own.

What is asked for is said by options, which rule out logs and blocks by the catalog's statistics and filter exactly.
Conditions of a query are not pushed down: Spark 4.2 keeps what a source in Python took for one query of a DataFrame,
and gives the next one, without a condition, the same few rows. Options belong to the DataFrame, so nothing can mix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from custody.clock import SystemClock
from custody.config import Settings, load_settings
from custody.errors import ConfigurationError, InvalidInputError
from custody.query.times import time_span
from custody.read.commit_feed import Position, limited_positions, new_parts, newest_positions
from custody.read.event_scan import EventFilter, ScanPart, joined, plan_scan, read_part
from custody.read.sql import SQL_SCHEMA
from custody.read.time_travel import AsOf, parse_as_of
from custody.spark.own_disk import reading_disk
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

EVENT_FORMAT = "custody"
_FILTERS = ("eventIds", "eventTimeFrom", "eventTimeTo", "eventTypes", "flowfileUuids")
_READ_OPTIONS = ("repository", "path", "writer", "asOf", *_FILTERS)
_STREAM_OPTIONS = ("repository", "path", "writer", "startingOffsets", "maxFilesPerTrigger", *_FILTERS)
# Of values in a list: more of them are for a join.
_VALUES_MAX = 10_000
_TIME = pa.timestamp("us", tz="UTC")
T = TypeVar("T")


def register_events(session: SparkSession) -> None:
    """Make the format known to a session."""
    session.dataSource.register(EventSource)


class EventSource(DataSource):  # type: ignore[misc]
    """The events of a repository.

    Options: `repository`; `writer`; `asOf`, a time or, with one writer, a revision; and what is asked for: `eventIds`
    (numbers and spans, `17, 40-99`), `eventTimeFrom` (included), `eventTimeTo` (excluded), `eventTypes`,
    `flowfileUuids`. Of a stream, instead of `asOf`: `startingOffsets` (`earliest` or `latest`), `maxFilesPerTrigger`.

    Raises:
        InvalidInputError: an option is missing, unknown, or not of its form.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return EVENT_FORMAT

    def schema(self) -> StructType:
        """Return all columns as Spark's types."""
        schema: StructType = from_arrow_schema(event_source_schema())
        return schema

    def reader(self, schema: StructType) -> EventReader:
        """Return a reader of the events at this moment, or as they were; a schema with few columns reads only these."""
        options = EventOptions(self.options, _READ_OPTIONS)
        as_of = options.parsed("asOf", parse_as_of)
        asked, columns = options.asked(), _columns(schema)
        return EventReader(options.settings(), options, asked, as_of, columns)

    def streamReader(self, schema: StructType) -> EventStreamReader:
        """Return a reader of what becomes live."""
        options = EventOptions(self.options, _STREAM_OPTIONS)
        asked, columns = options.asked(), _columns(schema)
        return EventStreamReader(options.settings(), options, asked, columns)


@dataclass(frozen=True)
class EventOptions:
    """The options of a read, checked.

    Raises:
        InvalidInputError: one is unknown, missing, or not of its form; the message names it.
    """

    values: Mapping[str, str]
    known: Sequence[str]

    def __post_init__(self) -> None:
        known = {name.lower() for name in self.known}
        # An option that is misspelt would ask for every event, and nobody would notice.
        for name in self.values:
            if name.lower() not in known:
                expected = ", ".join(name for name in self.known if name != "path")
                raise InvalidInputError(f"{EVENT_FORMAT}: expected the options {expected}, got {name!r}.")

    def get(self, name: str) -> str | None:
        """Return a value; the case of names does not count, as everywhere in Spark."""
        return next((value for key, value in self.values.items() if key.lower() == name.lower()), None)

    def parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        """Return a value as it is meant."""
        text = self.get(name)
        if text is None:
            return None
        try:
            return parse(text.strip())
        except ValueError as error:
            raise InvalidInputError(f"{EVENT_FORMAT}: option {name}: {error}") from error

    def settings(self) -> Settings:
        """Return the settings of the repository."""
        folder = self.get("repository") or self.get("path")
        if folder is None:
            raise InvalidInputError(
                f"{EVENT_FORMAT}: expected the option repository, the folder of a repository, got none."
            )
        return load_settings(Path(folder))

    def workspaces(self, settings: Settings) -> list[Workspace]:
        """Return the files of the writers that are asked for."""
        writer = self.get("writer")
        fs = PosixFileSystem()
        return Workspace.all(settings, fs) if writer is None else [Workspace(settings, writer, fs)]

    def asked(self) -> EventFilter:
        """Return what is asked for."""
        return EventFilter(
            ids=self.parsed("eventIds", _id_ranges),
            from_ms=self.parsed("eventTimeFrom", _first_ms),
            to_ms=self.parsed("eventTimeTo", _first_ms),
            event_types=self.parsed("eventTypes", _words),
            flowfile_uuids=self.parsed("flowfileUuids", _words),
        )


@dataclass
class EventPart(InputPartition):  # type: ignore[misc]
    """Some events of one writer, which one task reads."""

    part: ScanPart


@dataclass
class EventReader(DataSourceReader):  # type: ignore[misc]
    """Reads the events of one moment: that of the plan."""

    settings: Settings
    options: EventOptions
    asked: EventFilter
    as_of: AsOf | None
    columns: pa.Schema

    def partitions(self) -> Sequence[EventPart]:
        """Return a part for each log that may hold events that are asked for, and those of journals.

        Raises:
            ConfigurationError: a revision is asked for, and there are several writers.
            NotFoundError, PrunedError: there is no such revision, or it is not kept any more.
            CorruptionError: a catalog or a journal is damaged.
        """
        workspaces = self.options.workspaces(self.settings)
        if isinstance(self.as_of, int) and len(workspaces) > 1:
            names = ", ".join(item.writer for item in workspaces)
            raise ConfigurationError(
                f"{EVENT_FORMAT}: option asOf: a revision is one writer's, and there are {names}. "
                "Name one with the option writer, or give a time."
            )
        # Not kept in the reader, which travels with every task: a part may carry megabytes of events.
        return [EventPart(part) for part in plan_scan(workspaces, self.asked, self.as_of).parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part.

        Raises:
            CorruptionError: a log is damaged.
            ConflictError: a log is gone since the load.
            StorageError: the store refuses.
        """
        return _read(self.settings, partition, self.asked, self.columns)


@dataclass
class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads what becomes live, each event once: an offset is the revision of each writer's catalog, and its digest."""

    settings: Settings
    options: EventOptions
    asked: EventFilter
    columns: pa.Schema
    _target: dict[str, Position] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._starts_at_end = self.options.parsed("startingOffsets", _starts_at_end) or False
        self._files_max = self.options.parsed("maxFilesPerTrigger", _files_max)

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset of a stream that begins: of nothing, or of the newest revisions."""
        return _offset(newest_positions(self._workspaces()) if self._starts_at_end else {})

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much one batch may take."""
        return ReadAllAvailable() if self._files_max is None else ReadMaxFiles(self._files_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember what is there now: a run that is to end stops there."""
        self._target = newest_positions(self._workspaces())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return up to where the next batch may go."""
        workspaces = self._workspaces()
        begin = _positions(start)
        newest = newest_positions(workspaces) if self._target is None else self._target
        # A target may lie before where a former run has come.
        stop = {**begin, **{name: at for name, at in newest.items() if _is_later(at, begin.get(name))}}
        if isinstance(limit, ReadMaxFiles):
            return _offset(limited_positions(workspaces, begin, stop, limit.max_files))
        return _offset(stop)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[EventPart]:
        """Return the parts of what became live between two offsets.

        Raises:
            PrunedError, ConflictError: the catalog cannot tell any more; the message says what to do.
        """
        parts = new_parts(self._workspaces(), _positions(start), _positions(end), self.asked)
        return [EventPart(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part; raises as `EventReader.read`."""
        return _read(self.settings, partition, self.asked, self.columns)

    def _workspaces(self) -> list[Workspace]:
        return self.options.workspaces(self.settings)


def event_source_schema() -> pa.Schema:
    """Return the columns of the table `events`, in types that Spark has: times in microseconds."""
    is_time = pa.types.is_timestamp
    return pa.schema([each.with_type(_TIME) if is_time(each.type) else each for each in SQL_SCHEMA])


def _read(
    settings: Settings, partition: InputPartition, asked: EventFilter, columns: pa.Schema
) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, EventPart):
        # Where there is no part, Spark runs one task all the same, without one.
        return
    with reading_disk(settings) as here:
        for table in read_part(here, PosixFileSystem(), partition.part, asked, columns.names):
            yield from table.cast(columns).to_batches()


def _columns(schema: StructType) -> pa.Schema:
    """Return the columns to read, as Spark expects them.

    Raises:
        InvalidInputError: one is none of the events', or of another type.
    """
    known = {each.name: each.dataType for each in from_arrow_schema(event_source_schema())}
    for each in schema:
        if known.get(each.name) != each.dataType:
            expected = f"the type {known[each.name].simpleString()}" if each.name in known else "a column of events"
            actual = each.dataType.simpleString()
            raise InvalidInputError(f"{EVENT_FORMAT}: schema, {each.name!r}: expected {expected}, got {actual}.")
    whole = event_source_schema()
    # A schema that a user writes says of every column that it may be null.
    return pa.schema([whole.field(each.name).with_nullable(each.nullable) for each in schema])


def _offset(positions: Mapping[str, Position]) -> dict[str, Any]:
    return {writer: _as_json(at) for writer, at in sorted(positions.items())}


def _as_json(at: Position) -> dict[str, Any]:
    """Return a position as Spark keeps it: JSON."""
    return {"revision": at.revision, "digest": at.digest}


def _positions(offset: Mapping[str, Any]) -> dict[str, Position]:
    return {writer: msgspec.convert(dict(at), Position) for writer, at in offset.items()}


def _is_later(at: Position, than: Position | None) -> bool:
    return than is None or at.revision > than.revision


def _words(text: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    if not all(words) or len(words) > _VALUES_MAX:
        raise ValueError(f"expected up to {_VALUES_MAX} values with commas between them, got {text[:100]!r}.")
    return words


def _id_ranges(text: str) -> tuple[tuple[int, int], ...]:
    """Return the event ids of a text such as `17, 40-99`."""
    ranges = []
    for word in _words(text):
        low, dash, high = (part.strip() for part in word.partition("-"))
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise ValueError(f"expected event ids such as 17, 40-99, got {word[:100]!r}.")
        ranges.append((int(low), int(high or low)))
        if ranges[-1][0] > ranges[-1][1]:
            raise ValueError(f"expected the lower id first, got {word!r}.")
    return joined(ranges)


def _first_ms(text: str) -> int:
    return time_span(text, SystemClock().now_ms())[0]


def _starts_at_end(text: str) -> bool:
    if text not in ("earliest", "latest"):
        raise ValueError(f"expected earliest or latest, got {text!r}.")
    return text == "latest"


def _files_max(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError(f"expected a whole number of at least 1, got {text!r}.")
    return int(text)
