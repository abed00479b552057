"""Objects in an object store, through obstore: S3, Google Cloud Storage, Azure, or the memory of this process."""

from __future__ import annotations

from builtins import list as list_of
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError
from obstore.store import MemoryStore, ObjectStore, from_url

from custody.errors import ConfigurationError, InvalidInputError, NotFoundError, StorageError
from custody.store.base import ObjectInfo, check_key, check_prefix

_PARALLEL_READS = 16
_MEMORY: dict[str, MemoryStore] = {}
"""The stores of this process's memory, by their URLs."""


def open_remote(url: str, *, can_put_if_absent: bool) -> RemoteStore:
    """Return the store at a URL of an object store, or of this process's memory.

    Raises:
        ConfigurationError: the environment does not fit the URL.
    """
    if url.startswith("memory://"):
        # By URL: all who open it in this process share one store.
        return RemoteStore(_MEMORY.setdefault(url, MemoryStore()), url, can_put_if_absent=can_put_if_absent)
    try:
        return RemoteStore(from_url(url), url, can_put_if_absent=can_put_if_absent)
    except (BaseError, ValueError) as error:
        raise ConfigurationError(f"store {url!r}: {str(error).splitlines()[0]}") from error


class RemoteStore:
    """Objects below one URL.

    Args:
        client: obstore's client, whose root is the URL.
        url: the same, for messages; without credentials.
        can_put_if_absent: False for a service that ignores `If-None-Match`.
    """

    def __init__(self, client: ObjectStore, url: str, *, can_put_if_absent: bool = True) -> None:
        self._client = client
        self._url = url.rstrip("/")
        self.can_put_if_absent = can_put_if_absent
        # A move is a copy, and a copy is a new object with a time of its own.
        self.keeps_times = False
        self.is_remote = not isinstance(client, MemoryStore)

    def locate(self, key: str) -> str:
        """Return the object's URL."""
        return f"{self._url}/{key}"

    def get(self, key: str) -> bytes:
        """Return the whole content."""
        with self._reported("read", key):
            return bytes(obstore.get(self._client, check_key(key)).bytes())

    def get_many(self, keys: Sequence[str]) -> list_of[bytes]:
        """Return the contents of the leading keys that exist; over a network several are requested at a time."""
        if len(keys) < 2 or not self.is_remote:
            return list(_until_none(map(self._get_or_none, keys)))
        # Over a network the time goes into waiting, so threads read side by side; the order of the keys is kept.
        with ThreadPoolExecutor(min(_PARALLEL_READS, len(keys))) as threads:
            return list(_until_none(threads.map(self._get_or_none, keys)))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return a part of the content; of its end by a suffix request where the service has such."""
        with self._reported("read", key):
            if start >= 0:
                return bytes(obstore.get_range(self._client, check_key(key), start=start, length=length))
            try:
                tail = bytes(obstore.get(self._client, check_key(key), options={"range": {"suffix": -start}}).bytes())
            # Azure has no such requests: there the size is asked for first.
            except NotSupportedError:
                size = int(obstore.head(self._client, key)["size"])
                first = max(size + start, 0)
                tail = bytes(obstore.get_range(self._client, key, start=first, end=size)) if size else b""
            return tail[:length]

    def head(self, key: str) -> ObjectInfo | None:
        """Return size and time of an object."""
        try:
            with self._reported("look at", key):
                metadata = obstore.head(self._client, check_key(key))
        except NotFoundError:
            return None
        return ObjectInfo(key, metadata["size"], int(metadata["last_modified"].timestamp() * 1000))

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix, sorted by key."""
        check_prefix(prefix)
        with self._reported("list", prefix):
            # Read to the end here: errors of later pages become custody's only inside this block.
            objects = [
                ObjectInfo(item["path"], item["size"], int(item["last_modified"].timestamp() * 1000))
                for chunk in obstore.list(self._client, prefix or None, offset=after or None)
                for item in chunk
            ]
        # Stores in memory list in no promised order.
        yield from sorted((item for item in objects if item.key > after), key=lambda item: item.key)

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yield the keys below a prefix, sorted."""
        return (item.key for item in self.list(prefix, after=after))

    def folders(self, prefix: str) -> list_of[str]:
        """Return the names of the segments below a prefix."""
        check_prefix(prefix)
        with self._reported("list", prefix):
            listing = obstore.list_with_delimiter(self._client, prefix or None)
        return sorted(common.rstrip("/").rpartition("/")[2] for common in listing["common_prefixes"])

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write an object with `If-None-Match: *`, or plainly where the service has no such thing."""
        if not self.can_put_if_absent:
            # Who won a race is not known then: callers that depend on it read the object back.
            self.put(key, data)
            return True
        try:
            with self._reported("write", key):
                # In one request: the condition holds for a single put only.
                obstore.put(self._client, check_key(key), data, mode="create", use_multipart=False)
        except _TakenError:
            return False
        return True

    def put(self, key: str, data: bytes) -> None:
        """Write an object, replacing one of the same key."""
        with self._reported("write", key):
            obstore.put(self._client, check_key(key), data)

    def move(self, source: str, target: str) -> None:
        """Copy an object inside the store, then delete the old one."""
        with self._reported("move", source):
            obstore.copy(self._client, check_key(source), check_key(target), overwrite=True)
            obstore.delete(self._client, source)

    def delete(self, key: str) -> None:
        """Remove an object; an absent one is fine."""
        try:
            with self._reported("delete", key):
                obstore.delete(self._client, check_key(key))
        except NotFoundError:
            return

    def drop_folder(self, prefix: str) -> None:
        """Do nothing: there are no folders."""

    def exclusive(self, key: str) -> AbstractContextManager[None]:
        """Let everybody in: there are no locks."""
        return nullcontext()

    def settle(self, key: str) -> None:
        """Do nothing: what can be read is durable."""

    def _get_or_none(self, key: str) -> bytes | None:
        try:
            return self.get(key)
        except NotFoundError:
            return None

    @contextmanager
    def _reported(self, action: str, key: str) -> Iterator[None]:
        """Turn an error of obstore in the block into one of custody."""
        try:
            yield
        # Of `check_key`: a ValueError too, but no refusal of the store.
        except InvalidInputError:
            raise
        except FileNotFoundError as error:
            raise NotFoundError(f"{self.locate(key)}: there is no such object.") from error
        except AlreadyExistsError as error:
            raise _TakenError(f"{self.locate(key)} exists.") from error
        except (BaseError, OSError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise StorageError(f"cannot {action} {self.locate(key)}: {reason}") from error


class _TakenError(StorageError):
    """A key that should be free is not."""


def _until_none(contents: Iterator[bytes | None]) -> Iterator[bytes]:
    for data in contents:
        if data is None:
            return
        yield data
