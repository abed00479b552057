"""What pyarrow writes into: a file of the vfs, hashed on the way."""

from __future__ import annotations

import hashlib
from types import TracebackType
from typing import Self

from custody.vfs import WritableFile


class HashingSink:
    """Hands bytes on to a file and hashes them on the way, so that the log is not read again."""

    def __init__(self, file: WritableFile) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()

    @property
    def closed(self) -> bool:
        """Whether the file behind it is closed."""
        return self._file.closed

    def write(self, data: bytes) -> int:
        """Hash and append; return the length."""
        self.sha256.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        """Hand buffered bytes on."""
        self._file.flush()

    def tell(self) -> int:
        """Return the number of bytes so far."""
        return self._file.tell()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.flush()
