"""HDFS by REST without a network: what is asked, what each answer means; a real HDFS is in tests/services."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from custody.errors import StorageError
from custody.ngsi_sink.target import BusyError, DestinationError
from custody.ngsi_sink.webhdfs import Answer, Call, WebHdfsFiles, authority
from tests.unit.ngsi.notification_records import parameters

PATH = "/user/warden/a b/é.txt"
DATA_NODE = "http://dn:9864/webhdfs/v1/x?op=Y"
USED = parameters(hdfs_host="nn1,nn2", hdfs_port=9870)
POINTED = Answer(307, location=DATA_NODE)


def remote(status: int, kind: str, message: str = "no") -> Answer:
    return Answer(status, json.dumps({"RemoteException": {"exception": kind, "message": message}}).encode())


class Scripted:
    """Gives answers in their order and keeps what was asked."""

    def __init__(self, *answers: Answer) -> None:
        self._left = list(answers)
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[bytes] = []

    def ask(self, host: str, call: Call) -> Answer:
        self.asked.append((host, f"{call.method} {call.target}"))
        self.bodies.append(call.body)
        return self._left.pop(0)

    def close(self) -> None:
        self.asked.append(("", "close"))


def files(*answers: Answer) -> tuple[WebHdfsFiles, Scripted]:
    network = Scripted(*answers)
    return WebHdfsFiles(USED, network), network


def status(length: int, type: str = "FILE") -> Answer:
    return Answer(200, json.dumps({"FileStatus": {"length": length, "type": type}}).encode())


def test_a_size_is_asked_of_the_namenode_and_none_where_there_is_no_file() -> None:
    used, network = files(status(12345678901), remote(404, "FileNotFoundException"))
    assert used.size(PATH) == 12345678901
    assert used.size(PATH) is None
    target = "/webhdfs/v1/user/warden/a%20b/%C3%A9.txt?op=GETFILESTATUS&user.name=warden"
    assert network.asked == [("nn1:9870", f"GET {target}")] * 2


def test_data_go_where_the_namenode_points_and_only_there() -> None:
    used, network = files(Answer(200, b'{"boolean":true}'), POINTED, Answer(201), POINTED, Answer(200))
    used.create(PATH, memoryview(b"one\n"))
    used.append(PATH, memoryview(b"two\n"))
    assert [host for host, _ in network.asked] == ["nn1:9870", "nn1:9870", "dn:9864", "nn1:9870", "dn:9864"]
    operations = [said.partition("op=")[2].partition("&")[0] for _, said in network.asked]
    assert operations == ["mkdirs", "CREATE", "Y", "APPEND", "Y"]
    assert "overwrite=false" in network.asked[1][1]
    assert network.bodies == [b"", b"", b"one\n", b"", b"two\n"]


def test_a_piece_is_read_from_a_datanode_or_from_httpfs_itself() -> None:
    digest = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"  # of one
    used, network = files(POINTED, Answer(200, b"one"), Answer(200, b"one"))
    assert used.digest(PATH, 7, 3) == digest
    assert used.digest(PATH, 7, 3) == digest
    assert "op=OPEN&user.name=warden&offset=7&length=3" in network.asked[0][1]
    assert len(network.asked) == 3
    assert used.digest(PATH, 7, 0) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_to_settle_is_to_cut_a_file_to_its_own_length() -> None:
    used, network = files(status(7), Answer(200, b'{"boolean":true}'), remote(404, "FileNotFoundException"))
    used.settle(PATH)
    used.settle(PATH)
    assert "POST /webhdfs" in network.asked[1][1]
    assert "op=TRUNCATE&user.name=warden&newlength=7" in network.asked[1][1]


BUSY = [
    remote(403, "AlreadyBeingCreatedException"),
    remote(403, "RecoveryInProgressException"),
    remote(403, "org.apache.hadoop.ipc.RetriableException"),
    remote(500, "RemoteException", f"Failed to APPEND_FILE {PATH} for a on b because it is held by c"),  # HttpFS
    remote(500, "IOException", "append: lastBlock=1 is not sufficiently replicated yet."),
    remote(400, "HadoopIllegalArgumentException", "Cannot truncate to a larger file size. Current size: 4"),
]
REFUSED = [
    remote(403, "AccessControlException"),
    remote(500, "IOException"),
    Answer(500, b"<html>"),
    Answer(200),
    Answer(307),
]
CALLS: dict[str, Callable[[WebHdfsFiles], object]] = {
    "append": lambda used: used.append(PATH, memoryview(b"x")),
    "cut": lambda used: used.cut(PATH, 3),
    "digest": lambda used: used.digest(PATH, 0, 3),
}


@pytest.mark.parametrize("answer", BUSY)
@pytest.mark.parametrize("name", CALLS)
def test_what_passes_is_waited_for(name: str, answer: Answer) -> None:
    for answers in ([answer], [POINTED, answer]):
        if name == "cut" and len(answers) == 2:
            continue
        used, _ = files(*answers)
        with pytest.raises(BusyError):
            CALLS[name](used)


@pytest.mark.parametrize("answer", REFUSED)
def test_every_other_answer_is_an_error(answer: Answer) -> None:
    used, _ = files(answer)
    with pytest.raises(StorageError, match=f"HDFS APPEND {PATH}: expected it to be done, got status {answer.status}"):
        used.append(PATH, memoryview(b"x"))
    used, _ = files(answer)
    with pytest.raises(StorageError, match="HDFS GETFILESTATUS"):
        used.size(PATH)


def test_a_cut_that_is_under_way_is_waited_for() -> None:
    used, _ = files(Answer(200, b'{"boolean":false}'))
    with pytest.raises(BusyError, match="under way"):
        used.cut(PATH, 3)


def test_a_file_made_meanwhile_is_looked_at_again_and_a_folder_is_an_error() -> None:
    used, _ = files(Answer(200, b'{"boolean":true}'), remote(403, "FileAlreadyExistsException"))
    with pytest.raises(BusyError):
        used.create(PATH, memoryview(b"x"))
    used, _ = files(status(0, "DIRECTORY"))
    with pytest.raises(DestinationError, match="expected a file"):
        used.size(PATH)


def test_the_namenode_that_answered_is_asked_first_from_then_on() -> None:
    used, network = files(remote(403, "StandbyException"), status(1), status(1))
    used.size(PATH)
    used.size(PATH)
    assert [host for host, _ in network.asked] == ["nn1:9870", "nn2:9870", "nn2:9870"]
    assert used.uri(PATH) == "webhdfs://nn1:9870/user/warden/a%20b/%C3%A9.txt"
    used.close()
    assert network.asked[-1] == ("", "close")


@pytest.mark.parametrize(
    ("host", "expected"),
    [("nn", "nn:1"), ("nn:2", "nn:2"), ("::1", "[::1]:1"), ("[::1]", "[::1]:1"), ("10.0.0.1", "10.0.0.1:1")],
)
def test_a_host_may_bring_its_port(host: str, expected: str) -> None:
    assert authority(host, 1) == expected
