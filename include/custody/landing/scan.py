"""Scan of the landing folders of an interval: which files wait to be ingested, and which are still being written.

A template with parts of a date names the folders of an interval, since producers write a folder an hour or a day.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from custody.config import Settings, date_parts
from custody.errors import InvalidInputError, StorageError
from custody.format.names import name_as_text, text_as_name
from custody.landing.ledger import LandingLedger, LedgerEntry
from custody.made_types import made_at_import
from custody.vfs import FileSystem

# Eleven years of folders an hour; each folder costs a listing.
_FOLDERS_MAX = 100_000
_STEPS = (
    ("%M", timedelta(minutes=1)),
    ("%H", timedelta(hours=1)),
    ("%d", timedelta(days=1)),
    ("%j", timedelta(days=1)),
)


class Interval(msgspec.Struct, frozen=True):
    """A half-open interval of time, in UTC: from `start` up to and without `end`."""

    start: datetime
    end: datetime

    @classmethod
    def parse(cls, start: str, end: str) -> Interval:
        """Read two ISO 8601 instants; one without an offset is UTC.

        Raises:
            InvalidInputError: one is no instant, or the end lies before the start.
        """
        interval = cls(parse_instant(start), parse_instant(end))
        if interval.end < interval.start:
            raise InvalidInputError(f"interval: expected an end after its start {start}, got {end}.")
        return interval

    def __str__(self) -> str:
        return f"{self.start:%Y-%m-%dT%H:%M}Z to {self.end:%Y-%m-%dT%H:%M}Z"


def parse_instant(text: str) -> datetime:
    """Return an ISO 8601 instant in UTC; raises InvalidInputError when it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(f"expected an instant such as 2026-11-10T07:00, got {text!r}.") from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def folders_of(template: Path, interval: Interval) -> list[Path]:
    """Return the folders of an interval, in order; an interval of no length has the folder of its start.

    A template without parts of a date is one folder, which every interval has.

    Raises:
        InvalidInputError: the interval has too many folders.
    """
    folders: dict[Path, None] = {}
    for moment in _moments(str(template), interval):
        folders[Path(moment.strftime(str(template)))] = None
        if len(folders) > _FOLDERS_MAX:
            raise InvalidInputError(
                f"interval {interval}: expected at most {_FOLDERS_MAX} landing folders. Choose a shorter interval."
            )
    return list(folders)


def _moments(template: str, interval: Interval) -> Iterator[datetime]:
    """Yield a moment in each folder: the start, then the beginning of every minute, hour or day up to the end."""
    parts = date_parts(template)
    # The start is seldom the beginning of a part, and its folder belongs to the interval too.
    yield interval.start
    if not parts:
        return
    # The finest part decides. Months and years are walked day by day, as their lengths differ; a folder counts once.
    step = next((step for part, step in _STEPS if part in parts), timedelta(days=1))
    moment = interval.start.replace(second=0, microsecond=0)
    if step >= timedelta(hours=1):
        moment = moment.replace(minute=0)
    if step >= timedelta(days=1):
        moment = moment.replace(hour=0)
    while (moment := moment + step) < interval.end:
        yield moment


class LandedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in a landing folder."""

    file: str
    """Its absolute path as text (`name_as_text`), since it goes to Spark's workers and into JSON."""
    bytes: int
    modified_ms: int
    is_quiet: bool
    taken: LedgerEntry | None

    @property
    def path(self) -> Path:
        """The path of the file."""
        return Path(text_as_name(self.file))

    @property
    def waits(self) -> bool:
        """Whether the file is complete, and was not ingested in its present state."""
        return self.is_quiet and not self.is_taken

    @property
    def is_taken(self) -> bool:
        """Whether the file was ingested in its present state."""
        # By size and time, not by content: reading the file is what the ledger spares.
        return self.taken is not None and (self.taken.bytes, self.taken.modified_ms) == (self.bytes, self.modified_ms)


made_at_import(LandedFile)


def landed_files(
    fs: FileSystem,
    settings: Settings,
    interval: Interval,
    now_ms: int,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> list[LandedFile]:
    """Return the files of events in an interval's landing folders, in the order in which they are ingested.

    The folders of the `landing.late_minutes` before the interval are scanned, too. Files whose time of writing lies
    ahead of `now_ms` are scanned a second time after `pause` was called with `landing.quiet_seconds`: such a time, of
    another clock or of an archive, shows no end of writing.

    Raises:
        CorruptionError: an entry of the ledger cannot be read.
    """
    ledger = LandingLedger(fs, settings.landed)
    quiet_ms = int(settings.landing.quiet_seconds * 1000)
    suffixes = tuple(settings.landing.suffixes)
    files = []
    # A file may land in the folder of an hour that is over; the ledger keeps the wider scan from reading twice.
    late = timedelta(minutes=settings.landing.late_minutes)
    wider = Interval(interval.start - late, interval.end)
    for folder in folders_of(settings.root / settings.landing.folder, wider):
        for name in fs.list(folder):
            path = folder / name
            if not name.endswith(suffixes) or name.startswith(".") or fs.is_directory(path):
                continue
            # Producers do not say when a file is complete: one that was not written to for a while counts as quiet.
            modified = fs.modified_ms(path)
            entry = LandedFile(
                file=name_as_text(str(path)),
                bytes=fs.size(path),
                modified_ms=modified,
                is_quiet=now_ms - modified >= quiet_ms,
                taken=ledger.find(path),
            )
            files.append(entry)
    if any(_is_ahead(file, now_ms) for file in files):
        pause(settings.landing.quiet_seconds)
        files = [_second_look(fs, file) if _is_ahead(file, now_ms) else file for file in files]
    return files


def _is_ahead(file: LandedFile, now_ms: int) -> bool:
    """Whether a file's time of writing lies in the future, and its present state was not taken."""
    return file.modified_ms > now_ms and not file.is_taken


def _second_look(fs: FileSystem, file: LandedFile) -> LandedFile:
    """Return a file as quiet if it is as it was."""
    try:
        state = fs.size(file.path), fs.modified_ms(file.path)
    except StorageError:
        return file  # gone, or out of reach: the next scan finds out
    return msgspec.structs.replace(file, is_quiet=state == (file.bytes, file.modified_ms))
