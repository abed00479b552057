"""A target of backups as version 1 has it: every later release lists, verifies and restores it."""

from __future__ import annotations

from pathlib import Path

from custody.backup import BackupManifest, BackupTarget, restore, verify_backup
from custody.backup.manifest import decode_manifest, encode_manifest
from custody.maintenance.findings import damages
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.golden.make_golden import HERE
from tests.support import event, files_below, unnumbered

GOLDEN = HERE / "backup"


def test_the_golden_target_is_whole_and_is_written_as_it_is() -> None:
    target = BackupTarget(str(GOLDEN), PosixFileSystem(), HERE)
    target.open()
    found = [item for item in target.manifests() if isinstance(item, BackupManifest)]
    assert [(item.number, item.ends[0].newest_event_id) for item in found] == [(1, 7), (2, 8)]
    for item in found:
        assert verify_backup(target, item) == []
        data = (GOLDEN / "backups" / f"{item.number:010d}" / "manifest.json").read_bytes()
        assert encode_manifest(decode_manifest(data, "golden")) == data


def test_each_golden_backup_becomes_a_repository(tmp_path: Path) -> None:
    before = files_below(GOLDEN)
    for number, events in ((1, 8), (2, 9)):
        done = restore(str(GOLDEN), tmp_path / str(number), number=number)
        assert not damages(done.findings)
        assert done.secrets_left_out == ["exports.a.token"]
        restored = Repository.open(tmp_path / str(number))
        assert unnumbered(restored.events(count=100)) == [event(n) for n in range(events)]
    assert files_below(GOLDEN) == before, "a restore changes nothing in a target"
