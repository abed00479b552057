"""The REST target and the sink on a real HDFS with Kerberos: who logs in, how often, and what is said to who cannot."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from custody.clock import ManualClock
from custody.errors import ConfigurationError, StorageError
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink.batch_file import FileAppend
from custody.ngsi_sink.kerberos import Login
from custody.ngsi_sink.opening import open_target
from custody.ngsi_sink.sink import Sink
from custody.ngsi_sink.target import Target
from custody.ngsi_sink.webhdfs import OK, REDIRECT, Answer, Call, PooledTransport, WebHdfsFiles
from custody.vfs import PosixFileSystem
from tests.crash.sink_scenarios import BATCHES, RECEIVED_MS, WRITER, expected, items
from tests.services import reading
from tests.services.hdfs import free_ports
from tests.services.secured import COOKIE_SECONDS, PASSWORD, USER, Secured, missing, proof, secured_hdfs
from tests.unit.ngsi.notification_records import parameters

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "all is here")]
FS = PosixFileSystem()
WRONG = "hush-not-this-one"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", "/nowhere")  # set anew by each login, and as it was before in the end
        with secured_hdfs(tmp_path_factory.mktemp("secured"), http_fs=True) as running:
            yield running


def used(up: Secured, **names: object) -> Parameters:
    return parameters(
        **{
            "hdfs_host": "127.0.0.1",
            "hdfs_port": up.hdfs.web,
            "krb5_auth": True,
            "krb5_user": USER,
            "krb5_password": PASSWORD,
            "krb5_conf_file": str(up.kdc.conf),
            **names,
        }
    )


def target(up: Secured, **names: object) -> Target:
    return open_target(used(up, **names), FS, Path("/unused"))


def apply(place: Target, path: str, offset: int, data: bytes) -> None:
    place.apply(FileAppend.of(path, offset, data), memoryview(data))


def logins(up: Secured) -> int:
    """Tickets that the KDC gave or refused to who logs in."""
    said = (up.kdc.folder / "kdc.log").read_text()
    return sum("AS_REQ" in line and "NEEDED_PREAUTH" not in line for line in said.splitlines())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("door", ["WebHDFS", "HttpFS"])
def test_parts_stand_once_through_every_door(up: Secured, door: str, host: str) -> None:
    path = f"/user/warden/ä b%25 #?&+'\"é🌳[x]/{door} {host}.txt"
    port = up.hdfs.web if door == "WebHDFS" else up.hdfs.http_fs
    with contextlib.closing(target(up, hdfs_host=host, hdfs_port=port)) as place:
        assert place.length(path) == 0
        for offset, data in ((0, b"one\n"), (4, b"tw"), (4, b"two\n"), (8, "größer 🌳\0\n".encode())):
            apply(place, path, offset, data)
            apply(place, path, offset, data)
            assert place.length(path) == offset + len(data)
    assert reading.read(up.hdfs.web, path, proof(up)) == "one\ntwo\ngrößer 🌳\0\n".encode()


def test_nobody_reads_without_a_login(up: Secured) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        reading.read(up.hdfs.web, "/user")
    with (
        contextlib.closing(target(up, krb5_auth=False)) as place,
        pytest.raises(StorageError, match=r"status 401, which wants a login. See ngsi.krb5_auth"),
    ):
        place.length("/user/warden/x")


@pytest.mark.parametrize("door", ["WebHDFS", "HttpFS"])
def test_who_has_logged_in_is_the_user_whatever_a_query_says(up: Secured, door: str) -> None:
    port = up.hdfs.web if door == "WebHDFS" else up.hdfs.http_fs
    network = PooledTransport(used(up).values)
    for query in ("op=GETHOMEDIRECTORY", "op=GETHOMEDIRECTORY&user.name=warden"):
        answer = network.ask(f"127.0.0.1:{port}", Call("GET", f"/webhdfs/v1/?{query}"))
        assert json.loads(answer.body) == {"Path": f"/user/{USER}"}
    network.close()


@pytest.mark.parametrize("door", ["WebHDFS", "HttpFS"])
def test_a_cookie_serves_all_threads_until_it_expires_and_one_logs_in_anew(up: Secured, door: str) -> None:
    settings = used(up, hdfs_port=up.hdfs.web if door == "WebHDFS" else up.hdfs.http_fs)
    made: list[str] = []
    login = Login(settings.values)

    def negotiate(host: str) -> bytes:
        made.append(host)
        return login.token(host)

    files = WebHdfsFiles(settings, PooledTransport(settings.values, negotiate))
    with contextlib.closing(files), ThreadPoolExecutor(8) as pool:
        for times in (1, 2):
            list(pool.map(files.size, [f"/user/warden/{number}" for number in range(24)]))
            assert made == ["127.0.0.1"] * times
            time.sleep(COOKIE_SECONDS + 1)


class Watched:
    """The network, which tells of its calls."""

    def __init__(self, network: PooledTransport) -> None:
        self.network = network
        self.asked: list[tuple[Call, Answer]] = []

    def ask(self, host: str, call: Call) -> Answer:
        answer = self.network.ask(host, call)
        self.asked.append((call, answer))
        return answer

    def close(self) -> None:
        self.network.close()


def test_the_namenode_sends_to_a_datanode_with_a_token_that_lets_in_alone(up: Secured) -> None:
    settings = used(up)
    hosts: list[str] = []
    login = Login(settings.values)

    def negotiate(host: str) -> bytes:
        hosts.append(host)
        return login.token(host)

    watched = Watched(PooledTransport(settings.values, negotiate))
    path = "/user/warden/token"
    with contextlib.closing(WebHdfsFiles(settings, watched)) as files:
        files.create(path, memoryview(b"one\n"))
        files.append(path, memoryview(b"two\n"))
        assert files.read(path) == b"one\ntwo\n"
        sent = [(call, answer) for call, answer in watched.asked if answer.status == REDIRECT]
        assert [parse_qs(urlsplit(answer.location).query)["op"] for _, answer in sent] == [
            ["CREATE"],
            ["APPEND"],
            ["OPEN"],
        ]
        for call, answer in sent:
            query = parse_qs(urlsplit(answer.location).query)
            assert len(query["delegation"][0]) > 50
            assert "user.name" not in query
            assert "user.name" not in call.target
            assert urlsplit(answer.location).port != up.hdfs.web
        tokens = {parse_qs(urlsplit(answer.location).query)["delegation"][0] for _, answer in sent}
        assert len(tokens) == len(sent)
        # Nobody logs in at a DataNode: the token is what it wants, and it wants one.
        assert hosts == ["127.0.0.1"]
        where, _, query_of_reading = sent[-1][1].location.partition("?")
        without = "&".join(item for item in query_of_reading.split("&") if not item.startswith("delegation="))
        assert PooledTransport(parameters().values).ask("", Call("GET", f"{where}?{query_of_reading}")).status == OK
        refused = PooledTransport(parameters().values).ask("", Call("GET", f"{where}?{without}"))
        assert refused.status in {401, 403}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            {"krb5_password": WRONG},
            "a login of clerk, got 'Preauthentication failed'. Correct ngsi.krb5_user and ngsi.krb5_",
        ),
        ({"krb5_user": "stranger"}, "a login of stranger, got \"Client 'stranger@CUSTODY.TEST' not found"),
        ({"krb5_user": "a@b@c"}, "a login of a@b@c, got 'Malformed"),
        ({"krb5_user": "clerk@ELSE.TEST"}, "the realm of clerk@ELSE.TEST, got .*Name its file in ngsi.krb5_conf_file"),
    ],
)
def test_a_refused_login_says_what_to_do_and_is_not_tried_again(up: Secured, names: dict[str, str], said: str) -> None:
    with contextlib.closing(target(up, **names)) as place:
        before = logins(up)
        for _ in range(3):
            with pytest.raises(ConfigurationError, match=said) as raised:
                place.length("/user/warden/x")
            assert WRONG not in repr(raised.value)
            assert PASSWORD not in repr(raised.value)
        assert logins(up) <= before + 1


def test_a_kdc_that_is_away_and_a_host_without_a_service_may_come_back(up: Secured, tmp_path: Path) -> None:
    away = tmp_path / "krb5.conf"
    [port] = free_ports(1)
    away.write_text(
        "".join(
            f"  kdc = 127.0.0.1:{port}\n" if "kdc = 127" in line else line
            for line in up.kdc.conf.read_text().splitlines(keepends=True)
        )
    )
    with (
        contextlib.closing(target(up, krb5_conf_file=str(away))) as place,
        pytest.raises(StorageError, match=r"Kerberos of clerk for HTTP/127.0.0.1: .*(?i:contact any kdc)"),
    ):
        place.length("/user/warden/x")
    # The loopback is called so, too, and nobody made a principal of that.
    other = f"127.1:{up.hdfs.web}"
    with (
        contextlib.closing(target(up, hdfs_host=other)) as place,
        pytest.raises(StorageError, match=r"for HTTP/127.1: Server .* not found in Kerberos database"),
    ):
        place.length("/user/warden/x")
    with contextlib.closing(target(up, hdfs_host=f"{other},127.0.0.1:{up.hdfs.web}")) as place:
        assert place.length("/user/warden/x") == 0


def sink_all(folder: Path, place: Target, settings: Parameters) -> None:
    with Sink.open(FS, folder, place, ManualClock(RECEIVED_MS), settings, sleep=lambda seconds: None) as sink:
        for first, upto in BATCHES:
            if upto > sink.cursors.get(WRITER, 0):
                sink.write(items(settings, first, upto), {WRITER: upto})


@pytest.mark.parametrize("mode", ["json-row", "json-column", "csv-row", "csv-column", "parquet"])
def test_the_sink_writes_each_mode_and_a_wrong_password_costs_nothing(up: Secured, tmp_path: Path, mode: str) -> None:
    settings = used(up, hdfs_username=f"of-{mode}", file_format=mode)
    wrong = used(up, hdfs_username=f"of-{mode}", file_format=mode, krb5_password=WRONG)
    before = logins(up)
    with (
        contextlib.closing(target(up, krb5_password=WRONG)) as place,
        pytest.raises(ConfigurationError, match=r"Correct ngsi.krb5_user"),
    ):
        sink_all(tmp_path, place, wrong)
    assert logins(up) == before + 1  # eight files at once, retries: who is wrong so often is locked out elsewhere
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert not list(tmp_path.glob("quarantine/*"))
    with contextlib.closing(target(up)) as place:
        sink_all(tmp_path, place, settings)
    secret = proof(up)
    folder = f"/user/{settings.username}"
    found = {path: reading.read(up.hdfs.web, path, secret) for path in reading.files(up.hdfs.web, folder, secret)}
    assert found == expected(settings, list(BATCHES))
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        assert WRONG.encode() not in path.read_bytes()
        assert PASSWORD.encode() not in path.read_bytes()
