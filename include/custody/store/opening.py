"""Opening a store by the setting `repository.store`: a path, `file://`, `memory://`, `s3://`, `gs://` or `az://`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from custody.config.parsing import is_local, local_folder
from custody.errors import ConfigurationError
from custody.store.base import ObjectStore
from custody.store.local import LocalStore
from custody.vfs import FileSystem

_REMOTE = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")


def open_store(location: str, fs: FileSystem, root: Path, *, can_put_if_absent: bool = True) -> ObjectStore:
    """Return the store at a location; a relative path lies in `root`.

    Credentials, region and endpoint of object stores come from the environment, by the services' own names
    (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME …).

    `can_put_if_absent` is False for a service that ignores `If-None-Match`; a local disk always can.

    Raises:
        ConfigurationError: the URL is of no known kind, or the environment does not fit it.
    """
    if is_local(location):
        return LocalStore(fs, root / local_folder(location))
    parts = urlsplit(location)
    # URLs of abfs have the container's name before an @, no credentials.
    if "@" in parts.netloc and parts.scheme not in ("abfs", "abfss"):
        raise ConfigurationError("store: expected no credentials in the URL. Put them into the environment.")
    if parts.scheme != "memory" and (parts.scheme not in _REMOTE or not parts.netloc):
        raise ConfigurationError(
            f"store {location!r}: expected a path, file://, memory://, s3://, gs:// or az:// with a bucket."
        )
    # Imported here: a store on a local disk needs no client of object stores.
    from custody.store.remote import open_remote

    return open_remote(location, can_put_if_absent=can_put_if_absent)
