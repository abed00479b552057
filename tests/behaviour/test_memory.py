"""A task's memory is bounded, however large its group is. Measured in processes of their own, as a job's tasks are."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.eventlog.bulk import tables, write_journals
from benchmarks.eventlog.steps import Measured, measure
from custody.repository import Repository
from custody.vfs import PosixFileSystem

BYTES_MAX = 420 << 20
"""Less than the larger group's events take uncompressed; a hundred MiB are Python, Arrow and custody themselves."""


def peaks(folder: Path, events: int) -> dict[str, Measured]:
    """Roll one group over and compress it."""
    repository = Repository.create(folder / str(events))
    write_journals(PosixFileSystem(), repository.settings, tables(events), group_events=events, journals=16)
    return {name: measure(repository.settings.root, name) for name in ("rollover", "compress")}


@pytest.mark.slow
def test_a_group_four_times_as_large_takes_no_more_memory(tmp_path: Path) -> None:
    small, large = peaks(tmp_path, 150_000), peaks(tmp_path, 600_000)
    for name, found in large.items():
        assert found.events == 600_000
        assert found.memory_bytes < BYTES_MAX, found
        assert found.memory_bytes < small[name].memory_bytes + (96 << 20), (small[name], found)
