"""Reports of runs: what a step did with each of its units, as one line of JSON.

The line is the result of the task. Under `runs/<run>/<step>.json` in the repository, one folder a run, it is also kept
as the history of runs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from custody.errors import CorruptionError, CustodyError, NotFoundError
from custody.format.checked_json import is_changed, with_checksum
from custody.store import Traffic
from custody.vfs import FileSystem

FILES_MAX = 1000
"""So many files a report of a unit names at most."""


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
    files: tuple[str, ...] = ()
    """URIs of finished files that the unit wrote: logs, shards, files of destinations; at most FILES_MAX."""
    store: Traffic | None = None
    """What the unit asked of an object store; None where it asked for nothing."""


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
    attempt: str | None = None
    """Who did it, where that was said: under Airflow `<dag>/<run>/<task>/<try>`."""
    store: Traffic | None = None
    """What the units asked of an object store, without what it took to list them."""

    @property
    def files(self) -> tuple[str, ...]:
        """URIs of the finished files that the units wrote, each once."""
        return tuple(dict.fromkeys(name for unit in self.details for name in unit.files))

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
        asked = sum((unit.store for unit in details if unit.store is not None), Traffic())
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
            store=asked if asked.count else None,
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


def file_uri(place: str | Path) -> str:
    """Return the URI of a file, given its path on this machine or its URL in an object store."""
    return str(place) if "://" in str(place) else Path(place).absolute().as_uri()


def write_report(fs: FileSystem, runs: Path, run_id: str, report: StepReport, attempt: str | None = None) -> Path:
    """Store a report, with who did it; that of a second attempt at the step replaces the first one's."""
    report = msgspec.structs.replace(report, attempt=attempt or report.attempt)
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


def reports_of_run(fs: FileSystem, runs: Path, run_id: str) -> list[StepReport]:
    """Return the reports of a run's steps that can be read; none where the run left none."""
    reports = []
    for path in _report_paths(fs, runs / run_of(runs, run_id)):
        # One that is damaged, or was removed meanwhile, says nothing; the others do.
        with suppress(CustodyError):
            reports.append(decode_report(fs.read(path), path))
    return reports


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
    paths = _report_paths(fs, runs / run) if _RUN.fullmatch(run) else []
    if not paths:
        raise NotFoundError(f"there is no run {run[:120]!r}.")
    return [decode_report(fs.read(path), path) for path in sorted(paths, key=fs.modified_ms)]


def run_of(runs: Path, run_id: str) -> str:
    """Return the name that a run has in listings."""
    return report_path(runs, run_id, "").parent.name


def _report_paths(fs: FileSystem, folder: Path) -> list[Path]:
    names = fs.list(folder) if fs.is_directory(folder) else []
    return [folder / name for name in names if name.endswith(".json")]


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
