"""A unit in an object store as version 1 has it: manifest, events and entries are read, and damage is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from custody.errors import CorruptionError, FormatVersionError
from custody.eventlog import read_staged
from custody.store import LocalStore
from custody.vfs import PosixFileSystem
from custody.workspace.stored_units import LOG_ENTRY, PREAMBLE, SHARD_ENTRY, StoredUnits
from tests.golden.make_golden import HERE
from tests.support import event, flipped

FS = PosixFileSystem()
GOLDEN = HERE / "stored-unit"
HOME = "main/provenance/"
FOLDER = Path(HOME, "staging", f"{0:020d}")


@pytest.fixture
def units(tmp_path: Path) -> StoredUnits:
    shutil.copytree(GOLDEN, tmp_path / "store")
    store = LocalStore(FS, tmp_path / "store")
    return StoredUnits(FS, store, HOME, tmp_path / "copies", "main", "provenance")


def test_the_golden_unit_is_read_whole(units: StoredUnits) -> None:
    assert units.firsts() == units.folders() == [0]
    manifest = units.manifest(0)
    [log] = manifest.logs
    [table] = read_staged(FS, units.events(manifest, log), log, schema_version=manifest.schema_version)
    assert table.column("event_id").to_pylist() == [0, 1, 2]
    assert table.column("flowfile_uuid").to_pylist() == [event(number).flowfile_uuid for number in range(3)]
    file = units.entry(0, log, LOG_ENTRY).add_file
    assert (file.rows, file.first_event_id, file.last_event_id, list(file.groups)) == (3, 0, 2, [0])
    shard = units.entry(0, log, SHARD_ENTRY).add_shard
    assert (shard.documents, list(shard.log_paths)) == (3, [file.path])


def test_a_copy_of_which_a_power_loss_took_a_part_is_fetched_again(units: StoredUnits, tmp_path: Path) -> None:
    manifest = units.manifest(0)
    [log] = manifest.logs
    path = units.events(manifest, log)
    whole = path.read_bytes()
    for part in (b"", whole[:-1], whole[:-1] + b"\0", bytes(len(whole))):
        path.write_bytes(part)
        restarted = StoredUnits(FS, LocalStore(FS, tmp_path / "store"), HOME, tmp_path / "copies", "main", "provenance")
        assert restarted.events(manifest, log).read_bytes() == whole


def test_its_entries_are_written_as_they_are(units: StoredUnits, tmp_path: Path) -> None:
    [log] = units.manifest(0).logs
    for kind in (LOG_ENTRY, SHARD_ENTRY):
        path = tmp_path / "store" / FOLDER / f"{0:020d}.{kind}"
        former = path.read_bytes()
        assert former.startswith(PREAMBLE)
        action = units.entry(0, log, kind)
        path.unlink()
        units.put_entry(0, log, kind, action)
        assert path.read_bytes() == former


def test_damage_and_other_versions_are_refused(units: StoredUnits, tmp_path: Path) -> None:
    manifest = units.manifest(0)
    [log] = manifest.logs
    folder = tmp_path / "store" / FOLDER
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for bit in range(64, len(whole) * 8, max(len(whole) * 8 // 16, 1)):
            path.write_bytes(flipped(whole, bit))
            with pytest.raises((CorruptionError, FormatVersionError)):
                units.manifest(0)
                units.events(manifest, log)
                units.entry(0, log, LOG_ENTRY)
                units.entry(0, log, SHARD_ENTRY)
            shutil.rmtree(tmp_path / "copies", ignore_errors=True)
        path.write_bytes(whole)
    entry = folder / f"{0:020d}.log"
    entry.write_bytes(entry.read_bytes()[:7] + b"\x02" + entry.read_bytes()[8:])
    with pytest.raises(FormatVersionError):
        units.entry(0, log, LOG_ENTRY)


def test_an_entry_of_another_log_is_refused(units: StoredUnits, tmp_path: Path) -> None:
    [log] = units.manifest(0).logs
    other = StoredUnits(FS, LocalStore(FS, tmp_path / "store"), HOME, tmp_path / "copies", "other", "provenance")
    with pytest.raises(CorruptionError, match="expected an entry of the log 0"):
        other.entry(0, log, LOG_ENTRY)
