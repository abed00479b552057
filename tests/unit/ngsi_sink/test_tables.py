"""Tables that are wanted: kept until they are made, said where they lie, and not asked of a metastore that is away."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, cast

import pytest

from custody.config import Settings
from custody.errors import ConfigurationError, CorruptionError
from custody.ngsi.naming import Destination
from custody.ngsi_sink.opening import open_target
from custody.ngsi_sink.tables import (
    PendingTables,
    TablesReport,
    hive_server_problem,
    location,
    metastore_problem,
    spark_table,
)
from custody.spark.hive import ensure_tables, session_options
from custody.vfs.memory import MemoryFileSystem
from tests.unit.ngsi.notification_records import attribute, body, parameters, recorded

FOLDER = Path("/repository/hive")
DEAD = "thrift://127.0.0.1:1"


def destination(id: str = "Bench1", **names: object) -> Destination:
    [record] = recorded(body({"seats": attribute(4)}, id=id), parameters(**names))
    return record.placed.destination


def test_a_note_outlives_the_process_until_the_table_stands() -> None:
    fs = MemoryFileSystem()
    one, two = destination(), destination("Bench2")
    PendingTables(fs, FOLDER).note([one, two])
    PendingTables(fs, FOLDER).note([one])
    wanted = PendingTables(fs, FOLDER)
    assert sorted(wanted.all(), key=lambda found: found.name) == [one, two]
    wanted.done(one)
    wanted.done(one)
    assert wanted.all() == [two]
    assert PendingTables(fs, Path("/other")).all() == []


def test_a_destination_that_is_separated_by_time_has_one_note() -> None:
    fs = MemoryFileSystem()
    wanted = PendingTables(fs, FOLDER)
    wanted.note([destination(), destination(periodicity_of_file_separation="hourly")])
    assert len(wanted.all()) == 1


def test_a_note_that_cannot_be_read_is_named() -> None:
    fs = MemoryFileSystem()
    wanted = PendingTables(fs, FOLDER)
    wanted.note([destination()])
    [name] = fs.list(FOLDER / "tables")
    fs.write_durably(FOLDER / "tables" / name, b"{")
    with pytest.raises(CorruptionError, match=name):
        wanted.all()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({}, "file:///r/hdfs/user/warden/parks/north/a b%25_Bench"),
        ({"hdfs_host": "nn"}, "/user/warden/parks/north/a b%25_Bench"),
        ({"hdfs_host": "nn", "hive_location": "hdfs://x:1/"}, "hdfs://x:1/user/warden/parks/north/a b%25_Bench"),
    ],
)
def test_a_table_lies_where_its_files_are_under_names_as_they_are(names: dict[str, Any], expected: str) -> None:
    used = parameters(**names)
    target = open_target(used, MemoryFileSystem(), Path("/r"))
    found = destination(**names)
    odd = Destination(found.root, "parks/north/a b%25_Bench", "a b%25_Bench", "", found.database, found.table)
    assert location(odd, used, target) == expected
    made = spark_table(odd, used, {}, target)
    assert made.location == expected
    assert f"using json location '{expected}'" in made.statements[-1]
    target.close()


def test_a_metastore_that_is_away_costs_nothing_but_waiting() -> None:
    fs = MemoryFileSystem()
    used = parameters(hive_metastore_uri=DEAD)
    settings = Settings(root=Path("/repository"), ngsi={"hive_metastore_uri": DEAD})
    session = cast("Any", None)  # not asked
    target = open_target(used, fs, Path("/repository"))
    report = ensure_tables(session, settings, fs, [destination()], {}, used, target)
    assert (report.made, report.extended, report.waiting) == (0, 0, 1)
    [problem] = report.problems
    assert problem.startswith("metastore: 127.0.0.1:1 does not answer")
    again = ensure_tables(session, settings, fs, [], {}, used, target)
    assert again.waiting == 1
    PendingTables(fs, FOLDER).done(destination())
    assert ensure_tables(session, settings, fs, [], {}, used, target) == TablesReport()


def test_who_answers_is_said_of_metastores_and_servers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        both = parameters(hive_metastore_uri=f"{DEAD},thrift://127.0.0.1:{port}", hive_host="127.0.0.1", hive_port=port)
        assert metastore_problem(both) is None
        assert hive_server_problem(both) is None
    assert "127.0.0.1:1 does not answer" in str(metastore_problem(parameters(hive_metastore_uri=DEAD)))
    silent = parameters(hive_metastore_uri=DEAD, hive_host="127.0.0.1", hive_port=1)
    assert str(hive_server_problem(silent)).startswith("HiveServer2: 127.0.0.1:1 does not answer")
    assert hive_server_problem(parameters(hive_metastore_uri=DEAD)) is None
    assert metastore_problem(parameters()) is None
    assert hive_server_problem(parameters()) is None


def test_the_metastore_is_the_repository_s_own_or_the_named_one(tmp_path: Path) -> None:
    own = session_options(Settings(root=tmp_path))
    assert f"databaseName={tmp_path}/hive/metastore;create=true" in own["spark.hadoop.javax.jdo.option.ConnectionURL"]
    named = session_options(Settings(root=tmp_path, ngsi={"hive_metastore_uri": DEAD}))
    assert named["spark.hadoop.hive.metastore.uris"] == DEAD
    assert not any("jdo" in name for name in named)
    with pytest.raises(ConfigurationError, match="expected thrift://host:port"):
        parameters(hive_metastore_uri="localhost:9083")


def test_spark_makes_the_form_of_hive_in_a_metastore_where_it_is_asked_for() -> None:
    choices: list[tuple[dict[str, Any], str]] = [
        ({"hive_metastore_uri": DEAD}, "using json"),
        ({"hive_metastore_uri": DEAD, "hive_dialect": "hive"}, "org.openx.data.jsonserde.JsonSerDe"),
        (
            {"hive_metastore_uri": DEAD, "hive_dialect": "hive", "hive_json_serde": "hcatalog"},
            "org.apache.hive.hcatalog",
        ),
        ({"hive_dialect": "hive"}, "using json"),
    ]
    for names, form in choices:
        used = parameters(**names)
        target = open_target(used, MemoryFileSystem(), Path("/r"))
        assert form in spark_table(destination(), used, {}, target).row_format
        target.close()
