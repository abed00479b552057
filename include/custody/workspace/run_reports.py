"""Reports of runs: what a step did with each of its units, as one line of JSON.

The line is the result of the task. Under `runs/<run>/<step>.json` in the repository, one folder a run, it is also kept
as the history of runs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from custody.errors import CorruptionError, CustodyError, NotFoundError
from custody.format.checked_json import is_changed, with_checksum
from custody.vfs import FileSystem


class UnitReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a step for one unit; sizes in bytes: read (`bytes_in`) and written or removed (`bytes`)."""

    unit: str
    events: int = 0
    bytes_in: int = 0
    bytes: int = 0
    seconds: float = 0.0
    note: str | None = None
    error: str | None = None
    error_kind: str | None = None
    """Of an error of custody, its `kind`."""


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a step for all its units; sizes in bytes, read (`bytes_in`) and written or removed (`bytes`).

    `seconds` is the time of the work; `startup_seconds` is the time from the submit until the work could begin. `place`
    says where a Spark job did the units, and why there.
    """

    step: str
    repository: str
    units: int
    events: int
    bytes: int
    seconds: float
    failed: int
    details: tuple[UnitReport, ...]
    bytes_in: int = 0
    startup_seconds: float = 0.0
    place: str | None = None

    @classmethod
    def of(
        cls,
        step: str,
        repository: str,
        seconds: float,
        details: Sequence[UnitReport],
        *,
        startup_seconds: float = 0.0,
        place: str | None = None,
    ) -> StepReport:
        """Add up the reports of the units."""
        return cls(
            step=step,
            repository=repository,
            units=len(details),
            events=sum(unit.events for unit in details),
            bytes_in=sum(unit.bytes_in for unit in details),
            bytes=sum(unit.bytes for unit in details),
            seconds=round(seconds, 3),
            startup_seconds=round(startup_seconds, 3),
            place=place,
            failed=sum(unit.error is not None for unit in details),
            details=tuple(details),
        )

    def line(self) -> str:
        """Return the report as one line of JSON."""
        return msgspec.json.encode(self).decode()


# Only these characters are kept, so that no run id names a folder outside of `runs`, or a hidden one.
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
# With the digest behind it, far below the 255 bytes that a file's name may have.
_READABLE_CHARACTERS = 80
_RUN = re.compile(r"[A-Za-z0-9._-]{0,80}-[0-9a-f]{8}")


def report_path(runs: Path, run_id: str, step: str) -> Path:
    """Return the path of a step's report. Run ids come from outside: their text never becomes a path as it is."""
    readable = _UNSAFE.sub("_", run_id).strip("._")[:_READABLE_CHARACTERS]
    # Two runs may have the same readable part; the digest keeps them apart.
    digest = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return runs / f"{readable}-{digest}" / f"{step}.json"


def write_report(fs: FileSystem, runs: Path, run_id: str, report: StepReport) -> Path:
    """Store a report; that of a second attempt at the step replaces the first one's."""
    path = report_path(runs, run_id, report.step)
    fs.make_directory(path.parent)
    fs.write_durably(path, with_checksum(report.line().encode()))
    return path


def read_report(fs: FileSystem, runs: Path, run_id: str, step: str) -> StepReport:
    """Return the report of a run's step.

    Raises:
        NotFoundError: there is none of this step.
        CorruptionError: it is not as it was written.
    """
    path = report_path(runs, run_id, step)
    if not fs.exists(path):
        raise NotFoundError(f"{path}: expected the report of step {step!r}, found none.")
    return decode_report(fs.read(path), path)


class RunOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A run of steps, added up; its time in ms since the epoch."""

    run: str
    """The name of its folder: the run's id, as far as it can be read, and a digest of it."""
    last_ms: int
    """When its last report was written."""
    steps: tuple[str, ...]
    units: int
    events: int
    """The most of a step: the steps of a run work on the same events."""
    failed: int
    seconds: float


def list_runs(
    fs: FileSystem, runs: Path, limit: int, only: str | None = None
) -> tuple[list[RunOverview], int, list[str]]:
    """Return the runs whose reports are kept, the newest first, at most `limit`; how many there are; and notices.

    With `only` that of this name, if there is one. A run of which a report cannot be read is left out, and a notice
    says why.
    """
    names = [name for name in fs.list(runs) if _RUN.fullmatch(name) and only in (None, name)]
    folders = [name for name in names if fs.is_directory(runs / name)]
    newest = sorted(folders, key=lambda name: (-fs.modified_ms(runs / name), name))
    overviews, notices = [], []
    for name in newest[:limit]:
        try:
            overviews.append(_overview(fs, runs / name, read_run(fs, runs, name)))
        except CustodyError as error:
            notices.append(str(error))
    return overviews, len(folders), notices


def read_run(fs: FileSystem, runs: Path, run: str) -> list[StepReport]:
    """Return the reports of a run's steps, in the order in which they were written.

    Raises:
        NotFoundError: there is no such run.
        CorruptionError: a report is not as it was written.
    """
    names = [name for name in fs.list(runs / run) if name.endswith(".json")] if _RUN.fullmatch(run) else []
    if not names:
        raise NotFoundError(f"there is no run {run[:120]!r}.")
    paths = sorted((runs / run / name for name in names), key=fs.modified_ms)
    return [decode_report(fs.read(path), path) for path in paths]


def run_of(runs: Path, run_id: str) -> str:
    """Return the name that a run has in listings."""
    return report_path(runs, run_id, "").parent.name


def _overview(fs: FileSystem, folder: Path, reports: Sequence[StepReport]) -> RunOverview:
    return RunOverview(
        run=folder.name,
        last_ms=fs.modified_ms(folder),
        steps=tuple(report.step for report in reports),
        units=sum(report.units for report in reports),
        events=max((report.events for report in reports), default=0),
        failed=sum(report.failed for report in reports),
        seconds=round(sum(report.seconds for report in reports), 3),
    )


def decode_report(data: bytes, path: Path) -> StepReport:
    """Return a report; raises CorruptionError when it is not as it was written."""
    # A report without any checksum counts as unchanged.
    if is_changed(data):
        raise CorruptionError(f"{path}: expected a report with its checksum, got other bytes.")
    try:
        return msgspec.json.decode(data, type=StepReport)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"{path}: expected a report of a step: {error}.") from error
