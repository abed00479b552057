"""Tables at a HiveServer2: where settings send them, what has no effect, and what is said when it is away.

What a server answers is tried with real ones: `tests/services/test_hive_server.py`.
"""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from custody.errors import ConfigurationError
from custody.ngsi_sink.hive_server import ensure_server_tables
from custody.ngsi_sink.opening import open_target
from custody.ngsi_sink.tables import PendingTables, TablesReport
from custody.vfs.memory import MemoryFileSystem
from tests.unit.ngsi.notification_records import attribute, body, parameters, recorded

FOLDER = Path("/repository/hive")
HOST: dict[str, Any] = {"hive": True, "hive_host": "127.0.0.1"}
METASTORE: dict[str, Any] = {"hive": True, "hive_metastore_uri": "thrift://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("names", "where", "dialect"),
    [
        ({"hive": True}, "embedded", "spark"),
        ({"hive": True, "hive_dialect": "hive"}, "embedded", "spark"),
        (HOST, "server", "hive"),
        ({"hive": True, "hive.host": "h"}, "server", "hive"),
        ({**HOST, "hive_dialect": "spark"}, "server", "spark"),
        (METASTORE, "metastore", "spark"),
        ({**METASTORE, "hive_dialect": "hive"}, "metastore", "hive"),
        ({**METASTORE, **HOST}, "metastore", "spark"),
    ],
)
def test_who_is_named_makes_the_tables(names: dict[str, Any], where: str, dialect: str) -> None:
    values = parameters(**names).values
    assert (values.hive_tables, values.hive_dialect_used) == (where, dialect)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"hive": False}, []),
        (HOST, []),
        (METASTORE, []),
        ({"hive": True}, ["ngsi.hive is true, and neither"]),
        ({"hive": True, "hive_port": 10000}, ["ngsi.hive is true", "ngsi.hive_port has no effect"]),
        ({"hive": True, "hive_dialect": "hive"}, ["ngsi.hive is true", "ngsi.hive_dialect has no effect"]),
        ({**METASTORE, **HOST}, ["ngsi.hive_host is only asked whether it answers"]),
        ({**METASTORE, "hdfs_password": "p"}, ["ngsi.hdfs_password has no effect"]),
        ({**HOST, "hive_dialect": "spark", "hive_json_serde": "hive"}, ["ngsi.hive_json_serde has no effect"]),
        ({**METASTORE, "hive_csv_serde": "opencsv"}, ["ngsi.hive_csv_serde has no effect"]),
    ],
)
def test_a_setting_without_effect_is_named_at_the_start(names: dict[str, Any], expected: list[str]) -> None:
    warnings = parameters(**names).values.hive_warnings()
    assert [warning.startswith(begin) for warning, begin in zip(warnings, expected, strict=True)] == [True] * len(
        expected
    )


def test_a_server_that_hive_no_longer_has_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"hive\.server_version: expected 2 where hive_host is given, got 1"):
        parameters(**{**HOST, "hive.server_version": 1})
    assert parameters(**{"hive.server_version": 1}).values.hive_server_version == "1"


def noted(fs: MemoryFileSystem, **names: object) -> PendingTables:
    pending = PendingTables(fs, FOLDER)
    pending.note(
        record.placed.destination for record in recorded(body({"wood": attribute("oak")}), parameters(**names))
    )
    return pending


def test_a_server_that_is_away_is_named_and_the_table_waits() -> None:
    fs, used = MemoryFileSystem(), parameters(**HOST, hive_port=1)
    pending = noted(fs)
    target = open_target(used, fs, Path("/repository"))
    for _ in range(2):
        report = ensure_server_tables(pending, {}, used, target)
        assert (report.made, report.extended, report.waiting) == (0, 0, 1)
        [problem] = report.problems
        assert problem.startswith("HiveServer2 127.0.0.1:1: expected an answer, got none: 127.0.0.1:1 does not answer")
        assert "ngsi.hive_host and ngsi.hive_port" in problem
    target.close()


def test_without_notes_nobody_is_asked() -> None:
    fs, used = MemoryFileSystem(), parameters(**HOST, hive_port=1)
    target = open_target(used, fs, Path("/repository"))
    assert ensure_server_tables(PendingTables(fs, FOLDER), {}, used, target) == TablesReport()
    target.close()


# The client drops a socket whose other end does not greet, instead of closing it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x05\x00\x00\x00\x03no!"])
def test_something_else_that_listens_there_is_no_hive(greeting: bytes) -> None:
    fs = MemoryFileSystem()
    pending = noted(fs)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(2):  # first it is asked whether it answers at all
                connection, _ = server.accept()
                with connection:
                    connection.sendall(greeting)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        used = parameters(**HOST, hive_port=server.getsockname()[1], hdfs_password="secret-word")  # noqa: S106
        target = open_target(used, fs, Path("/repository"))
        report = ensure_server_tables(pending, {}, used, target)
        target.close()
        thread.join(10)
    assert (report.made, report.waiting) == (0, 1)
    [problem] = report.problems
    assert "expected a session for warden with ngsi.hive_auth plain" in problem
    assert "secret-word" not in problem
