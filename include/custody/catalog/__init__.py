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
from custody.catalog.garbage import collect, kept_files
from custody.catalog.history import Difference
from custody.catalog.log import Catalog
from custody.catalog.opening import open_catalog, store_of
from custody.catalog.prune import plan_prune, prune
from custody.catalog.rebuild import rebuild, scan, set_aside, wipe
from custody.catalog.repair import plan_repair, repair
from custody.catalog.scrub import Defect
from custody.catalog.state import CatalogState
from custody.catalog.tombstones import columns_needed, is_remnant, may_mean, visible
from custody.catalog.transaction_pb2 import (
    Absorb,
    Action,
    AddFile,
    AddShard,
    AddTombstone,
    Attribute,
    Note,
    RemoveFile,
    RemoveShard,
    RemoveTombstone,
    Seal,
    SourceKeys,
    SourceRange,
    Transaction,
    Upgrade,
)
from custody.catalog.verify import Verification, verify

__all__ = [
    "Absorb",
    "Action",
    "AddFile",
    "AddShard",
    "AddTombstone",
    "Attestation",
    "Attribute",
    "Catalog",
    "CatalogState",
    "CommitConflictError",
    "Conflict",
    "Defect",
    "Difference",
    "FederatedState",
    "Federation",
    "FencedError",
    "ForkError",
    "Note",
    "PrunedError",
    "RemoveFile",
    "RemoveShard",
    "RemoveTombstone",
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
    "erased_among",
    "is_remnant",
    "kept_files",
    "live_groups",
    "may_mean",
    "merged_remnant",
    "new_key",
    "open_catalog",
    "plan_prune",
    "plan_repair",
    "prune",
    "public_key",
    "read_attestation",
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
