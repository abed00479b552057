"""Parts of a repository that are away or of an earlier moment: nothing is written, and no answer is silent about it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner

from custody.catalog import store_of
from custody.cli.main import cli
from custody.clock import SystemClock
from custody.config import Settings
from custody.errors import ConflictError, EarlierStateError, StorageError
from custody.export.cursors import Cursors, write_cursors
from custody.maintenance.findings import Level, damages
from custody.maintenance.repair import repair_repository
from custody.maintenance.verification import verify_repository
from custody.ngsi_sink.sink_state import SinkCatalog
from custody.recovery import STEPS, find_leftovers
from custody.repository import Repository
from custody.repository.local_pass import run_locally
from custody.repository.soft_delete import EventSelection
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from tests.support import append, event, run_steps

OLDER = r"is of an earlier moment, or away: expected .* got "


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Of a repository on two disks with 40 events in one log and 60 in another."""
    loaded = Settings.model_validate(
        {"root": tmp_path / "repository", "repository": {"containers": ["disk1", "disk2"]}}
    )
    for first, stop in ((0, 40), (40, 100)):
        append(Repository(loaded), [event(number) for number in range(first, stop)])
        run_steps(loaded)
    return loaded


def lose_newest(settings: Settings, revisions: int = 1) -> None:
    """Remove the newest transactions with their folders, and checkpoints that stand for them."""
    folders = sorted((settings.store / "main/provenance/transactions").glob("[0-9]*"))
    for folder in folders[-revisions:]:
        shutil.rmtree(folder)


def witnesses_of(settings: Settings) -> list[Path]:
    return [
        *settings.root.glob("disk*/main/WITNESS.*"),
        settings.store / "main/provenance/WITNESS",
        settings.witnesses / "main.provenance",
    ]


def ids(settings: Settings) -> list[int]:
    return [one.event_id for one in Repository(settings).events(count=1000)]


def logs(settings: Settings) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in settings.store.rglob("*.parquet") if "events" in path.parts}


def run(settings: Settings, *arguments: str) -> tuple[int, str]:
    (settings.root / "custody.toml").write_text('[repository]\ncontainers = ["disk1", "disk2"]\n')
    result = CliRunner().invoke(cli, ["-r", str(settings.root), *arguments], catch_exceptions=True)
    return result.exit_code, result.output


def test_an_answer_from_a_store_that_is_away_carries_a_notice(settings: Settings) -> None:
    shutil.move(settings.store, settings.root / "away")
    repository = Repository(settings)
    assert repository.search("").total == 0
    for notices in (
        repository.search("").notices,
        repository.facets("", ["event_type"])[1],
        repository.sql("select count(*) from events").notices,
        repository.get_many([3]).notices,
        repository.status().notices,
    ):
        assert any("got no catalog" in text for text in notices)
    stream = repository.events(count=10)
    assert not list(stream)
    assert stream.notices
    with pytest.raises(StorageError, match=OLDER):
        repository.get(3)


def test_a_store_that_is_away_stays_empty_whatever_is_tried(settings: Settings, tmp_path: Path) -> None:
    shutil.move(settings.store, settings.root / "away")
    repository = Repository(settings)
    shards = sorted(settings.root.glob("disk*/main/index/*"))
    with pytest.raises(EarlierStateError, match=OLDER):
        append(repository, [event(100)])
    for attempt in (
        repository.recover,
        lambda: repository.forget(EventSelection(attributes={"a": "b"}), reason="r"),
        lambda: repository.apply_retention(),
    ):
        with pytest.raises(EarlierStateError, match=OLDER):
            attempt()
    reports = run_locally(list(STEPS), settings)
    assert [report.failed for report in reports] == [1]
    assert not settings.store.exists()
    assert shards == sorted(settings.root.glob("disk*/main/index/*"))
    shutil.move(settings.root / "away", settings.store)
    assert ids(settings) == list(range(100))
    assert append(Repository(settings), [event(100)]) == range(100, 101)


def test_commands_end_with_their_own_code_while_the_store_is_away(settings: Settings, tmp_path: Path) -> None:
    shutil.move(settings.store, settings.root / "away")
    (tmp_path / "new.json").write_text("[]")
    for arguments in (
        ["search"],
        ["events"],
        ["sql", "select count(*) from events"],
        ["catalog", "log"],
        ["ingest", str(tmp_path / "new.json")],
        ["run", "all", "--local"],
        ["recover"],
    ):
        code, output = run(settings, *arguments)
        assert (code, "earlier moment" in output) == (EarlierStateError.exit_code, True), arguments
    assert run(settings, "verify")[0] == 20


def test_a_process_that_saw_the_repository_says_that_its_folder_went_away(settings: Settings) -> None:
    repository = Repository(settings)
    assert repository.search("").total == 100
    settings.root.rename(settings.root.with_name("elsewhere"))
    answer = repository.search("")
    assert (answer.total, len(answer.notices)) == (0, 1)
    assert "this process has seen" in answer.notices[0]
    assert repository.sql("select count(*) from events").notices
    assert not settings.root.exists()


def test_a_lost_transaction_costs_no_id_and_no_log(settings: Settings) -> None:
    before = logs(settings)
    lose_newest(settings)
    with pytest.raises(EarlierStateError, match=r"expected revision 1 .* got revision 0"):
        append(Repository(settings), [event(1000)])
    assert [report.failed for report in run_locally(list(STEPS), settings)] == [1]
    assert logs(settings) == before
    found = verify_repository(Workspace.all(settings), settings, PosixFileSystem(), Level.DEEP).findings
    assert {"state-earlier", "catalog-tail"} <= {one.kind for one in damages(found)}
    repair_repository(settings, PosixFileSystem(), SystemClock())
    assert ids(settings) == list(range(100))
    assert not damages(verify_repository(Workspace.all(settings), settings, PosixFileSystem(), Level.DEEP).findings)
    assert append(Repository(settings), [event(1000)]) == range(100, 101)


def test_a_lost_forgetting_is_told_of_each_event_that_it_hid(settings: Settings) -> None:
    repository = Repository(settings)
    repository.forget(EventSelection(flowfile_uuids=[event(7).flowfile_uuid]), reason="art. 17")
    with pytest.raises(LookupError):
        Repository(settings).get(7)
    lose_newest(settings)
    assert any("earlier moment" in text for text in Repository(settings).get_many([7]).notices)


def test_another_history_of_more_revisions_is_not_taken_for_the_newer_one(settings: Settings, tmp_path: Path) -> None:
    other = Settings.model_validate({"root": tmp_path / "other", "repository": {"containers": ["disk1", "disk2"]}})
    for number in range(4):
        append(Repository(other), [event(number)])
        run_steps(other)
    shutil.rmtree(settings.store)
    shutil.copytree(other.store, settings.store)
    with pytest.raises(EarlierStateError, match=r"expected revision 1 .* got revision 3"):
        append(Repository(settings), [event(100)])
    assert any("earlier moment" in text for text in Repository(settings).search("").notices)


def test_a_fork_that_went_on_behind_a_restored_store_is_recognised(settings: Settings) -> None:
    witnesses = {path: path.read_bytes() for path in witnesses_of(settings)}
    lose_newest(settings)
    for path in (*witnesses, *settings.store.rglob("00000000000000000040.*")):
        path.unlink()
    for number in range(3):
        append(Repository(settings), [event(2000 + number)])
        run_steps(settings, "rollover", "compress", "index", "commit", "sweep")
    for path, data in witnesses.items():
        path.write_bytes(data)
    assert any("earlier moment" in text for text in Repository(settings).search("").notices)


def test_a_log_of_a_lost_transaction_is_not_taken_for_that_of_the_group_with_its_first_id(settings: Settings) -> None:
    lose_newest(settings)
    for path in witnesses_of(settings):
        path.unlink()
    before = logs(settings)
    # Without any witness nobody knows of ids 40 to 99: they are given out again, and the log has their last copy.
    assert append(Repository(settings), [event(1000 + number) for number in range(70)]).start == 40
    kept = [leftover for leftover in find_leftovers(Workspace(settings, "main")) if leftover.action == "keep"]
    assert {Path(leftover.path).suffix for leftover in kept} == {".parquet", ".toc"}
    with pytest.raises(StorageError, match="no journal has its events"):
        run_steps(settings, "recover")
    with pytest.raises(ConflictError, match="nothing else has"):
        run_steps(settings, "rollover", "compress")
    assert {path: path.read_bytes() for path in before} == before


def test_an_earlier_state_is_gone_on_from_only_when_a_person_says_so(settings: Settings) -> None:
    earlier = settings.root / "earlier"
    shutil.copytree(settings.store, earlier)
    append(Repository(settings), [event(100)])
    run_steps(settings)
    shutil.rmtree(settings.store)
    earlier.rename(settings.store)
    with pytest.raises(EarlierStateError):
        Repository(settings).recover()
    accepted = Repository(settings).recover(accept_earlier=True)["main"].accepted
    assert accepted is not None
    assert "expected revision 2" in accepted
    repository = Repository(settings)
    assert not repository.search("").notices
    assert append(repository, [event(101)]) == range(101, 102)
    run_steps(settings)
    assert ids(settings) == [*range(100), 101]


def test_what_can_be_listed_again_is_not_given_up(settings: Settings) -> None:
    lose_newest(settings)
    with pytest.raises(ConflictError, match="List them again: custody repair"):
        Repository(settings).recover(accept_earlier=True)


def test_a_new_container_gets_a_witness_before_its_first_event(settings: Settings) -> None:
    more = Settings.model_validate({"root": settings.root, "repository": {"containers": ["disk1", "disk2", "disk3"]}})
    append(Repository(more), [event(100)])
    witnesses = {path.read_bytes() for path in settings.root.glob("disk*/main/WITNESS.provenance")}
    assert len(list(settings.root.glob("disk*/main/WITNESS.provenance"))) == 3
    assert len(witnesses) == 1


def test_a_damaged_witness_is_named_and_written_again(settings: Settings) -> None:
    damaged = settings.containers[0] / "main/WITNESS.provenance"
    damaged.write_bytes(b"\0" * 100)
    found = verify_repository(Workspace.all(settings), settings, PosixFileSystem()).findings
    assert [one.path for one in damages(found)] == [str(damaged)]
    append(Repository(settings), [event(100)])
    run_steps(settings)
    assert not damages(verify_repository(Workspace.all(settings), settings, PosixFileSystem()).findings)


def test_search_as_json_has_the_notice(settings: Settings) -> None:
    shutil.move(settings.store, settings.root / "away")
    (settings.root / "custody.toml").write_text('[repository]\ncontainers = ["disk1", "disk2"]\n')
    result = CliRunner().invoke(cli, ["-r", str(settings.root), "search", "--json"])
    document = json.loads(result.stdout)
    assert (document["total"], len(document["notices"])) == (0, 1)


def test_a_container_of_an_earlier_moment_is_recognised_beside_the_others(settings: Settings) -> None:
    repository, earlier = Repository(settings), settings.root / "earlier"
    shutil.copytree(settings.containers[1], earlier)
    with repository.writer() as writer:
        for number in range(100, 104):
            writer.append([event(number)])
            writer.seal()  # the groups lie on the two disks in turn
    assert list(settings.containers[1].glob("main/journals/*.sealed"))
    shutil.rmtree(settings.containers[1])
    earlier.rename(settings.containers[1])
    answer = Repository(settings).search("")
    assert answer.total == 102
    assert any("disk2 is of an earlier moment" in text for text in answer.notices)
    with pytest.raises(EarlierStateError, match=r"disk2 .* expected journals up to the id 10"):
        append(Repository(settings), [event(104)])
    assert run_locally(list(STEPS), settings)[0].failed
    Repository(settings).recover(accept_earlier=True)
    assert append(Repository(settings), [event(104)]) == range(104, 105)


@pytest.mark.parametrize("disk", [0, 1])
def test_a_container_whose_state_is_damaged_is_of_no_earlier_moment(settings: Settings, disk: int) -> None:
    with Repository(settings).writer() as writer:
        for number in range(100, 104):
            writer.append([event(number)])
            writer.seal()  # the groups lie on the two disks in turn
    (settings.containers[disk] / "main/STATE").write_bytes(b"\0" * 100)
    # The start takes its identity from the other container, and a third one lets all states be written anew.
    more = Settings.model_validate({"root": settings.root, "repository": {"containers": ["disk1", "disk2", "disk3"]}})
    append(Repository(more), [event(104)])
    assert not Repository(more).search("").notices
    append(Repository(more), [event(105)])
    run_steps(more)
    assert ids(more) == list(range(106))
    assert not damages(verify_repository(Workspace.all(more), more, PosixFileSystem()).findings)


@pytest.mark.parametrize("disk", [0, 1])
def test_a_container_of_an_earlier_moment_is_recognised_after_its_state_was_repaired(
    settings: Settings, disk: int
) -> None:
    container, earlier = settings.containers[disk], settings.root / "earlier"
    shutil.copytree(container, earlier)
    with Repository(settings).writer() as writer:
        for number in range(100, 104):
            writer.append([event(number)])
            writer.seal()
    shutil.rmtree(container)
    earlier.rename(container)
    (container / "main/STATE").write_bytes(b"\0" * 100)
    repair_repository(settings, PosixFileSystem(), SystemClock())
    found = damages(verify_repository(Workspace.all(settings), settings, PosixFileSystem()).findings)
    assert {one.kind for one in found} == {"state-earlier"}
    with pytest.raises(EarlierStateError, match=f"{container.name} is of an earlier moment"):
        append(Repository(settings), [event(104)])


def test_what_an_export_has_delivered_is_not_given_out_again(settings: Settings) -> None:
    kept = settings.root / "kept"
    for name in ("disk1", "disk2", "store", "witness"):
        shutil.copytree(settings.root / name, kept / name)
    append(Repository(settings), [event(100)])
    write_cursors(
        PosixFileSystem(),
        settings.exports_home / "other",
        Cursors(export="other", next_event_ids={"main": 101}),
    )
    for name in ("disk1", "disk2", "store", "witness"):
        shutil.rmtree(settings.root / name)
        (kept / name).rename(settings.root / name)
    with pytest.raises(EarlierStateError, match=r"export 'other' has delivered by .*, got ids up to 99"):
        append(Repository(settings), [event(101)])


def test_a_store_from_before_an_acceptance_is_not_taken_for_a_newer_one(settings: Settings) -> None:
    """Its history is longer, and goes on from the state that was accepted."""
    repository, later = Repository(settings), settings.root / "later"
    first = settings.root / "first"
    shutil.copytree(settings.store, first)
    repository.forget(EventSelection(event_ids=[7]), reason="asked for", writer="main")
    shutil.copytree(settings.store, later)
    shutil.rmtree(settings.store)
    first.rename(settings.store)
    assert Repository(settings).recover(accept_earlier=True)["main"].accepted
    assert len(ids(settings)) == 100
    shutil.rmtree(settings.store)
    later.rename(settings.store)
    assert any("that was accepted 1 times" in text for text in Repository(settings).search("").notices)


def test_a_sink_that_is_brought_back_alone_writes_no_line_again(settings: Settings) -> None:
    folder, fs, clock = settings.root / "ngsi", PosixFileSystem(), SystemClock()
    folder.mkdir()
    catalog = SinkCatalog(fs, folder, clock)
    catalog.commit(1, {"columns/00000000000000000001.json": b"{}"}, [])
    shutil.copytree(folder, settings.root / "earlier")
    catalog.commit(2, {"columns/00000000000000000002.json": b"{}"}, [])
    shutil.rmtree(folder)
    (settings.root / "earlier").rename(folder)
    with pytest.raises(EarlierStateError):
        SinkCatalog(fs, folder, clock).open(fence=False)


@pytest.fixture
def in_a_bucket(tmp_path: Path) -> Settings:
    """Of a repository whose store is an object store, with 40 events in one log and 60 in another."""
    loaded = Settings.model_validate(
        {"root": tmp_path / "repository", "repository": {"store": f"memory://{uuid4().hex}", "containers": ["disk1"]}}
    )
    for first, stop in ((0, 40), (40, 100)):
        append(Repository(loaded), [event(number) for number in range(first, stop)])
        run_steps(loaded)
    return loaded


def delete(settings: Settings, prefix: str, ending: str = "") -> None:
    store = store_of(settings, PosixFileSystem())
    for key in [key for key in store.keys(prefix) if key.endswith(ending)]:
        store.delete(key)


def test_a_bucket_that_lost_its_newest_transaction_is_recognised(in_a_bucket: Settings) -> None:
    delete(in_a_bucket, "main/provenance/transactions/00000000000000000001/")
    answer = Repository(in_a_bucket).search("")
    assert answer.total == 40
    assert any("expected revision 1" in text for text in answer.notices)
    with pytest.raises(EarlierStateError):
        append(Repository(in_a_bucket), [event(100)])
    with pytest.raises(EarlierStateError):
        Repository(in_a_bucket).recover()
    with pytest.raises(ConflictError, match="1 logs hold events that the catalog does not list"):
        Repository(in_a_bucket).recover(accept_earlier=True)


def test_an_empty_bucket_in_the_place_of_a_full_one_gets_no_second_history(in_a_bucket: Settings) -> None:
    delete(in_a_bucket, "main/")
    assert any("got no catalog" in text for text in Repository(in_a_bucket).search("").notices)
    with pytest.raises(EarlierStateError):
        append(Repository(in_a_bucket), [event(100)])
    assert not list(store_of(in_a_bucket, PosixFileSystem()).keys("main/"))
    assert Repository(in_a_bucket).recover(accept_earlier=True)["main"].accepted
    assert append(Repository(in_a_bucket), [event(100)]) == range(100, 101)
