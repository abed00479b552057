"""Room `maintenance`: logs written anew without what was forgotten; everything looked at, and mended.

Looking and mending are in `verification`, `scrub` and `repair`, the steps of the maintenance in `steps`.
"""

from custody.maintenance.compaction import Compacted, Unit, compact, run, waiting
from custody.maintenance.planning import Rewriting, planned
from custody.maintenance.shards import leftover_shards

__all__ = ["Compacted", "Rewriting", "Unit", "compact", "leftover_shards", "planned", "run", "waiting"]
