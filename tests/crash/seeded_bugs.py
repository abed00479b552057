"""Durability bugs, seeded one at a time between the code and the disk or into the code.

`python -m tests.crash.seeded_bugs` prints which crash mode finds which bug.
"""

from __future__ import annotations

from builtins import list as list_of
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from custody.catalog import Catalog
from custody.journal import open_group
from custody.maintenance.repair import repair_logs as log_repairs
from custody.retention import candidates, deletion
from custody.retention.candidates import ExpiryCandidates
from custody.vfs.memory import CrashMode
from custody.workspace import Workspace
from tests.crash import flowfile_bugs as flows
from tests.crash import replay_bugs as replays
from tests.crash.archive_scenarios import Archiving
from tests.crash.code_bugs import (
    absorbed_log_by_log,
    absorbed_without_a_seal,
    commit_log_by_log,
    delete_before_commit,
    expire_before_the_mark,
    hasty,
    ids_from_the_catalog_alone,
    loss_noted_later,
    marks_forgotten_first,
    no_checksum,
    nothing_is_noted,
    ranges_moved,
    readers_that_do_not_honour_absorption,
    rebuilds_told_later,
    repairs_told_later,
)
from tests.crash.commit_scenarios import Racing
from tests.crash.disk_bugs import below, called, left_out, named
from tests.crash.enumeration import Outcome, Scenario, Wrap, enumerate_crashes, plain
from tests.crash.filter_scenarios import KeepingFilters
from tests.crash.flowfile_scenarios import (
    LEFTOVERS,
    Flowing,
    ForgettingJournal,
    ForgettingSync,
    Inheriting,
    Meeting,
    Purging,
    Releasing,
    Surviving,
    Swapping,
    TakingOver,
)
from tests.crash.full_disk_scenarios import Healing
from tests.crash.group_commit_scenarios import Crowding
from tests.crash.ingest_scenarios import PuttingAside
from tests.crash.repair_scenarios import (
    Mending,
    RebuildingShards,
    Scrubbing,
    damage_a_block,
    damage_a_journal,
    damage_what_is_made_anew,
    swap_logs,
)
from tests.crash.replay_scenarios import Losing, Overtaken, Replaying
from tests.crash.retention_scenarios import Retaining
from tests.crash.rollover_scenarios import (
    Appending,
    RollingOver,
    RollingOverDamage,
    RollingOverInParts,
    RollingOverRetried,
    RollingOverSplit,
)

KEPT, SYNCED, FILES, BLOCKS = CrashMode
ALL = frozenset(CrashMode)
POWER_LOSS = ALL - {KEPT}
ENDS = frozenset({KEPT, SYNCED})  # a process is killed, or power is lost with all that was not synced
TORN = ALL - {SYNCED}  # a write that was cut short leaves a beginning, also in the page cache


UNSYNCED, *_, UNNOTED = LEFTOVERS


@dataclass(frozen=True)
class Bug:
    """A bug, the scenario that meets it, and the crash modes that must find it."""

    name: str
    scenario: Callable[[], Scenario[Any]]
    found_by: frozenset[CrashMode]
    wrap: Wrap = plain
    seeded: Callable[[], AbstractContextManager[object]] = nullcontext
    is_slow: bool = False
    """Whether it shows at so few operations that finding it takes half a minute."""

    def found(self, *modes: CrashMode) -> Outcome:
        """Enumerate with the bug in place, up to the first alarm of each mode."""
        with self.seeded():
            return enumerate_crashes(self.scenario(), modes=modes, wrap=self.wrap, first_alarm_only=True)


BUGS = [
    Bug("acknowledged before the write", Appending, ALL, left_out(late_write=named(".journal"))),
    Bug("acknowledged before the sync", Appending, POWER_LOSS, left_out(late_sync=named(".journal"))),
    Bug("journals deleted before the commit", RollingOver, ALL, seeded=delete_before_commit),
    Bug(
        "journals of a live group rolled over again",
        RollingOver,
        ALL,
        seeded=lambda: patch.object(Workspace, "is_committed", lambda *_: False),
    ),
    Bug("no sync of the journal", Appending, ALL, left_out(no_sync=named(".journal"))),
    Bug("no sync of the folder after a new journal", Appending, ALL, left_out(no_directory_sync=called("journals"))),
    Bug("no sync of the event log", RollingOver, ALL, left_out(no_sync=named(".parquet"))),
    Bug("no sync of the table of contents", RollingOver, ALL, left_out(no_sync=named(".toc"))),
    Bug("staging file renamed before its sync", RollingOver, POWER_LOSS, left_out(no_sync=named(".arrow"))),
    Bug("staged unit named before its manifest's sync", RollingOver, POWER_LOSS, left_out(no_sync=called("unit"))),
    Bug(
        "range of a group named before its events' sync",
        RollingOverInParts,
        POWER_LOSS,
        left_out(no_sync=named(".arrow")),
    ),
    Bug("the files of ranges are moved into the unit", RollingOverInParts, TORN, seeded=ranges_moved),
    Bug("the logs of a group become live one by one", RollingOverSplit, ALL, seeded=commit_log_by_log),
    Bug(
        "no sync of the folder after evidence of damage",
        lambda: RollingOverDamage((1,)),
        ALL,
        left_out(no_directory_sync=called("quarantine")),
    ),
    Bug("no sync of many new files", PuttingAside, POWER_LOSS, left_out(no_disk_sync=True)),
    Bug("no sync of a transaction", RollingOver, ALL, left_out(no_sync=named(".txn"))),
    Bug(
        "no sync of the folder after an event log's rename",
        RollingOver,
        ALL,
        left_out(no_directory_sync=called("events")),
    ),
    Bug("no sync of the folder after a commit", RollingOver, ALL, left_out(no_directory_sync=below("transactions"))),
    Bug("no sync of an index shard", RollingOver, ALL, left_out(no_sync=below("building-"))),
    Bug("no sync of the folder after a shard's rename", RollingOver, ALL, left_out(no_directory_sync=called("index"))),
    Bug("filters named before their sync", KeepingFilters, POWER_LOSS, left_out(no_sync=named(".filters"))),
    Bug("no checksum", Appending, frozenset({BLOCKS}), seeded=no_checksum),
    Bug("torn tail not cut", Appending, TORN, left_out(no_cut=True)),
    Bug(
        "journal named before its header",
        Appending,
        frozenset({FILES, BLOCKS}),
        left_out(final_name_at_once=named(".journal")),
    ),
    Bug("what a full disk left is not cut", Healing, frozenset({KEPT}), left_out(no_cut=True)),
    Bug("what recovery keeps is not synced", Appending, frozenset({FILES, BLOCKS}), left_out(no_recovery_sync=True)),
    Bug("found folders are taken for durable", Appending, frozenset({KEPT}), left_out(trusts_found_folders=True)),
    Bug(
        "a found shard is taken for durable", RollingOverRetried, frozenset({KEPT}), left_out(trusts_found_shards=True)
    ),
    Bug(
        "a found transaction is taken for durable",
        lambda: Racing(8),
        ALL,
        seeded=lambda: patch.object(Catalog, "settle", Catalog.load),
    ),
    Bug(
        "journals deleted for a transaction that is not durable",
        RollingOver,
        frozenset({KEPT}),
        seeded=lambda: patch.object(Catalog, "settle", Catalog.load),
    ),
    Bug(
        "ids counted from the catalog alone",
        Appending,
        ALL,
        seeded=ids_from_the_catalog_alone,
    ),
    Bug(
        "sealed before the end record is synced",
        Appending,
        ALL,
        seeded=lambda: patch.object(open_group, "finish", hasty),
    ),
    Bug(
        "records of one sync are records of their own",
        Crowding,
        frozenset({BLOCKS}),
        seeded=lambda: patch.object(open_group, "join_records", lambda _, records: b"".join(records)),
    ),
    Bug("expired logs deleted before the mark", Retaining, frozenset({KEPT}), seeded=expire_before_the_mark),
    Bug(
        "expired logs deleted before the floor is raised",
        Retaining,
        ALL,
        seeded=lambda: patch.object(deletion, "keep_from", lambda *_: None),
    ),
    Bug("marks forgotten before the deletion", Retaining, ALL, seeded=marks_forgotten_first),
    Bug("held logs expire", Retaining, ALL, seeded=lambda: patch.object(ExpiryCandidates, "holders", lambda *_: ())),
    Bug(
        "logs whose journals are there expire",
        Retaining,
        ALL,
        seeded=lambda: patch.object(candidates, "groups_on_disk", lambda _: frozenset()),
    ),
    Bug(
        "logs deleted for a mark that is not durable",
        Retaining,
        frozenset({KEPT}),
        seeded=lambda: patch.object(Catalog, "settle", Catalog.load),
    ),
    Bug(
        "marks forgotten for a deletion that is not durable",
        Retaining,
        frozenset({KEPT}),
        seeded=lambda: patch.object(deletion, "_settle_deletion", lambda *_: None),
    ),
    Bug("no checksum of what is synced together", Crowding, frozenset({BLOCKS}), seeded=no_checksum),
    Bug(
        "what a repair gives up is noted in a transaction of its own",
        lambda: Mending(damage_a_block, accept_loss=True),
        frozenset({KEPT}),
        seeded=loss_noted_later,
    ),
    Bug(
        "the catalog is told of a repair when it is done",
        lambda: Mending(damage_what_is_made_anew),
        frozenset({KEPT}),
        seeded=repairs_told_later,
    ),
    Bug(
        "the catalog is told of a rebuilt shard when it is built",
        RebuildingShards,
        frozenset({KEPT}),
        seeded=rebuilds_told_later,
    ),
    Bug(
        "no sync of the folder after a damaged block was kept",
        lambda: Mending(damage_a_block, accept_loss=True),
        frozenset({SYNCED}),
        left_out(no_directory_sync=called("quarantine")),
    ),
    Bug(
        "no sync of a log that a repair wrote",
        lambda: Mending(damage_a_block, accept_loss=True),
        frozenset({SYNCED}),
        left_out(no_sync=named(".parquet")),
    ),
    Bug(
        "a repair overwrites what lies in a log's place",
        lambda: Mending(swap_logs),
        frozenset({KEPT}),
        seeded=lambda: patch.object(log_repairs, "_make_room", lambda *_: None),
    ),
    Bug(
        "a damaged journal is rolled over and no loss noted",
        lambda: Mending(damage_a_journal),
        frozenset({KEPT}),
        seeded=nothing_is_noted,
    ),
    Bug("a FlowFile commit is not synced", Flowing, POWER_LOSS, seeded=flows.commits_without_sync),
    Bug("events in the journal before the FlowFile log", Flowing, ALL, seeded=flows.journal_before_the_log),
    Bug("events noted as delivered before they are", Flowing, ALL, seeded=flows.delivered_before_the_delivery),
    Bug("events of a FlowFile commit without keys", lambda: Inheriting(UNNOTED), ALL, seeded=flows.events_without_keys),
    Bug("events delivered again without a look", lambda: Inheriting(UNNOTED), ALL, seeded=flows.delivered_again_unseen),
    Bug("FlowFile snapshot renamed before its sync", Flowing, ALL, left_out(no_sync=called("snapshot.partial"))),
    Bug(
        "no sync of the folder after a FlowFile snapshot's rename",
        Flowing,
        ALL,
        left_out(no_directory_sync=called("flowfiles")),
    ),
    Bug(
        "FlowFile log begun behind an end record that is not synced",
        Flowing,
        frozenset({KEPT}),
        seeded=flows.log_begun_before_the_snapshot,
    ),
    Bug("partial FlowFile snapshot preferred", Flowing, TORN, seeded=flows.partial_snapshot_preferred),
    Bug("torn tail of the FlowFile log not cut", Flowing, TORN, seeded=flows.torn_tail_left),
    Bug(
        "what others left in the FlowFile log is not synced",
        lambda: TakingOver(UNSYNCED),
        POWER_LOSS,
        left_out(no_sync=lambda path: path.suffix == ".log"),
    ),
    Bug("no sync of the folder after a new FlowFile log", Flowing, ALL, left_out(no_directory_sync=called("log"))),
    Bug(
        "no new FlowFile log after a failed sync",
        ForgettingSync,
        POWER_LOSS,
        seeded=flows.no_new_log_after_a_failed_sync,
    ),
    Bug(
        "what a failed sync of the journal left is trusted",
        ForgettingJournal,
        POWER_LOSS,
        seeded=flows.trusts_what_a_failed_sync_left,
    ),
    Bug("swap file not synced", Swapping, ALL, left_out(no_sync=named(".swap"))),
    Bug("no sync of the folder after a swap file", Swapping, ALL, left_out(no_directory_sync=called("swap"))),
    Bug("swap file removed when it came back", Swapping, ALL, seeded=flows.swap_file_removed_at_once),
    Bug("swap files come back when memory is empty", Swapping, ALL, seeded=flows.swap_files_come_last),
    Bug("contents released before the FlowFile log says so", Releasing, ALL, seeded=flows.released_before_the_log),
    Bug("contents purged without a second look", Purging, ALL, seeded=flows.purged_without_a_second_look),
    Bug("the dead keep what they took", lambda: Inheriting(UNNOTED), ALL, seeded=flows.the_dead_keep_what_they_took),
    Bug("the living are taken for dead", lambda: Surviving(0), ALL, seeded=flows.the_living_are_taken_for_dead),
    Bug("no lock around a FlowFile commit", lambda: Meeting(12), ALL, seeded=flows.no_lock),
    Bug("a replay plan is not synced", Replaying, ALL, left_out(no_sync=named(".plan"))),
    Bug(
        "progress of a replay behind its FlowFiles",
        Replaying,
        ENDS,
        seeded=replays.progress_behind_the_flowfiles,
        is_slow=True,
    ),
    Bug("progress of a replay before its FlowFiles", Replaying, ALL, seeded=replays.progress_before_the_flowfiles),
    Bug(
        "REPLAY events behind the FlowFiles",
        Replaying,
        ENDS,
        seeded=replays.events_behind_the_flowfiles,
        is_slow=True,
    ),
    Bug("REPLAY events before the FlowFiles", Replaying, ALL, seeded=replays.events_before_the_flowfiles),
    Bug(
        "progress of a replay is no part of a snapshot",
        Replaying,
        ALL,
        seeded=replays.progress_is_no_part_of_a_snapshot,
    ),
    Bug("progress of a replay told by what waits", Replaying, ALL, seeded=replays.progress_told_by_what_waits),
    Bug(
        "no look at the progress of a replay under the lock",
        Overtaken,
        ALL,
        seeded=replays.no_look_at_the_progress_under_the_lock,
    ),
    Bug(
        "no look at the contents of a replay under the lock",
        Losing,
        ENDS,
        seeded=replays.no_look_at_the_contents_under_the_lock,
        is_slow=True,
    ),
    Bug("contents of a replay are looked at once", Losing, ALL, seeded=replays.contents_looked_at_once),
    Bug("a writer is absorbed without a seal", Archiving, ALL, seeded=absorbed_without_a_seal),
    Bug("readers do not honour an absorption", Archiving, ALL, seeded=readers_that_do_not_honour_absorption),
    Bug("a writer is absorbed log by log", Archiving, ALL, seeded=absorbed_log_by_log),
    Bug("no sync of how far the scrub is", Scrubbing, frozenset({FILES}), left_out(no_sync=named("scrub"))),
]


def table() -> list_of[tuple[str, list_of[bool]]]:
    """Return for each bug which mode finds it."""
    rows = []
    for bug in BUGS:
        outcome = bug.found(*CrashMode)
        rows.append((bug.name, [mode in outcome.alarms for mode in CrashMode]))
    return rows


if __name__ == "__main__":
    print("| seeded bug |", *(f"{mode.value} |" for mode in CrashMode))  # noqa: T201
    for name, found in table():
        print(f"| {name} |", *("found |" if each else "– |" for each in found))  # noqa: T201
