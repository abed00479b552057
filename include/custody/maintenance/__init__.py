"""Room `maintenance`: compaction, verification, the scrub, and repair.

`compaction` erases forgotten events and joins small logs (`rewriting`); `verification` checks everything, `scrub` a
part of it each day, and `repair` mends what they report (`findings`). The steps of a run are in `maintenance_steps`.
"""

from typing import TYPE_CHECKING

from custody.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from custody.maintenance.claim_refs import (
        ClaimReferences,
        ClaimSpans,
        all_references,
        all_spans,
        log_claims,
        references_in_journals,
        references_of,
        spans_of,
    )
    from custody.maintenance.compaction import (
        CompactionReport,
        CompactionUnit,
        compact,
        compact_unit,
        waiting_compactions,
    )
    from custody.maintenance.rewriting import (
        RewritePlan,
        erasable,
        groups_on_disk,
        hold_conditions,
        holds_for,
        leftover_shards,
        open_event_log,
        plan_rewrites,
        remove_folder,
        tombstones_for,
    )

__all__ = [
    "ClaimReferences",
    "ClaimSpans",
    "CompactionReport",
    "CompactionUnit",
    "RewritePlan",
    "all_references",
    "all_spans",
    "compact",
    "compact_unit",
    "erasable",
    "groups_on_disk",
    "hold_conditions",
    "holds_for",
    "leftover_shards",
    "log_claims",
    "open_event_log",
    "plan_rewrites",
    "references_in_journals",
    "references_of",
    "remove_folder",
    "spans_of",
    "tombstones_for",
    "waiting_compactions",
]

# Imported when they are used, so that a command loads what it needs and no more.
_MODULES = {
    "custody.maintenance.claim_refs": (
        "ClaimReferences",
        "ClaimSpans",
        "all_references",
        "all_spans",
        "log_claims",
        "references_in_journals",
        "references_of",
        "spans_of",
    ),
    "custody.maintenance.compaction": (
        "CompactionReport",
        "CompactionUnit",
        "compact",
        "compact_unit",
        "waiting_compactions",
    ),
    "custody.maintenance.rewriting": (
        "RewritePlan",
        "erasable",
        "groups_on_disk",
        "hold_conditions",
        "holds_for",
        "leftover_shards",
        "open_event_log",
        "plan_rewrites",
        "remove_folder",
        "tombstones_for",
    ),
}

if not TYPE_CHECKING:  # a checker would take every name for one that is here
    __getattr__ = lazy_exports(__name__, _MODULES)
