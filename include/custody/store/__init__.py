"""Room `store`: objects by key, on a local disk, in memory or in an object store."""

from custody.store.base import ObjectInfo, ObjectStore, check_key
from custody.store.local import LocalStore
from custody.store.opening import open_store, require_bucket, require_conditional_puts

__all__ = [
    "LocalStore",
    "ObjectInfo",
    "ObjectStore",
    "check_key",
    "open_store",
    "require_bucket",
    "require_conditional_puts",
]
