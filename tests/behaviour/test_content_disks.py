"""Contents on several disks, one of which goes away and comes back: nothing is taken for gone, and nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.clock import ManualClock
from custody.config import SETTINGS_FILE, load_settings
from custody.errors import ContentContainerMissingError
from custody.maintenance.verification import verify_repository
from custody.repository import Repository
from custody.retention.disk_usage import measure_disk
from custody.vfs import PosixFileSystem
from tests.support import event

DAY_MS = 86_400_000
FS = PosixFileSystem()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    Repository.create(root)
    (tmp_path / "disk").mkdir()
    (root / SETTINGS_FILE).write_text(f'[content]\nclaim_bytes = 4096\ncontainers = ["1", "b={tmp_path}/disk"]\n')
    return root


def stored(root: Path, clock: ManualClock) -> dict[int, bytes]:
    """Store events with contents in both containers; they are live afterwards."""
    contents = {}
    repository = Repository(load_settings(root), FS, clock)
    with repository.writer() as writer:
        for number in range(6):
            contents[number] = bytes([65 + number]) * 5000
            told = event(number, event_time=clock.now_ms(), event_type="CONTENT_MODIFIED")
            writer.append_with_content([told], contents[number])
        writer.seal()
    repository.roll_over()
    return contents


def custody(root: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["-r", str(root), *arguments])
    return result.exit_code, result.output


def test_a_disk_of_contents_goes_and_comes_back(root: Path, tmp_path: Path) -> None:
    clock = ManualClock(1_772_409_600_000)
    contents = stored(root, clock)
    repository = Repository(load_settings(root), FS, clock)
    events = list(repository.events(count=10))
    on_disk = {one.event_id for one in events if str(one.content_claim and one.content_claim.container).endswith("/b")}
    assert len(on_disk) == 3
    used = measure_disk(repository.settings, FS).kinds["content"]
    assert not verify_repository([repository.workspace()], repository.settings, FS).findings

    (tmp_path / "disk").rename(tmp_path / "taken out")
    (tmp_path / "disk").mkdir()  # the place where it is mounted
    for number, content in contents.items():
        if number in on_disk:
            with pytest.raises(ContentContainerMissingError, match="'b' of writer 'main' is missing"):
                repository.content(repository.get(number))
        else:
            assert repository.content(repository.get(number)).read() == content
    assert custody(root, "content", "get", str(min(on_disk)))[0] == 23
    status = json.loads(custody(root, "status", "--json")[1])
    assert {item["name"]: item["state"] for item in status["content_containers"]} == {"1": "ok", "b": "missing"}
    assert any("'b'" in notice for notice in status["notices"])
    findings = verify_repository([repository.workspace()], repository.settings, FS).findings
    assert [(finding.kind, finding.name) for finding in findings] == [("content-container-missing", "b")]
    assert used // 3 < measure_disk(repository.settings, FS).kinds["content"] < used
    # Retention and recovery pass by, and new contents lie where there is a disk.
    clock.advance(40 * DAY_MS)
    with repository.writer() as writer:
        told = event(9, event_time=clock.now_ms(), event_type="CONTENT_MODIFIED")
        assert writer.append_with_content([told], b"later")
    repository.roll_over()
    repository.recover()
    assert not [path for path in (tmp_path / "disk").rglob("*") if path.is_file()]

    (tmp_path / "disk").rename(tmp_path / "the place")
    (tmp_path / "taken out").rename(tmp_path / "disk")
    assert {number: repository.content(repository.get(number)).read() for number in contents} == contents
    assert not verify_repository([repository.workspace()], repository.settings, FS).findings
