"""Journals are merged in pieces: what was mapped of them does not stay in the memory of who merges."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.eventlog.bulk import tables, write_journals
from custody.journal import MergeReader
from custody.repository import Repository
from custody.vfs import PosixFileSystem

EVENTS = 40_000
STATUS = Path("/proc/self/status")


def mapped_bytes() -> int:
    """Bytes of files that are in this process's memory now."""
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return int(lines["RssFile"].split()[0]) << 10


@pytest.mark.skipif(not STATUS.exists(), reason="needs Linux's /proc to see what is mapped")
def test_what_was_read_is_let_go(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    fs = PosixFileSystem()
    write_journals(fs, repository.settings, tables(EVENTS), group_events=EVENTS)
    groups = repository.workspace().groups()
    size = sum(path.stat().st_size for group in groups for path in group.sealed)
    list(MergeReader(fs, groups).chunks(1 << 20))  # whatever has to be imported is there now
    before = mapped_bytes()
    reader = MergeReader(fs, groups)
    grown, rows = [mapped_bytes() - before], 0
    for chunk in reader.chunks(1 << 20):
        rows += chunk.num_rows
        grown.append(mapped_bytes() - before)
    assert rows == EVENTS
    assert size > 40 << 20
    assert max(grown) < size / 4
