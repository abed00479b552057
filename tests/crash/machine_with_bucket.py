"""A machine with a disk and a bucket, for crash scenarios of a repository whose store is an object store.

Effects on the bucket are operations of the machine, counted with those on its disk: a crash ends the process at either,
and the disk loses, tears and reorders at the same moment what was not synced. A bucket loses nothing that it has. What
is unknown of the effect at which the process ended is whether it arrived: with an odd seed it did not, with an even one
it did. An upload in parts that was not completed leaves its parts, which no listing shows.

With a `Fault` the process lives on: one effect is refused, or done and its answer lost, or done later, after the next.

Inside of `in_a_bucket` the scenarios are those of a bucket: `new_disk` makes such machines, `settings_on` names the
bucket in settings. The client is custody's own, `RemoteStore`; only obstore below it is replaced.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from obstore.exceptions import AlreadyExistsError, BaseError, GenericError

from custody.config import Settings
from custody.store import opening, placed_writers, remote
from custody.store.base import ObjectStore
from custody.store.local import LocalStore
from custody.store.remote import RemoteStore
from custody.vfs import FileSystem
from custody.vfs.base import Primitives
from custody.vfs.memory import CrashMode, FolderNode, InjectedCrash, MemoryFileSystem, survivors
from custody.vfs.wrapping import WrappingFileSystem
from custody.workspace import workspace as workspaces

URL = "memory://crash"
BUCKET = Path("/bucket")
"""Where the objects of a machine's bucket appear among its files and in its operations."""
WRITTEN_MS = 1_772_000_000_000
"""When all objects were written: before the time of any scenario."""
MULTIPART_BYTES = 6_000
PART_BYTES = 2_500
"""Logs of a few dozen events and their shards go in parts, smaller objects do not."""
R = TypeVar("R")


@dataclass(frozen=True)
class Kind:
    """What a machine's repository keeps in its bucket: merged units as well or not, larger objects in parts."""

    is_staging_stored: bool = False
    multipart_bytes: int = MULTIPART_BYTES


_kind: ContextVar[Kind | None] = ContextVar("_kind", default=None)
"""The kind of new machines; None outside of `in_a_bucket`, where they have no bucket."""


@dataclass
class Bucket:
    """Objects by key, and the parts of uploads that were not completed, by upload."""

    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[int, tuple[str, list[bytes]]] = field(default_factory=dict)

    def copy(self) -> Bucket:
        """Return a bucket that can go on from here on its own."""
        return Bucket(dict(self.objects), {number: (key, list(parts)) for number, (key, parts) in self.uploads.items()})

    def put(self, key: str, data: bytes, *, is_conditional: bool) -> None:
        """Write an object, or refuse a key that is taken."""
        if is_conditional and key in self.objects:
            raise AlreadyExistsError(f"{key}: the condition does not hold")
        self.objects[key] = data

    def begin(self, number: int, key: str) -> None:
        """Begin an upload in parts."""
        self.uploads[number] = (key, [])

    def add_part(self, number: int, part: bytes) -> None:
        """Take one part of an upload."""
        self.uploads[number][1].append(part)

    def complete(self, number: int) -> None:
        """Make an object of the parts of an upload, replacing one of the same key."""
        key, parts = self.uploads.pop(number)
        self.objects[key] = b"".join(parts)

    def copy_object(self, source: str, target: str, *, is_conditional: bool) -> None:
        """Write one object's bytes under another key."""
        if source not in self.objects:
            raise FileNotFoundError(source)
        self.put(target, self.objects[source], is_conditional=is_conditional)

    def delete(self, key: str) -> None:
        """Remove an object; an absent one is fine."""
        self.objects.pop(key, None)


class Answer(Enum):
    """What becomes of an effect whose caller gets an error and lives on."""

    REFUSED = "refused"
    LOST = "done, the answer lost"
    LATE = "timed out, done after the next effect"


@dataclass(frozen=True)
class Fault:
    """The operation, counted from 1, that ends in an error if it is one on the bucket, and what becomes of it."""

    at: int
    answer: Answer


class MachineWithBucket(MemoryFileSystem):
    """A disk in memory, and the bucket that processes of this machine open; the newest machine is the one that runs."""

    def __init__(
        self,
        crash_at: int = 0,
        root: FolderNode | None = None,
        bucket: Bucket | None = None,
        kind: Kind | None = None,
    ) -> None:
        super().__init__(crash_at, root)
        self.bucket = bucket or Bucket()
        self.kind = kind or Kind()
        self.fault: Fault | None = None
        self._rival: tuple[int, Callable[[], object]] | None = None
        self._late: Callable[[Bucket], object] | None = None
        self._interrupted: Callable[[Bucket], object] | None = None
        _switch_on(self)

    def let_in(self, before: int, rival: Callable[[], object]) -> None:
        """Let somebody else do something once, right before the bucket's effect number `before` from now on."""
        self._rival = (before, rival)

    def effect(self, kind: str, key: str, do: Callable[[Bucket], R]) -> R:
        """Do something to the bucket as one operation of the machine."""
        with self._mutex:
            self._meet_rival()
            try:
                with self.operation(kind, BUCKET / key):
                    pass
            except InjectedCrash:
                if self._interrupted is None and len(self.operations) == self.crash_at:
                    self._interrupted = do
                raise
            if self.fault is not None and len(self.operations) == self.fault.at:
                if self.fault.answer is Answer.LATE:
                    self._late = do
                elif self.fault.answer is Answer.LOST:
                    do(self.bucket)
                raise GenericError(f"{kind} {key}: {self.fault.answer.value}")
            try:
                return do(self.bucket)
            finally:
                self._arrive()

    def _meet_rival(self) -> None:
        if self._rival is not None:
            before, rival = self._rival
            self._rival = (before - 1, rival) if before > 1 else None
            if before == 1:
                rival()

    def _arrive(self) -> None:
        late, self._late = self._late, None
        if late is not None:
            with suppress(BaseError, OSError, KeyError):
                late(self.bucket)

    def crashed(self, mode: CrashMode, seed: int = 0) -> MachineWithBucket:
        """Return a machine as it may be found after the process ended now."""
        with self._mutex:
            self._arrive()
            bucket = self.bucket.copy()
            if self._interrupted is not None and seed % 2 == 0:
                with suppress(BaseError, OSError, KeyError):
                    self._interrupted(bucket)
            root = survivors(self._tree.root, mode, seed)
            return MachineWithBucket(root=root, bucket=bucket, kind=self.kind)

    def files(self) -> dict[Path, bytes | None]:
        """Return everything that is on the disk, and in the bucket."""
        objects = sorted(self.bucket.objects.items())
        uploads = [
            (f"uploads/{number}/{key}", b"|".join(parts)) for number, (key, parts) in self.bucket.uploads.items()
        ]
        return super().files() | {BUCKET / key: data for key, data in (*objects, *uploads)}


Chunk = list[dict[str, Any]]
Names = list[str]


class _Client:
    """What `RemoteStore` takes for a client of obstore; it belongs to one machine."""

    def __init__(self, machine: MachineWithBucket) -> None:
        self.machine = machine


@dataclass(frozen=True)
class _Found:
    data: bytes

    def bytes(self) -> bytes:
        return self.data


class _Obstore:
    """The functions of obstore that `RemoteStore` calls, for the bucket of a client's machine."""

    _uploads = itertools.count(1)

    def get(self, client: _Client, key: str, *, options: dict[str, Any] | None = None) -> _Found:
        data = self._data(client, key)
        return _Found(data[-options["range"]["suffix"] :] if options else data)

    def get_range(self, client: _Client, key: str, *, start: int, length: int | None = None, end: int = 0) -> bytes:
        return self._data(client, key)[start : end if length is None else start + length]

    def head(self, client: _Client, key: str) -> dict[str, Any]:
        return _meta(key, self._data(client, key))

    def list(self, client: _Client, prefix: str | None = None, *, offset: str | None = None) -> Iterator[Chunk]:
        with client.machine._mutex:
            objects = sorted(client.machine.bucket.objects.items())
        yield [_meta(key, data) for key, data in objects if key.startswith(prefix or "") and key > (offset or "")]

    def list_with_delimiter(self, client: _Client, prefix: str | None = None) -> dict[str, Names]:
        begin = prefix or ""
        rests = [key.removeprefix(begin) for key in list(client.machine.bucket.objects) if key.startswith(begin)]
        return {"common_prefixes": sorted({begin + rest.partition("/")[0] for rest in rests if "/" in rest})}

    def put(
        self, client: _Client, key: str, data: Any, *, use_multipart: bool, mode: str = "overwrite", **_: Any
    ) -> None:
        machine = client.machine
        if not use_multipart:
            machine.effect("put", key, lambda bucket: bucket.put(key, data, is_conditional=mode == "create"))
            return
        number = next(self._uploads)
        try:
            machine.effect("begin", key, lambda bucket: bucket.begin(number, key))
            for part in data:
                machine.effect("part", key, partial(Bucket.add_part, number=number, part=part))
            machine.effect("complete", key, lambda bucket: bucket.complete(number))
        except BaseError:
            machine.bucket.uploads.pop(number, None)  # obstore aborts an upload that fails
            raise

    def copy(self, client: _Client, source: str, target: str, *, overwrite: bool) -> None:
        client.machine.effect(
            "copy", target, lambda bucket: bucket.copy_object(source, target, is_conditional=not overwrite)
        )

    def delete(self, client: _Client, key: str) -> None:
        client.machine.effect("delete", key, lambda bucket: bucket.delete(key))

    def _data(self, client: _Client, key: str) -> bytes:
        with client.machine._mutex:
            if key not in client.machine.bucket.objects:
                raise FileNotFoundError(key)
            return client.machine.bucket.objects[key]


def _meta(key: str, data: bytes) -> dict[str, Any]:
    return {"path": key, "size": len(data), "last_modified": datetime.fromtimestamp(WRITTEN_MS / 1000, UTC)}


_running: list[MachineWithBucket] = []


def _switch_on(machine: MachineWithBucket) -> None:
    """Let processes that start now open the bucket of this machine; they know nothing of a store yet."""
    _running[:] = [machine]
    for known in (
        opening._REACHED,
        opening._CONDITIONAL,
        remote._CONDITIONAL_COPIES,
        placed_writers._LOOKED,
        workspaces._KNOWN_WRITERS,
    ):
        known.clear()


def _open(url: str, *, can_put_if_absent: bool = True, multipart_bytes: int = MULTIPART_BYTES) -> RemoteStore:
    client: Any = _Client(_running[0])
    return RemoteStore(client, url, can_put_if_absent=can_put_if_absent, multipart_bytes=multipart_bytes)


def _at_once(_: ThreadPoolExecutor, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    """Do the work of a thread here: operations of several threads would have no order that can be repeated."""
    future: Future[Any] = Future()
    try:
        future.set_result(work(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001 - as an executor does
        future.set_exception(error)
    return future


@contextmanager
def in_a_bucket(*, is_staging_stored: bool = False, multipart_bytes: int = MULTIPART_BYTES) -> Iterator[None]:
    """Let the scenarios in the block be those of a repository in a bucket, staged units as well or not."""
    token = _kind.set(Kind(is_staging_stored, multipart_bytes))
    sleep = time.sleep
    try:
        with ExitStack() as stack:
            stack.enter_context(patch.object(remote, "obstore", _Obstore()))
            stack.enter_context(patch.object(remote, "open_remote", _open))
            stack.enter_context(patch.object(remote, "_PART_BYTES", PART_BYTES))
            stack.enter_context(patch.object(ThreadPoolExecutor, "submit", _at_once))
            # Nobody else is at the bucket, so that nothing is worth waiting for.
            stack.enter_context(patch("time.sleep", lambda seconds: sleep(min(seconds, 0.0001))))
            yield
    finally:
        _kind.reset(token)


def new_disk() -> MemoryFileSystem:
    """Return an empty disk; of a machine with a bucket inside of `in_a_bucket`."""
    kind = _kind.get()
    return MemoryFileSystem() if kind is None else MachineWithBucket(kind=kind)


def machine_of(fs: FileSystem) -> MachineWithBucket | None:
    """Return the machine with a bucket that a file system belongs to; None for a disk alone."""
    inner: Primitives = fs
    while isinstance(inner, WrappingFileSystem):
        inner = inner.inner
    return inner if isinstance(inner, MachineWithBucket) else None


def settings_on(fs: FileSystem, settings: Settings) -> Settings:
    """Return settings as they are on a machine: those of one with a bucket name it."""
    machine = machine_of(fs)
    if machine is None or settings.is_store_remote:
        return settings
    repository: dict[str, object] = {"store": URL, "multipart_bytes": machine.kind.multipart_bytes}
    journal: dict[str, object] = {}
    if machine.kind.is_staging_stored:
        repository["staging"], journal["handoff"] = "store", "store"
    return settings.model_copy(
        update={
            "repository": settings.repository.model_copy(update=repository),
            "journal": settings.journal.model_copy(update=journal),
        }
    )


def store_on(fs: FileSystem, folder: Path) -> ObjectStore:
    """Return the store of scenarios that have no settings: the machine's bucket, else a folder of its disk."""
    machine = machine_of(fs)
    return LocalStore(fs, folder) if machine is None else _open(URL, multipart_bytes=machine.kind.multipart_bytes)
