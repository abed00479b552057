"""Events as a data source of Spark: the same rows as SQL gives, filtered by options, and a stream by commit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from custody.errors import CustodyError
from custody.repository import EventSelection, Repository
from tests.support import append, event, run_steps, sample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from custody.read.event_scan import ScanPart

EVENTS = sample(600)
COMMITS = 10

pytestmark = [
    pytest.mark.spark,
    # PySpark's own warnings are not this project's errors.
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(scope="module")
def session(one_spark: SparkSession) -> SparkSession:
    from custody.spark.event_source import register_events

    opened = one_spark.newSession()
    opened.conf.set("spark.sql.session.timeZone", "UTC")
    # The trap: with it, Spark asks sources in Python to take conditions.
    opened.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    register_events(opened)
    return opened


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Ten commits, a forgotten event, and events that wait in a journal."""
    root = tmp_path_factory.mktemp("it's ${a} source") / "repository"
    found = Repository.create(root)
    for number in range(COMMITS):
        append(found, EVENTS[number * 50 : number * 50 + 50])
        run_steps(found.settings)
    found.forget(EventSelection(event_ids=(7, 431)), "asked for")
    append(found, EVENTS[500:])
    return found


def load(session: SparkSession, repository: Repository, **options: str) -> DataFrame:
    return session.read.format("custody").option("repository", str(repository.settings.root)).options(**options).load()


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.event_id for row in frame.select("event_id").collect())


def rows_by_tasks(repository: Repository, **options: str) -> tuple[list[int], list[ScanPart]]:
    """The ids that tasks give out, and their parts: what Spark calls, without Spark; all of it travels as there."""
    from pyspark.serializers import CloudPickleSerializer

    from custody.spark.event_source import EventSource

    source, travel = EventSource({"repository": str(repository.settings.root), **options}), CloudPickleSerializer()
    reader = source.reader(source.schema())
    parts = reader.partitions()
    elsewhere = travel.loads(travel.dumps(reader))
    batches = [batch for part in parts for batch in elsewhere.read(travel.loads(travel.dumps(part)))]
    ids_read = [value for batch in batches for value in batch.column("event_id").to_pylist()]
    return sorted(ids_read), [part.part for part in parts]


def in_sql(repository: Repository, where: str = "true", **options: Any) -> list[int]:
    with repository.sql("select event_id from events where " + where + " order by 1", **options) as result:
        return [value for batch in result.batches() for value in batch.column(0).to_pylist()]


def test_every_column_of_every_event_is_that_of_sql_also_of_those_acknowledged_just_now(
    session: SparkSession, repository: Repository
) -> None:
    with repository.sql("select * from events order by event_id") as result:
        expected = [row for batch in result.batches() for row in batch.to_pylist()]
    frame = load(session, repository)
    rows = [row.asDict(recursive=True) for row in frame.orderBy("event_id").collect()]
    assert frame.columns == list(expected[0])
    assert len(rows) == 598
    for row, other in zip(rows, expected, strict=True):
        for name, value in other.items():
            if name.endswith("attributes"):
                value = dict(value)
            elif name.endswith(("_time", "_date")) and value is not None:
                value = value.replace(tzinfo=None)
            assert row[name] == value, name


@pytest.mark.in_parts(2)
def test_ten_revisions_have_the_rows_that_sql_gives(session: SparkSession, repository: Repository) -> None:
    for revision in range(COMMITS):
        right = in_sql(repository, as_of=revision)
        assert rows_by_tasks(repository, asOf=str(revision))[0] == right
        if revision % 4 == 1:
            assert ids(load(session, repository, asOf=str(revision))) == right


@pytest.mark.parametrize(
    ("options", "where", "logs"),
    [
        ({"eventIds": "3, 60-70,431"}, "event_id = 3 or event_id between 60 and 70 or event_id = 431", 3),
        ({"eventTypes": "SEND, DROP"}, "event_type in ('SEND', 'DROP')", COMMITS),
        ({"eventTimeFrom": EVENTS[480].event_time}, f"epoch_ms(event_time) >= {EVENTS[480].event_time}", 5),
        ({"eventTimeTo": EVENTS[3].event_time}, f"epoch_ms(event_time) < {EVENTS[3].event_time}", 2),
        ({"flowfileUuids": EVENTS[77].flowfile_uuid}, f"flowfile_uuid = '{EVENTS[77].flowfile_uuid}'", None),
        ({"flowfileUuids": "' or 1=1; ${x}"}, "flowfile_uuid = 'no'", None),
        ({"eventIds": "700-800"}, "event_id >= 700", 0),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_options_give_the_rows_of_the_condition_and_read_only_logs_that_may_hold_them(
    repository: Repository, options: dict[str, Any], where: str, logs: int | None
) -> None:
    found, parts = rows_by_tasks(repository, **{name: str(value) for name, value in options.items()})
    assert found == in_sql(repository, where)
    read = [part for part in parts if part.log is not None]
    assert logs is None or len(read) <= logs
    assert len(read) <= COMMITS


@pytest.mark.in_parts(2)
def test_a_condition_of_one_query_is_not_that_of_the_next(session: SparkSession, repository: Repository) -> None:
    frame = load(session, repository)
    assert frame.where("event_id = 3").count() == 1
    assert frame.where("event_id = 4 and event_type = 'NONE'").count() == 0
    assert frame.count() == 598
    assert frame.where("event_id < 10").count() == 9
    frame.createOrReplaceTempView("custody_events")
    for _ in range(2):
        assert session.sql("select count(*) from custody_events where event_id = 3").first()[0] == 1
        assert session.sql("select count(*) from custody_events").first()[0] == 598
    both = frame.where("event_id = 3").join(frame.withColumnRenamed("event_id", "other"), on="event_type")
    assert both.count() == in_sql(repository, f"event_type = '{EVENTS[3].event_type}'").__len__()


def test_a_schema_of_few_columns_reads_only_these(session: SparkSession, repository: Repository) -> None:
    reader = session.read.format("custody").option("repository", str(repository.settings.root))
    frame = reader.schema("event_type string, writer string").load()
    assert frame.columns == ["event_type", "writer"]
    assert frame.count() == 598
    assert {row.writer for row in frame.distinct().collect()} == {"main"}
    with pytest.raises(Exception, match="'event_id': expected the type bigint, got int"):
        reader.schema("event_id int").load().count()
    with pytest.raises(Exception, match="'no such': expected a column of events"):
        reader.schema("`no such` int").load().count()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "expected the option repository"),
        ({"repository": "/", "eventid": "3"}, "expected the options repository, writer, asOf, .* got 'eventid'"),
        ({"repository": "/", "eventIds": "3-"}, "option eventIds: expected event ids such as 17, 40-99, got '3-'"),
        ({"repository": "/", "eventIds": "9-3"}, "option eventIds: expected the lower id first"),
        ({"repository": "/", "eventTypes": "SEND,,"}, "option eventTypes: expected up to"),
        ({"repository": "/", "eventTimeFrom": "soonish"}, "option eventTimeFrom: time 'soonish'"),
        ({"repository": "/", "asOf": "soonish"}, "option asOf: time 'soonish'"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], text: str) -> None:
    from custody.spark.event_source import EventSource

    with pytest.raises(CustodyError, match=text):
        EventSource(options).reader(EventSource(options).schema())


def test_an_error_of_the_source_reaches_who_asks_spark(session: SparkSession, repository: Repository) -> None:
    with pytest.raises(Exception, match="option eventIds: expected the lower id first"):
        load(session, repository, eventIds="9-3").count()
    with pytest.raises(Exception, match=r"there is no revision 99, the newest is \d+"):
        load(session, repository, asOf="99").count()


def test_a_log_that_goes_between_plan_and_task_is_an_error_that_says_so(session: SparkSession, tmp_path: Path) -> None:
    from custody.spark.event_source import EventSource

    found = Repository.create(tmp_path / "repository")
    append(found, EVENTS[:20])
    run_steps(found.settings)
    source = EventSource({"repository": str(found.settings.root)})
    reader = source.reader(source.schema())
    [part] = reader.partitions()
    next(iter(found.settings.store.rglob("*.parquet"))).unlink()
    with pytest.raises(Exception, match=r"gone since the scan was planned.* Load the events again"):
        list(reader.read(part))


class Stream:
    """A streaming query whose rows are kept in files, and that is run up to what is there now, again and again."""

    def __init__(self, session: SparkSession, folder: Path, repository: Repository, **options: str) -> None:
        self._session = session
        self._folder = folder
        self._repository = repository
        self._options = options

    def run(self) -> list[int]:
        """The ids of all rows so far, each as often as it was given out."""
        reader = self._session.readStream.format("custody").options(**self._options)
        frame = reader.option("repository", str(self._repository.settings.root)).load()
        writer = frame.writeStream.format("parquet").option("path", str(self._folder / "rows"))
        query = writer.option("checkpointLocation", str(self._folder / "at")).trigger(availableNow=True).start()
        query.awaitTermination()
        self.batches = len([each for each in query.recentProgress if each["numInputRows"]])
        return ids(self._session.read.parquet(str(self._folder / "rows")))


@pytest.mark.in_parts(4)
def test_a_stream_gives_each_event_once_over_restarts_compactions_and_erasures(
    session: SparkSession, tmp_path: Path
) -> None:
    found = Repository.create(tmp_path / "repository")
    stream = Stream(session, tmp_path / "stream", found)
    append(found, EVENTS[:50])
    run_steps(found.settings)
    append(found, EVENTS[50:60])  # not live: of no commit
    assert stream.run() == list(range(50))
    assert stream.run() == list(range(50))
    run_steps(found.settings)
    append(found, EVENTS[60:100])
    run_steps(found.settings)
    found.forget(EventSelection(event_ids=(5, 70)), "asked for")
    assert [report.error for report in found.compact() if report.error] == []
    expected = [number for number in range(100) if number != 70]  # 5 was given out before it was forgotten
    assert stream.run() == expected
    append(found, EVENTS[100:130])
    run_steps(found.settings)
    found.compact()
    assert stream.run() == [*expected, *range(100, 130)]


@pytest.mark.slow
def test_a_batch_that_is_done_again_has_the_same_events(session: SparkSession, tmp_path: Path) -> None:
    found = Repository.create(tmp_path / "repository")
    append(found, EVENTS[:50])
    run_steps(found.settings)
    stream = Stream(session, tmp_path / "stream", found)
    stream.run()
    append(found, EVENTS[50:80])
    run_steps(found.settings)
    stream.run()
    # As after a crash between the work of a batch and its note: it was planned, and nobody knows whether it was done.
    for path in (tmp_path / "stream" / "at" / "commits").glob("*1*"):
        path.unlink()
    append(found, EVENTS[80:120])
    run_steps(found.settings)
    found.compact()
    assert stream.run() == list(range(120))  # the sink knows the batch's number and drops the repetition


@pytest.mark.slow
def test_a_limit_cuts_a_stream_into_batches_and_a_new_writer_joins_it(session: SparkSession, tmp_path: Path) -> None:
    found = Repository.create(tmp_path / "repository")
    for first in range(0, 100, 20):
        append(found, EVENTS[first : first + 20])
        run_steps(found.settings)
    stream = Stream(session, tmp_path / "stream", found, maxFilesPerTrigger="2")
    assert stream.run() == list(range(100))
    assert stream.batches == 3
    other = Repository.open(found.settings.root)
    other.settings = type(found.settings).model_validate(
        {**found.settings.model_dump(), "root": found.settings.root, "repository": {"writer": "second"}}
    )
    append(other, [event(number) for number in range(3)])
    run_steps(found.settings)
    assert stream.run() == sorted([*range(100), *range(3)])
    assert stream.batches == 1


@pytest.mark.slow
def test_a_stream_from_now_on_gives_nothing_older(session: SparkSession, tmp_path: Path) -> None:
    found = Repository.create(tmp_path / "repository")
    append(found, EVENTS[:50])
    run_steps(found.settings)
    stream = Stream(session, tmp_path / "stream", found, startingOffsets="latest", eventTypes="ROUTE")
    assert stream.run() == []
    append(found, EVENTS[50:100])
    run_steps(found.settings)
    assert stream.run() == in_sql(found, "event_id >= 50 and event_type = 'ROUTE'")


@pytest.mark.slow
def test_a_stream_whose_revision_was_pruned_or_replaced_stops_with_what_to_do(
    session: SparkSession, tmp_path: Path
) -> None:
    from custody.catalog import prune

    found = Repository.create(tmp_path / "repository")
    stream = Stream(session, tmp_path / "stream", found)
    append(found, EVENTS[:10])
    run_steps(found.settings)
    stream.run()
    offset = sorted((tmp_path / "stream" / "at" / "offsets").glob("[0-9]*"))[-1]
    for number in range(1, 6):
        append(found, EVENTS[number * 10 : number * 10 + 10])
        run_steps(found.settings)
        found.workspace().catalog.checkpoint()
    changed = tmp_path / "changed"
    prune(found.workspace().catalog, 3)
    with pytest.raises(Exception, match=r"keep more of the history .* new checkpoint folder"):
        stream.run()
    assert '"revision": 0, "digest": "' in offset.read_text()
    # A stream of another catalog: the revision is there, and is another one.
    again = Repository.create(changed)
    append(again, EVENTS[:10])
    run_steps(again.settings)
    append(again, EVENTS[10:20])
    run_steps(again.settings)
    with pytest.raises(Exception, match="another one than was read before: the catalog was repaired or rebuilt"):
        Stream(session, tmp_path / "stream", again).run()
