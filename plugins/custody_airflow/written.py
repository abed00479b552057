"""The files that a task wrote: told by the task, kept by the listener of runs with the events of its end."""

from __future__ import annotations

from pathlib import PurePath

from airflow.sdk import get_current_context

_WRITTEN: dict[str, dict[str, None]] = {}
"""By the id of a try, of those that this process works on: one, but where `dag.test()` runs all in one."""


def wrote(*files: str | PurePath) -> None:
    """Say that the running task wrote files, by absolute path or URI: `which run wrote this file` then finds it.

    It counts for a try that succeeds. Where no events of runs are kept, it does nothing that anybody sees.
    """
    told = _WRITTEN.setdefault(str(get_current_context()["ti"].id), {})
    told.update(dict.fromkeys(map(_uri, files)))


def taken_files(try_id: object) -> tuple[str, ...]:
    """Return the URIs of the files that a try wrote, and forget them."""
    return tuple(_WRITTEN.pop(str(try_id), ()))


def _uri(file: str | PurePath) -> str:
    return file if isinstance(file, str) and "://" in file else PurePath(file).as_uri()
