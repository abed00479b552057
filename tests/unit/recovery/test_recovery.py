"""Recovery: each leftover is found from disk, named, and dealt with; what is live or belongs to others stays."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.catalog import Action, RemoveFile
from custody.cli.main import cli
from custody.errors import LockedError
from custody.lease import Attempt, Lease
from custody.recovery import STEPS, find_leftovers, peek_leftovers, recover
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from custody.workspace import (
    ROLLOVER_LEASE,
    Workspace,
    name_before_removal,
    removal_name,
    rollover_lease,
    take_rollover,
)
from tests.support import append, event, run_steps, unnumbered

Found = dict[str, tuple[str, str]]


def found(repository: Repository) -> Found:
    """What each leftover is called, and what would be done, by its name on disk."""
    return {Path(item.path).name: (item.what, item.action) for item in find_leftovers(repository.workspace())}


def files(repository: Repository) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(repository.settings.root.rglob("*")) if path.is_file()}


def killed_before(repository: Repository, *names: str) -> None:
    """Steps under a lease that nobody gives back, as of an attempt that was killed."""
    take_rollover(repository.settings, "main", Attempt("dag/run/task", 1))
    run_steps(repository.settings, *names)
    [epoch] = sorted(repository.workspace().paths.lease(ROLLOVER_LEASE).glob("*"))[-1:]
    data = epoch.read_bytes()
    Lease(PosixFileSystem(), epoch.parent, int(epoch.name)).release(failed=True)
    assert epoch.read_bytes() == data


def open_again(repository: Repository, torn: bytes = b"") -> Path:
    """As a killed writer leaves its last journal."""
    sealed = sorted(repository.settings.root.rglob("*.sealed"))[-1]
    sealed.write_bytes(sealed.read_bytes() + torn)
    return sealed.rename(sealed.with_suffix(".journal"))


def test_nothing_is_left_over_of_a_repository_at_rest(repository: Repository) -> None:
    append(repository, [event(0)])
    assert find_leftovers(repository.workspace()) == []
    run_steps(repository.settings)
    assert find_leftovers(repository.workspace()) == []
    assert not peek_leftovers(repository.settings).is_any


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(repository: Repository) -> None:
    append(repository, [event(0)])
    journal = open_again(repository, b"\x40\x00half a record")
    before = files(repository)
    done = CliRunner().invoke(cli, ["-r", str(repository.settings.root), "recover", "--dry-run", "--json"])
    assert done.exit_code == 0, done.output
    [item] = json.loads(done.stdout)
    assert (item["path"], item["what"], item["action"]) == (str(journal), "open journal", "seal")
    assert "lock" in item["why"]
    assert files(repository) == before
    done = CliRunner().invoke(cli, ["-r", str(repository.settings.root), "recover"])
    assert done.exit_code == 0, done.output
    assert "1 journals sealed, 15 unacknowledged bytes cut" in done.output
    assert unnumbered(repository.events()) == [event(0)]
    assert found(repository) == {}


def test_an_unlisted_log_with_journals_goes_with_its_index_and_is_made_again(repository: Repository) -> None:
    append(repository, [event(0), event(1)])
    killed_before(repository, "rollover", "compress", "index")
    assert peek_leftovers(repository.settings).is_any
    assert sorted(found(repository).values()) == [
        ("event log", "discard"),
        ("index shard", "discard"),
        ("table of contents", "discard"),
    ]
    repository.recover()
    assert found(repository) == {}
    assert not peek_leftovers(repository.settings).is_any
    assert list(repository.settings.root.rglob("*.parquet")) == []
    assert len(repository.workspace().staged()) == 1, "the unit is whole and stays"
    run_steps(repository.settings)
    assert unnumbered(repository.events()) == [event(0), event(1)]
    assert repository.search("").total == 2


def test_journals_of_a_live_group_are_only_swept(repository: Repository) -> None:
    append(repository, [event(0)])
    killed_before(repository, "rollover", "compress", "index", "commit")
    live = [path for path in files(repository) if path.suffix in (".parquet", ".toc")]
    assert sorted(found(repository).values()) == [
        ("journal of live groups", "sweep"),
        ("staged unit of live groups", "sweep"),
    ]
    repository.recover()
    assert found(repository) == {}
    assert [path for path in files(repository) if path.suffix in (".parquet", ".toc")] == live
    assert list(repository.settings.root.rglob("*.sealed")) == []


def test_unfinished_and_half_removed_things_go(repository: Repository) -> None:
    append(repository, [event(0)])
    run_steps(repository.settings)
    home = repository.workspace().paths.home
    [log] = home.rglob("*.parquet")
    index = repository.settings.containers[0] / "main" / "index"
    old = 1_700_000_000
    paths = [
        home / "staging/building-00000000000000000005-0123/x.arrow",
        home / "staging/removing-00000000000000000005-0123/x.arrow",
        index / "building-1772409600000-00000000000000000099-0123/x",
        index / "removing-1772409600000-00000000000000000099-0123/x",
        log.with_name("00000000000000000099.parquet.0123.partial"),
        log.with_name("removing-00000000000000000099.parquet-" + "0" * 32),
        home / "transactions/00000000000000000000/x.txn.0123.partial",
        repository.settings.containers[0] / "main/STATE.0123.partial",
        repository.settings.containers[0] / "main/journals/00000000000000000005.0.journal.0123.partial",
        repository.settings.quarantine / "0123456789abcdef.json.0123.partial",
        repository.settings.turns / "03.last.0123.partial",
        repository.settings.maintenance_folder / "scrub.json.0123.partial",
        repository.settings.runs / "some-run/compress.json.0123.partial",
        repository.settings.landed / "ab/abcdef.json.0123.partial",
    ]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
        os.utime(path, (old, old))
    before = files(repository)
    repository.recover()
    gone = {path for path in before if path not in files(repository)}
    assert gone == set(paths)
    assert unnumbered(repository.events()) == [event(0)]


def test_unfinished_files_of_the_repository_are_shown_once_and_young_ones_stay(repository: Repository) -> None:
    settings = repository.settings
    text = (settings.root / "custody.toml").read_text()
    (settings.root / "custody.toml").write_text(f"{text}[repository]\nwriter_slots = 2\n")
    opened = Repository.open(settings.root)
    with opened.writer() as first, opened.writer() as second:
        assert [first.append([event(0)]), second.append([event(1)])] == [range(1), range(1)]
    old, young = (settings.runs / "a-run" / f"index.json.{name}.partial" for name in ("01", "02"))
    for path in (old, young):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    os.utime(old, (1_700_000_000, 1_700_000_000))
    shown = CliRunner().invoke(cli, ["-r", str(settings.root), "recover", "--dry-run", "--json"])
    assert [(item["path"], item["action"]) for item in json.loads(shown.stdout)] == [(str(old), "remove")]
    opened.recover()
    assert (old.exists(), young.exists()) == (False, True)


def test_what_a_compaction_or_an_earlier_revision_owns_is_left_alone(repository: Repository) -> None:
    for number in range(2):
        append(repository, [event(number)])
        run_steps(repository.settings)
    repository.compact()
    replaced = {path for path in repository.settings.root.rglob("*.parquet") if "." not in path.stem}
    assert len(replaced) == 2, "earlier revisions list them"
    append(repository, [event(2)])
    workspace = repository.workspace()
    [live] = workspace.catalog.load().files.values()
    lease = take_rollover(repository.settings, "main", Attempt("a", 1))
    compacting = workspace.paths.lease("compact")
    taken = Lease(PosixFileSystem(), compacting, 7)
    (compacting / "0000000007").write_bytes((lease.folder / "0000000001").read_bytes())  # this process: it lives
    partial = (workspace.paths.home / live.path).with_name("00000000000000000000.0123456789abcdef.parquet.0123.partial")
    partial.write_bytes(b"half")
    lease.release()
    assert found(repository) == {}
    assert replaced <= set(files(repository))
    taken.release(failed=True)
    assert found(repository) == {partial.name: ("temporary file", "remove")}


def test_a_listed_file_that_lost_its_name_gets_it_back(repository: Repository) -> None:
    append(repository, [event(0)])
    run_steps(repository.settings)
    [log] = repository.settings.root.rglob("*.parquet")
    aside = log.rename(removal_name(log))
    assert name_before_removal(aside.name) == log.name
    assert found(repository) == {aside.name: ("listed file without its name", "put back")}
    repository.recover()
    assert unnumbered(repository.events()) == [event(0)]
    assert found(repository) == {}
    assert list(log.parent.glob("removing-*")) == []


def test_a_log_that_was_expired_does_not_come_back(repository: Repository) -> None:
    append(repository, [event(0)])
    run_steps(repository.settings)
    workspace = repository.workspace()
    [path] = workspace.catalog.load().files
    workspace.catalog.commit([Action(remove_file=RemoveFile(path=path))])
    append(repository, [event(1)])
    assert found(repository) == {}, "it has no journals: garbage collection owns it"


def test_a_writer_that_lives_is_left_alone(repository: Repository) -> None:
    with repository.writer() as writer:
        writer.append([event(0)])
        assert found(repository) == {}
        assert not peek_leftovers(repository.settings).is_any
        repository.recover()
        writer.append([event(1)])
    assert unnumbered(repository.events()) == [event(0), event(1)]


def test_recovery_waits_for_a_live_attempt_and_names_it(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(repository, [event(0)])
    open_again(repository)
    monkeypatch.setenv("CUSTODY__LEASE__WAIT_SECONDS", "0.1")
    repository = Repository.open(repository.settings.root)
    lease = take_rollover(repository.settings, "main", Attempt("dag/run/rollover", 1))
    with pytest.raises(LockedError, match="dag/run/rollover/1"):
        repository.recover()
    assert not lease.clean or lease.is_current()
    assert repository.recover(take_over=True)["main"].sealed == 1
    assert not lease.is_current()


def test_an_attempt_that_failed_is_followed_by_a_recovery_and_fenced_off_in_the_catalog(repository: Repository) -> None:
    append(repository, [event(0)])
    with pytest.raises(ZeroDivisionError), rollover_lease(repository.workspace(), Attempt("a", 1)):
        raise ZeroDivisionError
    assert peek_leftovers(repository.settings).is_any
    assert [unit.writer for unit in STEPS["recover"].units(repository.settings)] == ["main"]
    with rollover_lease(repository.workspace(), Attempt("b", 1)) as workspace:
        recover(workspace)
    assert not peek_leftovers(repository.settings).is_any
    assert repository.workspace().catalog.load().epoch == 2


def test_a_damaged_unit_is_made_again_from_its_journals(repository: Repository) -> None:
    append(repository, [event(0)])
    killed_before(repository, "rollover")
    [manifest] = repository.settings.root.rglob("staging/*/unit")
    manifest.write_bytes(manifest.read_bytes()[:-3])
    assert found(repository) == {manifest.parent.name: ("damaged unit", "discard")}
    repository.recover()
    run_steps(repository.settings)
    assert unnumbered(repository.events()) == [event(0)]


def test_a_damaged_unit_without_journals_is_kept_and_reported(repository: Repository) -> None:
    append(repository, [event(0)])
    killed_before(repository, "rollover")
    [manifest] = repository.settings.root.rglob("staging/*/unit")
    manifest.write_bytes(manifest.read_bytes()[:-3])
    [journal] = repository.settings.root.rglob("*.sealed")
    journal.unlink()
    [report] = repository.recover().values()
    assert "its journals are gone" in report.errors[0]
    assert manifest.exists()


@pytest.mark.parametrize("what", ["journal", "sealed", "unit", "log"])
def test_ids_go_on_above_all_that_was_given_out_when_the_newest_file_is_unreadable(
    repository: Repository, what: str
) -> None:
    append(repository, [event(0), event(1)])
    steps = {"journal": (), "sealed": (), "unit": ("rollover",), "log": ("rollover", "compress", "index")}[what]
    pattern = {"journal": "*.journal", "sealed": "*.sealed", "unit": "staging/*/unit", "log": "*.parquet"}[what]
    if steps:
        killed_before(repository, *steps)
    if what == "journal":
        open_again(repository)
    [newest] = repository.settings.root.rglob(pattern)
    newest.write_bytes(b"\0" * len(newest.read_bytes()))
    repository.recover()
    ids = append(repository, [event(2)])
    assert ids.start >= 2, "an id was given out twice"
    run_steps(repository.settings)
    stored = {item.event_id: item for item in repository.events()}
    assert stored[ids.start].flowfile_uuid == event(2).flowfile_uuid
    assert len(stored) == (1 if what in ("journal", "sealed") else 3)


def test_done_twice_it_ends_in_the_same_state(repository: Repository) -> None:
    append(repository, [event(0)])
    killed_before(repository, "rollover", "compress")
    open_again(repository)
    workspace = Workspace(repository.settings, "main")
    recover(workspace)
    once = files(repository)
    assert recover(workspace).findings == ()
    assert files(repository) == once
