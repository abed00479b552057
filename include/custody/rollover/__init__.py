"""Room `rollover`: from sealed groups of journals to live event logs, one idempotent step after the other."""

from typing import TYPE_CHECKING

from custody.lazy_exports import lazy_exports
from custody.rollover.pending import pending

if TYPE_CHECKING:
    from custody.rollover.change_feed import GroupWatch, NewLogs, WaitingGroups, WatchMark, new_logs_since, read_mark
    from custody.rollover.handoff_backlog import HandoffBacklog, handoff_backlogs
    from custody.rollover.keeping_filters import bounds_of_shard, drop_former_filters, remove_filter_files
    from custody.rollover.mending_shards import mend_shard, require_whole_shard
    from custody.rollover.pending import Pending
    from custody.rollover.publish import (
        add_file,
        add_shard,
        check_stored_log,
        clear_log,
        is_stale,
        leave_to_the_store,
        rebuild_shard,
        shard_input_bytes,
    )
    from custody.rollover.rollover_steps import STEPS
    from custody.rollover.sweeping import stray_journals, sweep_unit, swept_groups

__all__ = [
    "STEPS",
    "GroupWatch",
    "HandoffBacklog",
    "NewLogs",
    "Pending",
    "WaitingGroups",
    "WatchMark",
    "add_file",
    "add_shard",
    "bounds_of_shard",
    "check_stored_log",
    "clear_log",
    "drop_former_filters",
    "handoff_backlogs",
    "is_stale",
    "leave_to_the_store",
    "mend_shard",
    "new_logs_since",
    "pending",
    "read_mark",
    "rebuild_shard",
    "remove_filter_files",
    "require_whole_shard",
    "shard_input_bytes",
    "stray_journals",
    "sweep_unit",
    "swept_groups",
]

# Imported when they are used, so that a command loads what it needs and no more.
_MODULES = {
    "custody.rollover.change_feed": (
        "GroupWatch",
        "NewLogs",
        "WaitingGroups",
        "WatchMark",
        "new_logs_since",
        "read_mark",
    ),
    "custody.rollover.handoff_backlog": ("HandoffBacklog", "handoff_backlogs"),
    "custody.rollover.keeping_filters": ("bounds_of_shard", "drop_former_filters", "remove_filter_files"),
    "custody.rollover.mending_shards": ("mend_shard", "require_whole_shard"),
    "custody.rollover.pending": ("Pending",),
    "custody.rollover.publish": (
        "add_file",
        "add_shard",
        "check_stored_log",
        "clear_log",
        "is_stale",
        "leave_to_the_store",
        "rebuild_shard",
        "shard_input_bytes",
    ),
    "custody.rollover.rollover_steps": ("STEPS",),
    "custody.rollover.sweeping": (
        "stray_journals",
        "sweep_unit",
        "swept_groups",
    ),
}

if not TYPE_CHECKING:  # a checker would take every name for one that is here
    __getattr__ = lazy_exports(__name__, _MODULES)
