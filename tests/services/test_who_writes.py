"""Who writes to a real HDFS with Kerberos: a user that is impersonated, the owner of a token, the one of a keytab."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from custody.errors import ConfigurationError
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink.batch_file import FileAppend
from custody.ngsi_sink.delegation import VARIABLE, TokenFile
from custody.ngsi_sink.opening import open_target
from custody.vfs import PosixFileSystem
from tests.services import reading
from tests.services.secured import PASSWORD, USER, Secured, missing, proof, secured_hdfs
from tests.spark.test_ngsi_tables import submitted
from tests.unit.ngsi.notification_records import parameters

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "all is here")]
FORMS = ("writable", "protobuf")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", "/nowhere")
        with secured_hdfs(tmp_path_factory.mktemp("secured"), http_fs=True) as running:
            yield running


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens")


@pytest.fixture(scope="module")
def by_rpc(up: Secured, tokens: Path) -> dict[str, Any]:
    """What a job wrote as whom by RPC; Hadoop itself left files of tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_CONF_DIR", str(up.hdfs.conf))
        patch.setenv("KRB5_CONFIG", str(up.kdc.conf))
        arguments = (str(up.hdfs.rpc), str(up.keytab), str(up.kdc.conf), str(tokens))
        return dict(submitted("ngsi_who_writes.py", tokens, *arguments))


def used(up: Secured, door: str = "WebHDFS", **names: object) -> Parameters:
    port = up.hdfs.web if door == "WebHDFS" else up.hdfs.http_fs
    return parameters(**{"hdfs_host": "127.0.0.1", "hdfs_port": port, "krb5_conf_file": str(up.kdc.conf), **names})


def by_password(up: Secured, door: str = "WebHDFS", **names: object) -> Parameters:
    return used(up, door, krb5_auth=True, krb5_user=USER, krb5_password=PASSWORD, **names)


def write(settings: Parameters, path: str) -> None:
    with contextlib.closing(open_target(settings, PosixFileSystem(), Path("/unused"))) as place:
        for offset, data in ((0, b"one\n"), (4, b"two\n")):
            place.apply(FileAppend.of(path, offset, data), memoryview(data))


def owner(up: Secured, path: str) -> str:
    url = f"http://127.0.0.1:{up.hdfs.web}/webhdfs/v1{path}?op=GETFILESTATUS&{proof(up)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert reading.read(up.hdfs.web, path, proof(up)) == b"one\ntwo\n"
        return str(json.loads(answer.read())["FileStatus"]["owner"])


@pytest.mark.parametrize("door", ["WebHDFS", "HttpFS"])
def test_a_file_belongs_to_the_user_who_is_impersonated(up: Secured, door: str) -> None:
    path = f"/user/warden/who/rest-doas-{door}"
    write(by_password(up, door, hdfs_doas="warden"), path)
    assert owner(up, path) == "warden"


@pytest.mark.parametrize("door", ["WebHDFS", "HttpFS"])
def test_who_may_not_be_impersonated_ends_the_run_and_quarantines_nothing(up: Secured, door: str) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)ngsi.hdfs_doas: .*stranger.*hadoop.proxyuser"):
        write(by_password(up, door, hdfs_doas="stranger"), "/user/warden/who/none")


@pytest.mark.parametrize("door", ["WebHDFS", "HttpFS"])
def test_a_keytab_logs_in_without_a_password(up: Secured, door: str, tmp_path: Path) -> None:
    path = f"/user/warden/who/rest-keytab-{door}"
    login = {"krb5_auth": True, "krb5_user": "robot"}
    write(used(up, door, **login, krb5_keytab=up.keytab), path)
    assert owner(up, path) == "robot"
    with pytest.raises(
        ConfigurationError, match=r"a login of clerk, got .*Correct ngsi.krb5_user and ngsi.krb5_keytab"
    ):
        write(used(up, door, **{**login, "krb5_user": USER}, krb5_keytab=up.keytab), path)
    with pytest.raises(ConfigurationError, match=r"ngsi.krb5_keytab: expected a keytab that can be read"):
        write(used(up, door, **login, krb5_keytab=tmp_path / "none"), path)


@pytest.mark.spark
def test_by_rpc_files_belong_to_the_one_who_is_meant(by_rpc: dict[str, Any]) -> None:
    assert by_rpc["owners"] == {"keytab": "robot", "doas": "warden", "writable": "robot", "protobuf": "robot"}


@pytest.mark.spark
def test_by_rpc_a_refusal_says_what_to_do(by_rpc: dict[str, Any]) -> None:
    said = by_rpc["refused"]
    assert {name: kind for name, (kind, _) in said.items()} == dict.fromkeys(said, "ConfigurationError")
    assert "Correct ngsi.krb5_user and ngsi.krb5_keytab" in said["keytab"][1]
    assert "expected a login of Spark" in said["nothing"][1]
    assert "ngsi.hdfs_doas" in said["doas"][1]
    assert "hadoop.proxyuser" in said["doas"][1]
    assert "delegation token of" in said["token"][1]
    assert "expected a file of Hadoop's delegation tokens" in said["file"][1]


@pytest.mark.spark
@pytest.mark.parametrize("form", FORMS)
def test_a_file_of_tokens_that_hadoop_wrote_lets_in_without_a_login(
    up: Secured, by_rpc: dict[str, Any], tokens: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert by_rpc
    file = tokens / f"{form}.tokens"
    write(used(up, delegation_token_file=file), f"/user/warden/who/rest-{form}")
    assert owner(up, f"/user/warden/who/rest-{form}") == "robot"
    monkeypatch.setenv(VARIABLE, str(file))
    write(used(up), f"/user/warden/who/rest-env-{form}")
    assert owner(up, f"/user/warden/who/rest-env-{form}") == "robot"
    with pytest.raises(ConfigurationError, match=r"hdfs_doas: a delegation token acts as its owner"):
        write(used(up, hdfs_doas="warden"), "/user/warden/who/none")


@pytest.mark.spark
def test_a_token_that_is_refused_is_read_again_and_shown_nowhere(
    up: Secured, by_rpc: dict[str, Any], tokens: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert by_rpc
    file = tmp_path / "tokens"
    shutil.copy(tokens / "cancelled.tokens", file)
    caplog.set_level(logging.DEBUG)
    settings = used(up, delegation_token_file=file)
    place = open_target(settings, PosixFileSystem(), Path("/unused"))
    with contextlib.closing(place):
        with pytest.raises(ConfigurationError, match=r"delegation token of .*Have it renewed") as raised:
            place.length("/user/warden/who/x")
        shutil.copy(tokens / "writable.tokens", tmp_path / "new")
        (tmp_path / "new").replace(file)
        assert place.length("/user/warden/who/renewed") == 0
        place.apply(FileAppend.of("/user/warden/who/renewed", 0, b"one\n"), memoryview(b"one\n"))
    secrets = [
        TokenFile(tokens / f"{name}.tokens", [f"127.0.0.1:{up.hdfs.rpc}"]).url_text
        for name in ("cancelled", "writable")
    ]
    for secret in secrets:
        assert secret not in caplog.text
        assert secret not in repr(raised.value) + str(raised.getrepr(chain=True, showlocals=False))
    assert "delegation=…" in caplog.text, "the client did write lines with URLs"
