"""A file that hashes what is written to it, for pyarrow to write into.

Parquet is written in some hundred pieces a block: they are put together first, as each system call costs more than the
piece.
"""

from __future__ import annotations

import hashlib
from types import TracebackType
from typing import Self

from custody.vfs import WritableFile

_BUFFER_BYTES = 256 << 10


class HashingSink:
    """A sink that hands bytes on to a file and hashes them on the way, so that the log is not read again.

    The digest and the file are complete after `flush`.
    """

    def __init__(self, file: WritableFile) -> None:
        self._file = file
        self._buffer = bytearray()
        self.sha256 = hashlib.sha256()

    @property
    def closed(self) -> bool:
        """Whether the file behind it is closed."""
        return self._file.closed

    def write(self, data: bytes) -> int:
        """Hash and append; return the length."""
        self._buffer += data
        if len(self._buffer) >= _BUFFER_BYTES:
            self._hand_on()
        return len(data)

    def flush(self) -> None:
        """Hand buffered bytes on."""
        self._hand_on()
        self._file.flush()

    def tell(self) -> int:
        """Return the number of bytes so far."""
        return self._file.tell() + len(self._buffer)

    def _hand_on(self) -> None:
        if self._buffer:
            self.sha256.update(self._buffer)
            self._file.write(bytes(self._buffer))
            self._buffer.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.flush()
