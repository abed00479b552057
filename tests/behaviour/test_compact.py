"""Compaction: forgotten events leave the disk, small logs become one, and every answer stays the same."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Barrier, Thread
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from custody.catalog import Action, Note, collect_garbage, is_remnant
from custody.cli.main import cli
from custody.config import SETTINGS_FILE
from custody.errors import ConflictError
from custody.maintenance import (
    CompactionUnit,
    compact_unit,
    compaction,
    leftover_shards,
    plan_rewrites,
    rewriting,
    waiting_compactions,
)
from custody.model import Event
from custody.repository import EventSelection, Repository
from custody.workspace import Workspace
from tests.behaviour.test_forget import SECRET, ids_everywhere
from tests.support import append, event, flipped, run_steps, write_samples

MARK = "Zzyzx-Quill-4711"


def begun(repository: Repository, *sizes: int) -> Repository:
    """A repository with one live log for each size; every third event has the secret attribute."""
    number = 0
    for size in sizes:
        append(repository, [made(number + more) for more in range(size)])
        run_steps(repository.settings)
        number += size
    return Repository.open(repository.settings.root)


def made(number: int) -> Event:
    values = SECRET if number % 3 == 0 else {"customer": "12"}
    return event(number, event_type="RECEIVE", updated_attributes=values)


def live(repository: Repository) -> list[tuple[int, int, int]]:
    """First id, last id and rows of each live log."""
    files = repository.workspace().catalog.load().files.values()
    return sorted((file.first_event_id, file.last_event_id, file.rows) for file in files)


def test_small_neighbours_become_one_log_with_the_same_events(repository: Repository) -> None:
    opened = begun(repository, 3, 5, 4)
    before = list(opened.events())
    assert len(live(opened)) == 3
    [report] = opened.compact()
    assert (report.logs_before, report.logs_after, report.erased, report.error) == (3, 1, 0, None)
    assert live(opened) == [(0, 11, 12)]
    assert ids_everywhere(opened) == list(range(12))
    assert list(Repository.open(opened.settings.root).events()) == before
    assert opened.search("").notices == ()
    assert opened.compact() == []
    append(opened, [made(12)])
    run_steps(opened.settings)
    assert ids_everywhere(opened)[-1] == 12


def test_no_log_grows_beyond_its_target_nor_reaches_over_a_day_or_a_waiting_group(repository: Repository) -> None:
    opened = begun(repository, 3, 3)
    [merge] = plan_rewrites(opened.workspace())
    size = merge.bytes
    (opened.settings.root / SETTINGS_FILE).write_text(f"[eventlog]\nlog_bytes_target = {max(size // 8, 1024)}\n")
    assert list(plan_rewrites(Repository.open(opened.settings.root).workspace())) == []
    (opened.settings.root / SETTINGS_FILE).write_text("")
    append(opened, [made(6)])
    append(opened, [event(7, event_time=event(7).event_time + 86_400_000)])
    append(opened, [event(8, event_time=event(8).event_time + 86_400_000)])
    run_steps(opened.settings, "rollover", "compress", "index", "commit")
    again = Repository.open(opened.settings.root)
    [merge] = plan_rewrites(again.workspace())
    assert len(merge.paths) == 2, "what is not swept yet is left alone"
    run_steps(opened.settings, "sweep")
    assert sorted(rewrite.events for rewrite in plan_rewrites(again.workspace())) in ([6, 3], [9], [6], [7])


@pytest.mark.in_parts(2)
@pytest.mark.parametrize(
    ("meant", "gone"),
    [
        (EventSelection(attributes=SECRET), {0, 3, 6, 9}),
        (EventSelection(event_ids=[0, 1, 2, 3]), {0, 1, 2, 3}),
        (EventSelection(event_ids=[11]), {11}),
        (EventSelection(event_ids=range(12)), set(range(12))),
    ],
    ids=["attribute", "a whole log", "the last", "all"],
)
def test_forgotten_events_leave_the_logs_and_the_others_stay(
    repository: Repository, meant: EventSelection, gone: set[int]
) -> None:
    opened = begun(repository, 4, 4, 4)
    remaining = [event for event in opened.events() if event.event_id not in gone]
    opened.forget(meant, "asked for")
    reports = opened.compact()
    assert sum(report.erased for report in reports) == len(gone)
    assert sum(report.tombstones_removed for report in reports) == 1
    assert [report.error for report in reports if report.error] == []
    assert sum(rows for _, _, rows in live(opened)) == len(remaining)
    assert ids_everywhere(opened) == [event.event_id for event in remaining]
    assert list(Repository.open(opened.settings.root).events()) == remaining
    stones = opened.workspace().catalog.load().tombstones.values()
    assert all(is_remnant(stone) for stone in stones)
    assert opened.compact() == []
    append(opened, [made(12)])
    run_steps(opened.settings)
    assert ids_everywhere(opened)[-1] == 12, "ids go on where they were"


def test_what_is_not_live_yet_keeps_its_tombstone(repository: Repository) -> None:
    opened = begun(repository, 6)
    append(opened, [made(number) for number in range(6, 12)])
    opened.forget(EventSelection(attributes=SECRET), "asked for")
    reports = opened.compact()
    assert (sum(item.erased for item in reports), sum(item.tombstones_removed for item in reports)) == (2, 0)
    assert ids_everywhere(opened) == [1, 2, 4, 5, 7, 8, 10, 11]
    run_steps(opened.settings)
    assert ids_everywhere(opened) == [1, 2, 4, 5, 7, 8, 10, 11]
    reports = opened.compact()
    assert (sum(item.erased for item in reports), sum(item.tombstones_removed for item in reports)) == (2, 1)
    assert ids_everywhere(opened) == [1, 2, 4, 5, 7, 8, 10, 11]


def test_an_ingest_does_not_bring_back_what_was_erased(repository: Repository, tmp_path: Path) -> None:
    [path, *_] = write_samples(tmp_path, 60)
    with repository.ingest() as ingest:
        stored = ingest.file(path).stored
    run_steps(repository.settings)
    victim = next(iter(repository.events())).flowfile_uuid
    [done] = repository.count_selected(EventSelection(flowfile_uuids=[victim])).values()
    with repository.ingest() as early:  # it looked at what is stored before the compaction
        assert early.file(path).stored == 0
        repository.forget(EventSelection(flowfile_uuids=[victim]), "asked for")
        assert sum(report.erased for report in Repository.open(repository.settings.root).compact()) == done > 0
        assert early.file(path).stored == 0
    with Repository.open(repository.settings.root).ingest() as ingest:
        again = ingest.file(path)
    assert (again.stored, again.repeated, again.rejected) == (0, stored, 0)
    assert len(list(repository.events())) == stored - done


def holders(root: Path, text: str) -> list[str]:
    """The files below a folder that hold a text, whatever its case."""
    wanted = text.lower().encode()
    files = [path for path in root.rglob("*") if path.is_file()]
    return [str(path.relative_to(root)) for path in files if wanted in path.read_bytes().lower()]


def test_after_pruning_and_collecting_no_byte_of_it_is_on_disk(repository: Repository) -> None:
    root = repository.settings.root
    # Uncompressed, so that a text in a log can be found by looking at its bytes.
    (root / SETTINGS_FILE).write_text('[eventlog]\ncompression = "none"\n[index]\nattributes = ["customer"]\n')
    opened = Repository.open(root)
    append(opened, [event(1, updated_attributes={"customer": MARK}), event(2), event(3)])
    run_steps(opened.settings)
    assert {name.split("/")[0] for name in holders(root, MARK)} >= {"containers", "store"}
    custody("-r", root, "forget", "--attribute", f"customer={MARK}", "--reason", "request", "--yes")
    custody("-r", root, "verify")
    [report] = [item for item in json.loads(custody("-r", root, "compact", "--json")) if item["erased"]]
    assert (report["erased"], report["logs_after"]) == (1, 1)
    custody("-r", root, "verify")
    before = Repository.open(root).workspace().catalog
    [old] = before.at(0, check_files=True).files
    assert old not in before.load().files, "an earlier revision still has the old log"
    assert not [name for name in holders(root, MARK) if "/index/" in name]
    for number in range(3):  # checkpoints behind which the front can be cut
        before.commit([Action(note=Note(text=str(number)))])
        before.checkpoint()
    revision = before.load().revision
    custody("-r", root, "catalog", "prune", "--before", str(revision - 2), "--yes")
    catalog = Repository.open(root).workspace().catalog
    clock = opened.workspace().clock
    collect_garbage(catalog, clock, older_than_ms=-1)
    collect_garbage(catalog, clock, older_than_ms=-1, trash_kept_ms=-1)
    assert holders(root, MARK) == []
    custody("-r", root, "verify")
    assert [stored.event_id for stored in Repository.open(root).events()] == [1, 2]


def custody(*words: object) -> str:
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_says_first_what_it_would_do(repository: Repository) -> None:
    opened = begun(repository, 6, 6)
    opened.forget(EventSelection(attributes=SECRET), "asked for")
    root = opened.settings.root
    [plan] = json.loads(custody("-r", root, "compact", "--dry-run", "--json"))
    assert (plan["events"], plan["forgotten"], len(plan["paths"])) == (12, 4, 2)
    assert "--dry-run" in custody("-r", root, "compact", "--dry-run")
    assert len(live(opened)) == 2
    assert "revision" in custody("-r", root, "compact", "--writer", "main")
    assert len(live(opened)) == 1


def test_of_two_compactions_of_the_same_logs_one_wins(repository: Repository) -> None:
    opened = begun(repository, 4, 4)
    opened.forget(EventSelection(attributes=SECRET), "asked for")
    barrier = Barrier(2)
    original = rewriting.rewrite_logs

    def together(*arguments: Any, **options: Any) -> object:
        done = original(*arguments, **options)
        barrier.wait(60)
        return done

    results: list[object] = []

    def compact() -> None:
        workspace = Workspace(opened.settings, "main")
        [unit] = [unit for unit in waiting_compactions(workspace) if unit.paths]
        try:
            results.append(compact_unit(workspace, unit))
        except ConflictError as error:
            results.append(error)

    with patch.object(compaction, "rewrite_logs", together):
        threads = [Thread(target=compact) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(isinstance(result, ConflictError) for result in results) == [False, True]
    assert live(opened) == [(1, 7, 5)]
    assert ids_everywhere(opened) == [1, 2, 4, 5, 7]
    home = opened.workspace().paths.home
    assert len(list(home.glob("data/*/events/*.parquet"))) == 3, "the loser's files are gone"


def test_a_unit_that_was_done_meanwhile_changes_nothing(repository: Repository) -> None:
    opened = begun(repository, 2, 2)
    workspace = opened.workspace()
    [unit] = waiting_compactions(workspace)
    assert compact_unit(workspace, unit).revision is not None
    revision = workspace.catalog.load().revision
    assert compact_unit(workspace, unit).note == "replaced already"
    assert compact_unit(workspace, CompactionUnit("main")).revision is None
    assert workspace.catalog.load().revision == revision


def test_a_damaged_log_is_named_and_stays_and_the_others_are_done(repository: Repository) -> None:
    opened = begun(repository, 4, 4)
    first = min(opened.workspace().catalog.load().files)
    path = opened.workspace().paths.home / first
    opened.forget(EventSelection(attributes=SECRET), "asked for")
    path.write_bytes(flipped(path.read_bytes(), 8 * 60))
    reports = Repository.open(opened.settings.root).compact()
    assert [first in (report.error or "") for report in reports] == [True, False]
    assert live(opened) == [(0, 3, 4), (4, 7, 3)]
    assert any(not is_remnant(stone) for stone in opened.workspace().catalog.load().tombstones.values())


def test_a_shard_that_a_crash_left_is_removed_by_the_next_call(repository: Repository) -> None:
    opened = begun(repository, 2, 2)
    with patch.object(compaction, "remove_folder", lambda *_: None):
        opened.compact()
    workspace = opened.workspace()
    assert len(list(leftover_shards(workspace, workspace.catalog.load()))) == 2
    [report] = opened.compact()
    assert report.note == "2 old shards removed"
    assert not list(leftover_shards(workspace, workspace.catalog.load()))
    assert opened.search("").notices == ()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_events_before_are_events_after_without_the_forgotten(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    repository = Repository.create(tmp_path_factory.mktemp("property") / "repository")
    total = 0
    gone: set[int] = set()
    for _ in range(data.draw(st.integers(1, 4))):
        action = data.draw(st.sampled_from(["append", "append and roll", "forget", "compact"]))
        if action.startswith("append"):
            count = data.draw(st.integers(1, 3))
            append(repository, [made(total + more) for more in range(count)])
            total += count
            if action.endswith("roll"):
                run_steps(repository.settings)
        elif action == "forget" and total:
            chosen = data.draw(st.sets(st.integers(0, total - 1), min_size=1))
            repository.forget(EventSelection(event_ids=sorted(chosen)), "asked for")
            gone |= chosen
        else:
            assert not any(report.error for report in repository.compact())
        if total:
            assert [event.event_id for event in repository.events()] == sorted(set(range(total)) - gone)
    if total:
        run_steps(repository.settings)
        repository.compact()
        left = sorted(set(range(total)) - gone)
        assert [event.event_id for event in repository.events()] == left
        assert sum(rows for _, _, rows in live(repository)) == len(left)
        assert sorted(item.event.event_id for item in repository.search("", limit=100).events) == left
        assert list(waiting_compactions(repository.workspace())) == []


def test_a_rollover_that_was_held_up_does_not_make_an_erased_group_live_again(repository: Repository) -> None:
    append(repository, [made(0), made(1)])
    run_steps(repository.settings, "rollover")
    staging = repository.workspace().paths.staging
    late = {path.relative_to(staging): path.read_bytes() for path in staging.rglob("*") if path.is_file()}
    run_steps(repository.settings)
    opened = Repository.open(repository.settings.root)
    opened.forget(EventSelection(event_ids=[0, 1]), "asked for")
    assert [report.logs_after for report in opened.compact() if report.logs_before] == [0]
    for path, data in late.items():
        (staging / path).parent.mkdir(exist_ok=True)
        (staging / path).write_bytes(data)
    run_steps(repository.settings)
    assert live(opened) == []
    assert list(Repository.open(opened.settings.root).events()) == []
    assert not list(staging.iterdir())


def _copy(number: int, **values: Any) -> Event:
    return event(number, source_node="node-1", source_ordinal=number, **values)


def test_an_event_that_was_stored_twice_is_there_once_after_a_compaction(repository: Repository) -> None:
    # As two producers append it that do not know of each other: no ingest compared them.
    append(repository, [_copy(number) for number in range(5)])
    run_steps(repository.settings)
    append(repository, [_copy(3, source_event_id="again"), _copy(4), _copy(5), _copy(4)])
    run_steps(repository.settings)
    opened = Repository.open(repository.settings.root)
    assert opened.search("").total == 9
    [report] = opened.compact()
    assert (report.repeated, report.erased, report.logs_after) == (3, 0, 1)
    again = Repository.open(repository.settings.root)
    assert [(item.event_id, item.source_ordinal) for item in again.events()] == [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 4),
        (7, 5),
    ]
    assert again.search("").total == 6
    [file] = again.workspace().catalog.load().files.values()
    assert (file.rows, file.first_event_id, file.last_event_id) == (6, 0, 7)
    assert [(source.first_ordinal, source.last_ordinal) for source in file.sources] == [(0, 5)]
    result = CliRunner().invoke(cli, ["-r", str(repository.settings.root), "verify"])
    assert result.exit_code == 0, result.output
    # Before the compaction they were there twice, and the old logs still say so.
    assert again.search("", as_of=1).total == 9
    assert again.compact() == []


def test_events_of_one_number_that_differ_in_anything_both_stay(repository: Repository) -> None:
    append(repository, [_copy(1), _copy(2, details="one"), *[event(3, source_node=None, source_ordinal=None)] * 2])
    run_steps(repository.settings)
    append(repository, [_copy(1, file_size=77), _copy(2, details="other"), _copy(2, details="one")])
    run_steps(repository.settings)
    # Without a source and a number nobody knows whether two events are one.
    nameless = [item.event_id for item in repository.events() if item.source_ordinal is None]
    [report] = Repository.open(repository.settings.root).compact()
    assert report.repeated == 1
    left = [item.event_id for item in Repository.open(repository.settings.root).events()]
    assert left == [0, 1, 2, 3, 4, 5]
    assert set(nameless) <= set(left)


def test_a_copy_that_is_held_or_alone_to_be_given_out_stays(repository: Repository) -> None:
    append(repository, [_copy(number) for number in range(3)])
    run_steps(repository.settings)
    append(repository, [_copy(number) for number in range(3)])
    run_steps(repository.settings)
    opened = Repository.open(repository.settings.root)
    opened.hold("case", EventSelection(event_ids=(3,)), "court order", "legal")
    opened.forget(EventSelection(event_ids=(1,)), "asked for")
    [report] = [item for item in opened.compact() if item.logs_before]
    assert (report.erased, report.repeated) == (1, 1)
    again = Repository.open(repository.settings.root)
    # 3 is held; 4 is the only copy of the event whose other one was forgotten.
    assert [item.event_id for item in again.events()] == [0, 2, 3, 4]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["a", "b"])), min_size=1, max_size=24), st.integers(1, 5))
def test_what_stays_is_the_first_of_each_content(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, str]], together: int
) -> None:
    opened = Repository.create(tmp_path_factory.mktemp("twice") / "repository")
    half = len(drawn) // 2
    for part in (drawn[:half], drawn[half:]):
        if part:
            append(opened, [_copy(number, details=text) for number, text in part])
            run_steps(opened.settings)
    with patch.object(rewriting, "_COMPARED_MAX", together):
        reports = Repository.open(opened.settings.root).compact()
    expected = {pair: at for at, pair in reversed(list(enumerate(drawn)))} if half else dict(enumerate(drawn))
    left = [item.event_id for item in Repository.open(opened.settings.root).events()]
    if half:
        assert left == sorted(expected.values())
        assert sum(report.repeated for report in reports) == len(drawn) - len(left)
    else:
        assert left == list(range(len(drawn))), "a log alone is not written anew"


def test_small_logs_that_a_checkpoint_lists_are_joined(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "r")
    for number in range(3):
        repository.append([event(number)])
        assert not any(report.failed for report in repository.roll_over())
    repository.workspace().catalog.checkpoint()
    # Another process begins at the checkpoint, which has no footers.
    [report] = Repository.open(tmp_path / "r").compact()
    assert (report.logs_before, report.logs_after) == (3, 1)
