"""The REST target and the sink on a real HDFS; every call is lost before, while and after it is done."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from custody.clock import ManualClock
from custody.errors import CorruptionError, StorageError
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink.batch_file import FileAppend
from custody.ngsi_sink.opening import open_target
from custody.ngsi_sink.sink import Sink
from custody.ngsi_sink.target import FilesTarget, Target
from custody.ngsi_sink.webhdfs import Answer, Call, PooledTransport, WebHdfsFiles
from custody.vfs import PosixFileSystem
from tests.crash.sink_scenarios import BATCHES, RECEIVED_MS, WRITER, expected, items
from tests.services import reading
from tests.services.hdfs import Hdfs, free_ports, hdfs
from tests.unit.ngsi.notification_records import parameters

pytestmark = pytest.mark.slow
FS = PosixFileSystem()
HERE = "127.0.0.1"
DOORS = ("WebHDFS", "HttpFS")
HOSTILE = "/user/warden/ä b%25 #?&+'\"é🌳[x]/~ü (1).txt"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs(tmp_path_factory.mktemp("hdfs"), http_fs=True) as up:
        yield up


def used(running: Hdfs, door: str = "WebHDFS", **names: object) -> Parameters:
    port = running.web if door == "WebHDFS" else running.http_fs
    return parameters(**{"hdfs_host": HERE, "hdfs_port": port, "backend_files_at_once": 1, **names})


def target(running: Hdfs, door: str = "WebHDFS", **names: object) -> Target:
    return open_target(used(running, door, **names), FS, Path("/unused"))


def apply(target: Target, path: str, offset: int, data: bytes) -> None:
    target.apply(FileAppend.of(path, offset, data), memoryview(data))


@pytest.mark.parametrize("door", DOORS)
def test_parts_stand_once_under_any_name(running: Hdfs, door: str) -> None:
    path = HOSTILE.replace("(1)", door)
    with contextlib.closing(target(running, door)) as place:
        assert place.length(path) == 0
        for offset, data in ((0, b"one\n"), (4, b"two\n"), (8, "größer 🌳\0\n".encode())):
            apply(place, path, offset, data)
            apply(place, path, offset, data)
            assert place.length(path) == offset + len(data)
        empty = path + ".empty"
        apply(place, empty, 0, b"")
        apply(place, empty, 0, b"")
    assert reading.read(running.web, path) == "one\ntwo\ngrößer 🌳\0\n".encode()
    assert reading.read(running.web, empty) == b""


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("torn", [b"tw", b"TWO\n", b"two\n"])
def test_a_torn_end_is_cut_and_written_again(running: Hdfs, door: str, torn: bytes) -> None:
    path = f"/user/warden/torn/{door}{torn.hex()}"
    with contextlib.closing(target(running, door)) as place:
        apply(place, path, 0, b"one\n")
        apply(place, path, 4, torn)
        apply(place, path, 4, b"two\n")
        apply(place, path, 8, b"three\n")
    assert reading.read(running.web, path) == b"one\ntwo\nthree\n"


@pytest.mark.parametrize("door", DOORS)
def test_what_is_not_ours_is_damage_and_stays(running: Hdfs, door: str) -> None:
    path = f"/user/warden/damage/{door}"
    with contextlib.closing(target(running, door)) as place:
        with pytest.raises(CorruptionError, match="expected at least the 4 bytes"):
            apply(place, path, 4, b"two\n")
        apply(place, path, 0, b"one\nTWO\nmine\n")
        with pytest.raises(CorruptionError, match="@4: expected 4 bytes that were committed, got others, and 5 more"):
            apply(place, path, 4, b"two\n")
        with pytest.raises(CorruptionError, match="expected at least the 99 bytes"):
            apply(place, path, 99, b"two\n")
    assert reading.read(running.web, path) == b"one\nTWO\nmine\n"


def test_a_dead_namenode_is_passed_over(running: Hdfs) -> None:
    [dead] = free_ports(1)
    hosts = f"{HERE}:{dead},{HERE}:{running.web}"
    with contextlib.closing(target(running, hdfs_host=hosts)) as place:
        apply(place, "/user/warden/ha", 0, b"one\n")
    assert reading.read(running.web, "/user/warden/ha") == b"one\n"
    with contextlib.closing(target(running, hdfs_port=dead)) as place, pytest.raises(StorageError, match="to answer"):
        place.length("/user/warden/ha")


@pytest.mark.parametrize(("name", "kind"), [("a:b", "InvalidPath"), ("é" * 128, "PathComponentTooLong")])
def test_a_name_that_hdfs_refuses_is_said(running: Hdfs, name: str, kind: str) -> None:
    with contextlib.closing(target(running)) as place, pytest.raises(StorageError, match=kind):
        apply(place, f"/user/warden/{name}/x", 0, b"one\n")


class Crash(BaseException):
    """The process ends: nothing of the project may hold this up."""


class Losing:
    """The network, which loses one call: before it is sent, with half of its data, or its answer."""

    def __init__(self, network: PooledTransport, at: int, how: str, error: BaseException) -> None:
        self._network = network
        self._left = at
        self._how = how
        self._error = error
        self.calls = 0

    def ask(self, host: str, call: Call) -> Answer:
        self.calls += 1
        self._left -= 1
        if self._left:
            return self._network.ask(host, call)
        if self._how == "answer":
            self._network.ask(host, call)
        elif self._how == "half" and call.body:
            half(call).close()
        raise self._error

    def close(self) -> None:
        self._network.close()


def half(call: Call) -> http.client.HTTPConnection:
    """Send a call with half of its data, and return the connection, which waits for the rest."""
    url = urlsplit(call.target)
    connection = http.client.HTTPConnection(url.netloc, timeout=30)
    connection.putrequest(call.method, f"{url.path}?{url.query}")
    for name, value in {**call.headers, "Content-Length": str(len(call.body))}.items():
        connection.putheader(name, value)
    connection.endheaders(call.body[: len(call.body) // 2])
    return connection


def sink_all(folder: Path, place: Target, settings: Parameters) -> None:
    clock = ManualClock(RECEIVED_MS)
    with Sink.open(FS, folder, place, clock, settings, sleep=lambda seconds: None) as sink:
        for first, upto in BATCHES:
            if upto > sink.cursors.get(WRITER, 0):
                sink.write(items(settings, first, upto), {WRITER: upto})


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("request", Crash()),
        ("half", Crash()),
        ("answer", Crash()),
        ("half", ConnectionResetError("lost")),
    ],
    ids=["crash before a call", "crash in a call", "crash after a call", "connection lost in a call"],
)
def test_every_call_of_the_sink_is_lost_once_and_each_line_stands_once(
    running: Hdfs, tmp_path: Path, how: str, error: BaseException
) -> None:
    name = f"{how}-{type(error).__name__}"
    whole = used(running, hdfs_username=f"{name}-0", file_format="json-row")
    counted = Losing(PooledTransport(whole.values), 0, how, error)
    sink_all(tmp_path / "whole", FilesTarget(WebHdfsFiles(whole, counted)), whole)
    assert counted.calls > 15
    for at in range(1, counted.calls + 1):
        settings = used(running, hdfs_username=f"{name}-{at}", file_format="json-row")
        losing = Losing(PooledTransport(settings.values), at, how, error)
        # HDFS may make one run wait, which then asks more often than another.
        with contextlib.suppress(Crash):
            sink_all(tmp_path / str(at), FilesTarget(WebHdfsFiles(settings, losing)), settings)
        sink_all(tmp_path / str(at), open_target(settings, FS, tmp_path), settings)
        folder = f"/user/{settings.username}"
        found = {path: reading.read(running.web, path) for path in reading.files(running.web, folder)}
        assert found == expected(settings, list(BATCHES)), f"call {at}"


def test_a_writer_that_has_the_file_open_is_waited_for(running: Hdfs) -> None:
    path = "/user/warden/open"
    settings = used(running)
    network = PooledTransport(settings.values)
    with contextlib.closing(target(running)) as place:
        apply(place, path, 0, b"one\n")
        answer = network.ask(f"{HERE}:{running.web}", Call("POST", f"/webhdfs/v1{path}?op=APPEND&user.name=warden", {}))
        connection = half(Call("POST", answer.location, {"Content-Type": "application/octet-stream"}, b"two\nxxxx"))
        ends = threading.Timer(3, connection.close)
        ends.start()
        started = time.monotonic()
        apply(place, path, 4, b"two\nthree\n")
        assert time.monotonic() - started > 2
        ends.join()
    network.close()
    assert reading.read(running.web, path) == b"one\ntwo\nthree\n"
