"""Unfinished files in the folders that belong to the repository and to no writer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from custody.config import Settings
from custody.vfs import TEMPORARY_SUFFIX, FileSystem


def shared_partials(settings: Settings, fs: FileSystem) -> Iterator[Path]:
    """Yield what was never given its final name: of quarantine, reports, turns, ledger, scrub and watch.

    Of these folders, two have folders in them, one a run or one for some of the files: all are listed, so this is not
    for what is done each minute.
    """
    for folder in (settings.quarantine, settings.turns, settings.maintenance_folder, settings.watch_mark.parent):
        yield from _partials(fs, folder)
    for folder in (settings.runs, settings.landed):
        yield from _partials(fs, folder)
        for name in fs.list(folder):
            if fs.is_directory(folder / name):
                yield from _partials(fs, folder / name)


def _partials(fs: FileSystem, folder: Path) -> Iterator[Path]:
    yield from (folder / name for name in fs.list(folder) if name.endswith(TEMPORARY_SUFFIX))
