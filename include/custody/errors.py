"""The error tree, with one class for each thing that a handler does differently, and the exit codes of programs.

Every class has a stable `kind` for machines, an `exit_code` for the command line, and a `hint` that says what to do; a
single error may carry a better one. A message reads *what failed: file @offset: expected X, got Y. Next step.*
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """The exit codes of programs; an error of custody that ends one gives the code of its class (10 to 25) instead.

    Part of the interface of the command line and of Spark jobs: add, never change.
    """

    DONE = 0
    SOME_WORK_FAILED = 1
    """Some of the work failed; the rest is done and kept."""
    USAGE = 2
    """The command line is wrong; nothing was done."""
    INTERRUPTED = 130
    """128 and the number of SIGINT, as a shell says it of a program that the signal ended."""
    OUTPUT_UNREAD = 141
    """128 and the number of SIGPIPE: the reader of the output went away before its end."""


# Invariant: no two classes share a `kind` or an `exit_code`. Scripts compare them: add, never change.
class CustodyError(Exception):
    """Base of all errors that custody raises on purpose."""

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 10
    hint: str = ""


class ConfigurationError(CustodyError, ValueError):
    """A setting, a command's argument or the environment is not usable; the message names the remedy."""

    kind = "configuration"
    exit_code = 11
    hint = "Mend the setting or the argument. Trying again changes nothing."


class NotFoundError(CustodyError, LookupError):
    """The thing that was requested does not exist."""

    kind = "not-found"
    exit_code = 12
    hint = "Check the name, the id or the folder."


class InvalidInputError(CustodyError, ValueError):
    """Input from outside breaks the rules of its format."""

    kind = "invalid-input"
    exit_code = 13
    hint = "Mend the query or the input. Trying again changes nothing."


class LockedError(CustodyError):
    """Another live process holds what this one needs."""

    kind = "locked"
    exit_code = 14
    hint = "Wait and try again. A step that hangs makes way for `custody run STEP --take-over`."


class ConflictError(CustodyError):
    """Another writer was faster; refresh and try again."""

    kind = "conflict"
    exit_code = 15
    hint = "Wait and try again."


class ClosedError(CustodyError):
    """The object was closed, or poisoned by an earlier failure to write; open a new one."""

    kind = "closed"
    exit_code = 16
    hint = "Open the repository again: a command does so by itself when it is started again."


# Also an OSError: whoever handles refusals of the system, and looks at `errno`, handles both alike.
class StorageError(CustodyError, OSError):
    """The operating system refused a read or a write."""

    kind = "storage"
    exit_code = 17
    hint = "Look at the disk: space, rights, mount."


class LastingDiskError(CustodyError):
    """The work needs a disk that is there tomorrow, and was tried on a machine whose disk goes with its process."""

    kind = "lasting-disk"
    exit_code = 24
    hint = "The driver of the step does it, or a pass without Spark: custody run all."


class BackpressureError(CustodyError):
    """Too much waits to be rolled over; the message says how much and what to run."""

    kind = "backpressure"
    exit_code = 18
    hint = "Run the pipeline, `custody run all`, then try again."


class SupersededError(CustodyError):
    """Another attempt took over the work; what this one wrote and did not publish is a leftover."""

    kind = "superseded"
    exit_code = 19
    hint = "Nothing: the attempt that took over does the work."


class CorruptionError(CustodyError):
    """Stored bytes are not what was written; the message names file and offset."""

    kind = "corruption"
    exit_code = 20
    hint = "Run `custody verify`: it names what is damaged, what it costs and what mends it."


class FormatVersionError(CustodyError):
    """A file was written by a version of the format, or with a feature, that this code does not know."""

    kind = "format-version"
    exit_code = 21
    hint = "Use the release that wrote the file, or a newer one."


# A StorageError without an errno: nobody takes it for a file that is gone.
class StripeMissingError(StorageError):
    """The disk of a stripe is not there, or another one is in its place: what lies on it is out of reach, not gone."""

    kind = "stripe-missing"
    exit_code = 22
    hint = "Mount the disk of the stripe. `custody status` lists the stripes and what is missing."


# Without an errno, as a stripe that is missing.
class ContentContainerMissingError(StorageError):
    """The disk of a content container is not there, or another one is in its place: its contents are not gone."""

    kind = "content-container-missing"
    exit_code = 23
    hint = "Mount the disk of the container. `custody status` lists the containers and what is missing."


class EarlierStateError(CustodyError):
    """A part of the repository is of an earlier moment than one that was seen of it, or away: nothing is written."""

    kind = "earlier-state"
    exit_code = 25
    hint = "Mount the part that is away, or bring its newer state back. `custody verify` names it."
