"""Room `maintenance`: logs written anew without what was forgotten; everything looked at, and mended.

Looking and mending are in `verification`, `scrub` and `repair`, the steps of the maintenance in `steps`.
"""

from custody.maintenance.compaction import Compacted, Unit, compact, run, waiting
from custody.maintenance.held import conditions_for
from custody.maintenance.planning import Rewriting, groups_on_disk, open_file, planned
from custody.maintenance.references import References, all_references, in_journals, log_tables, references_of
from custody.maintenance.shards import leftover_shards, retire

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
