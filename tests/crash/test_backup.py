"""Crashes at each operation of a backup and of a restore, and bugs in them that the enumeration has to see."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from custody.backup import BackupManifest, BackupTarget
from custody.backup import restore_run as restores
from custody.backup.manifest import BackupFile, digest_text, encode_manifest, encode_table
from custody.backup.restore_run import _Restore
from custody.backup.target import _manifest_key, _object_key, _table_key
from custody.config import SETTINGS_FILE
from custody.lease import Lease
from tests.crash.backup_scenarios import BackingUp, Restoring
from tests.crash.enumeration import Scenario, enumerate_crashes, run_to
from tests.parts import Part


@pytest.mark.in_parts
@pytest.mark.parametrize("scenario", [BackingUp(), Restoring()], ids=["backup", "restore"])
def test_a_crash_leaves_whole_backups_and_whole_repositories(scenario: Scenario[Any], part: Part) -> None:
    _, _, error = run_to(scenario)
    assert error is None
    outcome = enumerate_crashes(scenario, seeds=2, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 20


def _manifest_first() -> AbstractContextManager[object]:
    def wrong(
        self: BackupTarget, manifest: BackupManifest, files: Collection[BackupFile], lease: Lease
    ) -> BackupManifest:
        table = encode_table(files)
        whole = msgspec.structs.replace(manifest, table_bytes=len(table), table_sha256=digest_text(table))
        self.store.put(_manifest_key(manifest.number), encode_manifest(whole))
        self.store.put(_table_key(manifest.number), table)
        return whole

    return patch.object(BackupTarget, "publish", wrong)


def _objects_are_not_synced() -> AbstractContextManager[object]:
    def wrong(self: Any, data: bytes) -> bytes:
        digest = hashlib.sha256(data).digest()
        path = self.folder / _object_key(digest)
        self._fs.make_directory(path.parent)
        if not self._fs.exists(path):
            with self._fs.create(path) as out:
                out.write(data)
            self._fs.sync_directory(path.parent)
        return digest

    return patch.object(BackupTarget, "put_object", wrong)


def _objects_go_before_manifests() -> AbstractContextManager[object]:
    right = BackupTarget.prune

    def wrong(self: Any, keep: int, now_ms: int, young_ms: int = 0) -> tuple[list[int], int]:
        numbers = self.numbers()
        used = {
            item for number in numbers[-keep:] for file in self.files(self.manifest(number)) for item in file.objects
        }
        for number in numbers[:-keep]:
            for file in self.files(self.manifest(number)):
                for item in set(file.objects) - used:
                    self.store.delete(_object_key(item))
        return right(self, keep, now_ms, young_ms)

    return patch.object(BackupTarget, "prune", wrong)


def _settings_first() -> AbstractContextManager[object]:
    right = _Restore._copy

    def wrong(self: Any, files: Any, stores: Any) -> None:
        self._fs.write_durably(self._folder / SETTINGS_FILE, b"")
        right(self, files, stores)

    return patch.object(_Restore, "_copy", wrong)


def _nothing_is_settled() -> AbstractContextManager[object]:
    return patch.object(_Restore, "_settle", lambda *_: None)


def _files_of_an_interrupted_restore_are_believed() -> AbstractContextManager[object]:
    return patch.object(_Restore, "_is_whole", lambda *_: True)


def _what_a_restore_added_stays() -> AbstractContextManager[object]:
    return patch.object(_Restore, "_remove_later", lambda *_: None)


@contextmanager
def _ids_go_on_below() -> Any:
    with ExitStack() as stack:
        stack.enter_context(patch.object(restores, "RESTORED_IDS", -(1 << 20)))
        yield


@pytest.mark.parametrize(
    ("scenario", "bug"),
    [
        (BackingUp, _manifest_first),
        (BackingUp, _objects_are_not_synced),
        (BackingUp, _objects_go_before_manifests),
        (Restoring, _settings_first),
        (Restoring, _nothing_is_settled),
        (Restoring, _files_of_an_interrupted_restore_are_believed),
        (Restoring, _what_a_restore_added_stays),
        (Restoring, _ids_go_on_below),
    ],
)
@pytest.mark.in_parts(2)
def test_the_enumeration_sees_a_mistake(
    scenario: type[Scenario[Any]], bug: Callable[[], AbstractContextManager[object]]
) -> None:
    with bug():
        outcome = enumerate_crashes(scenario(), seeds=3, first_alarm_only=True)
    assert outcome.alarms
