"""Room `catalog`: the only place that says what is live."""

from custody.catalog.log import Catalog
from custody.catalog.state import CatalogState
from custody.catalog.transaction_pb2 import (
    Action,
    AddFile,
    AddShard,
    RemoveFile,
    RemoveShard,
    SourceRange,
    Transaction,
)

__all__ = [
    "Action",
    "AddFile",
    "AddShard",
    "Catalog",
    "CatalogState",
    "RemoveFile",
    "RemoveShard",
    "SourceRange",
    "Transaction",
]
