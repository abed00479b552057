"""All shipped cases end to end on a real HDFS: HTTP, journals, rollover, the job of the sink, files by REST and RPC."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.ngsi_sink.webhdfs import WebHdfsFiles
from custody_conformance.end_to_end import ScratchDir
from tests.services import reading
from tests.services.hdfs import Hdfs, hdfs
from tests.unit.ngsi.notification_records import parameters

pytestmark = pytest.mark.slow
BASE = "/a scratch/of cases"
HOSTILE = ("/ä b%25 #?&+'\"é🌳[x]/~ü (1).txt", "/deep/er/file", "/deep/empty")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs(tmp_path_factory.mktemp("hdfs"), http_fs=True) as up:
        yield up


def check(uri: str) -> None:
    done = CliRunner().invoke(cli, ["ngsi", "check", "--end-to-end", "--base-uri", uri.replace(" ", "%20")])
    assert done.exit_code == 0, done.output
    assert done.output.endswith(" as expected, 0 not\n")


def test_every_shipped_case_comes_out_by_webhdfs(running: Hdfs) -> None:
    check(f"webhdfs://127.0.0.1:{running.web}{BASE}")
    assert list(reading.files(running.web, BASE)) == []


@pytest.mark.spark
def test_every_shipped_case_comes_out_by_rpc(running: Hdfs) -> None:
    check(f"hdfs://127.0.0.1:{running.rpc}{BASE}")
    assert list(reading.files(running.web, BASE)) == []


@pytest.mark.parametrize("door", ["WebHDFS", "HttpFS"])
def test_what_lies_below_a_folder_is_found_read_and_removed(running: Hdfs, door: str) -> None:
    port = running.web if door == "WebHDFS" else running.http_fs
    files = WebHdfsFiles.open(parameters(hdfs_host="127.0.0.1", hdfs_port=port))
    with contextlib.closing(files):
        below, beside = ScratchDir(files, f"/{door}/ü below"), ScratchDir(files, f"/{door}/ü below.not")
        assert below.contents() == {}
        below.remove()
        data = {path: path.encode() * place for place, path in enumerate(HOSTILE)}
        for path, content in data.items():
            below.create(path, memoryview(content))
            beside.create(path, memoryview(content))
        assert below.contents() == data
        assert {path: reading.read(running.web, f"/{door}/ü below{path}") for path in data} == data
        below.remove()
        assert below.contents() == {}
        assert beside.contents() == data
