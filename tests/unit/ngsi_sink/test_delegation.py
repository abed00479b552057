"""Files of delegation tokens that Hadoop wrote, whole and damaged; which one is taken, and that it is shown nowhere."""

from __future__ import annotations

import logging
import os
import traceback
from base64 import urlsafe_b64decode
from pathlib import Path

import pytest

from custody.errors import ConfigurationError
from custody.ngsi_sink.delegation import (
    VARIABLE,
    DelegationToken,
    TokenFile,
    hide_tokens_in_logs,
    token_file,
    without_tokens,
)
from custody.ngsi_sink.webhdfs import Call, PooledTransport, WebHdfsFiles
from tests.unit.ngsi.notification_records import parameters
from tests.unit.ngsi_sink.test_pooled_transport import Server, server

TOKENS = Path(__file__).parent / "tokens"
"""Written by Hadoop 3.5.0 for a cluster that does not exist any more."""
SERVICE = "127.0.0.1:51877"
FORMS = ("writable", "protobuf")
INVALID = b'{"RemoteException": {"exception": "InvalidToken", "message": "token (token for robot) is expired"}}'
__all__ = ["server"]


def text(form: str) -> str:
    return TokenFile(TOKENS / f"{form}.tokens", [SERVICE]).url_text


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_hadoop_wrote_gives_the_token_as_a_url_has_it(form: str) -> None:
    data = urlsafe_b64decode(text(form) + "==")
    assert b"HDFS_DELEGATION_TOKEN" in data
    assert data.endswith(bytes([len(SERVICE)]) + SERVICE.encode())
    assert not set(text(form)) & set("+/=")


def cut_or_changed() -> list[bytes]:
    files = [(TOKENS / f"{form}.tokens").read_bytes() for form in FORMS]
    cuts = [data[:end] for data in files for end in range(len(data))]
    return [*cuts, b"", b"HDTS", b"HDTS\2", b"HDFS\0\1", b"HDTS\0\0", b"x" * 100]


def test_a_file_that_is_cut_or_something_else_is_refused_with_what_to_do(tmp_path: Path) -> None:
    for number, data in enumerate(cut_or_changed()):
        path = tmp_path / str(number)
        path.write_bytes(data)
        with pytest.raises(
            ConfigurationError, match=r"expected a file of Hadoop's delegation tokens.*fetchdt"
        ) as raised:
            TokenFile(path, [SERVICE])
        shown = "".join(traceback.format_exception(raised.value))
        assert "robot" not in shown
        assert "During handling" not in shown
    with pytest.raises(ConfigurationError, match="No such file"):
        TokenFile(tmp_path / "none", [SERVICE])


def test_any_changed_byte_is_read_or_refused_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    for form in FORMS:
        data = (TOKENS / f"{form}.tokens").read_bytes()
        for place in range(len(data)):
            for value in (0, 0x7F, 0x88, 0xFF):
                path.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
                try:
                    assert TokenFile(path, [SERVICE]).url_text
                except ConfigurationError:
                    continue


def file_of(path: Path, *tokens: tuple[str, str]) -> Path:
    """A file as Hadoop writes it, of tokens by kind and service."""

    def piece(data: bytes) -> bytes:
        return bytes([len(data)]) + data

    parts = [
        b"".join(map(piece, (service.encode(), b"identifier", f"password of {service}".encode(), kind.encode())))
        + piece(service.encode())
        for kind, service in tokens
    ]
    path.write_bytes(b"HDTS\0" + bytes([len(parts)]) + b"".join(parts) + b"\0")
    return path


@pytest.mark.parametrize(
    ("hosts", "chosen"),
    [
        (["127.0.0.1:9870"], "127.0.0.1:9870"),
        (["localhost:9870"], "127.0.0.1:9870"),
        (["127.0.0.1:14000"], "127.0.0.1:9870"),
        (["10.0.0.9:1"], None),
    ],
)
def test_of_several_tokens_the_one_of_the_namenode_is_taken(
    tmp_path: Path, hosts: list[str], chosen: str | None
) -> None:
    kinds = [
        ("WEBHDFS delegation", "10.1.1.1:9870"),
        ("WEBHDFS delegation", "127.0.0.1:9870"),
        ("YARN_AM", "127.0.0.1:9870"),
    ]
    path = file_of(tmp_path / "tokens", *kinds)
    if chosen is None:
        with pytest.raises(ConfigurationError, match=r"several, none for 10.0.0.9:1: WEBHDFS delegation of 10.1.1.1"):
            TokenFile(path, hosts)
        return
    assert urlsafe_b64decode(TokenFile(path, hosts).url_text + "==").endswith(chosen.encode())


def test_a_file_without_a_token_of_hdfs_says_which_it_has(tmp_path: Path) -> None:
    path = file_of(tmp_path / "tokens", ("YARN_AM", "rm:1"), ("HIVE_DELEGATION_TOKEN", "hs2"))
    with pytest.raises(ConfigurationError, match=r"tokens of other kinds \(HIVE_DELEGATION_TOKEN, YARN_AM\)"):
        TokenFile(path, [SERVICE])


def test_a_file_of_the_environment_without_a_token_of_hdfs_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(file_of(tmp_path / "container_tokens", ("YARN_AM_RM_TOKEN", "rm:8030"))))
    assert token_file(parameters().values) is None
    file_of(tmp_path / "container_tokens", ("YARN_AM_RM_TOKEN", "rm:8030"), ("HDFS_DELEGATION_TOKEN", SERVICE))
    assert token_file(parameters().values) == tmp_path / "container_tokens"


def test_the_environment_names_the_file_where_the_settings_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert token_file(parameters().values) is None
    monkeypatch.setenv(VARIABLE, "/a")
    assert token_file(parameters().values) == Path("/a")
    assert token_file(parameters(delegation_token_file=Path("/b")).values) == Path("/b")


def test_long_parts_have_the_lengths_of_hadoop() -> None:
    token = DelegationToken(b"i" * 300, b"p" * 128, "k", "s")
    data = urlsafe_b64decode(token.url_text + "=" * (-len(token.url_text) % 4))
    assert data[:3] == b"\x8e\x01\x2c"  # two bytes follow: 300
    assert data[303:305] == b"\x8f\x80"  # one byte follows: 128
    assert "iii" not in repr(token)


def test_a_call_has_the_token_in_the_place_of_any_user_and_nobody_logs_in(server: Server, tmp_path: Path) -> None:
    path = file_of(tmp_path / "tokens", ("WEBHDFS delegation", server.place))
    # Also with krb5_auth: without the token this would be a login.
    values = parameters(krb5_auth=True, krb5_user="u", krb5_password="p", delegation_token_file=path).values  # noqa: S106
    token = TokenFile(path, [server.place])
    network = PooledTransport(values, token=token)
    network.ask(server.place, Call("GET", "/webhdfs/v1/a%20b/%3F?op=OPEN&user.name=u&doas=x&offset=0"))
    [(_, target, headers, _)] = server.asked
    assert target == f"/webhdfs/v1/a%20b/%3F?op=OPEN&offset=0&delegation={token.url_text}"
    assert "authorization" not in headers
    # A DataNode gets what the NameNode's redirect says.
    network.ask("", Call("GET", f"http://{server.place}/x?delegation=other"))
    assert server.asked[-1][1] == "/x?delegation=other"
    network.close()


def test_a_refused_token_is_read_again_once_it_was_renewed(server: Server, tmp_path: Path) -> None:
    path = file_of(tmp_path / "tokens", ("WEBHDFS delegation", server.place))
    token = TokenFile(path, [server.place])
    old = token.url_text
    server.reply = lambda handler, body: (403, {}, INVALID) if old in handler.path else (200, {}, b"")
    network = PooledTransport(parameters().values, token=token)
    for _ in range(2):
        with pytest.raises(
            ConfigurationError, match=r"delegation token of .*: .*is expired.*Have it renewed"
        ) as raised:
            network.ask(server.place, Call("GET", "/webhdfs/v1/a?op=OPEN"))
        assert old not in "".join(traceback.format_exception(raised.value))
    file_of(tmp_path / "new", ("SWEBHDFS delegation", server.place)).replace(path)
    assert network.ask(server.place, Call("GET", "/webhdfs/v1/a?op=OPEN")).status == 200
    network.close()


def test_no_token_is_in_a_message_or_a_log(server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    path = file_of(tmp_path / "tokens", ("WEBHDFS delegation", server.place))
    secret = TokenFile(path, [server.place]).url_text
    server.reply = lambda handler, body: None
    host, _, port = server.place.partition(":")
    settings = parameters(hdfs_host=host, hdfs_port=int(port), delegation_token_file=path)
    files = WebHdfsFiles.open(settings)
    with pytest.raises(OSError, match="expected one of") as raised:
        files.size("/a")
    server.reply = lambda handler, body: (200, {}, b"{}")
    with pytest.raises(OSError, match="GETFILESTATUS"):
        files.size("/a")
    files.close()
    assert secret in server.asked[0][1]
    assert secret not in "".join(traceback.format_exception(raised.value)) + caplog.text + repr(files.__dict__)
    assert "delegation=…" in caplog.text
    assert without_tokens(f"GET /x?op=A&delegation={secret}&b=1") == "GET /x?op=A&delegation=…&b=1"
    hide_tokens_in_logs()
    assert (
        logging.getLogger("urllib3.connectionpool").filters.count(
            logging.getLogger("urllib3.connectionpool").filters[0]
        )
        == 1
    )


def test_another_user_beside_a_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, os.fspath(file_of(tmp_path / "tokens", ("WEBHDFS delegation", SERVICE))))
    with pytest.raises(ConfigurationError, match=r"ngsi.hdfs_doas: a delegation token acts as its owner"):
        WebHdfsFiles.open(parameters(hdfs_doas="warden"))
