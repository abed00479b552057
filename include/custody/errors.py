"""The error tree: one class for each thing that a handler does differently.

Every class has a stable `kind` for machines and an `exit_code` for the command line. A message reads
*what failed: file @offset: expected X, got Y. Next step.*
"""

from __future__ import annotations

from typing import ClassVar


class CustodyError(Exception):
    """Base of all errors that custody raises on purpose."""

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 10


class ConfigurationError(CustodyError, ValueError):
    """A setting, a command's argument or the environment is not usable; the message names the remedy."""

    kind = "configuration"
    exit_code = 11


class NotFoundError(CustodyError, LookupError):
    """What was asked for does not exist."""

    kind = "not-found"
    exit_code = 12


class InvalidInputError(CustodyError, ValueError):
    """Input from outside breaks the rules of its format."""

    kind = "invalid-input"
    exit_code = 13


class LockedError(CustodyError):
    """Another live process holds what this one needs."""

    kind = "locked"
    exit_code = 14


class ConflictError(CustodyError):
    """Another writer was faster; refresh and try again."""

    kind = "conflict"
    exit_code = 15


class ClosedError(CustodyError):
    """The object was closed, or poisoned by an earlier failure to write; open a new one."""

    kind = "closed"
    exit_code = 16


class StorageError(CustodyError, OSError):
    """The operating system refused a read or a write."""

    kind = "storage"
    exit_code = 17


class BackpressureError(CustodyError):
    """Too much waits to be rolled over; the message says how much and what to run."""

    kind = "backpressure"
    exit_code = 18


class SupersededError(CustodyError):
    """Another attempt took over the work; what this one wrote and did not publish is a leftover."""

    kind = "superseded"
    exit_code = 19


class CorruptionError(CustodyError):
    """Stored bytes are not what was written; the message names file and offset."""

    kind = "corruption"
    exit_code = 20


class FormatVersionError(CustodyError):
    """A file was written by a version of the format, or with a feature, that this code does not know."""

    kind = "format-version"
    exit_code = 21
