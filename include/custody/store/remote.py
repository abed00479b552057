"""Objects in an object store, through obstore: S3, Google Cloud Storage, Azure, or the memory of this process."""

from __future__ import annotations

import os
import re
import time
import uuid
from builtins import list as list_of
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import MemoryStore, ObjectStore, S3Store, from_url

from custody.errors import ConfigurationError, InvalidInputError, NotFoundError, StorageError
from custody.format.names import UPLOADS
from custody.store.base import ObjectData, ObjectInfo, UnfinishedUpload, check_key, check_prefix
from custody.store.conditional_put import CONDITION_PROBE, CONDITIONAL_BYTES_MAX, MULTIPART_BYTES
from custody.store.traffic import LISTED_AT_ONCE, carried, note_refusal, note_requests

if TYPE_CHECKING:
    from obstore.store import ClientConfig

    from custody.store.s3_uploads import S3Uploads

_PARALLEL_READS = 16
_PATIENT_ABOVE_BYTES = 1 << 20
_PUT_BYTES_A_SECOND_MIN = 256 << 10
"""A put of more than a mebibyte may take as long as it does at this rate, and never less than requests may otherwise.

The client's own bound, 30 seconds for a request with its body, is an error for a log of 64 MiB below 2 MiB a second.
A bound in the environment, such as AWS_TIMEOUT, holds for every request instead.
"""
_REQUEST_SECONDS = 30
_PART_BYTES = 16 << 20
"""S3 takes no part below 5 MiB but the last."""
_PARTS_MAX = 10_000
_PARTS_AT_ONCE = 4
_COPY_LOOKS = 60
_ANSWERS_AWAITED = 3
_UNANSWERED = re.compile(r"\bHTTP error: ")
_REPEATED = re.compile(r"\bafter \d+ retries\b")
"""In what the client says of requests that got no answer, and of those that it has repeated by itself."""
_LACKING = re.compile(r"\b(400 Bad Request|405 Method Not Allowed|501 Not Implemented)\b")
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId"}
_WRONG_CLOCK = {"RequestTimeTooSkewed"}
_ARCHIVED = {"InvalidObjectState", "BlobArchived"}
"""Codes in the answers of S3 and Azure, by what helps."""
_ANSWER_CHARACTERS_MAX = 300
_CONDITIONAL_COPIES: dict[str, bool] = {}
"""Which stores are known to this process to copy on a condition, by their URLs."""
_CLIENT_OPTIONS = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "pool_idle_timeout",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "root_certificate",
    "user_agent",
)
_MEMORY: dict[str, MemoryStore] = {}
"""The stores of this process's memory, by their URLs."""


def open_remote(url: str, *, can_put_if_absent: bool = True, multipart_bytes: int = MULTIPART_BYTES) -> RemoteStore:
    """Return the store at a URL of an object store, or of this process's memory.

    Raises:
        ConfigurationError: the environment does not fit the URL.
    """
    if url.startswith("memory://"):
        # By URL: all who open it in this process share one store.
        memory = _MEMORY.setdefault(url, MemoryStore())
        return RemoteStore(memory, url, can_put_if_absent=can_put_if_absent, multipart_bytes=multipart_bytes)
    try:
        client = from_url(url, **_copying(url))
        return RemoteStore(
            client, url, can_put_if_absent=can_put_if_absent, patient=_patient(url), multipart_bytes=multipart_bytes
        )
    except (BaseError, ValueError) as error:
        raise ConfigurationError(f"store {url!r}: {str(error).splitlines()[0]}") from error


def _patient(url: str) -> Callable[[int], ObjectStore] | None:
    """Return what makes a client whose requests may take so many seconds; None where the environment bounds them."""
    scheme = url.partition(":")[0]
    prefix = {"s3": "AWS_", "s3a": "AWS_", "gs": "GOOGLE_"}.get(scheme, "AZURE_")
    if f"{prefix}TIMEOUT" in os.environ:
        return None
    # Options that are given replace all those of the environment, so that these are given as well.
    named = {name: os.environ.get(prefix + name.upper()) for name in _CLIENT_OPTIONS}
    options: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    return lambda seconds: from_url(
        url, client_options=cast("ClientConfig", options | {"timeout": f"{seconds}s"}), **_copying(url)
    )


def _copying(url: str) -> dict[str, Any]:
    """Return how S3 copies on the condition that a name is free, unless the environment says how."""
    is_s3 = url.startswith(("s3:", "s3a:"))
    return {"copy_if_not_exists": "multipart"} if is_s3 and "AWS_COPY_IF_NOT_EXISTS" not in os.environ else {}


class RemoteStore:
    """Objects below one URL.

    Args:
        client: obstore's client, whose root is the URL.
        url: the same, for messages; without credentials.
        can_put_if_absent: False for a service that ignores `If-None-Match`.
        patient: makes the same client whose requests may take so many seconds, for large puts.
        multipart_bytes: larger objects go in parts.
    """

    def __init__(
        self,
        client: ObjectStore,
        url: str,
        *,
        can_put_if_absent: bool = True,
        patient: Callable[[int], ObjectStore] | None = None,
        multipart_bytes: int = MULTIPART_BYTES,
    ) -> None:
        self._client = client
        self._patient = patient
        self._multipart_bytes = multipart_bytes
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
            note_requests("get")
            data = bytes(obstore.get(self._client, check_key(key)).bytes())
        note_requests("get", 0, read=len(data))
        return data

    def get_many(self, keys: Sequence[str]) -> list_of[bytes]:
        """Return the contents of the leading keys that exist; over a network several are requested at a time."""
        if len(keys) < 2 or not self.is_remote:
            return list(_until_none(map(self._get_or_none, keys)))
        # Over a network the time goes into waiting, so threads read side by side; the order of the keys is kept.
        with ThreadPoolExecutor(min(_PARALLEL_READS, len(keys))) as threads:
            return list(_until_none(threads.map(carried(self._get_or_none), keys)))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return a part of the content; of its end by a suffix request where the service has such."""
        with self._reported("read", key):
            note_requests("range")
            data = self._range(check_key(key), start, length)
        note_requests("range", 0, read=len(data))
        return data[:length]

    def _range(self, key: str, start: int, length: int) -> bytes:
        if start >= 0:
            return bytes(obstore.get_range(self._client, key, start=start, length=length))
        try:
            return bytes(obstore.get(self._client, key, options={"range": {"suffix": -start}}).bytes())
        # Azure has no such requests: there the size is asked for first.
        except NotSupportedError:
            note_requests("head")
            size = int(obstore.head(self._client, key)["size"])
            first = max(size + start, 0)
            return bytes(obstore.get_range(self._client, key, start=first, end=size)) if size else b""

    def head(self, key: str) -> ObjectInfo | None:
        """Return size and time of an object."""
        try:
            with self._reported("look at", key):
                note_requests("head")
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
        note_requests("list", max(-(-len(objects) // LISTED_AT_ONCE), 1))
        # Stores in memory list in no promised order.
        yield from sorted((item for item in objects if item.key > after), key=lambda item: item.key)

    def keys(self, prefix: str, *, after: str = "", ending: str = "") -> Iterator[str]:
        """Yield the keys below a prefix, sorted."""
        return (item.key for item in self.list(prefix, after=after) if item.key.endswith(ending))

    def folders(self, prefix: str) -> list_of[str]:
        """Return the names of the segments below a prefix."""
        check_prefix(prefix)
        with self._reported("list", prefix):
            note_requests("list")
            listing = obstore.list_with_delimiter(self._client, prefix or None)
        return sorted(common.rstrip("/").rpartition("/")[2] for common in listing["common_prefixes"])

    def put_if_absent(self, key: str, data: ObjectData) -> bool:
        """Write an object with `If-None-Match: *`, or plainly where the service has no such thing."""
        check_key(key)
        if not self.can_put_if_absent:
            # Who won a race is not known then: callers that depend on it read the object back.
            self.put(key, data)
            return True
        if len(data) > self._multipart_bytes and self._has_conditional_copies():
            return self._put_by_copy(key, data)

        def put() -> None:
            note_requests("put", written=len(data))
            # In one request: the condition holds for a single put only.
            obstore.put(self._client_for(len(data)), key, bytes(data), mode="create", use_multipart=False)

        try:
            with self._reported("write", key):
                _until_answered(put)
        except _TakenError:
            return False
        return True

    def put(self, key: str, data: ObjectData) -> None:
        """Write an object, replacing one of the same key."""
        if len(data) > self._multipart_bytes:
            self._put_parts(check_key(key), data)
            return
        with self._reported("write", key):
            note_requests("put", written=len(data))
            # In one request, too: of a put that dies nothing is left that somebody would have to find and abort.
            obstore.put(self._client_for(len(data)), check_key(key), bytes(data), use_multipart=False)

    def _put_parts(self, key: str, data: ObjectData) -> None:
        """Write an object by a multipart upload; the client aborts one that fails."""
        part = max(_PART_BYTES, -(-len(data) // _PARTS_MAX))

        def parts() -> Iterator[bytes]:
            return (bytes(data[start : start + part]) for start in range(0, len(data), part))

        with self._reported("write", key):
            # One that begins it and one that completes it, besides those with the parts.
            note_requests("put", -(-len(data) // part) + 2, written=len(data))
            client = self._client_for(part)
            obstore.put(client, key, parts(), use_multipart=True, chunk_size=part, max_concurrency=_PARTS_AT_ONCE)

    def _put_by_copy(self, key: str, data: ObjectData) -> bool:
        """Write a large object under a name of its own, and let the store give it its key if that is free.

        What a process that dies leaves under the other name is found by step `recover`.
        """
        if len(data) > CONDITIONAL_BYTES_MAX and self._url.startswith(("s3:", "s3a:")):
            raise StorageError(
                f"cannot write {self.locate(key)}: expected at most {CONDITIONAL_BYTES_MAX:,} bytes, which S3 gives to "
                f"a name that is free, got {len(data):,}. Lower eventlog.log_bytes_target."
            )
        if self.head(key) is not None:
            return False
        upload = f"{key.partition('/')[0]}/{UPLOADS}/{uuid.uuid4().hex}"
        try:
            self._put_parts(upload, data)
            with self._reported("write", key):
                note_requests("copy")
                obstore.copy(self._client_for(len(data)), upload, key, overwrite=False)
            self._await_copy(key, len(data))
        except _TakenError:
            return False
        except NotFoundError as error:
            raise StorageError(f"cannot write {self.locate(key)}: what was uploaded for it is gone.") from error
        finally:
            # Whatever happened, nobody needs it any more; one that stays is removed by step `recover`.
            with suppress(StorageError):
                self.delete(upload)
        return True

    def _await_copy(self, key: str, size: int) -> None:
        """Wait until a copy is whole: Azure answers before it is."""
        for number in range(_COPY_LOOKS):
            info = self.head(key)
            if info is not None and info.size_bytes == size:
                return
            time.sleep(min(0.05 * 2**number, 5.0))
        raise StorageError(f"cannot write {self.locate(key)}: the store has not copied it whole.")

    def _has_conditional_copies(self) -> bool:
        """Whether the store copies on the condition that a name is free; it is tried, the first time in a process."""
        known = _CONDITIONAL_COPIES.get(self._url)
        if known is None:
            with suppress(_TakenError), self._reported("write", CONDITION_PROBE):
                note_requests("put")
                obstore.put(self._client, CONDITION_PROBE, b"first", mode="create", use_multipart=False)
            try:
                note_requests("copy")
                obstore.copy(self._client, CONDITION_PROBE, CONDITION_PROBE, overwrite=False)
                known = False  # the name is taken
            except AlreadyExistsError:
                known = True
            except (BaseError, OSError, ValueError) as error:
                if not isinstance(error, NotSupportedError) and not _LACKING.search(str(error)):
                    raise StorageError(f"cannot copy {self.locate(CONDITION_PROBE)}: {_reason(error)}") from error
                known = False
            _CONDITIONAL_COPIES[self._url] = known
        return known

    def move(self, source: str, target: str) -> None:
        """Copy an object inside the store, then delete the old one."""
        with self._reported("move", source):
            note_requests("copy")
            obstore.copy(self._client, check_key(source), check_key(target), overwrite=True)
            note_requests("delete")
            obstore.delete(self._client, source)

    def delete(self, key: str) -> None:
        """Remove an object; an absent one is fine."""
        check_key(key)

        def delete() -> None:
            note_requests("delete")
            obstore.delete(self._client, key)

        try:
            with self._reported("delete", key):
                _until_answered(delete)
        except NotFoundError:
            return

    def unfinished(self, prefix: str) -> list_of[UnfinishedUpload]:
        """Return the uploads below a prefix that nobody completed yet; S3 tells them to keys of the environment."""
        check_prefix(prefix)
        uploads = self._uploads
        return [] if uploads is None else uploads.unfinished(prefix)

    def abort(self, upload: UnfinishedUpload) -> None:
        """Free the parts of an upload."""
        if self._uploads is not None:
            self._uploads.abort(upload)

    @cached_property
    def _uploads(self) -> S3Uploads | None:
        if not isinstance(self._client, S3Store):
            return None
        # Imported here: who reads asks for no uploads.
        from custody.store.s3_uploads import S3Uploads

        with self._reported("list", ""):
            return S3Uploads.of(self._client, urlsplit(self._url).path.strip("/"))

    @property
    def signed_requests(self) -> S3Uploads | None:
        """What signs requests that obstore has not; None where the store is not S3, or its secret is not known."""
        return self._uploads

    def drop_folder(self, prefix: str) -> None:
        """Do nothing: there are no folders."""

    def exclusive(self, key: str) -> AbstractContextManager[None]:
        """Let everybody in: there are no locks."""
        return nullcontext()

    def settle(self, key: str) -> None:
        """Do nothing: what can be read is durable."""

    def _client_for(self, size_bytes: int) -> ObjectStore:
        """Return a client that has time enough for a put of one request."""
        if self._patient is None or size_bytes <= _PATIENT_ABOVE_BYTES:
            return self._client
        return self._patient(max(_REQUEST_SECONDS, -(-size_bytes // _PUT_BYTES_A_SECOND_MIN)))

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
            raise StorageError(f"cannot {action} {self.locate(key)}: {_reason(error)}") from error


class _TakenError(StorageError):
    """A key that should be free is not."""


def _until_answered(request: Callable[[], None]) -> None:
    """Do a put on a condition, or a deletion, again where its answer did not come in time.

    The client repeats these where the connection broke, and not where it waited too long. They may be done twice all
    the same: of a put that was done the second one finds the name taken, as after an answer that was lost with its
    connection, and of a deletion the second one finds nothing.
    """
    for _ in range(_ANSWERS_AWAITED - 1):
        try:
            request()
        except BaseError as error:
            if not _UNANSWERED.search(str(error)) or _REPEATED.search(str(error)):
                raise
        else:
            return
    request()


def _reason(error: Exception) -> str:
    whole = str(error)
    text = whole.splitlines()[0] if whole else type(error).__name__
    code, message = _element("Code", whole), _element("Message", whole)
    if code:
        # The store's own words stand in front: the client's name the request, and may be long.
        text = f"the store answers {code}{f' ({message})' if message else ''}. {text.partition('<')[0].rstrip(' :')}"
    if code in _WRONG_CLOCK:
        return _refused(f"{text}. The clock of this machine differs from the store's: set it.")
    if code in _ARCHIVED:
        return _refused(f"{text}. The object lies in an archive: restore it in the store.")
    # Listings give no class of their own to a refusal, and an expired token is a bad request to S3.
    is_refused = isinstance(error, PermissionDeniedError | UnauthenticatedError) or "403 Forbidden" in whole
    if is_refused or code in _EXPIRED:
        return _refused(
            "the store refuses the credentials of this process, which may have expired or lack the right. Renew them "
            f"in its environment and run it again. {text}"
        )
    return text


def _refused(reason: str) -> str:
    note_refusal(reason)
    return reason


def _element(name: str, answer: str) -> str:
    """Return the text of an element of a store's answer in XML, on one line and of bounded length; empty without it."""
    found = re.search(rf"<{name}>([^<]*)</{name}>", answer)
    return "" if found is None else " ".join(found[1].split())[:_ANSWER_CHARACTERS_MAX].rstrip(".")


def _until_none(contents: Iterator[bytes | None]) -> Iterator[bytes]:
    for data in contents:
        if data is None:
            return
        yield data
