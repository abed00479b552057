"""A look into the landing folders of an interval: which files wait, and which are still being written."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec

from custody.config import Settings
from custody.errors import ConfigurationError
from custody.format.names import name_as_text, text_as_name
from custody.landing.folders import Interval, folders_of
from custody.landing.ledger import Ledger, Taken
from custody.vfs import FileSystem


class Landed(msgspec.Struct, frozen=True, kw_only=True):
    """A file in a landing folder."""

    file: str
    """Its absolute path as text (`name_as_text`), since it goes to Spark's workers and into JSON."""
    bytes: int
    modified_ms: int
    is_quiet: bool
    taken: Taken | None

    @property
    def path(self) -> Path:
        """Where it lies."""
        return Path(text_as_name(self.file))

    @property
    def waits(self) -> bool:
        """Whether the file is whole and was not ingested as it is now."""
        same = self.taken is not None and (self.taken.bytes, self.taken.modified_ms) == (self.bytes, self.modified_ms)
        return self.is_quiet and not same


def landed_files(fs: FileSystem, settings: Settings, interval: Interval, now_ms: int) -> list[Landed]:
    """Return the files of events in an interval's landing folders, in the order in which they are ingested.

    The folders of `landing.late_minutes` before the interval are looked into, too.

    Raises:
        ConfigurationError: the repository has no landing folder.
        CorruptionError: an entry of the ledger cannot be read.
    """
    if settings.landing.folder is None:
        raise ConfigurationError(
            "landing.folder: expected the folder in which files of events land, found none. Set it in custody.toml."
        )
    ledger = Ledger(fs, settings.landed)
    quiet_ms = int(settings.landing.quiet_seconds * 1000)
    suffixes = tuple(settings.landing.suffixes)
    found = []
    late = timedelta(minutes=settings.landing.late_minutes)
    wider = Interval(interval.start - late, interval.end)
    for folder in folders_of(settings.root / settings.landing.folder, wider):
        for name in fs.list(folder):
            path = folder / name
            if not name.endswith(suffixes) or name.startswith(".") or fs.is_directory(path):
                continue
            modified = fs.modified_ms(path)
            entry = Landed(
                file=name_as_text(str(path)),
                bytes=fs.size(path),
                modified_ms=modified,
                is_quiet=now_ms - modified >= quiet_ms,
                taken=ledger.find(path),
            )
            found.append(entry)
    return found
