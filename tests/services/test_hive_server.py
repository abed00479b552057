"""Tables made at a real HiveServer2 over Thrift, and read by it: Hive's own on a real HDFS, and Spark's with openx."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from impala.dbapi import connect

from custody.ngsi import rendering
from custody.ngsi.hive import full_name, hive_table
from custody.ngsi.naming import Destination
from custody.ngsi.parameters import Parameters
from custody.ngsi.rendering import file_additions
from custody.ngsi_sink.batch_file import FileAppend
from custody.ngsi_sink.hive_server import ensure_server_tables
from custody.ngsi_sink.opening import open_target
from custody.ngsi_sink.tables import PendingTables, TablesReport
from custody.spark.ngsi import main as run_job
from custody.vfs import PosixFileSystem
from tests.services import reading
from tests.services.hdfs import Hdfs, free_ports, hdfs
from tests.services.hive_server import hive_server, spark_thrift_server
from tests.spark.test_ngsi_tables import HOSTILE, LATE, METADATA, PLACES, TEXTS, batches
from tests.unit.ngsi.notification_records import attribute, body, parameters, recorded
from tests.unit.ngsi_sink.sink_repository import bench, received

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
FS = PosixFileSystem()
HERE = "127.0.0.1"
ODD: dict[str, Any] = {"hive_db_type": "namespace-db", "hdfs_username": "odd", "file_format": "json-column"}
UNNAMED = {"${env:HOME}", "${spark.master}", "${system:user.home}", "${hivevar:x}", "${env.HOME}", "line\nfeed"}
"""Attributes whose names no column of Hive can have."""
POINTS = {"${spark.master}"}
"""Those of them that openx finds all the same."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hdfs, int]]:
    with (
        hdfs(tmp_path_factory.mktemp("hdfs")) as running,
        hive_server(tmp_path_factory.mktemp("hive"), hadoop=running.conf) as port,
    ):
        yield running, port


@pytest.fixture(scope="module")
def spark_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with spark_thrift_server(tmp_path_factory.mktemp("spark")) as port:
        yield port


def section(port: int, running: Hdfs | None = None, **more: object) -> dict[str, object]:
    """Settings as a user of NGSIToHDFS has them: the host of HDFS where there is one, and that of Hive."""
    on_hdfs = {} if running is None else {"hdfs_host": HERE, "hdfs_port": running.web}
    return {"hive": True, "hive_host": HERE, "hive_port": port, **on_hdfs, **more}


class Followed:
    """A destination whose table follows it: batches are written, and after each the table is made or extended."""

    def __init__(self, root: Path, used: Parameters) -> None:
        self.used = used
        self.root = root
        self.target = open_target(used, FS, root)
        self.pending = PendingTables(FS, root / "hive")
        self.columns: dict[str, tuple[str, ...]] = {}
        self._part = 0

    def write(self, sent: bytes) -> Destination:
        records = recorded(sent, self.used)
        destination = records[0].placed.destination
        self.pending.note([destination])
        additions = file_additions(records, self.used, self.columns, part=f"{self._part:020d}")
        self._part += 1
        self.columns |= additions.columns
        for path, data in additions.files.items():
            self.target.apply(FileAppend.of(path, self.target.length(path), data), memoryview(data))
        return destination

    def ensure(self, used: Parameters | None = None) -> TablesReport:
        return ensure_server_tables(self.pending, self.columns, used or self.used, self.target)

    def table(self, destination: Destination) -> str:
        return full_name(hive_table(destination, self.used))


@contextlib.contextmanager
def asked(port: int, statement: str) -> Iterator[Any]:
    """Give the cursor of a statement that somebody else runs."""
    with (
        contextlib.closing(connect(host=HERE, port=port, auth_mechanism="PLAIN", user="reader")) as connection,
        contextlib.closing(connection.cursor(close_finished_queries=False)) as cursor,
    ):
        cursor.execute(statement)
        yield cursor


def run(port: int, statement: str) -> None:
    with asked(port, statement):
        pass


def selected(port: int, table: str) -> list[dict[str, Any]]:
    prefix = f"{table.partition('.')[2]}."
    with asked(port, f"select * from {table}") as cursor:  # noqa: S608 - a name of ours
        names = [column[0].removeprefix(prefix).lower() for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def read_back(mode: str, value: Any) -> Any:
    """Undo what CSV does with a value."""
    if not mode.startswith("csv"):
        return value
    return None if value in (None, "NULL") else rendering.value(value)


def check_rows(mode: str, rows: list[dict[str, Any]], *, unread: set[str], has_metadata: bool = True) -> None:
    """Compare what a table says with what was notified in three batches."""
    if not mode.endswith("column"):
        values = sorted((read_back(mode, row["attrname"]), read_back(mode, row["attrvalue"])) for row in rows)
        assert values == sorted([*TEXTS.items()] * 3 + [*LATE.items()])
        if has_metadata:
            assert all(json.loads(row["attrmd"]) == ([] if row["attrname"] in LATE else METADATA) for row in rows)
        if mode != "parquet":
            assert {str(row["recvtimets"]) for row in rows} == {"1772600767089"}
        return
    assert len(rows) == 3
    for name in HOSTILE:
        if name not in unread:
            assert [read_back(mode, row[column(mode, name)]) for row in rows] == [TEXTS[name]] * 3, name
    late = [tuple(read_back(mode, row[name.lower()]) for name in LATE) for row in rows]
    assert sorted(late, key=str) == sorted([(None, None), (None, None), tuple(LATE.values())], key=str)


def column(mode: str, name: str) -> str:
    """The name that Hive shows for the column of an attribute."""
    names = [shown for shown, _ in hive_table_columns(mode)]
    return names[list(HOSTILE).index(name) * 2 + 4].lower()


def hive_table_columns(mode: str) -> tuple[tuple[str, str], ...]:
    used = parameters(file_format=mode)
    [record, *_] = recorded(batches(mode)[0], used)
    return hive_table(record.placed.destination, used, attributes=tuple(HOSTILE)).columns


@pytest.mark.parametrize(
    ("mode", "more"),
    [
        ("json-row", {}),
        ("json-row", {"hive_json_serde": "hcatalog"}),
        ("json-column", {}),
        ("json-column", {"hive_json_serde": "hcatalog"}),
        ("csv-row", {"hive_csv_serde": "opencsv"}),
        ("csv-column", {"hive_csv_serde": "opencsv", "csv_separator": ";"}),
        ("parquet", {}),
    ],
)
def test_hive_reads_what_was_notified(
    cluster: tuple[Hdfs, int], tmp_path: Path, mode: str, more: dict[str, Any]
) -> None:
    running, port = cluster
    user = f"u{abs(hash((mode, *more.values())))}"
    followed = Followed(tmp_path, parameters(**section(port, running, file_format=mode, hdfs_username=user, **more)))
    for number, sent in enumerate(batches(mode)):
        destination = followed.write(sent)
        report = followed.ensure()
        is_longer = mode.endswith("column") and number == 1
        assert (report.made, report.extended, report.waiting) == (number == 0, is_longer, 0), report.problems
        # The same again changes nothing, as after a crash behind the last statement.
        followed.pending.note([destination])
        assert followed.ensure() == TablesReport()
    check_rows(
        mode,
        selected(port, followed.table(destination)),
        unread=UNNAMED if mode == "json-column" else set(),
        has_metadata=not mode.startswith("csv"),
    )
    followed.target.close()


@pytest.mark.parametrize(
    ("mode", "more"),
    [
        ("json-row", {"hive_json_serde": "openx", "hive_dialect": "hive"}),
        ("json-column", {"hive_json_serde": "openx", "hive_dialect": "hive"}),
        ("csv-row", {"hive_csv_serde": "opencsv", "hive_dialect": "hive"}),
        ("parquet", {"hive_dialect": "hive"}),
        ("json-row", {"hive_dialect": "spark"}),
        ("json-column", {"hive_dialect": "spark"}),
        ("csv-row", {"hive_dialect": "spark"}),
        ("parquet", {"hive_dialect": "spark"}),
    ],
)
def test_spark_s_server_reads_what_was_notified_in_both_dialects(
    spark_port: int, tmp_path: Path, mode: str, more: dict[str, Any]
) -> None:
    user = f"u{abs(hash((mode, *more.values())))}"
    followed = Followed(tmp_path, parameters(**section(spark_port, file_format=mode, hdfs_username=user, **more)))
    for number, sent in enumerate(batches(mode)):
        destination = followed.write(sent)
        report = followed.ensure()
        is_longer = mode.endswith("column") and number == 1
        assert (report.made, report.extended, report.waiting) == (number == 0, is_longer, 0), report.problems
    rows = selected(spark_port, followed.table(destination))
    if more["hive_dialect"] == "spark" and mode.endswith("column"):
        assert [{name: row[name.lower()] for name in HOSTILE} for row in rows] == [TEXTS] * 3
    else:
        check_rows(mode, rows, unread=UNNAMED - POINTS, has_metadata=False)
    followed.target.close()


def test_the_documented_form_of_csv_splits_a_value_at_the_separator(cluster: tuple[Hdfs, int], tmp_path: Path) -> None:
    running, port = cluster
    used = parameters(**section(port, running, file_format="csv-row", hdfs_username="documented"))
    followed = Followed(tmp_path, used)
    destination = followed.write(body({"wood": attribute("oak"), "list": attribute("a,b")}))
    assert followed.ensure().made == 1
    rows = selected(port, followed.table(destination))
    assert [row["attrvalue"] for row in rows] == ["oak", '"a']
    followed.target.close()


@pytest.mark.parametrize("name", PLACES[:2])
def test_a_name_from_outside_is_a_place_and_nothing_else(cluster: tuple[Hdfs, int], tmp_path: Path, name: str) -> None:
    running, port = cluster
    used = parameters(**section(port, running, enable_encoding=True, **ODD))
    followed = Followed(tmp_path, used)
    destination = followed.write(body({"wood": attribute("oak")}, id=name))
    assert followed.ensure().made == 1
    assert followed.table(destination).startswith("odd.")
    # Its place is looked at before it is made anew.
    followed.write(body({"seats": attribute(4)}, id=name))
    report = followed.ensure()
    assert (report.extended, report.problems) == (1, ())
    rows = selected(port, followed.table(destination))
    assert [(row["entityid"], row["wood"], row["seats"]) for row in rows] == [(name, "oak", None), (name, None, "4")]
    followed.target.close()


def test_a_serde_that_the_server_lacks_is_named_with_what_to_do(cluster: tuple[Hdfs, int], tmp_path: Path) -> None:
    running, port = cluster
    used = parameters(**section(port, running, hive_json_serde="openx", hdfs_username="lacks"))
    followed = Followed(tmp_path, used)
    followed.write(body({"wood": attribute("oak")}))
    report = followed.ensure()
    [problem] = report.problems
    assert (report.made, report.waiting) == (0, 1)
    assert f"HiveServer2 {HERE}:{port}: `create external table if not exists default.lacks_parks" in problem
    assert "org.openx.data.jsonserde.JsonSerDe" in problem
    assert "ngsi.hive_json_serde" in problem
    followed.target.close()


def test_the_dialect_of_another_server_is_named(cluster: tuple[Hdfs, int], tmp_path: Path) -> None:
    running, port = cluster
    used = parameters(**section(port, running, hive_dialect="spark", hdfs_username="dialect"))
    followed = Followed(tmp_path, used)
    followed.write(body({"wood": attribute("oak")}))
    [problem] = followed.ensure().problems
    assert "Check ngsi.hive_dialect" in problem
    followed.target.close()


@pytest.mark.parametrize("purge", ["true", "false"])
def test_a_table_that_is_made_anew_keeps_its_files(cluster: tuple[Hdfs, int], tmp_path: Path, purge: str) -> None:
    running, port = cluster
    used = parameters(**section(port, running, file_format="json-column", hdfs_username=f"purge{purge}"))
    followed = Followed(tmp_path, used)
    destination = followed.write(body({"wood": attribute("oak")}))
    assert followed.ensure().made == 1
    table = followed.table(destination)
    run(port, f"alter table {table} set tblproperties ('external.table.purge' = '{purge}')")
    followed.write(body({"seats": attribute(4)}))
    assert followed.ensure().extended == 1
    rows = selected(port, table)
    assert sorted((str(row["wood"]), str(row["seats"])) for row in rows) == [("None", "4"), ("oak", "None")]
    followed.target.close()


def test_somebody_else_s_table_is_left_alone(cluster: tuple[Hdfs, int], tmp_path: Path) -> None:
    running, port = cluster
    used = parameters(**section(port, running, file_format="json-column", hdfs_username="foreign"))
    followed = Followed(tmp_path, used)
    destination = followed.write(body({"wood": attribute("oak")}))
    table = followed.table(destination)
    run(
        port,
        f"create external table {table} (recvTime string) row format serde "
        "'org.apache.hadoop.hive.serde2.JsonSerDe' location '/elsewhere'",
    )
    report = followed.ensure()
    assert report.waiting == 1
    assert "/elsewhere" in report.problems[0]
    with asked(port, f"describe {table}") as cursor:
        assert [row[0] for row in cursor.fetchall()] == ["recvtime"]
    followed.target.close()


# The client drops a socket whose other end went away, instead of closing it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_connection_that_breaks_anywhere_costs_no_table_and_no_line(
    cluster: tuple[Hdfs, int], tmp_path: Path
) -> None:
    running, port = cluster
    breaks = 0
    for limit in range(1, 45, 4):
        used = parameters(**section(port, running, file_format="json-column", hdfs_username=f"cut{limit}"))
        followed = Followed(tmp_path / str(limit), used)
        destination = followed.write(body({"wood": attribute("oak")}))
        followed.ensure()
        followed.write(body({"seats": attribute(4)}))
        with relay(port, limit) as cut:
            through = parameters(**section(cut, running, file_format="json-column", hdfs_username=f"cut{limit}"))
            report = followed.ensure(through)
        breaks += report.waiting
        assert report.waiting == len(report.problems) or not report.waiting
        assert not followed.ensure().waiting
        assert followed.ensure() == TablesReport()
        rows = selected(port, followed.table(destination))
        assert sorted((str(row["wood"]), str(row["seats"])) for row in rows) == [("None", "4"), ("oak", "None")]
        followed.target.close()
    assert breaks > 3


def test_a_hive_that_is_away_costs_time_and_nothing_else(
    cluster: tuple[Hdfs, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running, port = cluster
    root = tmp_path / "repository"
    repository = received(root, [bench(1), bench(2)])
    configured = "\n".join(
        [
            '[repository]\ncontainers = ["disk1"]\nwriter_slots = 2',
            '[ngsi]\nhdfs_username = "away"\nhive_host = "127.0.0.1"',
            f'hdfs_host = "127.0.0.1"\nhdfs_port = {running.web}\nhive_port = ',
        ]
    )
    assert repository.settings.root == root
    (root / "custody.toml").write_text(f"{configured}{free_ports(1)[0]}\n")
    assert run_job(["--repository", str(root)]) == 0
    said = capsys.readouterr().out
    assert "does not answer" in said
    assert "1 wait" in said
    path = "/user/away/parks/north/Bench1_Bench/Bench1_Bench.txt"
    lines = reading.read(running.web, path)
    assert lines.count(b"\n") == 2
    (root / "custody.toml").write_text(f"{configured}{port}\n")
    assert run_job(["--repository", str(root)]) == 0
    assert "1 made" in capsys.readouterr().out
    assert reading.read(running.web, path) == lines
    rows = selected(port, "default.away_parks_north_bench1_bench_row")
    assert sorted(row["attrvalue"] for row in rows) == ["1001", "1002"]
    assert run_job(["--repository", str(root)]) == 0
    assert json.loads(capsys.readouterr().out)["units"] == 0


@contextlib.contextmanager
def relay(port: int, limit: int) -> Iterator[int]:
    """Pass on what a client sends to a port, until `limit` pieces went through; then the connection breaks."""
    with socket.create_server((HERE, 0)) as server:
        sent = threading.Semaphore(limit)

        def pump(source: socket.socket, sink: socket.socket, *, is_counted: bool) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 16):
                    if is_counted and not sent.acquire(blocking=False):
                        break
                    sink.sendall(data)
            for end in (source, sink):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    behind = socket.create_connection((HERE, port))
                    for source, sink, counted in ((client, behind, True), (behind, client, False)):
                        threading.Thread(
                            target=pump, args=(source, sink), kwargs={"is_counted": counted}, daemon=True
                        ).start()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
