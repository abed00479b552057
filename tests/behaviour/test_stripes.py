"""Event logs on several disks: spread, read, written anew, cleaned, and never given up while their disk is away."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from benchmarks.eventlog.bulk import tables, write_journals
from custody.catalog import collect_garbage, rebuild, salvage, scan_logs
from custody.catalog.codec import decode
from custody.catalog.stripes import Stripe, StripeMark
from custody.cli.main import cli
from custody.clock import SystemClock
from custody.config import Settings
from custody.config.sections import RetentionSection
from custody.errors import ConfigurationError, StripeMissingError
from custody.export.export_run import Export
from custody.format.names import split_stripe
from custody.lease import Attempt
from custody.maintenance import compact
from custody.maintenance.findings import Level
from custody.maintenance.repair import plan_repairs, repair_repository
from custody.maintenance.verification import verify_repository
from custody.maintenance.verification.check_logs import check_stripes
from custody.ngsi_sink.notifications import LiveNotifications
from custody.repository import EventSelection, Repository
from custody.repository.retention_api import apply_retention
from custody.retention import measure_disk
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from tests.support import append, event, flipped, run_steps

FS = PosixFileSystem()
LOGS, EVENTS = 8, 30


def settings_of(root: Path, *names: str, **more: object) -> Settings:
    """Settings with a stripe a name, the folders of which exist."""
    for name in names:
        (root.parent / f"disk-{name}").mkdir(parents=True, exist_ok=True)
    stripes = [f"{name}={root.parent}/disk-{name}" for name in names]
    return Settings.model_validate({"root": root, "repository": {"stripes": stripes, **more}})


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with eight logs on two stripes, and the folders of these beside it."""
    folder = tmp_path_factory.mktemp("filled")
    fill(settings_of(folder / "repository", "a", "b"))
    return folder


@pytest.fixture
def settings(filled: Path, tmp_path: Path) -> Settings:
    """Of a copy of the repository."""
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    return settings_of(tmp_path / "repository", "a", "b")


def fill(settings: Settings) -> None:
    for number in range(LOGS):
        append(Repository(settings), [event(EVENTS * number + place) for place in range(EVENTS)])
        run_steps(settings)


def ids(settings: Settings) -> list[int]:
    return [item.event_id for item in Repository(settings).events(count=10_000)]


def counted(repository: Repository) -> int:
    with repository.sql("SELECT count(*) AS events FROM events", skip_damaged=True) as result:
        [number] = pa.Table.from_batches(result.batches()).column(0).to_pylist()
    return int(number)


def stripes_of(settings: Settings) -> dict[str, list[str]]:
    """The paths of live logs, by stripe."""
    by_stripe: dict[str, list[str]] = {}
    for path in sorted(Repository(settings).workspace().catalog.load().files):
        by_stripe.setdefault(split_stripe(path)[0], []).append(path)
    return by_stripe


def take_out(settings: Settings, name: str) -> Path:
    """Take a disk out; the empty folder where it was mounted stays."""
    folder = settings.stripes[name]
    away = folder.with_name("away")
    folder.rename(away)
    folder.mkdir()
    return away


def put_back(settings: Settings, name: str) -> None:
    folder = settings.stripes[name]
    folder.rmdir()  # fails if something was written below the place of the disk
    folder.with_name("away").rename(folder)


def damage_kinds(settings: Settings, level: Level = Level.DEFAULT) -> list[tuple[str, str]]:
    report = verify_repository(Repository(settings).workspaces(), settings, FS, level)
    return [(item.kind, item.name) for item in report.findings if item.severity in ("damage", "orphan")]


def test_logs_are_spread_over_the_stripes_and_read_from_all_of_them(settings: Settings) -> None:
    by_stripe = stripes_of(settings)
    assert set(by_stripe) == {"a", "b"}
    for name, paths in by_stripe.items():
        on_disk = settings.stripes[name] / "main/provenance"
        assert all((on_disk / split_stripe(path)[1]).is_file() for path in paths)
    assert not list((settings.root / "store").rglob("*.parquet")) or all(
        "transactions" in path.parts for path in (settings.root / "store").rglob("*.parquet")
    )
    repository = Repository(settings)
    assert ids(settings) == list(range(LOGS * EVENTS))
    assert repository.search("event_type:CREATE").total == LOGS * EVENTS
    assert counted(repository) == LOGS * EVENTS
    assert damage_kinds(settings, Level.DEEP) == []


def test_a_log_on_a_stripe_is_refused_by_a_release_that_knows_no_stripes(settings: Settings) -> None:
    objects = Repository(settings).workspace().catalog.objects
    features = [
        decode(objects.store.get(item.key), item.key).reader_features for item in objects.list() if item.revision == 0
    ]
    # What every release checks first, whatever else it finds in a transaction or checkpoint.
    assert all(list(each) == ["stripes"] for each in features)
    newest = Repository(settings).workspace().catalog.load()
    assert newest.reader_features == {"stripes"}


def test_while_a_disk_is_away_answers_say_so_and_nothing_is_given_up(settings: Settings) -> None:
    paths = stripes_of(settings)
    take_out(settings, "a")
    repository = Repository(settings)
    events = repository.events(count=10_000)
    assert len(list(events)) == EVENTS * len(paths["b"])
    assert all("stripe 'a' of writer 'main' is missing" in text for text in events.notices)
    assert len(events.notices) == len(paths["a"])
    assert counted(repository) == EVENTS * len(paths["b"])
    report = verify_repository(repository.workspaces(), settings, FS)
    [finding] = [item for item in report.findings if item.severity == "damage"]
    assert (finding.kind, finding.name, finding.events) == ("stripe-missing", "a", EVENTS * len(paths["a"]))
    assert plan_repairs(settings, FS, SystemClock()).actions == []
    with pytest.raises(StripeMissingError, match="stripe 'a'"):
        collect_garbage(repository.workspace().catalog, SystemClock(), older_than_ms=0)
    append(repository, [event(9_000)])
    run_steps(settings)  # a new log goes to the disk that is there
    assert len(stripes_of(settings)["b"]) == len(paths["b"]) + 1
    put_back(settings, "a")
    assert ids(settings) == [*range(LOGS * EVENTS), LOGS * EVENTS]
    assert damage_kinds(settings) == []


def test_another_disk_in_the_place_of_a_stripe_is_recognised(settings: Settings, tmp_path: Path) -> None:
    other = settings_of(tmp_path / "other/repository", "a", "b")
    fill(other)
    for name in ("a", "b"):
        settings.stripes[name].rename(tmp_path / f"own-{name}")
    settings.stripes["a"].parent.mkdir(exist_ok=True)
    (tmp_path / "own-b").rename(settings.stripes["a"])  # changed places
    shutil.copytree(other.stripes["b"], settings.stripes["b"])  # of another repository with the same names
    used = measure_disk(settings, FS).kinds.get("logs", 0)
    kinds = damage_kinds(settings)
    assert kinds == [("stripe-missing", "a"), ("stripe-missing", "b")]
    assert ids(settings) == []
    assert used == 0, "a disk that is not ours must not count against the budget"
    messages = [text for _, text in Repository(settings).workspace().catalog.objects.files.missing()]
    assert "says that it is the stripe 'b' of the writer 'main'" in str(messages[0])
    assert str(other.root) in str(messages[1])
    with pytest.raises(StripeMissingError):
        append(Repository(settings), [event(5_000)])
        run_steps(settings)
    shutil.rmtree(settings.stripes["b"])
    settings.stripes["a"].rename(settings.stripes["b"])
    (tmp_path / "own-a").rename(settings.stripes["a"])
    run_steps(settings)
    assert len(ids(settings)) == LOGS * EVENTS + 1


def test_a_folder_of_another_repository_does_not_become_a_stripe(settings: Settings, tmp_path: Path) -> None:
    second = Settings.model_validate(
        {"root": tmp_path / "second", "repository": {"stripes": [f"a={settings.stripes['a']}"]}}
    )
    append(Repository(second), [event(0)])
    with pytest.raises(ConfigurationError, match="cannot become the stripe 'a'"):
        run_steps(second)
    assert damage_kinds(settings) == []


def test_a_stripe_that_the_settings_lost_is_missing_and_not_empty(settings: Settings) -> None:
    without = settings_of(settings.root, "a")
    assert damage_kinds(without) == [("stripe-missing", "b")]
    catalog = Repository(without).workspace().catalog
    with pytest.raises(StripeMissingError, match=r'Add "b=FOLDER" there'):
        collect_garbage(catalog, SystemClock(), older_than_ms=0)
    assert len(ids(without)) == EVENTS * len(stripes_of(settings)["a"])
    assert len(ids(settings)) == LOGS * EVENTS


def test_stripes_are_added_and_retired_for_new_logs_only(settings: Settings) -> None:
    before = stripes_of(settings)
    wider = settings_of(settings.root, "a", "b", "c", stripes_retired=["a", "b"])
    append(Repository(wider), [event(7_000)])
    run_steps(wider)
    after = stripes_of(wider)
    assert (after["a"], after["b"], len(after["c"])) == (before["a"], before["b"], 1)
    status = Repository(wider).status()
    assert [(item.name, item.is_retired, item.logs, item.state) for item in status.stripes] == [
        ("a", True, len(before["a"]), "ok"),
        ("b", True, len(before["b"]), "ok"),
        ("c", False, 1, "ok"),
    ]
    assert all(item.log_bytes > 0 and item.free_bytes for item in status.stripes)
    without = Settings.model_validate({"root": settings.root, "repository": {**wider.model_dump()["repository"]}})
    all_retired = without.model_copy(
        update={"repository": wider.repository.model_copy(update={"stripes_retired": ("a", "b", "c")})}
    )
    append(Repository(all_retired), [event(7_001)])
    run_steps(all_retired)
    assert len(stripes_of(all_retired)[""]) == 1, "with all retired, new logs lie in the store"


def test_a_full_disk_is_passed_over(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = stripes_of(settings)
    monkeypatch.setattr(Stripe, "has_room", lambda self, size: self.name == "b")
    for number in range(4):
        append(Repository(settings), [event(8_000 + number)])
        run_steps(settings)
    after = stripes_of(settings)
    assert (after["a"], len(after["b"])) == (paths["a"], len(paths["b"]) + 4)


def test_a_catalog_is_rebuilt_from_all_stripes_and_never_without_one(settings: Settings) -> None:
    take_out(settings, "b")
    catalog = Repository(settings).workspace().catalog
    with pytest.raises(StripeMissingError):
        scan_logs(catalog.objects)
    put_back(settings, "b")
    rebuilt = rebuild(catalog, SystemClock(), scan_logs(catalog.objects), ["containers/1"], salvage(catalog.objects))
    assert rebuilt.files == LOGS
    assert ids(settings) == list(range(LOGS * EVENTS))
    assert Repository(settings).workspace().catalog.load().reader_features == {"stripes"}


def test_a_compaction_leaves_logs_on_a_disk_that_is_away(settings: Settings) -> None:
    repository = Repository(settings)
    repository.forget(EventSelection(event_ids=[0, EVENTS * 3 + 1, EVENTS * 5 + 1]), "asked for")
    paths = stripes_of(settings)
    take_out(settings, "a")
    for report in compact(repository.workspace()):
        assert report.error is None or "stripe 'a'" in report.error, report
    assert set(paths["a"]) <= set(stripes_of(settings)["a"])
    put_back(settings, "a")
    assert all(report.error is None for report in compact(Repository(settings).workspace()))
    assert len(ids(settings)) == LOGS * EVENTS - 3
    assert damage_kinds(settings, Level.DEEP) == [
        item for item in damage_kinds(settings, Level.DEEP) if item[0] == "unlisted-log"
    ], "only files that were replaced are left"


def test_expired_logs_are_deleted_once_their_disk_is_back(settings: Settings) -> None:
    expiring = settings.model_copy(update={"retention": RetentionSection(age_max="1 second", grace="0 seconds")})
    append(Repository(settings), [event(9_999)])
    take_out(settings, "a")
    with pytest.raises(StripeMissingError):  # the garbage collection, behind the deletion
        apply_retention(expiring, FS, SystemClock())
    assert not list(settings.stripes["b"].rglob("*.parquet"))
    state = Repository(settings).workspace().catalog.load()
    assert any(split_stripe(path)[0] == "a" for mark in state.marks.values() for path in mark.paths)
    assert list(settings.stripes["a"].with_name("away").rglob("*.parquet")), "nothing was deleted there"
    put_back(settings, "a")
    apply_retention(expiring, FS, SystemClock())
    assert not list(settings.stripes["a"].rglob("*.parquet"))
    assert not list(settings.stripes["b"].rglob("*.parquet"))
    assert ids(settings) == [LOGS * EVENTS]


@pytest.mark.in_parts(2)
def test_the_budget_counts_all_stripes(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "repository", "a", "b")
    write_journals(FS, settings, tables(3000), group_events=1000, batch_events=500)
    small = settings.model_copy(update={"eventlog": settings.eventlog.model_copy(update={"log_bytes_target": 200_000})})
    run_steps(small)
    on_stripes = sum(path.stat().st_size for name in "ab" for path in settings.stripes[name].rglob("*.parquet"))
    used = measure_disk(settings, FS)
    assert used.kinds["logs"] >= on_stripes > 0
    limit = used.total_bytes - on_stripes // 2
    limited = small.model_copy(update={"retention": RetentionSection(bytes_max=limit, grace="0 seconds")})
    result = apply_retention(limited, FS, SystemClock())
    assert result.plan.expiring
    assert measure_disk(settings, FS).total_bytes <= limit


def test_a_lost_log_is_written_again_on_its_own_stripe(settings: Settings) -> None:
    append(Repository(settings), [event(6_000)])
    run_steps(settings, "recover", "rollover", "compress", "index", "commit")  # not swept: the staged unit is there
    [path] = [path for paths in stripes_of(settings).values() for path in paths if f"{LOGS * EVENTS:020d}" in path]
    log = settings.stripes[split_stripe(path)[0]] / "main/provenance" / split_stripe(path)[1]
    data = log.read_bytes()
    log.unlink()
    shutil.rmtree(settings.root / "store/main/provenance/staging")  # the journals are merged again
    retired = settings.model_copy(
        update={"repository": settings.repository.model_copy(update={"stripes_retired": (split_stripe(path)[0],)})}
    )
    report = repair_repository(retired, FS, SystemClock())
    assert [action.error for action in report.actions] == [None]
    assert log.read_bytes() == data


def test_a_lost_disk_is_given_up_only_when_its_mark_is_put_on_another_one(settings: Settings) -> None:
    paths = stripes_of(settings)
    away = take_out(settings, "a")
    shutil.rmtree(away)
    home = settings.stripes["a"] / "main/provenance"
    home.mkdir(parents=True)
    shutil.copy(settings.root / "store/main/provenance/stripes/a", home / "STRIPE")
    assert [kind for kind, _ in damage_kinds(settings)] == ["log-missing"] * len(paths["a"])
    repair_repository(settings, FS, SystemClock(), accept_loss=True)
    assert damage_kinds(settings) == []
    assert len(ids(settings)) == EVENTS * len(paths["b"])
    state = Repository(settings).workspace().catalog.load()
    assert sum(loss.events for loss in state.losses.values()) == EVENTS * len(paths["a"])


def test_one_copy_of_the_record_is_enough_and_a_damaged_mark_is_named(settings: Settings) -> None:
    record = settings.root / "store/main/provenance/stripes/a"
    mark = settings.stripes["a"] / "main/provenance/STRIPE"
    assert StripeMark.decode(mark.read_bytes(), mark).stripe == "a"
    record.write_bytes(b"damaged")
    assert ids(settings) == list(range(LOGS * EVENTS))
    shutil.copy(record.with_name("a.marked"), record)
    mark.write_bytes(mark.read_bytes()[:-1])
    files = Repository(settings).workspace().catalog.objects.files
    [(name, error)] = files.missing()
    assert name == "a"
    assert f"copy {record} over it" in str(error)
    shutil.copy(record, mark)
    assert Workspace(settings, "main").catalog.objects.files.missing() == []


def test_a_changed_bit_of_record_sign_or_mark_is_named(settings: Settings) -> None:
    record = settings.root / "store/main/provenance/stripes/a"
    mark = settings.stripes["a"] / "main/provenance/STRIPE"
    unseen = []
    for path in (record, record.with_name("a.marked"), mark):
        good = path.read_bytes()
        for bit in range(0, 8 * len(good), 5):
            path.write_bytes(flipped(good, bit))
            workspace = Workspace(settings, "main")
            if not any(str(path) in item.message for item in check_stripes(workspace, None)):
                unseen.append((path.name, bit))
        path.write_bytes(good)
    assert unseen == []
    assert damage_kinds(settings) == []


def test_a_stripe_may_lie_under_any_path(tmp_path: Path) -> None:
    folder = tmp_path / "disk 'a' \"${HOME}\" = [1]*? %41 \N{SNOWMAN}"
    folder.mkdir()
    settings = Settings.model_validate({"root": tmp_path / "repository", "repository": {"stripes": [f"a={folder}"]}})
    append(Repository(settings), [event(number) for number in range(3)])
    run_steps(settings)
    assert list(folder.rglob("*.parquet"))
    assert ids(settings) == [0, 1, 2]
    assert counted(Repository(settings)) == 3
    assert damage_kinds(settings, Level.DEEP) == []


def test_an_export_waits_for_a_disk_that_is_away_and_passes_nothing_by(settings: Settings) -> None:
    (settings.root / "custody.toml").write_text('[exports.box]\nkind = "files"\nurl = "out"\n')
    export = Export(
        settings.model_copy(update={"exports": Settings(root=settings.root).exports}), "box", FS, SystemClock()
    )
    by_id = sorted((path for paths in stripes_of(settings).values() for path in paths), key=lambda path: path[-28:])
    away = split_stripe(by_id[2])[0]
    take_out(settings, away)
    with export.started(Attempt.new("test")) as run, pytest.raises(StripeMissingError, match="out of reach"):
        run.deliver_waiting()
    before = exported(settings)
    assert before == list(range(len(before)))
    assert len(before) < LOGS * EVENTS
    put_back(settings, away)
    with export.started(Attempt.new("test")) as run:
        run.deliver_waiting()
    assert exported(settings) == list(range(LOGS * EVENTS))


def exported(settings: Settings) -> list[int]:
    lines = [
        line for path in sorted((settings.root / "out").rglob("*.ndjson")) for line in path.read_text().splitlines()
    ]
    return [json.loads(line)["eventOrdinal"] for line in lines]


def test_the_sink_of_ngsi_has_no_bound_for_a_writer_whose_disk_is_away(settings: Settings) -> None:
    repository = Repository(settings)
    assert LiveNotifications(repository, FS).bounds() == {"main": LOGS * EVENTS}
    reader = LiveNotifications(repository, FS)
    list(reader.notified("main", 0, LOGS * EVENTS))
    take_out(settings, "a")
    again = LiveNotifications(Repository(settings, PosixFileSystem()), FS)
    assert again.bounds() == {}
    with pytest.raises(StripeMissingError, match="out of reach"):
        list(again.notified("main", 0, LOGS * EVENTS))
    assert again.passed_over == []


def test_an_event_on_a_disk_that_is_away_is_not_called_absent_or_lost(settings: Settings) -> None:
    path = stripes_of(settings)["a"][0]
    event_id = Repository(settings).workspace().catalog.load().files[path].first_event_id
    take_out(settings, "a")
    with pytest.raises(StripeMissingError, match="are out of reach"):
        Repository(settings).get(event_id)


def test_a_new_writer_does_not_take_the_place_of_a_disk_for_its_stripe(settings: Settings) -> None:
    take_out(settings, "a")
    other = settings.model_copy(update={"repository": settings.repository.model_copy(update={"writer": "other"})})
    for number in range(6):
        append(Repository(other), [event(number, source_node="node-2")])
        run_steps(other)
    assert list(settings.stripes["a"].iterdir()) == []
    put_back(settings, "a")


def test_status_prints_the_stripes(settings: Settings) -> None:
    (settings.root / "custody.toml").write_text(
        "[repository]\nstripes = " + json.dumps(list(settings.repository.stripes)) + "\n"
    )
    take_out(settings, "b")
    result = CliRunner().invoke(cli, ["-r", str(settings.root), "status", "--json"])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)["stripes"]
    assert [(item["name"], item["state"]) for item in shown] == [("a", "ok"), ("b", "missing")]
