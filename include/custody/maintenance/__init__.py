"""Room `maintenance`: live logs written anew without what was forgotten, and fewer of them."""

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
