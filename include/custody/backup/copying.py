"""Bytes on their way into a target: small files share an object, large ones are cut, the load is bounded."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from custody.backup.manifest import CHUNK_BYTES, BackupFile
from custody.backup.repository_files import RepositoryFiles, SourceFile
from custody.backup.target import BackupTarget

SHARED_BYTES_MAX = 4 << 20
"""Files up to this length share objects."""


class Throttle:
    """Lets through so many bytes a second, on the average; without a bound all.

    Args:
        bytes_per_second: the bound, None for none.
    """

    def __init__(
        self,
        bytes_per_second: int | None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bytes_per_second
        self._now = now
        self._sleep = sleep
        self._free_at = 0.0

    def take(self, count: int) -> None:
        """Wait until these bytes may pass."""
        if self._rate is None:
            return
        now = self._now()
        begin = max(self._free_at, now)
        self._free_at = begin + count / self._rate
        if begin > now:
            self._sleep(begin - now)


@dataclass
class _Shared:
    """Small files that wait for their object."""

    data: bytearray = field(default_factory=bytearray)
    files: list[tuple[SourceFile, bytes, int]] = field(default_factory=list)


class Copier:
    """Copies files of a repository into a target; `rows` are those that are whole there."""

    def __init__(self, source: RepositoryFiles, target: BackupTarget, throttle: Throttle) -> None:
        self._source = source
        self._target = target
        self._throttle = throttle
        self._objects = target.objects()
        # Apart, so that no object is kept for a part of it: what passes is gone soon, what lasts is not.
        self._shared = {True: _Shared(), False: _Shared()}
        self.rows: dict[str, BackupFile] = {}
        self.bytes_new = 0
        """Bytes of the objects that were added."""
        self.bytes_read = 0

    def has(self, row: BackupFile) -> bool:
        """Whether the target has all bytes of a row."""
        return self._objects.issuperset(row.objects)

    def copy(self, file: SourceFile, known: BackupFile | None = None) -> None:
        """Copy a file; its row is there after `flush`, at the latest.

        `known` is its row in an earlier backup: what turns out to be the same is not written once more.

        Raises:
            NotFoundError: it has gone, or is shorter than when it was listed.
        """
        known = self.rows.pop(file.path, known)
        if file.size > SHARED_BYTES_MAX:
            self._copy_large(file)
            return
        data = self._read(file, 0, file.size) if file.size else b""
        sha256 = hashlib.sha256(data).digest()
        if known is not None and (known.size, known.sha256) == (file.size, sha256) and self.has(known):
            self.rows[file.path] = replace(known, modified_ms=file.modified_ms)
            return
        shared = self._shared[file.is_passing]
        if shared.data and len(shared.data) + len(data) > CHUNK_BYTES:
            self._write(shared)
        shared.files.append((file, sha256, len(shared.data)))
        shared.data += data

    def flush(self) -> None:
        """Write the objects of the small files that wait."""
        for shared in self._shared.values():
            self._write(shared)

    def _write(self, shared: _Shared) -> None:
        objects = (self._put(bytes(shared.data)),) if shared.data else ()
        for file, sha256, start in shared.files:
            used, offset = (objects, start) if file.size else ((), 0)
            self.rows[file.path] = BackupFile(file.path, file.size, file.modified_ms, sha256, used, offset)
        shared.data.clear()
        shared.files.clear()

    def _copy_large(self, file: SourceFile) -> None:
        whole, objects = hashlib.sha256(), []
        for start in range(0, file.size, CHUNK_BYTES):
            part = self._read(file, start, min(CHUNK_BYTES, file.size - start))
            whole.update(part)
            objects.append(self._put(part))
        self.rows[file.path] = BackupFile(file.path, file.size, file.modified_ms, whole.digest(), tuple(objects), 0)

    def _read(self, file: SourceFile, start: int, length: int) -> bytes:
        self._throttle.take(length)
        data = self._source.read(file, start, length)
        if len(data) != length:
            raise ShrunkError(file.path)
        self.bytes_read += length
        return data

    def _put(self, data: bytes) -> bytes:
        digest = hashlib.sha256(data).digest()
        if digest not in self._objects:
            self._target.put_object(data)
            self._objects.add(digest)
            self.bytes_new += len(data)
        return digest


class ShrunkError(Exception):
    """A file is shorter than when it was listed: it was cut, or replaced."""
