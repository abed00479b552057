"""Who can write to the store lists a log again with false entries: queries leave it out, and a group counts as live."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from custody.catalog import Action, AddFile, RemoveFile
from custody.catalog.footers import describe
from custody.catalog.transaction_pb2 import FileStatistics
from custody.config import load_settings
from custody.eventlog import EventLog, LogOptions, row_copies, write_log
from custody.model import Event, to_events
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.attacks.attacker import Attacker, build, findings
from tests.support import append, event

FS = PosixFileSystem()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Ten events in a log, and ten that wait."""
    repository = build(tmp_path / "repository", passes=1)
    append(repository, [event(10 + number) for number in range(10)])
    return tmp_path / "repository"


def list_again(root: Path, change: Callable[[AddFile], None]) -> None:
    attacker = Attacker(root)
    [(path, file)] = attacker.catalog.load().files.items()
    forged = AddFile()
    forged.CopyFrom(file)
    change(forged)
    attacker.commit(Action(remove_file=RemoveFile(path=path)), Action(add_file=forged))


def other_statistics(file: AddFile) -> None:
    statistics = FileStatistics.FromString(file.statistics)
    for column in statistics.columns:
        if column.column == "file_size":
            column.minimum.integer = column.maximum.integer = 1 << 40
    file.statistics = statistics.SerializeToString(deterministic=True)


def other_bloom(file: AddFile) -> None:
    statistics = FileStatistics.FromString(file.statistics)
    for column in statistics.columns:
        column.blooms[:] = [each[:40] + bytes(len(each) - 40) for each in column.blooms]
    file.statistics = statistics.SerializeToString(deterministic=True)


def other_times(file: AddFile) -> None:
    file.first_event_time_ms = file.last_event_time_ms


def other_groups(file: AddFile) -> None:
    file.groups.append(10)


@pytest.mark.parametrize(
    "change", [other_statistics, other_bloom, other_times, other_groups], ids=lambda each: each.__name__
)
def test_an_entry_that_contradicts_its_log_is_named(root: Path, change: Callable[[AddFile], None]) -> None:
    assert findings(root) == set()
    list_again(root, change)
    assert "log-changed" in findings(root)


def test_events_that_wait_and_count_as_live_by_a_false_entry_are_missed(root: Path) -> None:
    assert Repository(load_settings(root)).search("").total == 20
    list_again(root, other_groups)
    assert Repository(load_settings(root)).search("").total == 10, "the attack works: what waits is in no answer"
    assert {"journal-of-others", "log-changed"} <= findings(root)


def test_sources_that_the_entry_leaves_out_are_named(root: Path) -> None:
    """By them an ingest finds the log that has an event already."""

    def without_sources(file: AddFile) -> None:
        del file.sources[:]

    list_again(root, without_sources)
    assert findings(root, "--deep") == {"log-changed"}


def test_copies_of_rows_that_are_not_the_rows_are_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A point read answers from the copies, a scan from the blocks."""

    def others(block: pa.Table) -> list[Event]:
        return [msgspec.structs.replace(each, event_type="DROP") for each in to_events(block)]

    attacker = Attacker(root)
    [log] = attacker.home.rglob("*.parquet")
    old = EventLog(FS, log)
    events, metadata = old.read(), old.metadata
    attacker.remove_log(str(log.relative_to(attacker.home)))
    monkeypatch.setattr(row_copies, "to_events", others)
    written = write_log(FS, log, events, metadata, LogOptions(row_copies=True))
    monkeypatch.undo()

    def anew(file: AddFile) -> None:
        file.size_bytes, file.sha256, file.toc_sha256 = written.size_bytes, written.sha256, written.toc_sha256
        describe(file, lambda start, length: log.read_bytes()[start:][:length])

    list_again(root, anew)
    assert findings(root) == set(), "all digests are right"
    assert findings(root, "--deep") == {"log-changed"}
