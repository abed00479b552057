"""Cases that go the whole way: HTTP, journal, rollover, sink, files; some of them here, all in the slow suite."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.config import NgsiSection
from custody.errors import ConfigurationError, NotFoundError, StorageError
from custody_conformance.case import Case
from custody_conformance.checking import check_cases, shipped_cases
from custody_conformance.end_to_end import EndToEnd, FsUri

CASES = {case.id: case for case in shipped_cases()}
FEW = ("MOD-01", "MOD-17", "MOD-27", "MOD-33", "BAT-01", "REQ-01", "HIV-01")
"""A mode with metadata files, one with columns, one of Parquet; a timestamp, batches, a refusal, tables."""


def failed(cases: list[Case]) -> list[str]:
    return [
        f"{verdict.id}: {'; '.join(verdict.differences)}"
        for verdict in check_cases(cases, run_one=EndToEnd().run)
        if not verdict.is_passed
    ]


def test_some_cases_come_out_end_to_end_as_in_memory() -> None:
    assert failed([CASES[name] for name in FEW]) == []


@pytest.mark.slow
def test_every_shipped_case_comes_out_end_to_end() -> None:
    assert failed(list(CASES.values())) == []


def test_a_case_that_does_not_come_out_says_what_came() -> None:
    case = CASES["MOD-01"]
    wrong = Case(**{**{name: getattr(case, name) for name in case.__struct_fields__}, "expect": {"status": 400}})
    [verdict] = check_cases([wrong], run_one=EndToEnd().run)
    assert verdict.differences == ("status: expected 400, got 200",)


def test_the_command_runs_cases_end_to_end() -> None:
    done = CliRunner().invoke(cli, ["ngsi", "check", "--end-to-end", "--case", "MOD-02"])
    assert (done.exit_code, done.output) == (0, "1 cases, 1 checked against expect: 1 as expected, 0 not\n")


def test_a_base_holds_nothing_afterwards(tmp_path: Path) -> None:
    base = (tmp_path / "a base").as_uri()
    done = CliRunner().invoke(cli, ["ngsi", "check", "--end-to-end", "--base-uri", base, "--case", "MOD-17"])
    assert (done.exit_code, done.output) == (0, "1 cases, 1 checked against expect: 1 as expected, 0 not\n")
    assert list((tmp_path / "a base").iterdir()) == []


def test_a_base_that_does_not_answer_is_an_error() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        base = f"webhdfs://127.0.0.1:{nobody.getsockname()[1]}/tmp"
        done = CliRunner().invoke(cli, ["ngsi", "check", "--end-to-end", "--base-uri", base, "--case", "MOD-01"])
    assert done.exit_code == StorageError.exit_code
    assert "to answer" in done.stderr


def test_who_logs_in_at_a_base_is_said_by_settings() -> None:
    access = NgsiSection(
        krb5_auth=True,
        krb5_user="clerk",
        krb5_password="hush",  # noqa: S106
        backend_timeout=7,
        hdfs_username="nobody",
        hdfs_host="elsewhere",
    )
    told = FsUri.parse("webhdfs://nn1/x").settings(access)
    section = NgsiSection.model_validate(told)
    assert (section.krb5_auth, section.krb5_user, section.krb5_password, section.backend_timeout) == (
        True,
        "clerk",
        "hush",
        7,
    )
    assert (section.hdfs_host, section.hdfs_username) == ("nn1", None)
    assert FsUri.parse("file:///x").settings(access).keys() == {"backend", "backend_folder"}


def test_a_repository_that_is_named_has_to_be_there(tmp_path: Path) -> None:
    command = ["ngsi", "check", "--end-to-end", "--base-uri", f"file://{tmp_path}", "--case", "MOD-17"]
    assert CliRunner().invoke(cli, command).exit_code == 0
    done = CliRunner().invoke(cli, ["-r", str(tmp_path / "none"), *command])
    assert done.exit_code == NotFoundError.exit_code


def test_a_base_belongs_to_end_to_end() -> None:
    assert CliRunner().invoke(cli, ["ngsi", "check", "--base-uri", "file:///tmp"]).exit_code == 2


@pytest.mark.parametrize(
    ("uri", "settings"),
    [
        ("file:///a%20b/", ("file", "", "/a b")),
        ("hdfs://nn1:9000/x", ("binary", "nn1:9000", "/x")),
        ("hdfs://nn1,nn2/x/y", ("binary", "nn1,nn2", "/x/y")),
        ("webhdfs://nn1:50070/", ("rest", "nn1:50070", "")),
        ("swebhdfs://nn1/x", ("rest", "nn1", "/x")),
    ],
)
def test_bases(uri: str, settings: tuple[str, str, str]) -> None:
    base = FsUri.parse(uri)
    assert (base.backend, base.hosts, base.folder) == settings
    assert NgsiSection.model_validate(base.settings(NgsiSection())).backend == base.backend
    assert base.is_tls == uri.startswith("s")


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "/tmp",
        "tmp",
        "file://host/x",
        "file:tmp",
        "hdfs:///x",
        "hdfs://nn",
        "s3://b/x",
        "webhdfs://u@nn/x",
        "file:///x/../y",
        "webhdfs://nn/x?op=DELETE",
    ],
)
def test_what_is_no_base_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="expected file:///folder, hdfs://host:8020/folder"):
        FsUri.parse(uri)
