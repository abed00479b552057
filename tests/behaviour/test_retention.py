"""Retention: events that are too old or have no room leave every answer and the disk; held ones stay."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from custody.catalog import Action, PrunedError, RemoveFile, RemoveShard
from custody.cli.main import cli
from custody.config import Settings
from custody.errors import ConflictError, NotFoundError
from custody.repository import EventSelection, Hold, Repository
from custody.retention import RETENTION_STEPS, choose_expired, mark_expired, measure_disk, planning, retention_steps
from custody.retention.disk_usage import DiskUse
from custody.rollover import STEPS
from custody.vfs import FileSystem, PosixFileSystem
from custody.workspace import Workspace
from tests.behaviour.retained import DAY_MS, START_MS, ids, logs_on_disk, on_day, pass_of, repository_at, store
from tests.support import event


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five logs of three events, of the days 0, 10, 20, 30 and 40; every log has a DROP, and one of a customer."""
    created = repository_at(tmp_path_factory.mktemp("stored") / "repository", 41)
    store(created, *([_made(log * 3 + number, log * 10) for number in range(3)] for log in range(5)))
    return created.settings.root


@pytest.fixture
def root(stored: Path, tmp_path: Path) -> Path:
    """A copy of them for one test."""
    return shutil.copytree(stored, tmp_path / "repository")


def _made(number: int, day: int) -> Any:
    kind = {0: "CREATE", 1: "DROP", 2: "SEND"}[number % 3]
    attributes = {"customer": "acme"} if number in (5, 8) else {}
    return on_day(number, day, event_type=kind, updated_attributes=attributes)


def test_without_settings_nothing_goes(root: Path) -> None:
    opened = repository_at(root, 4000)
    assert opened.plan_retention().is_empty
    opened.apply_retention()
    assert ids(opened) == list(range(15))
    assert all(step.units(opened.settings) == [] for step in RETENTION_STEPS.values())


def test_logs_whose_events_are_all_too_old_go_from_answers_and_from_the_disk(root: Path) -> None:
    opened = repository_at(root, 51, age_max="30 days")
    before = logs_on_disk(opened)
    plan = opened.plan_retention()
    assert [(log.why, log.first_event_id, log.events) for log in plan.expiring] == [
        ("age", 0, 3),
        ("age", 3, 3),
        ("age", 6, 3),
    ]
    assert ids(opened) == list(range(15)), "a plan changes nothing"
    assert logs_on_disk(opened) == before
    done = opened.apply_retention()
    assert done.plan == plan
    assert ids(opened) == list(range(9, 15))
    assert len(logs_on_disk(opened)) == 2
    assert len(list((root / "containers/1/main/index").iterdir())) == 2
    assert opened.plan_retention().is_empty


def test_the_plan_says_what_the_disk_will_hold(root: Path) -> None:
    opened = repository_at(root, 51, age_max="30 days")
    plan = opened.plan_retention()
    use = measure_disk(opened.settings, PosixFileSystem())
    assert plan.used_bytes == use.total_bytes
    gone = sum(log.bytes for log in plan.expiring)
    assert plan.after_bytes == plan.used_bytes - gone
    opened.apply_retention()
    after = measure_disk(opened.settings, PosixFileSystem())
    assert after.kinds["logs"] + after.kinds["index"] <= use.kinds["logs"] + use.kinds["index"] - gone
    # Checkpoints and transactions come and go besides.
    assert abs(after.total_bytes - plan.after_bytes) < 100_000


def test_a_pass_looks_at_every_file_once_unless_what_waits_needs_the_room(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = repository_at(root, 51).settings
    (settings.store / "padding").write_bytes(bytes(1 << 20))  # no limit is smaller
    used = measure_disk(settings, PosixFileSystem()).total_bytes
    opened = repository_at(root, 51, bytes_max=used - 1, purge_percent=100)
    looks: list[Settings] = []

    def counted(settings: Settings, fs: FileSystem) -> DiskUse:
        looks.append(settings)
        return measure_disk(settings, fs)

    for module in (planning, retention_steps):
        monkeypatch.setattr(module, "measure_disk", counted)
    opened.apply_retention()
    assert ids(opened) == list(range(3, 15)), "the oldest log went"
    assert len(looks) == 1
    # There is room now, but for a log that nobody lists: that it has to go at once is what more looks are for.
    (settings.store / "padding").write_bytes(bytes(1 << 19))
    stray = opened.workspace().paths.home / "data" / "2026-03-02" / "events" / "00000000000000000001.parquet"
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(bytes(1 << 20))
    os.utime(stray, (1_772_409_600, 1_772_409_600))
    looks.clear()
    opened.apply_retention()
    assert len(looks) > 1
    assert not stray.exists()
    assert ids(opened) == list(range(3, 15)), "no event went in its place"


def test_files_stay_for_the_grace_and_an_earlier_revision_is_told_from_a_hole(root: Path) -> None:
    opened = repository_at(root, 51, age_max="30 days", grace="1 hours")
    catalog = opened.workspace().catalog
    before = catalog.load()
    opened.apply_retention()
    assert ids(opened) == list(range(9, 15))
    assert len(logs_on_disk(opened)) == 5
    assert set(catalog.at(before.revision, check_files=True).files) == set(before.files)
    assert opened.status().budget.waiting_bytes > 0
    later = repository_at(root, 51 + 1 / 24, age_max="30 days", grace="1 hours")
    later.apply_retention()
    assert len(logs_on_disk(later)) == 2
    assert later.status().budget.waiting_bytes == 0
    catalog = later.workspace().catalog
    earliest = catalog.load().floor
    with pytest.raises(PrunedError, match=f"the earliest is {earliest}") as caught:
        catalog.at(before.revision)
    assert caught.value.earliest == earliest
    for revision in range(earliest, catalog.load().revision + 1):
        catalog.at(revision, check_files=True)


def test_a_reader_that_began_before_the_mark_reads_on(root: Path) -> None:
    opened = repository_at(root, 51, age_max="30 days", grace="1 hours")
    reader = repository_at(root, 51)
    begun = iter(reader.events())
    first = next(begun)
    opened.apply_retention()
    assert [first.event_id, *(event.event_id for event in begun)] == list(range(15))


def test_the_oldest_logs_go_until_the_lower_mark_is_reached(root: Path) -> None:
    used = measure_disk(repository_at(root, 41).settings, PosixFileSystem()).total_bytes
    roomy = repository_at(root, 41, bytes_max=max(used, 1 << 20))
    assert roomy.plan_retention().is_empty
    # The least limit that can be set is above what fifteen events take: room is taken by a file that nobody knows.
    (root / "store/ballast").write_bytes(bytes(3 << 20))
    used = measure_disk(roomy.settings, PosixFileSystem()).total_bytes
    tight = repository_at(root, 41, bytes_max=used - 1, purge_percent=99)
    plan = tight.plan_retention()
    assert [log.why for log in plan.expiring] == ["size"] * len(plan.expiring)
    assert 1 <= len(plan.expiring) < 5
    assert [log.first_event_id for log in plan.expiring] == [3 * n for n in range(len(plan.expiring))]
    assert plan.after_bytes <= (used - 1) * 99 // 100
    assert plan.after_bytes + plan.expiring[-1].bytes > (used - 1) * 99 // 100, "no more than needed"
    assert plan.problem is None
    tight.apply_retention()
    assert ids(tight) == list(range(3 * len(plan.expiring), 15))


def test_the_oldest_of_several_writers_go_by_time_and_each_writer_s_by_id(tmp_path: Path) -> None:
    opened = repository_at(tmp_path / "repository", 50)
    for writer, days in (("main", (0, 20, 10)), ("other", (5, 15, 40))):
        settings = opened.settings.model_copy(
            update={"repository": opened.settings.repository.model_copy(update={"writer": writer})}
        )
        store(Repository(settings, clock=opened._clock), *([on_day(number, day)] for number, day in enumerate(days)))
    (opened.settings.root / "store/ballast").write_bytes(bytes(3 << 20))
    used = measure_disk(opened.settings, PosixFileSystem()).total_bytes
    plan = repository_at(opened.settings.root, 50, bytes_max=used - 1, purge_percent=1).plan_retention()
    order = [(log.writer, log.first_event_id) for log in plan.expiring]
    # Main's third log is of day 10, but behind its second one of day 20.
    assert order == [("main", 0), ("other", 0), ("other", 1), ("main", 1), ("main", 2), ("other", 2)]
    assert plan.after_bytes < used - 1
    assert plan.problem is None, "the limit is kept, although the lower mark cannot be reached"


def test_what_is_not_swept_yet_and_what_is_being_written_stays(root: Path) -> None:
    opened = repository_at(root, 4000, age_max="30 days")
    with opened.writer() as writer:
        writer.append([on_day(15, 0)])
    for name in ("rollover", "compress", "index", "commit"):
        workspace = Workspace(opened.settings, "main", clock=opened._clock)
        for unit in list(STEPS[name].waiting(workspace)):
            STEPS[name].run(workspace, unit)
    with opened.writer() as writer:
        writer.append([on_day(16, 0)])
        opened.apply_retention()
        assert ids(opened) == [15, 16]
    pass_of(opened)
    opened.apply_retention()
    assert ids(opened) == []
    assert logs_on_disk(opened) == set()


def test_a_rollover_that_was_held_up_brings_nothing_back(root: Path) -> None:
    opened = repository_at(root, 4000, age_max="30 days")
    groups = {group for file in opened.workspace().catalog.load().files.values() for group in file.groups}
    opened.apply_retention()
    workspace = Workspace(opened.settings, "main")
    state = workspace.catalog.load()
    assert groups
    assert all(workspace.is_committed(state, group) for group in groups)
    assert not workspace.is_committed(state, max(groups) + 1)
    assert all(not mark.paths for mark in state.marks.values())
    later = repository_at(root, 4008, age_max="30 days")
    later.apply_retention()
    assert not later.workspace().catalog.load().marks, "no rollover is held up for a week"


RULES = ("event_type:DROP keep 7 days", "attribute:customer=acme keep 5 years")


def test_a_shorter_rule_hides_events_at_once_and_a_longer_one_keeps_them(root: Path) -> None:
    opened = repository_at(root, 51, age_max="30 days", rules=RULES)
    opened.apply_retention()
    # The first log is gone as a whole; of the next two only the customer's events are left, of all others no DROP.
    assert ids(opened) == [5, 8, 9, 11, 12, 14]
    assert logs_on_disk(opened) == _paths(opened, {3, 6, 9, 12})
    for report in opened.compact():
        assert report.error is None
    assert ids(Repository(opened.settings, clock=opened._clock)) == [5, 8, 9, 11, 12, 14]
    stones = opened.workspace().catalog.load().tombstones.values()
    assert not any(stone.erased for stone in stones), "what a rule took is not remembered"
    much_later = repository_at(root, 365 * 4, age_max="30 days", rules=RULES)
    much_later.apply_retention()
    assert ids(much_later) == [5, 8]
    repository_at(root, 365 * 6, age_max="30 days", rules=RULES).apply_retention()
    assert ids(repository_at(root, 365 * 6)) == []


def _paths(opened: Repository, firsts: set[int]) -> set[str]:
    files = opened.workspace().catalog.load().files.values()
    return {file.path for file in files if file.first_event_id in firsts}


def test_a_rule_that_is_taken_back_hides_no_more_what_was_not_erased(root: Path) -> None:
    opened = repository_at(root, 48, rules=RULES)
    opened.apply_retention()
    assert ids(opened) == [n for n in range(15) if n % 3 != 1]
    without = repository_at(root, 48)
    hiding = {rule.rule: rule.before_ms for rule in without.plan_retention().hiding}
    assert hiding == {"event_type:DROP": 0, "attribute:customer=acme": 0}, "no more"
    without.apply_retention()
    assert ids(without) == list(range(15))


def test_a_log_with_a_held_event_stays_and_the_others_go(root: Path) -> None:
    opened = repository_at(root, 4000, age_max="30 days")
    opened.hold("case-17", EventSelection(attributes={"customer": "acme"}), "court order", "legal")
    plan = opened.plan_retention()
    assert [(log.holds, log.writer) for log in plan.held] == [(("case-17",), "main")] * 2
    assert [log.first_event_id for log in plan.expiring] == [0, 9, 12]
    opened.apply_retention()
    assert ids(opened) == list(range(3, 9))
    [hold] = opened.holds()
    assert hold == Hold(
        name="case-17",
        reason="court order",
        who="legal",
        created_ms=START_MS + 4000 * DAY_MS,
        writers=("main",),
        attributes={"customer": "acme"},
    )
    assert opened.release("case-17", "case closed", "legal") == ["main"]
    opened.apply_retention()
    assert ids(opened) == []


@pytest.mark.parametrize(
    ("meant", "kept"),
    [
        (EventSelection(flowfile_uuids=[event(4).flowfile_uuid]), [3, 4, 5]),
        (EventSelection(event_ids=[7, 99]), [6, 7, 8]),
        (EventSelection(from_ms=START_MS + 30 * DAY_MS, to_ms=START_MS + 31 * DAY_MS), [9, 10, 11]),
        (EventSelection(attributes={"customer": "nobody"}), []),
    ],
    ids=["flowfile", "ids", "time", "nothing"],
)
def test_a_hold_means_what_its_conditions_say(root: Path, meant: EventSelection, kept: list[int]) -> None:
    opened = repository_at(root, 4000, age_max="30 days")
    opened.hold("case", meant, "asked for", "legal")
    opened.apply_retention()
    assert ids(opened) == kept


def test_a_limit_that_holds_stand_against_is_reported_and_nothing_held_goes(root: Path) -> None:
    (root / "store/ballast").write_bytes(bytes(3 << 20))
    opened = repository_at(root, 41, bytes_max=1 << 20)
    opened.hold("case-17", EventSelection(attributes={"customer": "acme"}), "court order", "legal")
    plan = opened.plan_retention()
    assert plan.problem is not None
    assert "case-17" in plan.problem
    assert opened.apply_retention().plan.problem == plan.problem
    assert ids(opened) == list(range(3, 9))
    check = RETENTION_STEPS["retention_check"]
    [unit] = check.units(opened.settings)
    with pytest.raises(OSError, match="held by case-17"):
        check.run(Workspace(opened.settings, unit.writer, clock=opened._clock), unit)
    (root / "custody.toml").write_text("[retention]\nbytes_max = 1048576\n")
    for command, code in ((["plan"], 0), (["apply", "--yes"], 17)):
        result = CliRunner().invoke(cli, ["-r", str(root), "retention", *command])
        assert result.exit_code == code
        assert "expected at most 1048576 bytes" in result.stderr


def test_a_hold_that_is_made_between_the_plan_and_the_mark_stops_the_mark(root: Path) -> None:
    opened = repository_at(root, 4000, age_max="30 days")
    choice = choose_expired(opened.settings, PosixFileSystem(), opened._clock, opened.workspaces())
    repository_at(root, 4000).hold("case", EventSelection(event_ids=[0]), "asked for", "legal")
    with pytest.raises(ConflictError, match="case"):
        mark_expired(choice)
    assert ids(opened) == list(range(15))


def test_a_held_event_that_was_forgotten_stays_hidden_and_on_disk_until_the_hold_ends(root: Path) -> None:
    opened = repository_at(root, 41)
    opened.hold("case", EventSelection(event_ids=[5]), "asked for", "legal", writer="main")
    opened.forget(EventSelection(attributes={"customer": "acme"}), "asked for")
    opened.compact()
    assert ids(opened) == [n for n in range(15) if n not in (5, 8)]
    rows = {file.first_event_id: file.rows for file in opened.workspace().catalog.load().files.values()}
    assert sum(rows.values()) == 14, "event 8 is erased, event 5 is not"
    assert opened.compact() == [], "nothing is written anew for what may not go"
    opened.release("case", "closed", "legal")
    opened.compact()
    assert sum(file.rows for file in opened.workspace().catalog.load().files.values()) == 13


def test_a_held_event_is_not_hidden_by_a_rule(root: Path) -> None:
    opened = repository_at(root, 48, rules=RULES)
    opened.hold("case", EventSelection(event_ids=[4]), "asked for", "legal", writer="main")
    opened.apply_retention()
    assert 4 in ids(opened)
    opened.compact()
    assert 4 in ids(opened)
    opened.release("case", "closed", "legal")
    opened.apply_retention()
    assert 4 not in ids(opened)


def test_a_hold_counts_for_a_writer_that_comes_later(root: Path) -> None:
    repository_at(root, 41).hold("case", EventSelection(attributes={"customer": "acme"}), "asked for", "legal")
    settings = repository_at(root, 41).settings
    other = settings.model_copy(update={"repository": settings.repository.model_copy(update={"writer": "other"})})
    later = Repository(other, clock=repository_at(root, 41)._clock)
    store(later, [_made(5, 10)], [_made(0, 10)])
    opened = repository_at(root, 4000, age_max="30 days")
    opened.apply_retention()
    assert [event.event_id for event in opened.events(writer="other")] == [0]
    assert [event.event_id for event in opened.events(writer="main")] == list(range(3, 9))


def test_a_name_is_given_to_one_hold_and_the_same_one_can_be_made_again(root: Path) -> None:
    opened = repository_at(root, 41)
    for _ in range(2):
        opened.hold("case", EventSelection(event_ids=[4]), "asked for", "legal")
    with pytest.raises(ConflictError, match="another hold"):
        opened.hold("case", EventSelection(event_ids=[5]), "asked for", "legal")
    with pytest.raises(NotFoundError):
        opened.release("another", "?", "legal")


def test_a_shard_goes_when_all_its_logs_are_gone_and_dangling_documents_are_not_found(root: Path) -> None:
    opened = repository_at(root, 41)
    workspace = opened.workspace()
    state = workspace.catalog.load()
    files = sorted(state.files.values(), key=lambda file: file.first_event_id)
    # One shard for the first two logs, as a larger shard would be.
    first, second = sorted(state.shards.values(), key=lambda shard: shard.first_event_id)[:2]
    joined = type(first)()
    joined.CopyFrom(first)
    joined.name = first.name + ".0000000000000000"
    joined.log_paths.append(files[1].path)
    joined.documents, joined.last_event_id = 6, second.last_event_id
    joined.last_event_time_ms = second.last_event_time_ms
    workspace.catalog.commit(
        [
            Action(remove_shard=RemoveShard(name=first.name)),
            Action(remove_shard=RemoveShard(name=second.name)),
            Action(add_shard=joined),
        ]
    )
    list(opened.rebuild_index([joined.name]))
    aged = repository_at(root, 35, age_max="30 days")
    aged.apply_retention()
    assert joined.name in aged.workspace().catalog.load().shards
    assert ids(aged) == list(range(3, 15)), "documents of the expired log are not found"
    assert aged.search("event_type:CREATE").total == 4
    later = repository_at(root, 45, age_max="30 days")
    later.apply_retention()
    assert joined.name not in later.workspace().catalog.load().shards
    assert not later.workspace().shard_path(joined).exists()
    assert ids(later) == list(range(6, 15))


def test_a_log_that_leaves_the_catalog_between_look_up_and_read_is_left_out(root: Path) -> None:
    opened = repository_at(root, 51, age_max="30 days")
    reader = repository_at(root, 51)
    view = reader.workspace().catalog.load()
    path = next(iter(sorted(view.files)))
    reader.workspace().catalog.commit([Action(remove_file=RemoveFile(path=path))])
    opened.apply_retention()
    assert ids(reader) == list(range(9, 15))


def test_the_commands_show_the_plan_and_the_holds(root: Path) -> None:
    (root / "custody.toml").write_text('[retention]\nage_max = "1 days"\ngrace = "0 seconds"\n')

    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(cli, ["-r", str(root), *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    run("hold", "add", "case-17", "--attribute", "customer=acme", "--reason", "court order", "--who", "legal")
    assert [hold["name"] for hold in json.loads(run("hold", "list", "--json"))] == ["case-17"]
    assert "customer=acme" in run("hold", "list")
    plan = json.loads(run("retention", "plan", "--json"))
    assert len(plan["expiring"]) == 3
    assert len(plan["held"]) == 2
    assert "case-17" in run("retention", "plan")
    assert json.loads(run("retention", "apply", "--yes", "--json"))["plan"]["expiring"] == plan["expiring"]
    assert "catalog" in run("status")
    budget = json.loads(run("status", "--json"))["budget"]
    assert (budget["limit_bytes"], budget["holds"]) == (None, 1)
    run("hold", "release", "case-17", "--reason", "closed")
    assert json.loads(run("hold", "list", "--json")) == []
