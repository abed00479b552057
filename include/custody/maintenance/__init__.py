"""Room `maintenance`: live logs written anew without what was forgotten, and fewer of them."""

from custody.maintenance.compaction import Compacted, Unit, compact, run, waiting
from custody.maintenance.planning import Rewriting, planned
from custody.maintenance.shards import leftover_shards

__all__ = ["Compacted", "Rewriting", "Unit", "compact", "leftover_shards", "planned", "run", "waiting"]
