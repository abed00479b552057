"""Source locks: while an ingest looks up and stores events of a source, no other ingest stores events of that source.

Sources share a fixed number of stripes, by a digest of their name. `turns/<stripe>.lock` is held while a source is
locked, and `turns/<stripe>.last` names the ingest that locked it last. An ingest that finds another one's mark has to
read what is stored anew; one that finds its own mark knows that nothing was added meanwhile. The mark is set before
anything is stored. A mark that is lost costs a second look and nothing else.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from custody.errors import LockedError
from custody.vfs import FileSystem

# Part of what ingests of all versions agree on, as is the digest below: add no stripes.
STRIPES = 16
_POLL_SECONDS = 0.02
# Each change of turns makes others read again what is stored, so a turn lasts for many batches. A much
# longer one would keep others out.
_HOLD_SECONDS = 5.0
_GAP_SECONDS = 0.05
"""Longer than the others' interval between two attempts, so that a long ingest does not keep them out."""


class SourceLocks:
    """The sources that one ingest has locked.

    Args:
        fs: where the folder lies.
        folder: where all ingests of a repository lock sources.
        wait_seconds: how long to wait for a source that another ingest has locked.
    """

    def __init__(self, fs: FileSystem, folder: Path, wait_seconds: float) -> None:
        self._fs = fs
        self._folder = folder
        self._wait_seconds = wait_seconds
        self._mark = uuid.uuid4().hex.encode()
        self._held: frozenset[int] = frozenset()
        self._locks = ExitStack()
        self._since = 0.0
        self._is_folder_durable = False

    def take(self, sources: Iterable[str]) -> bool:
        """Lock some sources; return whether another ingest may have stored events of them since.

        What is locked already stays locked, but not for ever: others get their turn in between.

        Raises:
            LockedError: another ingest did not release a source in time.
            StorageError: the disk refused.
        """
        needed = frozenset(map(stripe_of, sources))
        if self._held and time.monotonic() - self._since > _HOLD_SECONDS:
            self.end()
            time.sleep(_GAP_SECONDS)
        if needed <= self._held:
            return False
        stripes = sorted(needed | self._held)
        self.end()  # all are locked anew in one order, so that two ingests never wait for each other
        # Once: that a folder which is there already is durable takes a sync to say.
        if not self._is_folder_durable or not self._fs.exists(self._folder):
            self._fs.make_directory(self._folder)
            self._is_folder_durable = True
        deadline = time.monotonic() + self._wait_seconds
        try:
            for stripe in stripes:
                self._lock(stripe, deadline)
            # All marks are set, whatever the first ones show: each stripe has a former holder of its own.
            is_new = [self._set_mark(stripe) for stripe in stripes]
        except BaseException:
            self.end()
            raise
        self._held, self._since = frozenset(stripes), time.monotonic()
        return any(is_new)

    def end(self) -> None:
        """Unlock everything, so that others have their turn."""
        self._held = frozenset()
        self._locks.close()

    def forget(self) -> None:
        """Unlock everything and trust no mark: what is stored is not known any more."""
        # With a new mark, the next turn finds a foreign one and reads anew what is stored.
        self._mark = uuid.uuid4().hex.encode()
        self.end()

    def _lock(self, stripe: int, deadline: float) -> None:
        path = self._folder / f"{stripe:02d}.lock"
        while True:
            try:
                self._locks.enter_context(self._fs.lock(path))
            except LockedError as error:
                if time.monotonic() >= deadline:
                    raise LockedError(
                        f"another ingest stores events of the same source: waited {self._wait_seconds:g} s "
                        f"(capture.source_wait_seconds) for {path}: {error}"
                    ) from error
                time.sleep(_POLL_SECONDS)
            else:
                return

    def _set_mark(self, stripe: int) -> bool:
        """Leave the mark of this ingest; return whether another one's was there."""
        path = self._folder / f"{stripe:02d}.last"
        if self._fs.exists(path) and self._fs.read(path) == self._mark:
            return False
        # Durable before anything is stored: without it, the events of this ingest could be there and its mark not.
        self._fs.write_durably(path, self._mark)
        return True


def stripe_of(source: str) -> int:
    """Return the stripe of a source. Ingests of all versions must agree: never change it."""
    return int.from_bytes(hashlib.sha256(source.encode("utf-8", "surrogatepass")).digest()[:4]) % STRIPES
