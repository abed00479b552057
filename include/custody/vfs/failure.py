"""How a refusal of the operating system becomes a StorageError: what was attempted, on which path, what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from custody.errors import StorageError

_HINTS = {
    errno.ENOSPC: " Free space on this disk, then run the command again.",
    errno.EACCES: " Check the owner and the mode of the folder.",
    errno.EROFS: " The disk is mounted read-only.",
}


def storage_error(action: str, path: Path, error: OSError) -> StorageError:
    """Say what was attempted, on which path, and what the system answered; the number of the answer is kept."""
    failure = StorageError(f"cannot {action} {path}: {error.strerror or error}.{_HINTS.get(error.errno or 0, '')}")
    failure.errno = error.errno
    return failure


def refusal(action: str, path: Path, number: int) -> StorageError:
    """Return the error that a system would give with this errno."""
    return storage_error(action, path, OSError(number, os.strerror(number)))


@contextmanager
def reported(action: str, path: Path) -> Iterator[None]:
    """Turn what the system raises inside into a StorageError."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise storage_error(action, path, error) from error
