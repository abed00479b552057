"""A repository whose store is a bucket: commands work on it; what needs a folder says so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from custody.cli.main import cli
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from custody.workspace.handoff import Handoff
from tests.behaviour.places import s3_url
from tests.behaviour.s3 import BUCKET, s3_environment, s3_store
from tests.support import append, event, flipped, run_steps

__all__ = ["s3_url"]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "v1"


def run(root: Path, *arguments: object) -> Result:
    return CliRunner().invoke(cli, ["--repository", str(root), *map(str, arguments)])


def test_the_commands_of_the_catalog_work_on_a_bucket(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, prefix = Path(shutil.copytree(GOLDEN, tmp_path / "repository")), uuid4().hex
    store = s3_store(s3_url, prefix)
    for path in sorted((root / "store").rglob("*")):
        if path.is_file():
            store.put(str(path.relative_to(root / "store")), path.read_bytes())
    shutil.rmtree(root / "store")
    (root / "custody.toml").write_text(f'[repository]\nstore = "s3://{BUCKET}/{prefix}"\n')
    for name, value in s3_environment(s3_url).items():
        monkeypatch.setenv(name, value)

    shown = json.loads(run(root, "catalog", "show", "--json").stdout)
    assert (shown["revision"], len(shown["files"])) == (1, 2)
    assert json.loads(run(root, "verify", "--json").stdout)[0]["files"] == 2
    assert run(root, "attest", "--new-key", tmp_path / "key.pem").exit_code == 0
    assert run(root, "attest", "--key", tmp_path / "key.pem", "--out", tmp_path / "head.json").exit_code == 0
    assert run(root, "verify", "--against", tmp_path / "head.json").exit_code == 0
    assert run(root, "catalog", "checkpoint").exit_code == 0
    assert run(root, "catalog", "gc", "--dry-run").exit_code == 0

    key = shown["files"][0]["path"]
    good = store.get(f"main/provenance/{key}")
    store.put(f"main/provenance/{key}", flipped(good, 8 * good.index(b"6f1c2d3e")))
    document = json.loads(run(root, "verify", "--json").stdout)[0]
    assert document["defects"][0]["file"] == f"s3://{BUCKET}/{prefix}/main/provenance/{key}"
    store.put(f"main/provenance/{key}", good)

    rebuilt = json.loads(run(root, "catalog", "rebuild", "--yes", "--json").stdout)
    assert (rebuilt["files"], rebuilt["events"]) == (2, 5)
    assert len(json.loads(run(root, "catalog", "show", "--json").stdout)["files"]) == 2

    assert json.loads(run(root, "status", "--json").stdout)["writers"][0]["writer"] == "main"
    events = [json.loads(line) for line in run(root, "events", "--json").stdout.splitlines()]
    assert len(events) == json.loads(run(root, "search", "", "--json").stdout)["total"] > 0
    scrubbed = run(root, "scrub", "--all")
    assert scrubbed.exit_code == 0, scrubbed.output
    for command in (["verify", "--orphans"], ["repair", "--dry-run"]):
        refused = run(root, *command)
        assert refused.exit_code == 11
        assert "needs a store that is a folder" in refused.stderr


def test_a_bucket_that_is_missing_is_refused_before_anything_is_read(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_environment(s3_url).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "custody.toml").write_text('[repository]\nstore = "s3://no-such-bucket/prefix"\n')
    for command in (["status"], ["events"], ["search", ""], ["catalog", "show"]):
        refused = run(tmp_path, *command)
        assert refused.exit_code == 11, refused.output
        assert "there is no such bucket" in refused.stderr


def test_a_hand_over_to_a_bucket_is_merged_from_checked_copies(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3_store(s3_url)
    right = Handoff.__init__

    def in_bucket(self: Handoff, fs: PosixFileSystem, _: object, home: str, copies: Path) -> None:
        right(self, fs, bucket, home, copies)

    monkeypatch.setattr(Handoff, "__init__", in_bucket)
    root = tmp_path / "repository"
    root.mkdir()
    (root / "custody.toml").write_text('[journal]\nhandoff = "store"\n')
    repository = Repository.open(root)
    append(repository, [event()] * 3)
    assert [group.events for group in repository.hand_over()] == [3]
    shutil.rmtree(root / "containers")
    run_steps(repository.settings)
    assert [item.event_id for item in repository.events(0, 100)] == [0, 1, 2]
    assert repository.status().writers[0].events_live == 3
    assert list(bucket.keys("main/provenance/handoff/")) == []
    assert not [path for path in (root / "handoff").rglob("*") if path.is_file()]
