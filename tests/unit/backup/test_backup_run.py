"""Backups of one repository: what is in them, what an increment adds, and what does not count."""

from __future__ import annotations

import json
import os
import shutil
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from custody.backup import BackupManifest, BackupTarget, back_up, restore, verify_backup
from custody.backup.copying import Throttle
from custody.backup.repository_files import RepositoryFiles, SourceFile
from custody.backup.settings_document import toml_text, without_secrets
from custody.cli.main import cli
from custody.clock import ManualClock
from custody.config import SETTINGS_FILE, load_settings
from custody.errors import ConfigurationError, ConflictError, CorruptionError, LockedError, NotFoundError
from custody.maintenance.findings import damages
from custody.maintenance.verification import verify_repository
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.support import append, event, flipped, run_steps, sample, unnumbered

FS = PosixFileSystem()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def opened(target: Path) -> BackupTarget:
    found = BackupTarget(str(target), FS, Path("/"))
    found.open()
    return found


def objects(target: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (target / "objects").rglob("*") if path.is_file()}


def age(folder: Path) -> None:
    """Let all files be an hour old, so that a second look finds by their times that they are the same."""
    before = time.time() - 3600
    for path in folder.rglob("*"):
        os.utime(path, (before, before))


@pytest.fixture
def filled(repository: Repository) -> Repository:
    """Events that are live, events that wait in a sealed journal, and a few of each other kind of file."""
    append(repository, sample(300))
    run_steps(repository.settings)
    append(repository, [event(number) for number in range(20)])
    return repository


def test_a_restored_backup_has_every_event_and_goes_on_above_its_ids(filled: Repository, tmp_path: Path) -> None:
    before = list(filled.events(count=1000))
    report = back_up(filled.settings, str(tmp_path / "target"))
    (end,) = report.manifest.ends
    assert (end.live_events, end.waiting_events, end.newest_event_id) == (300, 20, 319)
    assert report.is_whole
    assert verify_backup(opened(tmp_path / "target"), report.manifest) == []
    # The original gives out more ids, which the restored repository does not give out again.
    later = append(filled, [event(900)])
    done = restore(str(tmp_path / "target"), tmp_path / "restored")
    assert not damages(done.findings)
    restored = Repository.open(tmp_path / "restored")
    assert list(restored.events(count=1000)) == before
    assert restored.search("event_type:CREATE").total == filled.search("event_type:CREATE").total - 1
    with pytest.raises(NotFoundError, match="left to the original: the event may be there"):
        restored.get(later.start)
    new = append(restored, [event(901)])
    assert new.start == done.writers[0].first_event_id > later.stop
    run_steps(restored.settings)
    assert unnumbered(restored.events(count=1000))[-1] == event(901)
    found = verify_repository(restored.workspaces(), restored.settings, FS).findings
    assert not damages(found)
    assert "ids-missing" not in {item.kind for item in found}
    (left,) = [item for item in found if item.kind == "ids-left-out"]
    assert (left.first_event_id, left.last_event_id) == (320, new.start - 1)


def test_an_increment_adds_what_is_new(filled: Repository, tmp_path: Path) -> None:
    target = tmp_path / "target"
    age(filled.settings.root)
    first = back_up(filled.settings, str(target))
    held = objects(target)
    again = back_up(filled.settings, str(target))
    assert again.manifest.bytes_new == 0
    append(filled, sample(50, seed=3))
    run_steps(filled.settings)
    second = back_up(filled.settings, str(target))
    assert objects(target).items() >= held.items(), "an object never changes"
    assert 0 < second.manifest.bytes_new < first.manifest.bytes_new
    assert second.bytes_read < first.bytes_read
    for number, events in ((first.manifest.number, 320), (second.manifest.number, 370)):
        folder = tmp_path / f"restored-{number}"
        restore(str(target), folder, number=number)
        assert len(list(Repository.open(folder).events(count=1000))) == events


class _KilledError(Exception):
    pass


def test_a_killed_backup_does_not_count_and_the_next_one_uses_what_it_copied(
    filled: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    age(filled.settings.root)
    with monkeypatch.context() as patch:
        patch.setattr("custody.backup.backup_run._PROGRESS_BYTES", 1)
        patch.setattr(BackupTarget, "publish", _kill)
        with pytest.raises(_KilledError):
            back_up(filled.settings, str(target))
    assert opened(target).manifests() == []
    with pytest.raises(NotFoundError, match="no whole backup"):
        restore(str(target), tmp_path / "restored")
    held = objects(target)
    report = back_up(filled.settings, str(target))
    assert report.bytes_read < 0.7 * report.manifest.bytes
    assert objects(target).items() >= held.items()
    assert not (target / "unfinished").exists() or not list((target / "unfinished").rglob("*.parquet"))
    restore(str(target), tmp_path / "restored")
    assert len(list(Repository.open(tmp_path / "restored").events(count=1000))) == 320


def _kill(*_: object) -> BackupManifest:
    raise _KilledError


def test_a_file_that_goes_before_it_is_copied_begins_another_moment(
    filled: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the journals are copied a pass makes their events live and sweeps them."""
    passes: list[str] = []
    right = RepositoryFiles.read

    def read(self: RepositoryFiles, file: SourceFile, start: int, length: int) -> bytes:
        if "/journals/" in file.key and len(passes) < 2:
            passes.append(file.key)
            run_steps(filled.settings)
        return right(self, file, start, length)

    monkeypatch.setattr(RepositoryFiles, "read", read)
    report = back_up(filled.settings, str(tmp_path / "target"))
    assert passes
    (end,) = report.manifest.ends
    assert (end.live_events, end.waiting_events) == (320, 0)
    restore(str(tmp_path / "target"), tmp_path / "restored")
    assert len(list(Repository.open(tmp_path / "restored").events(count=1000))) == 320


def test_a_file_that_goes_at_each_moment_ends_in_an_error(
    filled: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(self: RepositoryFiles, file: SourceFile, start: int, length: int) -> bytes:
        raise NotFoundError("gone")

    monkeypatch.setattr(RepositoryFiles, "read", read)
    with pytest.raises(ConflictError, match="files went away at each of 10 moments"):
        back_up(filled.settings, str(tmp_path / "target"))
    assert opened(tmp_path / "target").manifests() == []


def test_an_open_journal_is_in_the_backup_up_to_the_last_acknowledged_event(
    repository: Repository, tmp_path: Path
) -> None:
    with repository.writer() as writer:
        writer.append([event(number) for number in range(7)])
        report = back_up(repository.settings, str(tmp_path / "target"))
        writer.append([event(7)])
    assert report.manifest.ends[0].waiting_events == 7
    done = restore(str(tmp_path / "target"), tmp_path / "restored")
    assert not damages(done.findings)
    restored = Repository.open(tmp_path / "restored")
    assert unnumbered(restored.events(count=100)) == [event(number) for number in range(7)]
    new = append(restored, [event(8)])
    run_steps(restored.settings)
    assert new.start > 1 << 30
    assert len(list(restored.events(count=100))) == 8


def test_a_log_that_is_gone_or_damaged_is_named_and_the_rest_is_in_the_backup(
    filled: Repository, tmp_path: Path
) -> None:
    append(filled, sample(40, seed=5))
    run_steps(filled.settings)
    logs = sorted(filled.settings.store.rglob("*.parquet"))
    logs[0].write_bytes(flipped(logs[0].read_bytes(), 4000))
    result = run("-r", filled.settings.root, "backup", tmp_path / "target", "--json")
    assert result.exit_code == 1
    manifest = json.loads(result.stdout)["manifest"]
    assert [Path(path).name for path in manifest["damaged"]] == [logs[0].name]
    logs[0].unlink()
    manifest = json.loads(run("-r", filled.settings.root, "backup", tmp_path / "other", "--json").stdout)["manifest"]
    assert [Path(path).name for path in manifest["missing"]] == [logs[0].name]
    assert manifest["damaged"] == []
    done = restore(str(tmp_path / "other"), tmp_path / "restored")
    assert {item.kind for item in damages(done.findings)} == {"log-missing"}


def test_a_log_that_is_damaged_after_a_backup_stays_whole_in_the_next_one(filled: Repository, tmp_path: Path) -> None:
    target = tmp_path / "target"
    back_up(filled.settings, str(target))
    (log,) = filled.settings.store.rglob("*.parquet")
    log.write_bytes(flipped(log.read_bytes(), 4000))
    assert back_up(filled.settings, str(target)).is_whole
    assert not damages(restore(str(target), tmp_path / "restored").findings)


def test_damage_of_a_target_is_named_and_never_restored(filled: Repository, tmp_path: Path) -> None:
    target = tmp_path / "target"
    report = back_up(filled.settings, str(target))
    victim = max((target / "objects").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else -1)
    victim.write_bytes(flipped(victim.read_bytes(), 99))
    problems = verify_backup(opened(target), report.manifest)
    assert problems
    assert victim.name in problems[0]
    assert run("backup", target, "--verify").exit_code == 20
    with pytest.raises(CorruptionError, match=victim.name):
        restore(str(target), tmp_path / "restored")
    with pytest.raises(NotFoundError, match="no repository"):
        Repository.open(tmp_path / "restored")
    manifest = target / "backups" / f"{report.manifest.number:010d}" / "manifest.json"
    manifest.write_bytes(flipped(manifest.read_bytes(), 99))
    listed = json.loads(run("backup", target, "--list", "--json").stdout)
    assert "checksum" in listed[0]["problem"]


def test_secrets_stay_out_unless_they_are_asked_for(repository: Repository, tmp_path: Path) -> None:
    file = repository.settings.root / SETTINGS_FILE
    text = (
        '# mine\n[serve]\ntoken_file = "tokens"\n'
        '[exports.a]\nkind = "http"\nurl = "https://a.example/é"\ntoken = "hush-hush"\n'
    )
    file.write_text(text)
    (repository.settings.root / "tokens").write_text("0123456789abcdef\n")
    target = tmp_path / "target"
    result = run("-r", repository.settings.root, "backup", target)
    assert "not in the backup: the value of exports.a.token" in result.stderr
    assert all(b"hush-hush" not in data and b"0123456789abcdef" not in data for data in objects(target).values())
    done = restore(str(target), tmp_path / "restored")
    assert done.secrets_left_out == ["exports.a.token"]
    restored = load_settings(tmp_path / "restored")
    assert restored.exports["a"].token is None
    assert restored.exports["a"].url == "https://a.example/é"
    back_up(load_settings(repository.settings.root), str(target), with_secrets=True)
    restore(str(target), tmp_path / "whole")
    assert (tmp_path / "whole" / SETTINGS_FILE).read_text() == text


def test_the_document_of_settings_reads_as_it_was() -> None:
    document = {
        "a": {"text": 'quote " and \\ and \x7f é', "number": 4, "real": 0.5, "flag": True, "list": ["x", "y=/z"]},
        "b": {"c d": {"list": [1, 2]}, "password": "p"},
        "empty": {},
    }
    assert tomllib.loads(toml_text(document)) == document
    assert without_secrets(document).removed == ["b.password"]


@pytest.mark.parametrize("place", ["inside", "around", "store"])
def test_a_target_that_shares_a_folder_with_the_repository_is_refused(
    filled: Repository, tmp_path: Path, place: str
) -> None:
    root = filled.settings.root
    target = {"inside": root / "backups", "around": root.parent, "store": root / "store"}[place]
    with pytest.raises(ConfigurationError, match="apart from the repository"):
        back_up(filled.settings, str(target))
    assert not list(root.rglob("custody-backups"))


def test_a_folder_with_something_else_is_no_target(filled: Repository, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(ConfigurationError, match=r"found thesis\.txt"):
        back_up(filled.settings, str(tmp_path / "mine"))
    with pytest.raises(NotFoundError, match="expected a folder with backups"):
        opened(tmp_path / "nowhere")
    assert run("backup", tmp_path / "nowhere", "--list").exit_code == 12


def test_a_target_takes_one_repository_and_no_state_that_went_back(filled: Repository, tmp_path: Path) -> None:
    target = tmp_path / "target"
    old = tmp_path / "old"
    shutil.copytree(filled.settings.root, old)
    run_steps(filled.settings)
    back_up(filled.settings, str(target))
    with pytest.raises(ConflictError, match=r"has revision 1 of writer 'main'.*this repository has revision 0"):
        back_up(load_settings(old), str(target))
    assert back_up(load_settings(old), str(target), accept_older=True).manifest.ends[0].revision == 0
    other = Repository.create(tmp_path / "other")
    append(other, sample(5))
    run_steps(other.settings)
    with pytest.raises(ConfigurationError, match="another one"):
        back_up(other.settings, str(target))


def test_a_copy_of_several_moments_is_not_backed_up_unless_somebody_says_so(filled: Repository, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("store", SETTINGS_FILE):
        source = filled.settings.root / name
        shutil.copytree(source, copy / name) if source.is_dir() else shutil.copy(source, copy / name)
    run_steps(filled.settings)
    shutil.copytree(filled.settings.root / "containers", copy / "containers")
    target = tmp_path / "target"
    result = run("-r", copy, "backup", target)
    assert result.exit_code == 25
    assert "No backup was made" in result.stderr
    assert opened(target).manifests() == []
    report = back_up(load_settings(copy), str(target), accept_older=True)
    assert not report.is_whole
    assert "revision 1 with the digest" in report.manifest.missing[0]


def test_of_two_backups_at_once_one_is_refused(filled: Repository, tmp_path: Path) -> None:
    target = tmp_path / "target"

    def second(what: str, done: int, total: int) -> None:
        with pytest.raises(LockedError):
            back_up(filled.settings, str(target))

    first = back_up(filled.settings, str(target), progress=second)
    assert [item.number for item in opened(target).manifests()] == [first.manifest.number]


def test_older_backups_go_with_what_they_alone_need(filled: Repository, tmp_path: Path) -> None:
    target, clock = tmp_path / "target", ManualClock(4_000_000_000_000)
    for number in range(3):
        append(filled, sample(30, seed=10 + number))
        back_up(filled.settings, str(target), clock=clock)
        run_steps(filled.settings)
    before = objects(target).keys()
    (target / "backups" / "0000000099").mkdir()
    (target / "backups" / "0000000099" / "files.parquet").write_bytes(b"of a backup that was killed")
    report = back_up(filled.settings, str(target), clock=clock, keep=2)
    assert report.pruned == [1, 2]
    assert report.bytes_freed > 0
    assert before - objects(target).keys()
    kept = [item for item in opened(target).manifests() if isinstance(item, BackupManifest)]
    assert [item.number for item in kept] == [3, 4]
    for item in kept:
        assert verify_backup(opened(target), item) == []
    assert not list((target / "backups" / "0000000099").glob("*"))
    # Young objects may be those of a backup that was stopped and goes on.
    append(filled, sample(30, seed=20))
    assert back_up(filled.settings, str(target), keep=1).bytes_freed == 0


@pytest.mark.parametrize("rate", [None, 1000])
def test_the_load_is_bounded(rate: int | None) -> None:
    slept: list[float] = []

    def now() -> float:
        return sum(slept)

    throttle = Throttle(rate, now, slept.append)
    for _ in range(10):
        throttle.take(500)
    assert sum(slept) == (0 if rate is None else pytest.approx(4.5))


@pytest.fixture
def command(filled: Repository, tmp_path: Path) -> Callable[..., Result]:
    return lambda *arguments: run("-r", filled.settings.root, "backup", tmp_path / "target", *arguments)


def test_the_command_states_the_end_and_lists_what_there_is(command: Callable[..., Result]) -> None:
    made = command("--bytes-per-second", 100_000_000)
    assert made.exit_code == 0
    assert "main            0           300        20         319" in made.stdout
    listed = json.loads(command("--list", "--json").stdout)
    assert [item["ends"][0]["newest_event_id"] for item in listed] == [319]
    assert "all as it was written" in command("--verify").stdout
    assert command("--verify", "--at", 7).exit_code == 12
    assert command("--at", 1).exit_code == 2
    assert command("--list", "--verify").exit_code == 2
