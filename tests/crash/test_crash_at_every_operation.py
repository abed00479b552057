"""A crash at every operation, in every mode: what was acknowledged is there once, and the store goes on.

A quick run does one part of each enumeration. Where no slow test does the whole, the test is marked `in_parts`, and
the slow suite does all parts of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from custody.catalog import SecondCopyStore
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.crash.archive_scenarios import Archiving
from tests.crash.backfill_scenarios import BackFilling
from tests.crash.catalog_upkeep_scenarios import Collecting, Kept, Pruning, Repairing
from tests.crash.chain_scenarios import WholeChain
from tests.crash.commit_scenarios import Committing, Racing
from tests.crash.compaction_scenarios import FORGOTTEN, Compacting
from tests.crash.content_scenarios import HELD, Contents, Dropping, Storing
from tests.crash.enumeration import (
    SEEDS,
    Outcome,
    Scenario,
    crash_at_the_end,
    disks_after,
    enumerate_crashes,
    operations_of,
    run_to,
)
from tests.crash.erasure_scenarios import CHOSEN, Erasing, Requested, naming
from tests.crash.filter_scenarios import KeepingFilters
from tests.crash.flowfile_scenarios import (
    LEFTOVERS as LEFT_BY_A_FLOW,
)
from tests.crash.flowfile_scenarios import (
    FailingDisk,
    Flowing,
    FlowScenario,
    ForgettingJournal,
    ForgettingSync,
    Inheriting,
    Meeting,
    Purging,
    Refusing,
    Releasing,
    Reopening,
    Sharing,
    Surviving,
    Swapping,
)
from tests.crash.forget_scenarios import Forgetting
from tests.crash.full_disk_scenarios import Healing
from tests.crash.group_commit_scenarios import Crowding
from tests.crash.iceberg_scenarios import PublishingTable, RetainingPublished
from tests.crash.ingest_scenarios import Ingesting, PuttingAside
from tests.crash.memory_repository import Promises, workspace
from tests.crash.repair_scenarios import (
    Inflict,
    Mending,
    RebuildingShards,
    Scrubbing,
    damage_a_block,
    damage_a_journal,
    damage_and_put_back,
    damage_beside_a_copy,
    damage_what_is_made_anew,
    remove_a_log,
    swap_logs,
)
from tests.crash.retention_scenarios import Retaining
from tests.crash.rollover_scenarios import (
    Appending,
    Recovering,
    RollingOver,
    RollingOverDamage,
    RollingOverInParts,
    RollingOverLocally,
    RollingOverMerged,
    RollingOverSplit,
)
from tests.crash.takeover_scenarios import TakingOver
from tests.parts import Part

SECOND_SEEDS = 3
"""Seeds of a crash that follows a crash: it starts from each disk that the first one may leave."""
LEFTOVERS = {
    "a torn record": ("write", -2, CrashMode.RANDOM_BLOCKS),
    "a record that was not synced": ("sync", -2, CrashMode.ALL_KEPT),
    "a torn end record": ("write", -1, CrashMode.RANDOM_BLOCKS),
    "an end record that was not synced": ("sync", -1, CrashMode.ALL_KEPT),
    "a journal without events": ("sync_directory", -2, CrashMode.ALL_KEPT),
}

FAULTS = {
    "the sync of a commit": ("sync", "flowfiles/log/*.log", 4),
    "the sync of a log's end": ("sync", "flowfiles/log/*.log", 6),
    "a part of a commit": ("write", "flowfiles/log/*.log", 5),
    "a part of a snapshot": ("write", "flowfiles/snapshot.partial", 2),
    "the sync of a snapshot": ("sync", "flowfiles/snapshot.partial", 1),
}
"""What the disk refuses once: kind, path, and which one."""

in_some_ways = pytest.mark.parametrize(
    "seeds", [1, pytest.param(SEEDS, marks=pytest.mark.slow)], ids=["one way", "all ways"]
)
"""In how many ways writes are torn and come out of order at each operation. All ways, at all operations, are slow."""


@pytest.mark.in_parts
def test_a_crash_while_appending_and_sealing_loses_no_acknowledged_event(part: Part) -> None:
    outcome = enumerate_crashes(Appending(), part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 40


@pytest.mark.in_parts
def test_a_crash_while_several_threads_share_a_sync_loses_no_acknowledged_event(part: Part) -> None:
    _, promises, _ = run_to(Crowding())
    assert len(promises.acknowledged) == 9
    outcome = enumerate_crashes(Crowding(), part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 20


@pytest.mark.in_parts
def test_a_crash_while_contents_are_stored_loses_none_that_was_acknowledged(part: Part) -> None:
    _, contents, error = run_to(Storing())
    assert error is None
    assert isinstance(contents, Contents)
    assert len(contents.contents) == 7
    outcome = enumerate_crashes(Storing(), seeds=2, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 80


@pytest.mark.in_parts(6)
def test_a_crash_while_a_writer_is_retired_and_absorbed_loses_no_event_and_gives_none_out_twice(part: Part) -> None:
    _, _, error = run_to(Archiving())
    assert error is None
    outcome = enumerate_crashes(Archiving(), seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 150


@in_some_ways
def test_a_crash_in_a_pass_of_all_steps_loses_no_acknowledged_event(seeds: int, part: Part) -> None:
    outcome = enumerate_crashes(RollingOver(), seeds=seeds, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 80


@pytest.mark.in_parts(4)
def test_a_crash_in_a_pass_within_the_process_loses_no_acknowledged_event(part: Part) -> None:
    # The writes of the steps are torn in all ways above: here it is about leases and reports.
    modes = CrashMode.ALL_KEPT, CrashMode.SYNCED_ONLY
    outcome = enumerate_crashes(RollingOverLocally(), modes=modes, seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 300


@pytest.mark.in_parts(2)
def test_a_crash_while_shards_are_made_anew_leaves_whole_shards_or_logs_that_answer(part: Part) -> None:
    outcome = enumerate_crashes(BackFilling(), seeds=2, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 15


@pytest.mark.in_parts
@pytest.mark.parametrize("is_columns", [False, True])
def test_a_crash_while_much_is_put_aside_lists_nothing_that_cannot_be_read_and_keeps_each_warning(
    part: Part, *, is_columns: bool
) -> None:
    outcome = enumerate_crashes(PuttingAside(is_columns=is_columns), seeds=4, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 60


@pytest.mark.in_parts
def test_a_crash_while_two_slots_ingest_stores_no_event_twice_and_loses_none(tmp_path: Path, part: Part) -> None:
    outcome = enumerate_crashes(Ingesting(tmp_path), seeds=4, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 60


@pytest.mark.in_parts(8)
@in_some_ways
def test_a_crash_while_small_groups_become_one_log_loses_no_acknowledged_event(seeds: int, part: Part) -> None:
    fs, _, error = run_to(RollingOverMerged())
    assert error is None
    [file] = workspace(fs).catalog.load().files.values()
    assert list(file.groups) == [0, 2]
    outcome = enumerate_crashes(RollingOverMerged(), seeds=seeds, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 80


@pytest.mark.in_parts(8)
@in_some_ways
def test_a_crash_while_a_group_becomes_several_logs_never_leaves_it_live_in_part(seeds: int, part: Part) -> None:
    fs, _, error = run_to(RollingOverSplit())
    assert error is None
    files = workspace(fs).catalog.load().files.values()
    assert len(files) >= 3
    assert workspace(fs).catalog.load().revision == 0
    outcome = enumerate_crashes(RollingOverSplit(), seeds=seeds, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 120


@pytest.mark.in_parts(8)
@in_some_ways
def test_a_crash_while_a_group_is_merged_by_ranges_loses_no_event_and_leaves_no_part_for_a_unit(
    seeds: int, part: Part
) -> None:
    fs, _, error = run_to(RollingOverInParts())
    assert error is None
    [manifest] = workspace(fs).manifests()
    assert len(manifest.logs) >= 4
    outcome = enumerate_crashes(RollingOverInParts(), seeds=seeds, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 60


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("damaged", [(1,), (0, 1, 2)], ids=["one record", "every record"])
@in_some_ways
def test_a_crash_while_a_damaged_group_is_rolled_over_loses_neither_events_nor_evidence(
    damaged: list[int], seeds: int, part: Part
) -> None:
    outcome = enumerate_crashes(RollingOverDamage(damaged), seeds=seeds, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 20


def left_over(kind: str, which: int, mode: CrashMode) -> tuple[MemoryFileSystem, Promises]:
    """What a crash of Appending at one of its operations leaves, and what was promised until then."""
    done = [number for number, operation in enumerate(operations_of(Appending()), 1) if operation.kind == kind]
    fs, promises, _ = run_to(Appending(), done[which])
    return fs.crashed(mode, seed=3), promises


@pytest.mark.in_parts(5)
@pytest.mark.parametrize("what", LEFTOVERS)
def test_two_crashes_of_recovery_one_after_the_other_lose_no_acknowledged_event(what: str, part: Part) -> None:
    disk, promises = left_over(*LEFTOVERS[what])
    outcome = enumerate_crashes(Recovering(disk, promises), part=part)
    assert not outcome.alarms, str(outcome)
    disks = list(disks_after(Recovering(disk, promises), SECOND_SEEDS))
    assert len(disks) >= 8
    again = Outcome()
    # Each disk that the first crash may leave is a case here: of those of this part all operations are crashed at.
    for case in part.of(f"second crash after {what}", len(disks), always=(0, len(disks) - 1)):
        second = Recovering(disks[case], promises)
        second.names_from = 1_000_000
        again.add(enumerate_crashes(second, seeds=SECOND_SEEDS))
    assert not again.alarms, str(again)
    assert again.runs > 50


@pytest.mark.in_parts(8)
@in_some_ways
def test_a_crash_while_logs_are_compacted_loses_no_event_and_brings_none_back(seeds: int, part: Part) -> None:
    fs, _, error = run_to(Compacting())
    assert error is None
    state = workspace(fs).catalog.load()
    held = {(file.first_event_id, file.last_event_id) for file in state.files.values()}
    assert not any(first <= FORGOTTEN[1] <= last for first, last in held)
    [remnant] = state.tombstones.values()
    assert len(remnant.erased_groups) == 1, "the tombstone is done, the group of the erased log is remembered"
    outcome = enumerate_crashes(Compacting(), seeds=seeds, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 40


@pytest.mark.in_parts(8)
@in_some_ways
def test_a_crash_while_filters_are_kept_hides_no_event_and_leaves_no_part_of_a_file(seeds: int, part: Part) -> None:
    outcome = enumerate_crashes(KeepingFilters(), seeds=seeds, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 40


@pytest.mark.in_parts
def test_a_crash_while_a_name_is_taken_over_and_journals_are_adopted_loses_no_acknowledged_event(part: Part) -> None:
    outcome = enumerate_crashes(TakingOver(), modes=(CrashMode.SYNCED_ONLY,), seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 60


@pytest.mark.in_parts
def test_a_crash_while_a_full_disk_heals_loses_no_acknowledged_event(part: Part) -> None:
    fs, promises, error = run_to(Healing())
    assert error is None
    assert len(promises.acknowledged) == 5
    assert all(group.is_sealed for group in workspace(fs).groups())
    outcome = enumerate_crashes(Healing(), seeds=4, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 60


@pytest.mark.in_parts(8)
def test_a_crash_while_old_events_expire_loses_no_other_and_leaves_nothing_of_them(part: Part) -> None:
    outcome = enumerate_crashes(Retaining(), seeds=2, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 100


@pytest.mark.in_parts(24)
@in_some_ways
def test_a_crash_while_a_person_is_erased_loses_no_other_event_and_leaves_a_request_that_ends(
    seeds: int, part: Part
) -> None:
    fs, record, error = run_to(Erasing())
    assert error is None
    assert isinstance(record, Requested)
    assert record.is_done
    assert not naming(fs, record)
    assert naming(Erasing().start(), record), "the search finds what is there before"
    assert len(CHOSEN) == 2
    outcome = enumerate_crashes(Erasing(), seeds=seeds, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 100


@pytest.mark.in_parts(2)
@pytest.mark.parametrize(
    "modes",
    [(CrashMode.SYNCED_ONLY,), pytest.param(tuple(CrashMode), marks=pytest.mark.slow)],
    ids=["what is synced", "all modes"],
)
def test_a_crash_while_a_table_is_published_leaves_versions_that_are_whole_and_the_next_is_right(
    modes: tuple[CrashMode, ...], part: Part
) -> None:
    outcome = enumerate_crashes(PublishingTable(), modes=modes, seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 100


@pytest.mark.slow
def test_a_crash_while_logs_of_a_published_table_go_leaves_no_table_that_names_one(part: Part) -> None:
    modes = CrashMode.ALL_KEPT, CrashMode.SYNCED_ONLY
    outcome = enumerate_crashes(RetainingPublished(), modes=modes, seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 150


@pytest.mark.in_parts(3)
def test_a_crash_while_contents_go_leaves_no_event_without_its_content(part: Part) -> None:
    fs, contents, error = run_to(Dropping())
    assert error is None
    assert isinstance(contents, Contents)
    assert list(contents.contents) == [HELD]
    assert len(fs.list(workspace(fs).settings.store / "main/content/c1")) > 0
    modes = (CrashMode.ALL_KEPT, CrashMode.RANDOM_BLOCKS)
    outcome = enumerate_crashes(Dropping(), modes=modes, seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 40


@pytest.mark.in_parts(2)
def test_a_crash_anywhere_in_the_whole_chain_is_made_up_for_by_the_next_run(part: Part) -> None:
    # The other modes in the slow suite: on each disk the chain is run twice, and everything is asked.
    outcome = enumerate_crashes(WholeChain(), modes=(CrashMode.SYNCED_ONLY,), seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 200


@pytest.mark.slow
def test_a_crash_anywhere_in_the_whole_chain_in_every_mode() -> None:
    outcome = enumerate_crashes(WholeChain(), seeds=2)
    assert not outcome.alarms, str(outcome)


@pytest.mark.in_parts
def test_a_crash_while_committing_keeps_the_chain(part: Part) -> None:
    outcome = enumerate_crashes(Committing(), part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 40


@pytest.mark.in_parts
def test_a_crash_while_two_writers_race_keeps_the_chain_and_both_acknowledged_commits(part: Part) -> None:
    outcome = Outcome()
    for before in count(1):
        _, commits, error = run_to(Racing(before))
        assert error is None
        if commits.tried < 3:
            break  # the slow commit has no more operations to come in between
        assert len(commits.acknowledged) == 3
        outcome.add(enumerate_crashes(Racing(before), part=part.shifted(before)))
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 100


@pytest.mark.in_parts
@pytest.mark.parametrize("scenario", [Pruning, Collecting, Repairing])
def test_a_crash_in_the_upkeep_of_a_catalog_loses_nothing_that_is_needed(
    scenario: type[Scenario[Kept]], part: Part
) -> None:
    outcome = enumerate_crashes(scenario(), part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 15


REPAIRS: dict[str, tuple[Inflict, bool, int]] = {
    "a damaged block": (damage_a_block, True, 70),
    "a damaged block, of which a copy is at hand": (damage_beside_a_copy, False, 20),
    "a loss that is taken back": (damage_and_put_back, False, 35),
    "a damaged journal": (damage_a_journal, False, 100),
    "swapped logs": (swap_logs, False, 40),
    "a log that is given up": (remove_a_log, True, 30),
    "tables of contents and shards": (damage_what_is_made_anew, False, 60),
}
"""Who does the damage, whether a loss is accepted, and how many operations its repair has at least."""


@pytest.mark.in_parts(10)
@pytest.mark.parametrize("name", REPAIRS)
def test_a_crash_of_a_repair_loses_nothing_more_and_the_next_one_finishes_it(name: str, part: Part) -> None:
    inflict, accept_loss, least = REPAIRS[name]
    modes = (CrashMode.SYNCED_ONLY, CrashMode.RANDOM_BLOCKS)  # the others in the slow suite: each disk is repaired
    outcome = enumerate_crashes(Mending(inflict, accept_loss=accept_loss), modes=modes, seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > least


@pytest.mark.in_parts(8)
def test_a_crash_while_shards_are_rebuilt_leaves_no_rebuild_untold(part: Part) -> None:
    modes = (CrashMode.SYNCED_ONLY, CrashMode.RANDOM_BLOCKS)
    outcome = enumerate_crashes(RebuildingShards(), modes=modes, seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 40


@pytest.mark.slow
@pytest.mark.parametrize("name", REPAIRS)
def test_a_crash_of_a_repair_in_every_mode(name: str) -> None:
    inflict, accept_loss, _ = REPAIRS[name]
    outcome = enumerate_crashes(Mending(inflict, accept_loss=accept_loss), seeds=3)
    assert not outcome.alarms, str(outcome)


@pytest.mark.in_parts
def test_a_crash_of_the_scrub_leaves_no_piece_of_a_round_out(part: Part) -> None:
    outcome = enumerate_crashes(Scrubbing(), seeds=2, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 20


@in_some_ways
def test_a_crash_while_events_are_forgotten_leaves_them_hidden_twice_or_not_at_all(seeds: int, part: Part) -> None:
    outcome = enumerate_crashes(Forgetting(), seeds=seeds, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 60


def test_a_forget_without_a_second_copy_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SecondCopyStore, "_put", lambda self, name, data: None)
    assert enumerate_crashes(Forgetting(), seeds=1, first_alarm_only=True).alarms


@pytest.mark.in_parts(5)
@pytest.mark.parametrize(
    ("scenario", "commits"),
    [(Flowing, 5), (Releasing, 4), (Purging, 3), (Swapping, 7), (Sharing, 5)],
    ids=lambda value: str(value),
)
@in_some_ways
def test_a_crash_leaves_each_flowfile_once_with_its_content_and_its_events(
    scenario: type[FlowScenario], commits: int, seeds: int, part: Part
) -> None:
    _, ledger, error = run_to(scenario())
    assert error is None
    assert ledger.commits == commits
    # Each disk is opened three times: all modes in the slow suite, those that leave most and least of what was written
    # in each run.
    modes = (CrashMode.ALL_KEPT, CrashMode.RANDOM_BLOCKS) if seeds == 1 else tuple(CrashMode)
    outcome = enumerate_crashes(scenario(), modes=modes, seeds=seeds, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 150


FLOWS: dict[str, Callable[[], FlowScenario]] = {
    **{f"taken over: {leftover}": partial(Inheriting, leftover) for leftover in LEFT_BY_A_FLOW},
    **{f"refused: {refused}": partial(FailingDisk, *fault) for refused, fault in FAULTS.items()},
    "forgotten by a failed sync": ForgettingSync,
    "events forgotten by a failed sync": ForgettingJournal,
    "events refused": Refusing,
}


@pytest.mark.in_parts(6)
@pytest.mark.parametrize("name", FLOWS)
def test_a_crash_after_another_failure_leaves_each_flowfile_once(name: str, part: Part) -> None:
    _, ledger, error = run_to(FLOWS[name]())
    assert error is None
    assert not ledger.pending
    # The others in the slow suite: a process is killed, or power is lost with all that was not synced.
    modes = (CrashMode.ALL_KEPT, CrashMode.SYNCED_ONLY)
    outcome = enumerate_crashes(FLOWS[name](), modes=modes, seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 120


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOWS)
def test_a_crash_after_another_failure_in_every_mode(name: str) -> None:
    outcome = enumerate_crashes(FLOWS[name](), seeds=3)
    assert not outcome.alarms, str(outcome)


@pytest.mark.in_parts(4)
def test_two_crashes_around_a_snapshot_of_the_queues_lose_nothing(part: Part) -> None:
    modes = (CrashMode.ALL_KEPT, CrashMode.SYNCED_ONLY)
    places = Reopening.places()
    outcome = Outcome()
    for case in part.of("snapshots of queues", len(places), len(places)):
        outcome.add(enumerate_crashes(Reopening(places[case]), modes=modes, seeds=1))
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 50


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("scenario", [Surviving, Meeting])
def test_processes_that_meet_or_are_killed_leave_each_other_what_is_theirs(
    scenario: type[Surviving] | type[Meeting], part: Part
) -> None:
    outcome = Outcome()
    for case in part.of(scenario.__name__, places_of(scenario)):
        outcome.add(crash_at_the_end(scenario(case + 1), seeds=2))
    assert not outcome.alarms, str(outcome)
    assert outcome.runs > 10


def places_of(scenario: type[Surviving] | type[Meeting]) -> int:
    """How many operations the first process has before which something can happen to it."""
    for place in count(1):
        tried = scenario(place)
        _, _, error = run_to(tried)
        assert error is None, f"at {place}: {error}"
        if tried.is_done:
            return place - 1
    raise AssertionError
