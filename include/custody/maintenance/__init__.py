"""Room `maintenance`: logs written anew without what was forgotten; everything looked at, and mended.

Looking and mending are in `verification`, `scrub` and `repair`, the steps of the maintenance in `steps`.
"""

from custody.maintenance.compaction import Compacted, Unit, compact, run, waiting
from custody.maintenance.held import conditions_for
from custody.maintenance.planning import Rewriting, groups_on_disk, open_file, planned
from custody.maintenance.shards import leftover_shards, retire

__all__ = [
    "Compacted",
    "Rewriting",
    "Unit",
    "compact",
    "conditions_for",
    "groups_on_disk",
    "leftover_shards",
    "open_file",
    "planned",
    "retire",
    "run",
    "waiting",
]
