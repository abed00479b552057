"""Room `catalog`: the only place that says what is live."""

from custody.catalog.conflict import (
    CommitConflictError,
    Conflict,
    FencedError,
    ForkError,
    PrunedError,
    SealedError,
)
from custody.catalog.footers import describe
from custody.catalog.log import Catalog, Difference
from custody.catalog.opening import open_catalog, store_of
from custody.catalog.state import CatalogState
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
    SourceRange,
    Transaction,
    Upgrade,
)

__all__ = [
    "Absorb",
    "Action",
    "AddFile",
    "AddShard",
    "AddTombstone",
    "Attribute",
    "Catalog",
    "CatalogState",
    "CommitConflictError",
    "Conflict",
    "Difference",
    "FencedError",
    "ForkError",
    "Note",
    "PrunedError",
    "RemoveFile",
    "RemoveShard",
    "RemoveTombstone",
    "Seal",
    "SealedError",
    "SourceRange",
    "Transaction",
    "Upgrade",
    "describe",
    "open_catalog",
    "store_of",
]
