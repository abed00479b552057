"""The demo's NiFi: what it sends is stored once, and without Maven a twin sends it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from custody.repository import Repository
from custody.sample import SampleOptions, sample_files
from custody_local.demo import PROJECT
from custody_local.errors import DeliveryError
from custody_local.nifi import find_client, serving


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = []
    for name, data in sample_files(SampleOptions(events=300, seed=8, nodes=1, batch_size=200)):
        (tmp_path / name).write_bytes(data)
        paths.append(tmp_path / name)
    return paths


def test_without_maven_a_twin_delivers_and_a_second_delivery_stores_nothing_twice(
    tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    client = find_client(PROJECT)
    assert "twin" in client.name
    Repository.create(tmp_path / "r")
    for _ in range(2):
        with serving(tmp_path / "r") as url:
            assert client.deliver(url, files, PROJECT) == f"left=0 tries={len(files)} failures=0"
    sent = sum(len(json.loads(path.read_bytes())) for path in files)
    assert sum(1 for _ in Repository.open(tmp_path / "r").events(count=2 * sent)) == sent == 300


def test_what_is_not_taken_is_an_error_with_what_the_client_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(DeliveryError, match="a twin of NiFi's client: expected all to be taken"):
        find_client(PROJECT).deliver("http://127.0.0.1:9/nifi", [Path("/nowhere.json")], PROJECT)
