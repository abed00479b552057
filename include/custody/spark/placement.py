"""Where a job does the units of a step: in its driver, or in the Python workers of a Spark session.

The start of a session, with its workers, costs seconds of CPU. A step whose units are smaller than that is done in the
driver, under the same leases and with the same files as result. Units that nobody can size go to Spark.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from custody.config import Settings
from custody.errors import CustodyError
from custody.vfs import FileSystem
from custody.workspace import Workspace
from custody.workspace.step import Step, Unit

UNIT_BYTES_MIN = 256 << 10
"""What a unit counts at least, unless it works on the catalog alone: each opens files and syncs."""
_GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"
"""Set by `spark-submit` for the Python that it starts."""
_LOOK_SECONDS = 0.5
_KILLED = 137


class Placement(NamedTuple):
    """Where units are done, and why there."""

    in_driver: bool
    reason: str

    def __str__(self) -> str:
        return f"{'driver' if self.in_driver else 'Spark'}: {self.reason}"


def place_units(step: Step, settings: Settings, units: Sequence[Unit], fs: FileSystem | None = None) -> Placement:
    """Decide where the units of a step are done; see `place_bytes`."""
    return place_bytes(settings, unit_sizes(step, settings, units, fs))


def unit_sizes(
    step: Step, settings: Settings, units: Sequence[Unit], fs: FileSystem | None = None
) -> Iterator[int | None]:
    """Return how many bytes each unit reads, None where nobody can say."""
    workspaces: dict[str, Workspace] = {}

    def size(unit: Unit) -> int | None:
        writer = unit.writer or settings.repository.writer
        if writer not in workspaces:
            workspaces[writer] = Workspace(settings, writer, fs)
        try:
            return step.work_bytes(workspaces[writer], unit)
        except CustodyError:  # gone or damaged since it was listed: the unit itself says so
            return None

    return map(size, units)


def place_bytes(settings: Settings, sizes: Iterable[int | None]) -> Placement:
    """Decide where units of these sizes in bytes are done: 0 for work on the catalog alone, None for an unknown size.

    Sizes are taken until they decide, so that thousands of large units are not all looked at.
    """
    most = settings.spark.driver_bytes_max
    if not most:
        return Placement(False, "spark.driver_bytes_max is 0")
    total = units = 0
    for size in sizes:
        if size is None:
            return Placement(False, "the size of a unit is not known")
        units += 1
        total += max(size, UNIT_BYTES_MIN) if size else 0
        if total > most:
            return Placement(False, f"{units} or more units count as {total} bytes, spark.driver_bytes_max is {most}")
    if not total:
        return Placement(True, f"{units} units work on the catalog and on names alone")
    return Placement(True, f"{units} units count as {total} bytes of at most {most}")


def end_with_spark_submit(environ: Mapping[str, str] = os.environ) -> None:
    """Let this process end, as a killed one does, as soon as the JVM that started it is gone.

    With a session that happens by itself, for Python and the JVM talk. Without one nobody would notice that a task was
    killed, and its work would go on beside the next try's. What ends so leaves what a killed driver leaves.
    """
    if _GATEWAY_VARIABLE in environ:
        threading.Thread(target=_watch, args=(os.getppid(),), name="custody-parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(_KILLED)
