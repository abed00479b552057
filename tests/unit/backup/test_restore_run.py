"""Restores: places, disks, queues, cursors and leases, interruptions, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from custody.backup import back_up, restore
from custody.backup.repository_files import RepositoryFiles
from custody.backup.restore_run import _Restore
from custody.cli.main import cli
from custody.clock import SystemClock
from custody.config import SETTINGS_FILE, load_settings
from custody.errors import ConfigurationError, CorruptionError, NotFoundError, StorageError
from custody.lease import Attempt
from custody.maintenance.findings import damages
from custody.repository import Component, Repository
from custody.vfs import PosixFileSystem
from custody.workspace import take_rollover
from tests.support import append, event, files_below, run_steps, sample, unnumbered

FS = PosixFileSystem()
STEP = Component(id="dag.step", type="Step")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


@pytest.fixture
def disks(tmp_path: Path) -> Repository:
    """A repository on disks of its own: two containers, two stripes, one of contents, a store elsewhere."""
    root = tmp_path / "repository"
    Repository.create(root)
    for name in ("one", "two", "a", "b", "c"):
        (tmp_path / name).mkdir()
    (root / SETTINGS_FILE).write_text(
        f'[repository]\ncontainers = ["{tmp_path}/one", "{tmp_path}/two"]\nstore = "{tmp_path}/elsewhere"\n'
        f'stripes = ["a={tmp_path}/a", "b={tmp_path}/b"]\n'
        f'[content]\nclaim_bytes = 4096\ncontainers = ["1", "c={tmp_path}/c"]\n'
        "[eventlog]\nlog_bytes_target = 10000\n"
    )
    repository = Repository.open(root)
    for number in range(3):
        append(repository, sample(120, seed=number + 1))
        run_steps(repository.settings)
    with repository.writer() as writer:
        for number in range(4):
            told = event(number, event_type="CONTENT_MODIFIED")
            writer.append_with_content([told], bytes([65 + number]) * 5000)
    return repository


@pytest.mark.parametrize("where", ["inside", "as-configured"])
def test_disks_of_every_kind_come_back(disks: Repository, tmp_path: Path, where: str) -> None:
    before = list(disks.events(count=1000))
    contents = [disks.content(one).read() for one in before[-4:]]
    query = "event_type:SEND"
    total = disks.search(query).total
    settings = disks.settings
    back_up(settings, str(tmp_path / "target"))
    restored_at = tmp_path / "restored"
    if where == "as-configured":
        with pytest.raises(ConfigurationError, match="expected nothing in the place of container-1"):
            restore(str(tmp_path / "target"), restored_at, as_configured=True)
        assert not restored_at.exists()
        for name in ("one", "two", "a", "b", "c"):
            (tmp_path / name).rename(tmp_path / f"lost-{name}")
    done = restore(str(tmp_path / "target"), restored_at, as_configured=where == "as-configured")
    assert damages(done.findings) == []
    restored = Repository.open(restored_at)
    assert list(restored.events(count=1000)) == before
    assert [restored.content(one).read() for one in before[-4:]] == contents
    found = restored.search(query)
    assert (found.total, list(found.notices)) == (total, [])
    places = [*restored.settings.containers, *restored.settings.stripes.values()]
    if where == "inside":
        assert all(place.is_relative_to(restored_at) for place in (*places, restored.settings.store))
        assert all(shard.container.startswith("containers/") for shard in restored.workspace().state().shards.values())
    else:
        assert places == [*settings.containers, *settings.stripes.values()]
    append(restored, sample(50, seed=9))
    run_steps(restored.settings)
    assert len(list(restored.events(count=1000))) == len(before) + 50


def test_a_repository_without_one_of_its_disks_is_not_backed_up(disks: Repository, tmp_path: Path) -> None:
    for name, message in (("two", "is missing"), ("b", "stripe"), ("c", "'c' of writer 'main' is missing")):
        (tmp_path / name).rename(tmp_path / "away")
        (tmp_path / name).mkdir()
        with pytest.raises(StorageError, match=message):
            back_up(disks.settings, str(tmp_path / "target"))
        (tmp_path / name).rmdir()
        (tmp_path / "away").rename(tmp_path / name)
    assert json.loads(run("backup", tmp_path / "target", "--list", "--json").stdout) == []


def test_queues_go_on_where_they_were_and_no_event_is_taken_for_another(repository: Repository, tmp_path: Path) -> None:
    with repository.flowfiles() as flow:
        flow.connect("in")
        flow.connect("out")
        for number in range(6):
            with flow.session(STEP) as session:
                made = session.create({"number": str(number)})
                session.write_bytes(made, bytes([number]) * 100)
                session.transfer(made, "in")
        # One is being worked on in the moment of the backup.
        taken = flow.session(STEP)
        assert taken.get("in") is not None
        report = back_up(repository.settings, str(tmp_path / "target"))
        assert report.manifest.flowfiles == 6
        taken.rollback()
        # What the original does later does not concern the restored one.
        with flow.session(STEP) as session:
            flowfile = session.get("in")
            assert flowfile is not None
            session.transfer(flowfile, "out")
    done = restore(str(tmp_path / "target"), tmp_path / "restored")
    assert damages(done.findings) == []
    assert done.flowfiles == 6
    restored = Repository.open(tmp_path / "restored")
    before = len(list(restored.events(count=1000)))
    with restored.flowfiles() as flow:
        for number in range(6):
            with flow.session(STEP) as session:
                flowfile = session.get("in")
                assert flowfile is not None
                assert session.read_bytes(flowfile) == bytes([number]) * 100
                session.transfer(flowfile, "out", relationship="done")
    events = list(restored.events(count=1000))
    assert len(events) == before + 6
    assert [one.event_type for one in events[before:]] == ["ROUTE"] * 6


def test_cursors_ledgers_and_rejected_input_come_back(repository: Repository, tmp_path: Path) -> None:
    root = repository.settings.root
    (root / SETTINGS_FILE).write_text('[exports.out]\nkind = "files"\nurl = "delivered"\n')
    repository = Repository.open(root)
    append(repository, sample(40))
    run_steps(repository.settings)
    assert run("-r", root, "export", "out").exit_code == 0
    with repository.ingest() as work:
        work.file(_bad_file(tmp_path))
    assert len(list(repository.settings.quarantine.glob("*.rejected"))) == 1
    (root / "store" / "ERASURES").mkdir()
    (root / "store" / "ERASURES" / "0123.json").write_text("{}")
    back_up(repository.settings, str(tmp_path / "target"))
    restore(str(tmp_path / "target"), tmp_path / "restored")
    before, after = files_below(root), files_below(tmp_path / "restored")
    for folder in ("exports", "quarantine", "runs", "landed", "store/ERASURES"):
        kept = {name for name in before if name.startswith(f"{folder}/") and not name.endswith("LOCK")}
        assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert any(name.endswith("cursors.json") for name in after)


def _bad_file(folder: Path) -> Path:
    path = folder / "bad.json"
    path.write_text('[{"eventType": "NONE OF THEM"}]')
    return path


def test_a_lease_that_was_held_stops_nobody_in_the_restored_repository(repository: Repository, tmp_path: Path) -> None:
    append(repository, sample(20))
    lease = take_rollover(repository.settings, "main", Attempt("somebody", 1))
    back_up(repository.settings, str(tmp_path / "target"))
    lease.release()
    restore(str(tmp_path / "target"), tmp_path / "restored")
    restored = load_settings(tmp_path / "restored")
    taken = take_rollover(restored, "main", Attempt("another", 1), wait_seconds=0)
    assert taken.epoch > lease.epoch
    taken.release()
    run_steps(restored)
    assert Repository(restored).status().writers[0].events_live == 20


def test_a_retired_writer_stays_retired_and_slots_come_back(repository: Repository, tmp_path: Path) -> None:
    (repository.settings.root / SETTINGS_FILE).write_text("[repository]\nwriter_slots = 2\n")
    repository = Repository.open(repository.settings.root)
    with repository.writer() as one, repository.writer() as two:
        one.append([event(1)])
        two.append([event(2)])
    run_steps(repository.settings)
    assert (
        run("-r", repository.settings.root, "writers", "retire", "main-2", "--reason", "gone", "--yes").exit_code == 0
    )
    report = back_up(repository.settings, str(tmp_path / "target"))
    assert [end.writer for end in report.manifest.ends] == ["main", "main-2"]
    done = restore(str(tmp_path / "target"), tmp_path / "restored")
    assert damages(done.findings) == []
    assert [(item.end.writer, item.first_event_id > 0) for item in done.writers] == [("main", True), ("main-2", False)]
    restored = Repository.open(tmp_path / "restored")
    assert unnumbered(restored.events(count=10, writer="main")) == [event(1)]
    assert unnumbered(restored.events(count=10, writer="main-2")) == [event(2)]


def test_a_place_that_is_not_empty_is_refused_and_left_alone(repository: Repository, tmp_path: Path) -> None:
    append(repository, sample(10))
    target = tmp_path / "target"
    back_up(repository.settings, str(target))
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("x")
    with pytest.raises(ConfigurationError, match=r"found thesis\.txt"):
        restore(str(target), folder)
    with pytest.raises(ConfigurationError, match="in the place of store"):
        restore(str(target), tmp_path / "restored", store=str(tmp_path / "mine"))
    with pytest.raises(ConfigurationError, match="its store is a folder"):
        restore(str(target), tmp_path / "restored", store="memory://bucket")
    with pytest.raises(NotFoundError, match="no backup 9"):
        restore(str(target), tmp_path / "restored", number=9)
    assert files_below(folder) == {"thesis.txt": b"x"}
    assert not (tmp_path / "restored").exists()


class _KilledError(Exception):
    pass


@pytest.mark.parametrize("at", ["_copy", "_require_end", "_end_leases", "_publish"])
def test_an_interrupted_restore_is_no_repository_and_the_next_one_ends_it(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    append(repository, sample(60))
    run_steps(repository.settings)
    append(repository, sample(10, seed=2))
    target, folder = tmp_path / "target", tmp_path / "restored"
    back_up(repository.settings, str(target))
    right = getattr(_Restore, at)

    def killed(self: _Restore, *arguments: object, **options: object) -> None:
        if at == "_copy":
            right(self, *arguments, **options)
            (folder / "store/main/provenance").rename(folder / "store/main/half")
            (folder / "store/main/half").rename(folder / "store/main/provenance")
            next(folder.rglob("*.parquet")).write_bytes(b"torn")
        raise _KilledError

    with monkeypatch.context() as patch:
        patch.setattr(_Restore, at, killed)
        with pytest.raises(_KilledError):
            restore(str(target), folder)
    with pytest.raises(NotFoundError, match="no repository"):
        Repository.open(folder)
    append(repository, sample(5, seed=3))
    later = back_up(repository.settings, str(target)).manifest.number
    with pytest.raises(ConfigurationError, match=f"interrupted restore of backup {later}"):
        restore(str(target), folder)
    done = restore(str(target), folder, number=1)
    assert damages(done.findings) == []
    assert not (folder / "RESTORING").exists()
    restored = Repository.open(folder)
    assert len(list(restored.events(count=1000))) == 70
    assert len(restored.workspace().incarnations.claims()) == 2


def test_an_end_that_is_not_the_stated_one_is_no_repository(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(repository, sample(10))
    back_up(repository.settings, str(tmp_path / "target"))
    monkeypatch.setattr(RepositoryFiles, "_end", _without(RepositoryFiles._end))
    with pytest.raises(CorruptionError, match=r"0 live and 10 waiting events.*got .*0 live and 9 waiting"):
        restore(str(tmp_path / "target"), tmp_path / "restored")
    with pytest.raises(NotFoundError, match="no repository"):
        Repository.open(tmp_path / "restored")


def _without(right: object) -> object:
    import msgspec

    def end(self: object, *arguments: object) -> object:
        found = right(self, *arguments)  # type: ignore[operator]
        return msgspec.structs.replace(found, waiting_events=found.waiting_events - 1)

    return end


def test_ids_go_on_where_somebody_says(repository: Repository, tmp_path: Path) -> None:
    append(repository, [event(number) for number in range(10)])
    back_up(repository.settings, str(tmp_path / "target"))
    made = run("restore", tmp_path / "target", tmp_path / "restored", "--ids-from", 5_000_000, "--json")
    assert made.exit_code == 0
    assert json.loads(made.stdout)["writers"][0]["first_event_id"] == 5_000_000
    assert append(Repository.open(tmp_path / "restored"), [event(10)]) == range(5_000_000, 5_000_001)
    # Never below what was reserved, whatever somebody says.
    done = restore(str(tmp_path / "target"), tmp_path / "lower", ids_from=3)
    assert done.writers[0].first_event_id >= 10


def test_a_restored_repository_can_be_backed_up_and_restored(repository: Repository, tmp_path: Path) -> None:
    append(repository, sample(30))
    run_steps(repository.settings)
    for number in range(3):
        source = repository.settings.root if number == 0 else tmp_path / f"restored-{number - 1}"
        back_up(load_settings(source), str(tmp_path / f"target-{number}"), clock=SystemClock())
        restore(str(tmp_path / f"target-{number}"), tmp_path / f"restored-{number}")
        append(Repository.open(tmp_path / f"restored-{number}"), [event(number)])
    restored = Repository.open(tmp_path / "restored-2")
    events = list(restored.events(count=1000))
    assert len(events) == 33
    assert len({one.event_id for one in events}) == 33


def test_a_bucket_with_what_was_handed_over_comes_back_in_another_one(tmp_path: Path) -> None:
    root, store = tmp_path / "repository", f"memory://{uuid4().hex}"
    Repository.create(root)
    (root / SETTINGS_FILE).write_text(
        f'[repository]\nstore = "{store}"\nstaging = "store"\n[journal]\nhandoff = "store"\n'
        '[content]\nhandoff = "store"\nclaim_bytes = 4096\n'
    )
    repository = Repository.open(root)
    append(repository, sample(60))
    repository.hand_over()
    run_steps(repository.settings)
    with repository.writer() as writer:
        for number in range(3):
            told = event(number, event_type="CONTENT_MODIFIED")
            writer.append_with_content([told], bytes([65 + number]) * 5000)
    repository.hand_over()
    repository.hand_over_contents()
    append(repository, sample(20, seed=4))
    before = list(repository.events(count=1000))
    with_content = [
        one for one in before if str(one.content_claim and one.content_claim.container).startswith("custody:")
    ]
    contents = [repository.content(one).read() for one in with_content]
    assert len(contents) == 3
    report = back_up(repository.settings, str(tmp_path / "target"))
    assert (report.manifest.ends[0].live_events, report.manifest.ends[0].waiting_events) == (60, 23)
    with pytest.raises(ConfigurationError, match="its store is an object store"):
        restore(str(tmp_path / "target"), tmp_path / "restored")
    with pytest.raises(ConfigurationError, match="in the place of store"):
        restore(str(tmp_path / "target"), tmp_path / "restored", store=store)
    other = f"memory://{uuid4().hex}"
    done = restore(str(tmp_path / "target"), tmp_path / "restored", store=other)
    assert damages(done.findings) == []
    restored = Repository.open(tmp_path / "restored")
    assert restored.settings.repository.store == other
    assert list(restored.events(count=1000)) == before
    assert [restored.content(one).read() for one in with_content] == contents
    run_steps(restored.settings)
    assert restored.search("event_type:SEND").total == repository.search("event_type:SEND").total
    assert append(restored, [event(9)]).start > 1 << 30
    # The original was not touched.
    assert list(repository.events(count=1000)) == before
