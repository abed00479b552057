"""Who holds a lease: an attempt, in a process, on a machine; and whether that process is still there.

Whether a holder lives only decides how long another attempt waits for it. That two of them never both publish does not
depend on it, nor on clocks: the epoch alone says who may.
"""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path

import msgspec

from custody.errors import CorruptionError, FormatVersionError
from custody.format.framing import Frame, frame, frames

PREAMBLE = b"CUSTLSE\x01"
KIND_HOLDER = 1
_START_TIME = 19  # its place among the fields of /proc/<pid>/stat behind the command's name


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process, told from every other one that ever had its number."""

    host: str
    boot: str
    """The running kernel's own id and the namespace of process numbers: within both a number means one process."""
    pid: int
    started: int
    """When it started, in ticks since the kernel did; 0 where the system does not tell."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """What an epoch's file says."""

    lease: str
    writer: str
    epoch: int
    attempt: str
    process: Process
    taken_ms: int

    def __str__(self) -> str:
        return f"{self.attempt} (process {self.process.pid} on {self.process.host})"

    def encode(self) -> bytes:
        """Return the file's bytes."""
        return PREAMBLE + frame(KIND_HOLDER, msgspec.json.encode(self))

    @classmethod
    def decode(cls, data: bytes, path: Path) -> Holder:
        """Return what a file says.

        Raises:
            CorruptionError: it is damaged.
            FormatVersionError: it is of a version that this code does not know.
        """
        items = list(frames(data, len(PREAMBLE)))
        if len(items) == 1 and isinstance(items[0], Frame) and data[:7] == PREAMBLE[:7]:
            if data[7:8] != PREAMBLE[7:8]:
                raise FormatVersionError(f"{path} @7: expected lease version 1, got {data[7]}. Use a newer custody.")
            return msgspec.json.decode(items[0].payload, type=cls)
        raise CorruptionError(
            f"{path} @0: expected a lease's holder with its checksum, got other bytes. "
            "The next attempt takes the lease over once nothing has changed here for lease.dead_seconds."
        )


@lru_cache(maxsize=1)
def _boot() -> str:
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{kernel} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def this_process() -> Process:
    """Return the process that asks."""
    pid = os.getpid()
    return Process(host=socket.gethostname(), boot=_boot(), pid=pid, started=_started(pid) or 0)


def is_gone(process: Process, here: Process) -> bool | None:
    """Whether a process has ended; None when this one, on another machine, cannot know."""
    if process.host != here.host:
        return None
    if process.boot != here.boot:
        # The same machine after another start; another container on it has a kernel in common and is not seen.
        return True if process.boot.partition(" ")[0] != here.boot.partition(" ")[0] else None
    started = _started(process.pid)
    return started is None or (process.started != 0 and started != process.started)


def _started(pid: int) -> int | None:
    """Return when a process started, None when there is none that runs, 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _runs(pid)
    return None if fields[0] in "ZX" else int(fields[_START_TIME])


def _runs(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return 0
    return 0
