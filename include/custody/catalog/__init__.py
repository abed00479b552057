"""Room `catalog`: the only place that says what is live."""

from custody.catalog.attest import Attestation, attest, compare, new_key, public_key, read_attestation
from custody.catalog.conflict import (
    CommitConflictError,
    Conflict,
    FencedError,
    ForkError,
    PrunedError,
    SealedError,
)
from custody.catalog.erased import erased_among, live_groups, merged_remnant, source_keys
from custody.catalog.federation import FederatedState, Federation, absorb, seal
from custody.catalog.footers import describe, stored_footer
from custody.catalog.garbage import collect
from custody.catalog.history import Difference
from custody.catalog.log import Catalog
from custody.catalog.opening import open_catalog, store_of
from custody.catalog.prune import drop_revisions, left_below_floor, plan_prune, prune, raise_floor, readable_checkpoints
from custody.catalog.rebuild import rebuild, scan, set_aside, wipe
from custody.catalog.repair import plan_repair, repair
from custody.catalog.scrub import Defect
from custody.catalog.state import CatalogState
from custody.catalog.tombstones import columns_needed, is_remnant, may_mean, meant, visible
from custody.catalog.transaction_pb2 import (
    EXPIRED,
    Absorb,
    Action,
    AddFile,
    AddHold,
    AddMark,
    AddShard,
    AddTombstone,
    Attribute,
    Condition,
    MarkedShard,
    Note,
    RemoveFile,
    RemoveHold,
    RemoveMark,
    RemoveShard,
    RemoveTombstone,
    RespectHolds,
    Seal,
    SourceKeys,
    SourceRange,
    Transaction,
    Upgrade,
)
from custody.catalog.verify import Verification, verify

__all__ = [
    "EXPIRED",
    "Absorb",
    "Action",
    "AddFile",
    "AddHold",
    "AddMark",
    "AddShard",
    "AddTombstone",
    "Attestation",
    "Attribute",
    "Catalog",
    "CatalogState",
    "CommitConflictError",
    "Condition",
    "Conflict",
    "Defect",
    "Difference",
    "FederatedState",
    "Federation",
    "FencedError",
    "ForkError",
    "MarkedShard",
    "Note",
    "PrunedError",
    "RemoveFile",
    "RemoveHold",
    "RemoveMark",
    "RemoveShard",
    "RemoveTombstone",
    "RespectHolds",
    "Seal",
    "SealedError",
    "SourceKeys",
    "SourceRange",
    "Transaction",
    "Upgrade",
    "Verification",
    "absorb",
    "attest",
    "collect",
    "columns_needed",
    "compare",
    "describe",
    "drop_revisions",
    "erased_among",
    "is_remnant",
    "left_below_floor",
    "live_groups",
    "may_mean",
    "meant",
    "merged_remnant",
    "new_key",
    "open_catalog",
    "plan_prune",
    "plan_repair",
    "prune",
    "public_key",
    "raise_floor",
    "read_attestation",
    "readable_checkpoints",
    "rebuild",
    "repair",
    "scan",
    "seal",
    "set_aside",
    "source_keys",
    "store_of",
    "stored_footer",
    "verify",
    "visible",
    "wipe",
]
