"""Reports of runs: what a step did with each of its units, as one line of JSON.

The line is the result of the task. Under `runs/<run>/<step>.json` in the repository, one folder a run, it is also kept
as the history of runs. Of a repository in an object store it is the object `RUNS/reports/<run>/<step>.json`, which the
machines of all steps and readers share; `RUNS/days/<day>/<run>` marks the days on which a run wrote reports.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from custody.catalog import store_of
from custody.config import Settings
from custody.errors import CorruptionError, CustodyError, NotFoundError
from custody.format.checked_json import is_changed, with_checksum
from custody.store import StoredFiles, Traffic, carried, place_text
from custody.vfs import FileSystem, PosixFileSystem

FILES_MAX = 1000
"""So many files a report of a unit names at most."""
_RUNS = "RUNS"  # part of the format; no writer can have this name
_REPORTS, _DAYS = "reports", "days"
DAYS_MAX = 90
"""Of an object store, the runs of so many days are listed: the newest days on which there were any."""
_PARALLEL = 16


class ReportFiles(Protocol):
    """What reports need of where they lie: a `FileSystem` has it, and `StoredFiles`."""

    def list(self, folder: Path) -> list[str]:
        """Return the names in a folder."""
        ...

    def is_directory(self, path: Path) -> bool:
        """Whether a name is that of a folder."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether a file is there."""
        ...

    def read(self, path: Path) -> bytes:
        """Return the whole content."""
        ...

    def modified_ms(self, path: Path) -> int:
        """Return when a file was last written, in ms since the epoch."""
        ...

    def make_directory(self, folder: Path) -> None:
        """Make a folder, durably."""
        ...

    def write_durably(self, path: Path, data: bytes) -> None:
        """Write a file, replacing one of the same name."""
        ...


class ReportPlace(NamedTuple):
    """The folder of a repository's reports, and what reads and writes it."""

    files: ReportFiles
    folder: Path


def report_place(settings: Settings, fs: FileSystem | None = None) -> ReportPlace:
    """Return where a repository's reports lie: in its folder, or in its object store.

    Raises:
        ConfigurationError: as `store_of`.
    """
    fs = fs or PosixFileSystem()
    if not settings.is_store_remote:
        return ReportPlace(fs, settings.runs)
    files = StoredFiles(store_of(settings, fs))
    return ReportPlace(files, files.path(f"{_RUNS}/{_REPORTS}"))


def stored_reports(settings: Settings, fs: FileSystem) -> Iterator[Path]:
    """Yield the paths of all reports in an object store, a thousand a request."""
    store = store_of(settings, fs)
    files = StoredFiles(store)
    yield from (files.path(key) for key in store.keys(f"{_RUNS}/{_REPORTS}/") if key.endswith(".json"))


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


_REPORT = msgspec.json.Decoder(StepReport)


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


def write_report(fs: ReportFiles, runs: Path, run_id: str, report: StepReport, attempt: str | None = None) -> Path:
    """Store a report, with who did it; that of a second attempt at the step replaces the first one's."""
    report = msgspec.structs.replace(report, attempt=attempt or report.attempt)
    path = report_path(runs, run_id, report.step)
    fs.make_directory(path.parent)
    fs.write_durably(path, with_checksum(report.line().encode()))
    if isinstance(fs, StoredFiles):
        # Behind the report: a crash in between leaves a report that is read by its run's id, and not listed.
        day = datetime.fromtimestamp(time.time(), UTC).date()
        fs.write_durably(runs.parent / _DAYS / str(day) / path.parent.name, b"")
    return path


def read_report(fs: ReportFiles, runs: Path, run_id: str, step: str) -> StepReport:
    """Return the report of a run's step.

    Raises:
        NotFoundError: there is none of this step.
        CorruptionError: it is not as it was written.
    """
    path = report_path(runs, run_id, step)
    if not fs.exists(path):
        raise NotFoundError(f"{place_text(path)}: expected the report of step {step!r}, found none.")
    return decode_report(fs.read(path), path)


def reports_of_run(fs: ReportFiles, runs: Path, run_id: str) -> list[StepReport]:
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
    fs: ReportFiles, runs: Path, limit: int, only: str | None = None
) -> tuple[list[RunOverview], int, list[str]]:
    """Return the runs whose reports are kept, the newest first, at most `limit`; how many there are; and notices.

    With `only` that of this name, if there is one. A run of which a report cannot be read is left out, and a notice
    says why. Of an object store it is the runs of the newest `DAYS_MAX` days on which there were any.
    """
    names = _names_newest_first(fs, runs) if only is None else [only] * (fs.is_directory(runs / only))

    def overview(name: str) -> RunOverview | str:
        try:
            return _overview(fs, runs / name)
        except CustodyError as error:
            return str(error)

    # In a store each run is some requests: they wait side by side.
    with ThreadPoolExecutor(_PARALLEL if isinstance(fs, StoredFiles) else 1) as threads:
        answers = list(threads.map(carried(overview), names[:limit]))
    overviews = [answer for answer in answers if isinstance(answer, RunOverview)]
    return overviews, len(names), [answer for answer in answers if isinstance(answer, str)]


def _names_newest_first(fs: ReportFiles, runs: Path) -> list[str]:
    if not isinstance(fs, StoredFiles):
        folders = [name for name in fs.list(runs) if _RUN.fullmatch(name) and fs.is_directory(runs / name)]
        return sorted(folders, key=lambda name: (-fs.modified_ms(runs / name), name))
    days = runs.parent / _DAYS

    def times_of(day: str) -> dict[str, int]:
        return fs.times(days / day)

    with ThreadPoolExecutor(_PARALLEL) as threads:
        newest = sorted(fs.folders(days), reverse=True)[:DAYS_MAX]
        listed = threads.map(carried(times_of), newest)
        # A run that went on behind midnight is of its last day. Days come first: times of a store count whole
        # milliseconds, or whole seconds, and may be of another clock.
        last: dict[str, tuple[int, int]] = {}
        for place, times in enumerate(listed):
            for name, modified_ms in times.items():
                if _RUN.fullmatch(name):
                    last.setdefault(name, (place, -modified_ms))
    return sorted(last, key=lambda name: (last[name], name))


def read_run(fs: ReportFiles, runs: Path, run: str) -> list[StepReport]:
    """Return the reports of a run's steps, in the order in which they were written.

    Raises:
        NotFoundError: there is no such run.
        CorruptionError: a report is not as it was written.
    """
    times = _times(fs, runs / run) if _RUN.fullmatch(run) else {}
    if not times:
        raise NotFoundError(f"there is no run {run[:120]!r}.")
    return _read(fs, times)


def run_of(runs: Path, run_id: str) -> str:
    """Return the name that a run has in listings."""
    return report_path(runs, run_id, "").parent.name


def _report_paths(fs: ReportFiles, folder: Path) -> list[Path]:
    names = fs.list(folder) if fs.is_directory(folder) else []
    return [folder / name for name in names if name.endswith(".json")]


def _times(fs: ReportFiles, folder: Path) -> dict[Path, int]:
    """Return the reports in a folder, and when each was written, ms since the epoch."""
    if isinstance(fs, StoredFiles):
        return {folder / name: written for name, written in fs.times(folder).items() if name.endswith(".json")}
    return {path: fs.modified_ms(path) for path in _report_paths(fs, folder)}


def _read(fs: ReportFiles, times: Mapping[Path, int]) -> list[StepReport]:
    return [decode_report(fs.read(path), path) for path in sorted(times, key=lambda path: times[path])]


def _overview(fs: ReportFiles, folder: Path) -> RunOverview:
    times = _times(fs, folder)
    if not times:
        raise NotFoundError(f"there is no run {folder.name[:120]!r}.")
    reports = _read(fs, times)
    return RunOverview(
        run=folder.name,
        last_ms=max(times.values()) if isinstance(fs, StoredFiles) else fs.modified_ms(folder),
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
        raise CorruptionError(f"{place_text(path)}: expected a report with its checksum, got other bytes.")
    try:
        return _REPORT.decode(data)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"{place_text(path)}: expected a report of a step: {error}.") from error
