"""The tables of software as a data source of Spark: the rows of the reference, by key from few pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from custody.repository import Repository
from custody.swh.tables import TABLES
from tests.swh.database import publish_reference, rows_of
from tests.swh.graphs import Shape, random_graph
from tests.swh.reference import Reference

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GRAPH = random_graph(Shape(5, 30, 25, 12, 4, 3, 3, 20, 0.1))

pytestmark = [
    pytest.mark.spark,
    # PySpark's own warnings are not this project's errors.
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(scope="module")
def session(one_spark: SparkSession) -> SparkSession:
    from custody.spark.software_source import register_software

    opened = one_spark.newSession()
    register_software(opened)
    return opened


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository with two builds of one graph: of its heads, then of all its revisions."""
    repository = Repository.create(tmp_path_factory.mktemp("source") / "repository")
    for node_filter in ("heads", "all"):
        publish_reference(repository.settings, node_filter, Reference(GRAPH, node_filter), node_filter)
    return repository


def read(session: SparkSession, repository: Repository, table: str, **options: str) -> DataFrame:
    reader = session.read.format("custody-software").option("repository", str(repository.settings.root))
    return reader.options(table=table, **options).load()


def found(frame: DataFrame, columns: str) -> list[tuple[Any, ...]]:
    """Rows with dates in seconds and bytes as bytes."""
    texts = (f"unix_timestamp({name}) {name}" if name.endswith("_date") else name for name in columns.split())
    rows = frame.selectExpr(*texts).collect()
    return sorted(tuple(bytes(value) if isinstance(value, bytearray) else value for value in row) for row in rows)


@pytest.mark.in_parts(3)
@pytest.mark.parametrize(("options", "node_filter"), [({}, "all"), ({"revision": "0"}, "heads")])
def test_each_table_has_the_rows_of_the_reference(
    session: SparkSession, published: Repository, options: dict[str, str], node_filter: str
) -> None:
    for table, (columns, expected) in rows_of(Reference(GRAPH, node_filter)).items():
        assert found(read(session, published, table, **options), columns) == sorted(expected), table


@pytest.mark.parametrize("table", ["nodes", "contents_in_frontier_directories"])
def test_a_condition_on_the_key_is_looked_up(session: SparkSession, published: Repository, table: str) -> None:
    columns, expected = rows_of(Reference(GRAPH, "all"))[table]
    key = TABLES[table].key
    rows: list[Any] = sorted(expected, key=str)
    keys = sorted({row[columns.split().index(key)] for row in rows})
    for chosen in (keys[:1], [keys[0], keys[-1]], [keys[0], 1 << 60], [1 << 60]):
        frame = read(session, published, table, keys=", ".join(map(str, chosen)))
        held = [row for row in rows if row[columns.split().index(key)] in chosen]
        assert sorted(found(frame, columns), key=str) == held


@pytest.mark.parametrize("table", ["nodes", "contents_in_frontier_directories"])
def test_a_file_without_a_named_key_gets_no_task(published: Repository, table: str) -> None:
    from custody.spark.software_source import SoftwareSource

    options = {"repository": str(published.settings.root), "table": table}
    key = TABLES[table].key
    columns, expected = rows_of(Reference(GRAPH, "all"))[table]
    first = min(row[columns.split().index(key)] for row in list[Any](expected))
    for keys, files in ({}, 2), ({"keys": str(first)}, 1), ({"keys": str(1 << 60)}, 0):
        source = SoftwareSource(options | keys)
        assert len(source.reader(source.schema()).partitions()) == files


def test_a_lookup_needs_no_footer(session: SparkSession, tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    publish_reference(repository.settings, "all", Reference(GRAPH, "all"), "all")
    for path in repository.settings.store.glob("*/swh/builds/*/*/tables/nodes/*.parquet"):
        # The length of the footer, which everybody begins with who reads without the index.
        path.write_bytes(path.read_bytes()[:-8] + bytes(4) + b"PAR1")
    rows: Any = rows_of(Reference(GRAPH, "all"))["nodes"][1]
    node = min(row[0] for row in rows)
    assert read(session, repository, "nodes", keys=str(node)).count() == 1
    with pytest.raises(Exception, match=r"footer|Parquet"):
        read(session, repository, "nodes").count()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "option table: expected one of nodes"),
        ({"table": "events"}, "option table: expected one of nodes"),
        ({"table": "nodes"}, "expected the option repository"),
        ({"table": "nodes", "repository": "/", "revision": "x"}, "option revision: expected a whole number"),
    ],
)
def test_a_wrong_option_is_named(session: SparkSession, options: dict[str, str], text: str) -> None:
    with pytest.raises(Exception, match=text):
        session.read.format("custody-software").options(**options).load().count()
