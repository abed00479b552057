"""Room `maintenance`: logs written anew without what was forgotten; everything looked at, and mended.

Looking and mending are in `verification`, `scrub` and `repair`, the steps of the maintenance in `steps`.
"""

from custody.maintenance.claim_refs import References, all_references, in_journals, log_tables, references_of
from custody.maintenance.compaction import Compacted, Unit, compact, run, waiting
from custody.maintenance.rewriting import (
    Rewriting,
    conditions_for,
    groups_on_disk,
    leftover_shards,
    open_file,
    planned,
    retire,
)

__all__ = [
    "Compacted",
    "References",
    "Rewriting",
    "Unit",
    "all_references",
    "compact",
    "conditions_for",
    "groups_on_disk",
    "in_journals",
    "leftover_shards",
    "log_tables",
    "open_file",
    "planned",
    "references_of",
    "retire",
    "run",
    "waiting",
]
