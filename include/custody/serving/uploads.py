"""Contents that are delivered before their events: files that wait, by digest and sender, until an event names them.

A file is written under a temporary name while its digest is computed, and gets its name when all of it is durable and
the digest right. So whatever has a name is whole, and a second delivery of the same content changes nothing. A file is
removed when it has waited too long, and not when an event has named it: the event may be delivered again.

Only its sender names a content: a digest is no secret, and whoever knew one would have a content of somebody else given
out as that of the own event. So each sender delivers the bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

from custody.clock import Clock
from custody.errors import BackpressureError, InvalidInputError, NotFoundError
from custody.vfs import TEMPORARY_SUFFIX, FileSystem, WritableFile, bytes_on_disk, temporary

CHUNK_BYTES = 1 << 20
_NAME = re.compile(r"[0-9a-f]{64}-[0-9a-f]{16}")
_OWNER_DIGITS = 16
_CLEAN_MS = 60_000
"""How often files are looked for that waited too long."""


class Uploads:
    """The contents of a repository that wait for their events.

    Args:
        fs: where the folder lies.
        folder: of the files.
        clock: tells how long a file waits.
        bytes_max: of all files together.
        hours: how long a file waits.
    """

    def __init__(self, fs: FileSystem, folder: Path, clock: Clock, bytes_max: int, hours: float) -> None:
        self._fs = fs
        self._folder = folder
        self._clock = clock
        self._bytes_max = bytes_max
        self._wait_ms = int(hours * 3_600_000)
        self._lock = Lock()
        self._cleaned_ms = 0
        self._bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the files as of the last look, and of those that came since."""
        return self._bytes

    def begin(self, sha256: str, size: int | None, sender: str) -> Upload:
        """Begin a content; its `size` is the one that the sender announced, None for no announcement.

        Raises:
            BackpressureError: too many bytes wait.
            StorageError: the disk refused.
        """
        self.clean()
        if self._bytes + (size or 0) > self._bytes_max:
            raise BackpressureError(
                f"{self._bytes} bytes of contents wait for their events (serve.uploads_bytes_max). Try again later."
            )
        self._fs.make_directory(self._folder)
        return Upload(self._fs, self._path(sha256, sender), sha256, self)

    def has(self, sha256: str, sender: str) -> bool:
        """Whether a content of this sender is there, whole."""
        return self._fs.exists(self._path(sha256, sender))

    def read(self, sha256: str, sender: str) -> Iterator[bytes]:
        """Yield a content of this sender in pieces.

        Raises:
            NotFoundError: it is not there, or not any more.
        """
        path = self._path(sha256, sender)
        if not self._fs.exists(path):
            raise NotFoundError(f"no content {sha256} was delivered, or it waited too long for its event.")
        view = self._fs.view(path)
        for start in range(0, len(view), CHUNK_BYTES):
            yield bytes(view[start : start + CHUNK_BYTES])

    def clean(self) -> None:
        """Remove what waited too long, once in a while."""
        now = self._clock.now_ms()
        with self._lock:
            if now - self._cleaned_ms < _CLEAN_MS:
                return
            self._cleaned_ms = now
            total = 0
            for name in self._fs.list(self._folder):
                path = self._folder / name
                if not _NAME.fullmatch(name) and not name.endswith(TEMPORARY_SUFFIX):
                    continue
                try:
                    age, size = now - self._fs.modified_ms(path), self._fs.size(path)
                except OSError:
                    continue  # another process removed it
                if age > self._wait_ms:
                    self._fs.remove(path)
                else:
                    total += bytes_on_disk(size)
            self._bytes = total

    def _path(self, sha256: str, sender: str) -> Path:
        owner = hashlib.sha256(sender.encode()).hexdigest()[:_OWNER_DIGITS]
        return self._folder / f"{sha256}-{owner}"

    def add(self, size: int) -> None:
        """Count bytes that are being written.

        Raises:
            BackpressureError: there would be too many.
        """
        with self._lock:
            if self._bytes + size > self._bytes_max:
                raise BackpressureError("too many bytes of contents wait (serve.uploads_bytes_max). Try again later.")
            self._bytes += size


class Upload:
    """One content that comes in; what leaves the block without `finish` is removed."""

    def __init__(self, fs: FileSystem, path: Path, sha256: str, uploads: Uploads) -> None:
        self._fs = fs
        self._path = path
        self._sha256 = sha256
        self._uploads = uploads
        self._digest = hashlib.sha256()
        self._size = 0
        self._room = bytes_on_disk(0)
        """Counted for it so far: small contents take inodes."""
        uploads.add(self._room)
        self._partial = temporary(path)
        self._file: WritableFile = fs.create(self._partial)
        self._is_done = False

    def write(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            BackpressureError: too many bytes wait.
            StorageError: the disk refused.
        """
        more = bytes_on_disk(self._size + len(data)) - self._room
        self._uploads.add(more)
        self._room += more
        self._size += len(data)
        self._digest.update(data)
        self._file.write(data)

    def finish(self) -> None:
        """End the content.

        Durability: on return it survives power loss under its name.

        Raises:
            InvalidInputError: its digest is not the one that was announced.
        """
        digest = self._digest.hexdigest()
        if digest != self._sha256:
            raise InvalidInputError(f"expected a content with the digest {self._sha256}, got {digest}")
        self._file.sync()
        self._file.close()
        # Of two deliveries of one content the later one replaces the earlier one by the same bytes.
        self._fs.rename(self._partial, self._path)
        self._fs.sync_directory(self._path.parent)
        self._is_done = True

    def abandon(self) -> None:
        """Remove what came of it, unless it is finished."""
        if not self._is_done:
            self._file.close()
            self._fs.remove(self._partial)
            self._uploads.add(-self._room)
