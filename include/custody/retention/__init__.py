"""Room `retention`: events expire by age or to make room, unless a hold keeps them.

`planning` chooses what expires (`rules`, `candidates`, `disk_usage`) and marks it in the catalog; `deletion`,
`unused_contents` and `swh_builds` delete files afterwards. The steps of a pass are in `retention_steps`.
"""

from typing import TYPE_CHECKING

from custody.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from custody.retention.candidates import HeldLog
    from custody.retention.disk_usage import DiskUse, measure_disk, waiting_bytes
    from custody.retention.erasure import due_erasures, pursue, traces_of
    from custody.retention.erasures import (
        ErasedCopy,
        ErasedSelection,
        Erasure,
        ErasureStore,
        WriterErasure,
        encode_erasure,
        new_erasure,
    )
    from custody.retention.holds import Hold, add_hold, release_hold, standing_holds
    from custody.retention.planning import (
        Expiring,
        ExpiryChoice,
        RetentionPlan,
        choose_expired,
        mark_expired,
    )
    from custody.retention.retention_steps import RETENTION_STEPS
    from custody.retention.rules import Hiding
    from custody.retention.unused_contents import drop_unused, held_contents, unused_claims

__all__ = [
    "RETENTION_STEPS",
    "DiskUse",
    "ErasedCopy",
    "ErasedSelection",
    "Erasure",
    "ErasureStore",
    "Expiring",
    "ExpiryChoice",
    "HeldLog",
    "Hiding",
    "Hold",
    "RetentionPlan",
    "WriterErasure",
    "add_hold",
    "choose_expired",
    "drop_unused",
    "due_erasures",
    "encode_erasure",
    "held_contents",
    "mark_expired",
    "measure_disk",
    "new_erasure",
    "pursue",
    "release_hold",
    "standing_holds",
    "traces_of",
    "unused_claims",
    "waiting_bytes",
]

# Imported when they are used, so that a command loads what it needs and no more.
_MODULES = {
    "custody.retention.candidates": ("HeldLog",),
    "custody.retention.disk_usage": (
        "DiskUse",
        "measure_disk",
        "waiting_bytes",
    ),
    "custody.retention.erasure": ("due_erasures", "pursue", "traces_of"),
    "custody.retention.erasures": (
        "ErasedCopy",
        "ErasedSelection",
        "Erasure",
        "ErasureStore",
        "WriterErasure",
        "encode_erasure",
        "new_erasure",
    ),
    "custody.retention.holds": (
        "Hold",
        "add_hold",
        "release_hold",
        "standing_holds",
    ),
    "custody.retention.planning": (
        "Expiring",
        "ExpiryChoice",
        "RetentionPlan",
        "choose_expired",
        "mark_expired",
    ),
    "custody.retention.retention_steps": ("RETENTION_STEPS",),
    "custody.retention.rules": ("Hiding",),
    "custody.retention.unused_contents": (
        "drop_unused",
        "held_contents",
        "unused_claims",
    ),
}

if not TYPE_CHECKING:  # a checker would take every name for one that is here
    __getattr__ = lazy_exports(__name__, _MODULES)
