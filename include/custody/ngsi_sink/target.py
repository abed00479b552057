"""Files of destinations, brought to what a committed batch says; doing it again changes nothing.

`Target` is all that the sink knows of the place where files go. `FilesTarget` is one on any file system that can append
and cut (`Files`): the folder of `custody.ngsi_sink.local`, HDFS by REST, HDFS by RPC. `apply` sees how long a file is,
compares what an earlier try left, cuts, appends; a file that somebody else has open is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from custody.errors import CorruptionError, StorageError
from custody.ngsi_sink.batch_file import Part

_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.2, 5.0
BUSY_SECONDS = 180.0
"""HDFS takes a file away from a writer that died after 60 s, and then needs some seconds to find out its length."""


class Target(Protocol):
    """Where files of destinations go. Nobody else writes to them while a sink is open."""

    def length(self, path: str) -> int:
        """Return the bytes of a file, 0 where there is none.

        Raises:
            DestinationError: what has its name is no file.
            StorageError: nobody answered, or the answer is a refusal.
        """
        ...

    def apply(self, part: Part, data: memoryview) -> None:
        """Make a file end in a part, once, whatever a crash left of an earlier try.

        Durability: on return the file with the part survives what the file system survives: a local one a power loss,
        HDFS what docs/design/026 says.

        Raises:
            DestinationError: the file is shorter than it was, something else stands where the part belongs, or what has
                its name is no file.
            StorageError: it was refused, or nobody answered; whether it was done is unknown. Apply it again.
        """
        ...

    def uri(self, path: str) -> str:
        """Return what names a file everywhere: `file:///…`, `hdfs://…` or `webhdfs://…`."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...


class DestinationError(CorruptionError):
    """What stands in the place of a destination's file is no file, or not what was committed to it.

    Waiting does not help, and it concerns this destination alone. Nothing was changed.
    """


def no_file(uri: str) -> DestinationError:
    """Return the error of a name that something else than a file has."""
    return DestinationError(
        f"{uri}: expected a file, or nothing, got a folder or something else. Nothing was changed; "
        "move it away, then submit what waits in the quarantine again."
    )


class BusyError(Exception):
    """Somebody else has the file open, or it is being repaired: the same call may succeed a little later."""


class Files(Protocol):
    """A file system that can append and cut. All methods raise StorageError, and BusyError where waiting helps.

    `size` raises DestinationError of what is no file.
    """

    @property
    def outlives_writers(self) -> bool:
        """Whether a file may still change after its writer died, as that of a call that a server goes on with."""
        ...

    def size(self, path: str) -> int | None:
        """Return the bytes of a file, None where there is none."""
        ...

    def digest(self, path: str, offset: int, length: int) -> str:
        """Return the SHA-256 of a piece of a file, in hexadecimal."""
        ...

    def settle(self, path: str) -> None:
        """End what a writer left that died, and make it durable: from here on `size` is that of the bytes that stay."""
        ...

    def create(self, path: str, data: memoryview) -> None:
        """Make a file and the folders above it, durably; BusyError where there is one by now."""
        ...

    def append(self, path: str, data: memoryview) -> None:
        """Add bytes at the end of a file, durably."""
        ...

    def cut(self, path: str, length: int) -> None:
        """Cut a file, durably."""
        ...

    def uri(self, path: str) -> str:
        """Return what names a file everywhere."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...


class FilesTarget:
    """A target on a file system that can append and cut."""

    def __init__(
        self,
        files: Files,
        *,
        busy_seconds: float = BUSY_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._busy_seconds = busy_seconds
        self._sleep = sleep
        self._now = now
        self._settled: set[str] = set()
        """Paths that nobody but this object has written to since they were settled."""

    def length(self, path: str) -> int:
        """Return the bytes of a file, 0 where there is none."""
        return self._files.size(path) or 0

    def apply(self, part: Part, data: memoryview) -> None:
        """Make a file end in a part, once, whatever a crash left of an earlier try."""
        until, wait = self._now() + self._busy_seconds, _FIRST_WAIT_SECONDS
        while True:
            is_settled = part.path in self._settled or not self._files.outlives_writers
            self._settled.discard(part.path)
            try:
                # From the beginning each time: who had the file open may have written to it.
                self._apply(part, data, is_settled=is_settled)
            except BusyError as error:
                if self._now() + wait > until:
                    raise StorageError(
                        f"{self.uri(part.path)}: expected it to be free within {self._busy_seconds:.0f} s, "
                        f"got {error}. See who else writes to it, and try again."
                    ) from error
                self._sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
            else:
                self._settled.add(part.path)
                return

    def uri(self, path: str) -> str:
        """Return what names a file everywhere."""
        return self._files.uri(path)

    def close(self) -> None:
        """Give connections back."""
        self._files.close()

    def _apply(self, part: Part, data: memoryview, *, is_settled: bool) -> None:
        size = self._files.size(part.path)
        if size is None:
            if part.offset:
                raise self._short(part, 0)
            self._files.create(part.path, data)
            return
        if is_settled and size == part.offset and part.length:
            self._files.append(part.path, data)
            return
        # An earlier try may have left it so; who made that may have died before it was durable, or even ended.
        self._files.settle(part.path)
        size = self._files.size(part.path) or 0
        if size < part.offset:
            raise self._short(part, size)
        end = part.offset + part.length
        if size >= end:
            if self._files.digest(part.path, part.offset, part.length) == part.sha256:
                return
            if size > end:
                raise DestinationError(
                    f"{self.uri(part.path)} @{part.offset}: expected {part.length} bytes that were committed, got "
                    f"others, and {size - end} more behind them. Nothing was changed; see who else writes to this file."
                )
        if size > part.offset:
            self._files.cut(part.path, part.offset)
        self._files.append(part.path, data)

    def _short(self, part: Part, size: int) -> DestinationError:
        return DestinationError(
            f"{self.uri(part.path)}: expected at least the {part.offset} bytes that were committed, got {size}. "
            "Nothing was changed; bring the file back from a backup."
        )
