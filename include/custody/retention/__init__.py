"""Room `retention`: what is too old, or has no room, goes; what is held stays."""

from custody.retention.candidates import HeldLog
from custody.retention.disk_usage import DiskUse, measure_disk
from custody.retention.holds import Hold, add_hold, release_hold, standing_holds
from custody.retention.planning import (
    Expiring,
    ExpiryChoice,
    RetentionPlan,
    choose_expired,
    mark_expired,
    waiting_bytes,
)
from custody.retention.retention_steps import RETENTION_STEPS
from custody.retention.rules import Hiding
from custody.retention.unused_contents import drop_unused, unused_claims

__all__ = [
    "RETENTION_STEPS",
    "DiskUse",
    "Expiring",
    "ExpiryChoice",
    "HeldLog",
    "Hiding",
    "Hold",
    "RetentionPlan",
    "add_hold",
    "choose_expired",
    "drop_unused",
    "mark_expired",
    "measure_disk",
    "release_hold",
    "standing_holds",
    "unused_claims",
    "waiting_bytes",
]
