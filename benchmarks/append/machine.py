"""Facts about the machine, without which a figure means nothing."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

_PROBES = 200
_PROBE_BYTES = 4096
_MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs"}


@dataclass(frozen=True, slots=True)
class Disk:
    """Where the stores lie."""

    file_system: str
    device: str
    options: str
    write_cache: str
    sync_p50_ms: float
    """Half of the probes (4 KB appended, fdatasync) took at most this long."""
    sync_p99_ms: float

    @property
    def is_memory(self) -> bool:
        """Whether a sync means nothing here."""
        return self.file_system in _MEMORY_FILE_SYSTEMS


@dataclass(frozen=True, slots=True)
class Machine:
    """What the figures were measured on."""

    processors: int
    processor: str
    memory_bytes: int
    kernel: str
    disk: Disk
    python: str
    pyarrow: str
    revision: str

    @classmethod
    def look(cls, folder: Path) -> Machine:
        """Gather the facts; `folder` is on the disk that is measured."""
        return cls(
            processors=len(os.sched_getaffinity(0)),
            processor=_processor(),
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
            disk=_disk(folder),
            python=platform.python_version(),
            pyarrow=version("pyarrow"),
            revision=_revision(),
        )

    def document(self) -> dict[str, object]:
        """The facts as JSON values."""
        return asdict(self)


def load_average() -> list[float]:
    """Return the load of the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _disk(folder: Path) -> Disk:
    device, kind, options = _mount(folder.resolve())
    cache = Path("/sys/block") / Path(device).name.rstrip("0123456789") / "queue" / "write_cache"
    waits = sorted(_probe(folder / "probe"))
    return Disk(
        file_system=kind,
        device=device,
        options=options,
        write_cache=cache.read_text().strip() if cache.exists() else "unknown",
        sync_p50_ms=round(statistics.median(waits) * 1e3, 3),
        sync_p99_ms=round(waits[int((len(waits) - 1) * 0.99)] * 1e3, 3),
    )


def _mount(folder: Path) -> tuple[str, str, str]:
    """Return device, file system and options of the mount that holds a folder: the longest that begins its path."""
    best, found = -1, ("unknown", "unknown", "")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, point, kind, options, *_ = line.split()
        if folder.is_relative_to(point) and len(point) >= best:
            best, found = len(point), (device, kind, options)
    return found


def _probe(path: Path) -> list[float]:
    waits = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
    try:
        for _ in range(_PROBES):
            os.write(descriptor, bytes(_PROBE_BYTES))
            begin = time.perf_counter()
            os.fdatasync(descriptor)
            waits.append(time.perf_counter() - begin)
    finally:
        os.close(descriptor)
        path.unlink()
    return waits


def _revision() -> str:
    """Return the commit of this source tree, with a mark when files differ from it."""
    here = Path(__file__).parent
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
