"""The published table: what engines without custody read of each revision, and what they must not read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib import util
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.table import StaticTable

from custody import iceberg
from custody.catalog import prune
from custody.cli.main import cli
from custody.clock import ManualClock, SystemClock
from custody.config import Settings
from custody.errors import ConfigurationError, ConflictError, CorruptionError
from custody.iceberg.publishing import Published, collect_former
from custody.iceberg.table_folder import TableFolder
from custody.maintenance.repair import repair_repository
from custody.repository import EventSelection, Repository
from custody.retention import RETENTION_STEPS
from custody.rollover import STEPS
from custody.store.local import LocalStore
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from tests.iceberg_reading import expected, newest, shown
from tests.support import append, run_steps, sample

EVENTS = sample(600)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of three commits."""
    found = Repository.create(tmp_path_factory.mktemp("committed") / "repository")
    for number in range(3):
        commit(found, number)
    return found.settings.root


@pytest.fixture
def repository(committed: Path, tmp_path: Path) -> Repository:
    """A copy of it for one test, in a folder with a name that is hard on paths."""
    return Repository.open(shutil.copytree(committed, tmp_path / "it's ${a} #table%20" / "repository"))


def commit(repository: Repository, number: int, count: int = 40) -> None:
    append(repository, EVENTS[number * count : number * count + count])
    run_steps(repository.settings)


def published(repository: Repository) -> Published:
    return iceberg.publish(repository.workspace())


def table_of(repository: Repository) -> StaticTable:
    """The table as pyiceberg opens it, by its folder alone."""
    return StaticTable.from_metadata(TableFolder(repository.workspace().catalog.objects).location)


def in_sql(repository: Repository, **options: Any) -> pa.Table:
    with repository.sql("select * from events order by event_id", **options) as result:
        return pa.Table.from_batches(result.batches(), result.schema)


def as_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["event_id"])


@pytest.mark.in_parts(4)
def test_ten_revisions_have_the_rows_of_sql_in_every_column_through_forgetting_and_compaction(
    repository: Repository,
) -> None:
    published(repository)
    commit(repository, 3)
    repository.forget(EventSelection(event_ids=(5, 90, 91)), "asked for")
    commit(repository, 4)
    commit(repository, 5)
    assert [report.error for report in repository.compact() if report.error] == []
    commit(repository, 6)
    repository.forget(EventSelection(event_ids=(170,)), "asked for")
    done = published(repository)
    assert done.revision >= 9
    table = table_of(repository)
    snapshots = {int(each.summary["custody.revision"]): each for each in table.metadata.snapshots if each.summary}
    assert sorted(snapshots) == list(range(done.revision + 1))
    for revision, snapshot in snapshots.items():
        rows = as_rows(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow())
        other = as_rows(in_sql(repository, as_of=revision))
        assert rows == other, revision
        moment = table.snapshot_as_of_timestamp(snapshot.timestamp_ms)
        assert moment is not None
        assert moment.snapshot_id == snapshot.snapshot_id
    assert len(rows) == 7 * 40 - 4
    assert table.scan().count() == len(rows)


def test_bounds_rule_out_logs_and_conditions_give_the_rows_of_sql(repository: Repository) -> None:
    published(repository)
    table = table_of(repository)
    assert len(list(table.scan().plan_files())) == 3
    assert len(list(table.scan(row_filter=EqualTo("event_id", 50)).plan_files())) == 1
    begin, end = EVENTS[10].event_time, EVENTS[30].event_time
    times = And(GreaterThanOrEqual("event_time", _iso(begin)), LessThan("event_time", _iso(end)))
    ids = table.scan(row_filter=times, selected_fields=("event_id",)).to_arrow().column(0).to_pylist()
    with repository.sql(
        f"select event_id from events where epoch_ms(event_time) >= {begin} and epoch_ms(event_time) < {end}"
    ) as result:
        assert sorted(ids) == sorted(each for batch in result.batches() for each in batch.column(0).to_pylist())
    assert table.scan(row_filter=EqualTo("writer", "another")).to_arrow().num_rows == 0


def _iso(time_ms: int) -> str:
    return pa.scalar(time_ms, pa.timestamp("ms", "UTC")).as_py().isoformat()  # type: ignore[no-any-return]


def test_a_publication_that_is_done_again_changes_no_byte_and_a_later_one_goes_on(repository: Repository) -> None:
    assert published(repository).written
    folder = Path(table_of(repository).location())
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    assert not published(repository).written
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == before
    commit(repository, 3)
    done = published(repository)
    assert (done.version, done.revision, done.snapshots, done.written) == (2, 3, 4, True)
    # Of the logs that were there before, nothing is written again, and the logs themselves are not copied.
    assert all(path.stat().st_mtime_ns == time for path, time in before.items() if path.name != "version-hint.text")
    assert not [path for path in folder.rglob("*.parquet") if path.stat().st_size > 10_000]
    fresh = Repository.open(repository.settings.root)
    shutil.rmtree(folder)
    again = published(fresh)
    assert again.snapshots == 4
    assert shown(fresh.workspace(), newest(fresh.workspace())) == expected(fresh.workspace())


def test_verification_knows_the_table(repository: Repository) -> None:
    published(repository)
    done = CliRunner().invoke(cli, ["-r", str(repository.settings.root), "verify", "--json"])
    assert done.exit_code == 0
    assert "foreign" not in done.output


def test_only_what_adds_events_alone_is_an_append(repository: Repository) -> None:
    repository.forget(EventSelection(event_ids=(1,)), "asked for")
    commit(repository, 3)
    repository.compact()
    published(repository)
    operations = [each.summary.operation.value for each in table_of(repository).metadata.snapshots if each.summary]
    # Revision 0 follows nothing that is known here; a snapshot that hides an event of its own log is no append either.
    assert operations[:5] == ["overwrite", "append", "append", "overwrite", "append"]
    assert set(operations[5:]) == {"overwrite"}


def test_what_is_forgotten_goes_from_every_snapshot_at_once_and_no_earlier_version_shows_it(
    repository: Repository,
) -> None:
    published(repository)
    commit(repository, 3)
    published(repository)
    folder = TableFolder(repository.workspace().catalog.objects)
    assert folder.versions() == [1, 2]
    repository.forget(EventSelection(flowfile_uuids=(EVENTS[7].flowfile_uuid,)), "asked for")
    assert folder.versions() == [3]
    table = table_of(repository)
    for snapshot in table.metadata.snapshots:
        uuids = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().column("flowfile_uuid").to_pylist()
        assert uuids
        assert EVENTS[7].flowfile_uuid not in uuids
    # Manifests that still list logs without deletes are reachable by nobody, and go when they are old.
    workspace = Workspace(repository.settings, "main", clock=ManualClock(SystemClock().now_ms() + 48 * 3_600_000))
    assert collect_former(workspace)
    assert shown(workspace, newest(workspace)) == expected(workspace)
    assert collect_former(workspace) == []


def test_rows_that_cannot_be_read_count_as_forgotten(repository: Repository) -> None:
    log = sorted(repository.settings.store.rglob("data/*/events/*.parquet"))[0]
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    repository.workspace().catalog.commit([_tombstone(5)])
    published(repository)
    workspace = repository.workspace()
    metadata = newest(workspace)
    summary = metadata["snapshots"][-1]["summary"]
    assert int(summary["total-position-deletes"]) == 40
    assert summary["total-delete-files"] == "1"


def _tombstone(event_id: int) -> Any:
    from custody.catalog import Action, AddTombstone

    return Action(add_tombstone=AddTombstone(id=bytes(16), event_ids=[event_id]))


def test_a_commit_publishes_where_the_setting_says_so_and_a_pass_makes_up_for_one_that_did_not(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _with(repository.settings, publish=True)
    workspace = Workspace(settings, "main")
    assert [str(unit) for unit in STEPS["commit"].waiting(workspace)]
    [report] = run_steps(settings, "commit")
    assert report.note == "Iceberg table of revision 2"
    assert not list(STEPS["commit"].waiting(Workspace(settings, "main")))
    append(repository, EVENTS[200:240])
    run_steps(settings)
    assert shown(workspace, newest(workspace)) == expected(workspace)
    # Killed between the commit and the publication, as it were: live is live, and the next pass publishes.
    append(repository, EVENTS[240:280])
    with monkeypatch.context() as patched:
        patched.setattr(iceberg, "publish", _fail)
        with pytest.raises(KeyboardInterrupt):
            run_steps(settings)
    assert workspace.catalog.load().revision == 4
    assert max(shown(workspace, newest(workspace))) == 3
    run_steps(settings)
    assert shown(workspace, newest(workspace)) == expected(workspace)


def _fail(*_: object) -> None:
    raise KeyboardInterrupt


def _with(settings: Settings, **values: Any) -> Settings:
    return Settings.model_validate({**settings.model_dump(), "root": settings.root, "iceberg": values})


def test_only_the_newest_revisions_have_snapshots_where_a_setting_or_a_pruning_says_so(repository: Repository) -> None:
    few = _with(repository.settings, snapshots_max=2)
    assert iceberg.publish(Workspace(few, "main")).earliest_revision == 1
    assert published(repository).earliest_revision == 0  # as many as before: a setting takes nothing for good
    for number in range(3, 7):
        commit(repository, number)
        repository.workspace().catalog.checkpoint()
    prune(repository.workspace().catalog, 3)
    workspace = repository.workspace()
    done = iceberg.publish(workspace)
    assert done.earliest_revision == workspace.catalog.load().floor > 0
    assert shown(workspace, newest(workspace)) == expected(workspace)


def test_logs_are_deleted_only_after_the_snapshots_that_name_them_are_gone(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(repository)
    retention = {"age_max": "1 hour", "grace": "0 days"}
    settings = Settings.model_validate(
        {**repository.settings.model_dump(), "root": repository.settings.root, "retention": retention}
    )
    deleted: list[str] = []

    def named() -> set[str]:
        table = StaticTable.from_metadata(TableFolder(repository.workspace().catalog.objects).location)
        return {
            task.file.file_path
            for each in table.metadata.snapshots
            for task in table.scan(snapshot_id=each.snapshot_id).plan_files()
        }

    assert len(named()) == 3
    remove = LocalStore.delete

    def watched(store: LocalStore, key: str) -> None:
        if "/data/" in key:
            deleted.append(key)
            assert store.locate(key) not in named(), "a log goes that a snapshot names"
        remove(store, key)

    monkeypatch.setattr(LocalStore, "delete", watched)
    for step in RETENTION_STEPS.values():
        for unit in step.units(settings):
            step.run(Workspace(settings, unit.writer), unit)
    assert len([key for key in deleted if key.endswith(".parquet")]) == 3
    assert named() == set()
    assert table_of(repository).scan().to_arrow().num_rows == 0


def test_several_publishers_and_a_writer_at_once_end_in_the_table_of_the_newest_revision(
    repository: Repository,
) -> None:
    failures: list[BaseException] = []

    def publish_often() -> None:
        try:
            for _ in range(8):
                iceberg.publish(Workspace(repository.settings, "main"))
        except BaseException as error:  # noqa: BLE001 - shown by the test itself
            failures.append(error)

    threads = [Thread(target=publish_often) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(3, 7):
        commit(repository, number)
    repository.forget(EventSelection(event_ids=(3,)), "asked for")
    for thread in threads:
        thread.join()
    assert failures == []
    workspace = repository.workspace()
    iceberg.publish(workspace)
    assert shown(workspace, newest(workspace)) == expected(workspace)
    versions = TableFolder(workspace.catalog.objects).versions()
    assert table_of(repository).metadata_location.endswith(f"/v{versions[-1]}.metadata.json")


def test_a_hint_that_a_stopped_process_wrote_late_is_put_right_by_the_next_publication(repository: Repository) -> None:
    published(repository)
    commit(repository, 3)
    published(repository)
    hint = Path(table_of(repository).location()) / "metadata" / "version-hint.text"
    for text in ("1", "", "77"):
        hint.write_text(text)
        published(repository)
        assert hint.read_text() == "2"
    hint.unlink()
    published(repository)
    assert hint.read_text() == "2"


def _foreign(document: dict[str, Any]) -> bytes:
    document["snapshots"][-1]["summary"].pop("custody.revision")
    return json.dumps(document).encode()


def _of_another_program(document: dict[str, Any]) -> bytes:
    document["properties"] = {}
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("damage", "error", "text"),
    [
        (lambda _: b"{", CorruptionError, "v2.metadata.json: expected the metadata of an Iceberg table"),
        (_foreign, ConflictError, "v2.metadata.json: expected snapshots of revisions .* another program added"),
        (_of_another_program, ConflictError, "v2.metadata.json: expected metadata that custody wrote"),
    ],
)
def test_a_version_of_another_program_or_a_damaged_one_stops_it_and_says_what_to_do(
    repository: Repository, damage: Callable[[dict[str, Any]], bytes], error: type[Exception], text: str
) -> None:
    first = Path(published(repository).metadata)
    (first.parent / "v2.metadata.json").write_bytes(damage(json.loads(first.read_bytes())))
    with pytest.raises(error, match=text) as caught:
        published(repository)
    assert "remove" in str(caught.value)
    assert "publish it anew" in str(caught.value)
    shutil.rmtree(first.parents[1])
    assert published(repository).snapshots == 3


def test_a_repository_that_was_moved_is_published_with_its_new_paths(repository: Repository) -> None:
    published(repository)
    root = repository.settings.root
    moved = root.parent.parent / "moved"
    root.rename(moved)
    again = Repository.open(moved)
    assert published(again).written
    assert table_of(again).scan().to_arrow().num_rows == 120


def test_a_catalog_that_went_another_way_is_published_anew(repository: Repository) -> None:
    published(repository)
    transactions = repository.settings.store / "main" / "provenance" / "transactions"
    kept = repository.settings.root / "kept"
    shutil.copytree(transactions, kept)
    commit(repository, 3)
    published(repository)
    of_the_commit = repository.workspace().catalog.load().digest
    shutil.rmtree(transactions)
    shutil.copytree(kept, transactions)
    # A repair lists the log of the lost transaction again: another transaction at a revision that was published.
    again = Repository.open(repository.settings.root)
    repair_repository(again.settings, PosixFileSystem(), SystemClock())
    workspace = again.workspace()
    assert workspace.catalog.at(3).digest != of_the_commit
    assert published(again).written
    assert table_of(again).scan().to_arrow().num_rows == 160
    assert shown(workspace, newest(workspace)) == expected(workspace)


def test_without_pyiceberg_publishing_and_what_would_leave_the_table_behind_is_refused(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"pyiceberg is not installed\. Run: pip install 'pyiceberg>="):
        published(repository)
    repository.forget(EventSelection(event_ids=(5,)), "asked for")  # nothing is published: nothing is left behind
    monkeypatch.undo()
    published(repository)
    monkeypatch.setattr(util, "find_spec", lambda _: None)
    revision = repository.workspace().catalog.load().revision
    with pytest.raises(ConfigurationError, match="pyiceberg is not installed"):
        repository.forget(EventSelection(event_ids=(6,)), "asked for")
    assert repository.workspace().catalog.load().revision == revision


def test_the_command_publishes_every_writer_and_says_where(repository: Repository) -> None:
    root = repository.settings.root
    other = Settings.model_validate({**repository.settings.model_dump(), "root": root, "repository": {"writer": "b"}})
    append(Repository(other), EVENTS[:10])
    run_steps(repository.settings)
    done = CliRunner().invoke(cli, ["-r", str(root), "catalog", "publish-iceberg", "--json"])
    assert done.exit_code == 0, done.output
    rows = {row["writer"]: row for row in json.loads(done.output)}
    assert {name: (row["revision"], row["written"]) for name, row in rows.items()} == {
        "b": (0, True),
        "main": (2, True),
    }
    assert StaticTable.from_metadata(rows["b"]["metadata"]).scan().to_arrow().num_rows == 10
    shown_again = CliRunner().invoke(cli, ["-r", str(root), "catalog", "publish-iceberg", "--writer", "b"])
    assert shown_again.exit_code == 0
    assert "written" in shown_again.output
    empty = Repository.create(root.parent / "empty").settings.root
    assert "no writer has committed" in CliRunner().invoke(cli, ["-r", str(empty), "catalog", "publish-iceberg"]).output
