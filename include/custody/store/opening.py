"""Opening a store by the setting `repository.store`: a path, `file://`, `memory://`, `s3://`, `gs://` or `az://`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from custody.config.parsing import is_local, local_folder
from custody.errors import ConfigurationError, NotFoundError, StorageError
from custody.store.base import ObjectStore
from custody.store.conditional_put import CONDITION_PROBE, MULTIPART_BYTES
from custody.store.local import LocalStore
from custody.vfs import FileSystem

_REACHED: set[str] = set()
_CONDITIONAL: set[str] = set()
"""Stores of which this process knows that the bucket is there, or that they refuse a name that is taken."""
_REMOTE = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")
_HDFS = ("hdfs", "webhdfs", "swebhdfs", "viewfs")


def open_store(
    location: str,
    fs: FileSystem,
    root: Path,
    *,
    can_put_if_absent: bool = True,
    multipart_bytes: int = MULTIPART_BYTES,
) -> ObjectStore:
    """Return the store at a location; a relative path lies in `root`.

    Credentials, region and endpoint of object stores come from the environment, by the services' own names
    (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME …).

    `can_put_if_absent` is False for a service that ignores `If-None-Match`; a local disk always can. In an object store
    larger objects than `multipart_bytes` go in parts.

    Raises:
        ConfigurationError: the URL is of no known kind, or the environment does not fit it.
    """
    if is_local(location):
        return LocalStore(fs, root / local_folder(location))
    parts = urlsplit(location)
    # URLs of abfs have the container's name before an @, no credentials.
    if "@" in parts.netloc and parts.scheme not in ("abfs", "abfss"):
        raise ConfigurationError("store: expected no credentials in the URL. Put them into the environment.")
    if parts.scheme in _HDFS:
        raise ConfigurationError(
            f"store {location!r}: HDFS is no store: a name there is taken before its bytes are whole. Use a folder, or "
            "a bucket of a service that speaks S3, such as Apache Ozone beside the HDFS. The NGSI sink writes to HDFS "
            "by settings of its own (ngsi.hdfs_host). Why: docs/object-store.md, HDFS."
        )
    if parts.scheme != "memory" and (parts.scheme not in _REMOTE or not parts.netloc):
        raise ConfigurationError(
            f"store {location!r}: expected a path, file://, memory://, s3://, gs:// or az:// with a bucket."
        )
    # Imported here: a store on a local disk needs no client of object stores.
    from custody.store.remote import open_remote

    return open_remote(location, can_put_if_absent=can_put_if_absent, multipart_bytes=multipart_bytes)


def require_bucket(store: ObjectStore, location: str) -> None:
    """Raise unless the bucket of an object store is there; one request, the first time in a process.

    A missing bucket would look like an empty one to whoever reads.

    Raises:
        ConfigurationError: there is no such bucket.
        StorageError: the store refuses.
    """
    if location in _REACHED:
        return
    try:
        store.folders("")
    except (NotFoundError, StorageError) as error:
        # Services answer with a status alone, or with one behind other words.
        if isinstance(error, StorageError) and "404 Not Found" not in str(error):
            raise
        raise ConfigurationError(
            f"store {location!r}: there is no such bucket. Make it, or correct the name."
        ) from error
    _REACHED.add(location)


def require_conditional_puts(store: ObjectStore, location: str) -> None:
    """Raise unless an object store refuses to write a name that is taken; it is tried, the first time in a process.

    Raises:
        ConfigurationError: it writes over what is there, or `catalog.put_if_absent` says so.
        StorageError: the store refuses for another reason.
    """
    if location in _CONDITIONAL:
        return
    if store.can_put_if_absent:
        # The first finds the name free, or taken by an earlier process; the second finds it taken in any case.
        store.put_if_absent(CONDITION_PROBE, b"first")
    if not store.can_put_if_absent or store.put_if_absent(CONDITION_PROBE, b"second"):
        raise ConfigurationError(
            f"store {location!r}: writes over a name that is taken, so two processes could both win. Event logs need "
            "conditional puts (If-None-Match): use a newer release of the service, or a store that is a folder."
        )
    _CONDITIONAL.add(location)
