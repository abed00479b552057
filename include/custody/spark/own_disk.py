"""Folders on an executor: of its own where it shares none with the driver, gone with the work that they were for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from custody.config import SETTINGS_FILE, Settings

FOLDER_VARIABLE = "CUSTODY_EXECUTOR_FOLDER"
"""Names the folder on an executor in which units work; without it they do in Spark's own folder of the executor."""
_PREFIX = "custody-unit-"


@contextmanager
def own_disk(settings: Settings, environ: Mapping[str, str] = os.environ) -> Iterator[Settings]:
    """Give settings whose folders are new and on this machine, where staged units lie in the store; else the same.

    The folder goes with the context. What a killed executor leaves goes with Spark's folder of the executor.
    """
    if not settings.is_staging_stored:
        yield settings
        return
    with _new_folder(environ) as folder:
        yield relocated(settings, folder)


@contextmanager
def reading_disk(settings: Settings, environ: Mapping[str, str] = os.environ) -> Iterator[Settings]:
    """Give settings whose work folder a reader on this machine fetches files of an object store into.

    Where the repository is on this machine, its own work folder serves: all readers share what one of them fetched.
    Elsewhere it is a new folder, which goes with the context. A store that is a folder needs none.
    """
    if not settings.is_store_remote or _has_repository(settings):
        yield settings
        return
    with _new_folder(environ) as folder:
        yield relocated(settings, folder)


def relocated(settings: Settings, folder: Path) -> Settings:
    """Return settings with all folders of this machine below another one; as many containers as there are."""
    containers = tuple(Path("containers", str(number)) for number in range(len(settings.repository.containers)))
    repository = settings.repository.model_copy(update={"containers": containers, "work_folder": Path("work")})
    return settings.model_copy(update={"root": folder, "repository": repository})


def _has_repository(settings: Settings) -> bool:
    """Whether the repository's folder is here, and its work folder is one that this process may write to."""
    work = settings.store
    parent = next((folder for folder in (work, *work.parents) if folder.is_dir()), work)
    return (settings.root / SETTINGS_FILE).is_file() and os.access(parent, os.W_OK | os.X_OK)


@contextmanager
def _new_folder(environ: Mapping[str, str]) -> Iterator[Path]:
    # Resolved: an executor's folder may be given by a link.
    parent = Path(environ.get(FOLDER_VARIABLE) or Path.cwd()).resolve()
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
