"""WebHDFS: what is asked after which answer, which NameNode is asked next, and what ends a conversation."""

from __future__ import annotations

import pytest

from custody.errors import StorageError
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink.webhdfs import Answer, Call, Endpoints, converse
from custody_conformance.in_memory import Faults, MemoryHdfs, add_lines
from tests.unit.ngsi.notification_records import parameters

PATH = "/user/warden/a/b.txt"
USED = parameters()


def write(hdfs: MemoryHdfs, data: bytes, path: str = PATH, used: Parameters = USED) -> Endpoints:
    return converse(add_lines(path, data, used), Endpoints(used.hosts), hdfs.ask)[1]


def test_a_file_is_made_then_appended_to() -> None:
    hdfs = MemoryHdfs(Faults())
    write(hdfs, b"one\n")
    write(hdfs, b"two\n")
    assert hdfs.files == {PATH: b"one\ntwo\n"}
    assert hdfs.folders == {"/user/warden/a"}


def test_an_empty_file_is_made_and_nothing_is_appended_to_it() -> None:
    hdfs = MemoryHdfs(Faults())
    write(hdfs, b"")
    write(hdfs, b"")
    assert hdfs.files == {PATH: b""}
    assert [status for _, _, status in hdfs.calls] == [404, 200, 307, 201, 200]


def test_the_token_goes_along_and_data_are_octets() -> None:
    used = parameters(oauth2_token="hush")  # noqa: S106
    asked: list[Call] = []

    def ask(host: str, call: Call) -> Answer:
        asked.append(call)
        answers = [Answer(404), Answer(200), Answer(307, location="http://dn:1/x"), Answer(201)]
        return answers[len(asked) - 1]

    converse(add_lines(PATH, b"one\n", used), Endpoints(("nn",)), ask)
    assert [call.headers.get("X-Auth-Token") for call in asked] == ["hush"] * 4
    assert [call.headers.get("Content-Type") for call in asked] == [None, None, None, "application/octet-stream"]
    assert (asked[-1].target, asked[-1].body) == ("http://dn:1/x", b"one\n")
    assert "hush" not in repr(asked)


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([Answer(500)], f"HDFS getfilestatus {PATH}: expected it to be done, got status 500"),
        ([Answer(404), Answer(403)], "HDFS mkdirs /user/warden/a: expected it to be done, got status 403"),
        ([Answer(404), Answer(200), Answer(200)], f"HDFS create {PATH}"),
        (
            [Answer(404), Answer(200), Answer(307, location="http://dn/x"), Answer(400)],
            f"HDFS create of the data {PATH}",
        ),
        ([Answer(200), Answer(403)], f"HDFS append {PATH}"),
        ([Answer(200), Answer(307)], f"HDFS append {PATH}"),
        ([Answer(200), Answer(307, location="http://dn/x"), Answer(500)], f"HDFS append of the data {PATH}"),
        (
            [Answer(403, b'{"RemoteException":{"exception":"AccessControlException","message":"no"}}')],
            "got status 403 (AccessControlException: no)",
        ),
    ],
)
def test_every_other_answer_ends_it_with_an_error(answers: list[Answer], says: str) -> None:
    left = iter(answers)
    with pytest.raises(StorageError) as caught:
        converse(add_lines(PATH, b"one\n", USED), Endpoints(("nn",)), lambda host, call: next(left))
    assert says in str(caught.value)
    assert next(left, None) is None


def test_a_standby_and_a_dead_namenode_are_passed_over_and_the_good_one_is_remembered() -> None:
    used = parameters(hdfs_host="a,b,c,d")
    hdfs = MemoryHdfs(Faults(dead_hosts=frozenset("a"), standby_hosts=frozenset("b")))
    assert write(hdfs, b"x", used=used).hosts == ("c", "a", "b", "d")
    assert hdfs.files == {PATH: b"x"}


def test_a_refusal_of_an_active_namenode_is_not_asked_of_another() -> None:
    asked: list[str] = []

    def ask(host: str, call: Call) -> Answer:
        asked.append(host)
        return Answer(403, b'{"RemoteException":{"exception":"AccessControlException","message":"no"}}')

    with pytest.raises(StorageError):
        converse(add_lines(PATH, b"x", USED), Endpoints(("a", "b")), ask)
    assert asked == ["a"]


def test_a_data_node_that_does_not_answer_is_an_error_of_hdfs() -> None:
    def ask(host: str, call: Call) -> Answer:
        if host == "dn:1":
            raise ConnectionResetError("gone")
        return Answer(200) if call.method == "GET" else Answer(307, location="http://dn:1/x")

    with pytest.raises(StorageError, match="expected an answer, got gone"):
        converse(add_lines(PATH, b"x", USED), Endpoints(("a",)), ask)


@pytest.mark.parametrize(
    ("path", "exception"),
    [("/user/u/a:b/c", "InvalidPathException"), ("/user/u/" + "é" * 128 + "/c", "PathComponentTooLongException")],
)
def test_hdfs_in_memory_refuses_what_hdfs_refuses(path: str, exception: str) -> None:
    with pytest.raises(StorageError, match=exception):
        write(MemoryHdfs(Faults()), b"x", path)


def test_a_lost_data_node_is_named_without_the_token_that_lets_in() -> None:
    hdfs = MemoryHdfs(Faults())

    def ask(host: str, call: Call) -> Answer:
        if "delegation=" in call.target:
            raise ConnectionResetError("lost")
        answer = hdfs.ask(host, call)
        return Answer(answer.status, answer.body, answer.location and "http://dn:1/x?op=CREATE&delegation=hush")

    with pytest.raises(StorageError, match=r"HDFS PUT http://dn:1/x: expected an answer, got lost") as found:
        converse(add_lines(PATH, b"x\n", USED), Endpoints(USED.hosts), ask)
    assert "hush" not in str(found.value)


@pytest.mark.parametrize("krb5_auth", [False, True])
def test_who_has_logged_in_is_named_to_nobody(krb5_auth: bool) -> None:
    asked: list[str] = []
    login = {"krb5_auth": krb5_auth, "krb5_user": "clerk", "krb5_password": "p"}
    used = parameters(hdfs_username="warden", **login)
    hdfs = MemoryHdfs(Faults())

    def ask(host: str, call: Call) -> Answer:
        asked.append(call.target)
        return hdfs.ask(host, call)

    converse(add_lines(PATH, b"x\n", used), Endpoints(used.hosts), ask)
    of_namenode = [target for target in asked if target.startswith("/")]
    assert len(of_namenode) > 2
    assert {"user.name=warden" in target for target in of_namenode} == {not krb5_auth}
    assert not any("clerk" in target for target in asked)
