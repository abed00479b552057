"""Writers are retired, absorbed by the archive, refused when they come back: each event once, in every answer."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.clock import SystemClock
from custody.config import Settings, load_settings
from custody.errors import ClosedError, ConfigurationError, ConflictError, LockedError, NotFoundError, StorageError
from custody.maintenance.absorption import open_archive
from custody.maintenance.maintenance_steps import MAINTENANCE_STEPS
from custody.model import Event
from custody.repository import EventSelection, Repository
from custody.repository.containers import claim_writer_name
from custody.repository.local_pass import run_locally
from custody.repository.writers import absorb_retired, list_writers, retire_writer
from custody.spark.own_disk import relocated
from custody.vfs import PosixFileSystem
from custody.workspace import UnitReport, Workspace
from tests.behaviour.places import s3_url
from tests.behaviour.s3 import BUCKET, s3_environment
from tests.support import event

__all__ = ["s3_url"]

ARCHIVE = "archive"


def named(root: Path, writer: str) -> Repository:
    settings = load_settings(root)
    section = settings.repository.model_copy(update={"writer": writer})
    return Repository(settings.model_copy(update={"repository": section}))


def store(root: Path, writer: str, *numbers: int) -> None:
    repository = named(root, writer)
    repository.append([event(number) for number in numbers])
    assert not any(report.failed for report in repository.roll_over())


def absorb(settings: Settings) -> None:
    report = absorb_retired(settings, ARCHIVE)
    assert not report.failed, report


def numbers(repository: Repository, **options: object) -> list[int]:
    return numbers_of("", repository, **options)


def numbers_of(text: str, repository: Repository, **options: object) -> list[int]:
    page = repository.search(text, limit=1000, **options)  # type: ignore[arg-type]
    assert page.total == len(page.events)
    return sorted(item.event.source_ordinal or 0 for item in page.events)


@pytest.fixture(params=["folder", "memory", pytest.param("s3", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the store is: in the repository's folder, or an object store."""
    if request.param == "folder":
        return "folder"
    location = f"memory://{uuid4().hex}"
    if request.param == "s3":
        location = f"s3://{BUCKET}/{uuid4().hex}"
        for name, value in s3_environment(request.getfixturevalue("s3_url")).items():
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUSTODY__REPOSITORY__STORE", location)
    return location


def on_another_machine(root: Path) -> Path:
    """The folder of a machine that shares nothing with the producers but an object store; a folder all machines see."""
    settings = load_settings(root)
    if not settings.is_store_remote:
        return root
    other = root.with_name(f"{root.name}-{uuid4().hex}")
    Repository.create(other)
    return other


@pytest.fixture(scope="module")
def in_a_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _two_writers(tmp_path_factory.mktemp("two") / "r")


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path, place: str) -> Path:
    # Made once, and copied for each test; not in a bucket, whose name the repository knows.
    if place == "folder":
        return shutil.copytree(request.getfixturevalue("in_a_folder"), tmp_path / "r")
    return _two_writers(tmp_path / "r")


def _two_writers(root: Path) -> Path:
    Repository.create(root)
    store(root, "main", 0, 1, 2)
    store(root, "old", 10, 11, 12)
    store(root, "old", 13)
    return root


def plain(item: Event) -> Event:
    return msgspec.structs.replace(item, event_id=0)


def test_every_answer_has_each_event_once_before_and_after(root: Path) -> None:
    repository = named(root, "main")
    all_numbers = [0, 1, 2, 10, 11, 12, 13]
    before = {item.event.source_ordinal: plain(item.event) for item in repository.search("", limit=99).events}
    retire_writer(repository.settings, "old", "done")
    assert numbers(named(root, "main")) == all_numbers
    absorb(repository.settings)
    # Also a reader that was open all the time, and one on a machine that has nothing of it.
    for reader in (repository, named(root, "main"), named(on_another_machine(root), "main")):
        assert numbers(reader) == all_numbers
        after = {item.event.source_ordinal: plain(item.event) for item in reader.search("", limit=99).events}
        assert after == before
        facets, _ = reader.facets("", ("event_type",))
        assert sum(facets["event_type"].values()) == 7
        with reader.sql("SELECT writer, count(*) AS n FROM events GROUP BY writer ORDER BY writer") as result:
            rows = [row for batch in result.batches() for row in batch.to_pylist()]
        assert rows == [{"writer": ARCHIVE, "n": 4}, {"writer": "main", "n": 3}]
        uuid = before[12].flowfile_uuid
        assert reader.lineage([uuid]).events == 1
    # One writer fewer is asked for an id that only one has.
    assert named(root, "main").get(3).source_ordinal == 13


@pytest.mark.parametrize("place", ["memory", pytest.param("s3", marks=pytest.mark.slow)], indirect=True)
def test_logs_are_absorbed_by_machines_that_have_the_store_alone(root: Path, place: str, tmp_path: Path) -> None:
    """Each log by a machine of its own, as executors do; another one commits, and fetches no log for it."""
    named(root, "main").forget(EventSelection(event_ids=(2,)), "asked for", writer="old")
    store(root, "older", 20, 21)
    for writer in ("old", "older"):
        retire_writer(load_settings(root), writer, "done")
    settings = load_settings(on_another_machine(root))
    staged = settings.model_copy(
        update={
            "repository": settings.repository.model_copy(update={"staging": "store"}),
            "journal": settings.journal.model_copy(update={"handoff": "store"}),
        }
    )
    step = MAINTENANCE_STEPS["absorb"]
    before = numbers(named(root, "main"))
    open_archive(staged, ARCHIVE, PosixFileSystem(), SystemClock())
    units = step.units(staged)
    archive = Workspace(staged, ARCHIVE)
    assert [step.stays(archive, unit) for unit in units] == [False, False, True, False, True]
    assert [bool(step.work_bytes(archive, unit)) for unit in units] == [True, True, False, True, False]
    reports = []
    for number, unit in enumerate(units):
        own = relocated(staged, tmp_path / f"executor-{number}")
        report = step.run(Workspace(own, ARCHIVE, disk_lasts=False), unit)
        # As it comes from an executor.
        reports.append(msgspec.json.decode(msgspec.json.encode(report), type=step.report_type))
        assert numbers(named(root, "main")) == before, "nothing is listed before the last log is written"
        shutil.rmtree(own.root, ignore_errors=True)
    done = step.finish(staged, units, reports)
    assert [report.error for report in done] == [None] * len(units)
    assert {type(report) for report in done} == {UnitReport}
    assert not list(staged.store.rglob("*.parquet"))
    for machine in (root, on_another_machine(root)):
        reader = named(machine, "main")
        assert numbers(reader) == before == [0, 1, 2, 10, 11, 13, 20, 21]
        assert numbers_of("event_type:CREATE", reader) == before
        assert reader.get(4, ARCHIVE).source_ordinal == 20
    shards = archive.newest_state().shards
    assert set(archive.shard_objects.names()) == set(shards) != set()
    assert {shard.container for shard in shards.values()} == {str(staged.repository.containers[0])}
    # Absorbed again, nothing is to be done; what an attempt comes late with is passed over.
    assert step.run(archive, units[0]).note == "absorbed already"
    assert step.units(staged) == []


@pytest.mark.parametrize("place", ["memory", pytest.param("s3", marks=pytest.mark.slow)], indirect=True)
def test_what_an_attempt_with_other_settings_left_in_the_store_makes_way(
    root: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    retire_writer(load_settings(root), "old", "done")
    with monkeypatch.context() as patch:
        patch.setattr("custody.maintenance.absorption.commit_absorption", _refused)
        assert absorb_retired(load_settings(root), ARCHIVE).failed
    for folder in (root / "work" / ARCHIVE, *root.glob(f"*/{ARCHIVE}")):
        shutil.rmtree(folder, ignore_errors=True)
    monkeypatch.setenv("CUSTODY__EVENTLOG__COMPRESSION", "gzip")
    absorb(load_settings(root))
    assert numbers(named(root, "main")) == [0, 1, 2, 10, 11, 12, 13]


def _refused(*_: object) -> None:
    raise StorageError("the store refuses")


def test_ids_go_on_in_the_archive_and_an_absorbed_writer_says_where(root: Path) -> None:
    settings = load_settings(root)
    store(root, "older", 20, 21)
    for writer in ("old", "older"):
        retire_writer(settings, writer, "done")
    absorb(settings)
    entries = {item.writer: item for item in list_writers(settings)}
    assert (entries["old"].kind, entries["old"].archive, entries["old"].first_event_id) == ("absorbed", ARCHIVE, 0)
    assert entries["older"].first_event_id == 4
    assert (entries[ARCHIVE].kind, entries[ARCHIVE].events) == ("archive", 6)
    repository = named(root, "main")
    assert repository.get(5, ARCHIVE).source_ordinal == 21
    for asked in (lambda: repository.get(1, "older"), lambda: repository.search("", writer="older")):
        with pytest.raises(NotFoundError, match="its event N is event 4 \\+ N there"):
            asked()
    absorb(settings)  # done again, it changes nothing
    assert {item.writer: item for item in list_writers(settings)} == entries


def test_time_travel_finds_the_writer_as_it_was_without_what_was_forgotten_since(root: Path) -> None:
    settings = load_settings(root)
    before = datetime.now(UTC)
    retire_writer(settings, "old", "done")
    absorb(settings)
    named(root, "main").forget(EventSelection(event_ids=(1,)), "asked for", writer=ARCHIVE)
    repository = named(root, "main")
    assert numbers(repository) == [0, 1, 2, 10, 12, 13]
    assert numbers(repository, as_of=before) == [0, 1, 2, 10, 12, 13]
    assert numbers(repository, as_of=datetime.now(UTC)) == [0, 1, 2, 10, 12, 13]


def test_what_was_forgotten_stays_out_and_is_not_taken_in_again(root: Path) -> None:
    settings = load_settings(root)
    named(root, "main").forget(EventSelection(event_ids=(2,)), "asked for", writer="old")
    retire_writer(settings, "old", "done")
    absorb(settings)
    assert numbers(named(root, "main")) == [0, 1, 2, 10, 11, 13]
    stones = list(named(root, ARCHIVE).workspace().state().tombstones.values())
    assert [(list(keys.firsts), list(keys.counts)) for stone in stones for keys in stone.erased] == [([12], [1])]


def test_a_hold_goes_along_and_is_released_in_the_archive(root: Path) -> None:
    repository = named(root, "main")
    store(root, "aaa", 30)
    repository.hold("case", EventSelection(event_ids=(2,)), "court", "me", writer="old")
    for writer in ("aaa", "old"):
        retire_writer(repository.settings, writer, "done")
    absorb(repository.settings)
    [hold] = named(root, "main").holds()
    assert (hold.writers, hold.event_ids) == ((ARCHIVE,), (3,))
    assert named(root, "main").release("case", "over", "me") == [ARCHIVE]
    assert named(root, "main").holds() == []


def test_an_event_that_is_forgotten_and_held_stops_the_absorption(root: Path) -> None:
    repository = named(root, "main")
    repository.hold("case", EventSelection(event_ids=(2,)), "court", "me", writer="old")
    repository.forget(EventSelection(event_ids=(2,)), "asked for", writer="old")
    retire_writer(repository.settings, "old", "done")
    report = absorb_retired(repository.settings, ARCHIVE)
    assert "forgotten, and holds keep them: case" in str(report.details[0].error)
    assert numbers(named(root, "main")) == [0, 1, 2, 10, 11, 13]


def test_a_writer_that_lives_or_has_events_that_wait_is_not_retired(root: Path) -> None:
    settings = load_settings(root)
    with named(root, "old").writer() as writer:
        writer.append([event(14)])
        with pytest.raises(LockedError, match="held by a live process"):
            retire_writer(settings, "old", "done")
    with pytest.raises(ConflictError, match="1 groups of journals"):
        retire_writer(settings, "old", "done")
    with pytest.raises(NotFoundError, match="no writer 'odl'"):
        retire_writer(settings, "odl", "done")
    assert not (settings.store / "odl").exists()
    assert {item.kind for item in list_writers(settings)} == {"writer"}


def test_nothing_is_stored_under_a_retired_name_or_that_of_the_archive(root: Path) -> None:
    settings = load_settings(root)
    retire_writer(settings, "old", "given back")
    absorb(settings)
    with pytest.raises(ConfigurationError, match=r"was retired .* given back\. Nothing is appended"):
        named(root, "old").append([event(15)])
    with pytest.raises(ConfigurationError, match="that of the archive"):
        named(root, ARCHIVE).append([event(15)])
    with pytest.raises(ConflictError, match="was sealed at revision"):
        claim_writer_name(settings, "old")
    with pytest.raises(ConfigurationError, match="is the archive"):
        claim_writer_name(settings, ARCHIVE)
    with pytest.raises(ConfigurationError, match="is the archive"):
        retire_writer(settings, ARCHIVE, "done")
    with pytest.raises(ConfigurationError, match="expected 'archive'"):
        absorb_retired(settings, "another")
    assert numbers(named(root, "main")) == [0, 1, 2, 10, 11, 12, 13]


@pytest.mark.parametrize("name", ["main", "old"])
def test_a_writer_does_not_become_the_archive(root: Path, name: str) -> None:
    workspace = named(root, "main").workspace()
    with pytest.raises(ConfigurationError, match="a name that no writer has"):
        open_archive(workspace.settings, name, workspace.fs, workspace.clock)


def test_a_process_that_was_paused_while_its_machine_was_declared_dead_loses_nothing(
    root: Path, tmp_path: Path
) -> None:
    """Two machines: one store, containers of their own. What the paused one acknowledges later is brought in."""
    settings = load_settings(root)
    section = settings.repository.model_copy(update={"containers": (tmp_path / "far",), "writer": "far"})
    far = Repository(settings.model_copy(update={"repository": section}))
    far.append([event(40)])
    far.roll_over()
    with far.writer() as writer:
        writer.append([event(41)])  # it is paused here
        with pytest.raises(ConfigurationError, match="Retire it there"):
            retire_writer(settings, "far", "no answer")
        retire_writer(settings, "far", "no answer", is_machine_dead=True)
        absorb(settings)
        # It goes on: its group is still open, and an append of it asks no store. The next group is refused.
        writer.append([event(42)])
        writer.seal()
        with pytest.raises(ClosedError, match="lost its name"):
            writer.append([event(43)])
    assert 40 in numbers(named(root, "main"))
    with pytest.raises(ConfigurationError, match="recover --adopt"):
        far.append([event(44)])
    far = Repository(far.settings)
    assert not any(report.failed for report in far.roll_over())
    page = far.search("", limit=99)
    assert any("recover --adopt" in notice for notice in page.notices)
    [adopted] = {journal.writer for report in far.recover(adopt=True).values() for journal in report.adopted}
    assert not any(report.failed for report in Repository(far.settings).roll_over())
    assert numbers(named(root, "main")) == [0, 1, 2, 10, 11, 12, 13, 40, 41, 42]
    # The writer of the adopted journals is one like any other.
    retire_writer(far.settings, adopted, "brought in")
    absorb(settings)
    assert numbers(named(root, "main")) == [0, 1, 2, 10, 11, 12, 13, 40, 41, 42]


def test_the_rest_of_the_house_knows_retired_and_absorbed_writers(root: Path) -> None:
    settings = load_settings(root)
    retire_writer(settings, "old", "done")
    absorb(settings)
    run = CliRunner()
    for arguments in (
        ["verify"],
        ["verify", "--deep"],
        ["status", "--json"],
        ["retention", "apply", "--yes"],
        ["compact"],
        ["recover"],
    ):
        result = run.invoke(cli, ["-r", str(root), *arguments])
        assert result.exit_code == 0, (arguments, result.output)
    reports = run_locally(["absorb", "compact", "rebuild", "scrub"], settings)
    assert not any(report.failed for report in reports)
    assert numbers(named(root, "main")) == [0, 1, 2, 10, 11, 12, 13]


def test_the_commands_ask_first_and_print_json(root: Path) -> None:
    run = CliRunner()

    def custody(*arguments: str, code: int = 0) -> str:
        result = run.invoke(cli, ["-r", str(root), "writers", *arguments])
        assert result.exit_code == code, result.output
        return result.stdout

    custody("retire", "old", "--reason", "done", code=2)
    assert "4 events in 2 logs" in custody("retire", "old", "--reason", "done", "--dry-run")
    assert {item["kind"] for item in json.loads(custody("list", "--json"))} == {"writer"}
    retired = json.loads(custody("retire", "old", "--reason", "done", "--yes", "--json"))
    assert (retired["events"], retired["reason"]) == (4, "done")
    assert [item["writer"] for item in json.loads(custody("absorb", "--dry-run", "--json"))] == ["old"]
    assert "from id 0 on" in custody("absorb", "--yes")
    kinds = {item["writer"]: item["kind"] for item in json.loads(custody("list", "--json"))}
    assert kinds == {ARCHIVE: "archive", "main": "writer", "old": "absorbed"}
    assert "event N is event 0 + N of archive" in custody("list")


def test_a_catalog_that_is_made_anew_knows_what_was_absorbed_and_retired(root: Path) -> None:
    settings = load_settings(root)
    store(root, "left", 50)
    for writer in ("old", "left"):
        retire_writer(settings, writer, "done")
    absorb(settings)
    everything = numbers(named(root, "main"))
    for writer in (ARCHIVE, "old"):
        result = CliRunner().invoke(cli, ["-r", str(root), "catalog", "rebuild", "--writer", writer, "--yes"])
        assert result.exit_code == 0, result.output
    assert numbers(named(root, "main")) == everything
    kinds = {item.writer: item.kind for item in list_writers(settings)}
    assert kinds == {ARCHIVE: "archive", "left": "absorbed", "main": "writer", "old": "absorbed"}


def test_the_catalogs_of_archive_and_retired_are_attested_and_dumped(root: Path, tmp_path: Path) -> None:
    settings = load_settings(root)
    retire_writer(settings, "old", "done")
    absorb(settings)
    run = CliRunner()
    dump = run.invoke(cli, ["-r", str(root), "catalog", "dump", "--state", "--writer", ARCHIVE])
    assert dump.exit_code == 0, dump.output
    entries = [json.loads(line) for line in dump.stdout.splitlines()]
    assert [item["absorb"]["writer"] for item in entries if "absorb" in item] == ["old"]
    made = run.invoke(cli, ["-r", str(root), "attest", "--writer", "old", "--new-key", str(tmp_path / "key.pem")])
    assert made.exit_code == 0, made.output
    for writer in (ARCHIVE, "old"):
        attested = run.invoke(cli, ["-r", str(root), "attest", "--writer", writer, "--key", str(tmp_path / "key.pem")])
        assert attested.exit_code == 0, attested.output
        proof = tmp_path / f"{writer}.json"
        proof.write_text(attested.stdout)
        checked = run.invoke(
            cli, ["-r", str(root), "verify", "--chain-only", "--writer", writer, "--against", str(proof)]
        )
        assert checked.exit_code == 0, checked.output
