"""Room `store`: objects by key, on a local disk, in memory or in an object store."""

from custody.store.base import ObjectData, ObjectInfo, ObjectStore, UnfinishedUpload, check_key, read_parts
from custody.store.conditional_put import pause_between_tries, put_object
from custody.store.local import LocalStore
from custody.store.opening import open_store, require_bucket, require_conditional_puts
from custody.store.stored_files import StoredFiles, place_text
from custody.store.traffic import Traffic, TrafficCounter, carried, counted

__all__ = [
    "LocalStore",
    "ObjectData",
    "ObjectInfo",
    "ObjectStore",
    "StoredFiles",
    "Traffic",
    "TrafficCounter",
    "UnfinishedUpload",
    "carried",
    "check_key",
    "counted",
    "open_store",
    "pause_between_tries",
    "place_text",
    "put_object",
    "read_parts",
    "require_bucket",
    "require_conditional_puts",
]
