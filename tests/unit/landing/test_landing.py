"""Landing folders: which folders an interval has, which files wait, and that a file is taken once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.config import date_parts
from custody.errors import ConfigurationError, CorruptionError, FormatVersionError, InvalidInputError
from custody.format.checked_json import with_checksum
from custody.landing import Interval, LandedFile, LandingLedger, LedgerEntry, folders_of, landed_files
from custody.repository import Repository
from custody.repository.landing_ingest import ingest_landed, shares, waiting_files
from custody.sample import SampleOptions, sample_files
from custody.vfs import PosixFileSystem

HOUR = timedelta(hours=1)
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
TEMPLATES = ["a/%Y", "a/%Y/%m", "a/%Y-%m-%d", "a/%Y/%j", "a/%Y-%m-%d/%H", "a/%Y%m%d/%H/%M"]


def landing(root: Path, **settings: object) -> Repository:
    Repository.create(root)
    chosen = {"folder": '"landing/%Y-%m-%d/%H"', "quiet_seconds": 0, **settings}
    lines = "".join(f"{key} = {value}\n" for key, value in chosen.items())
    (root / "custody.toml").write_text(f"[landing]\n{lines}")
    return Repository.open(root)


def drop(repository: Repository, moment: datetime, count: int, part: int) -> list[Path]:
    """Leave one file of events; files of different parts hold different events."""
    folder = repository.settings.root / f"landing/{moment:%Y-%m-%d/%H}"
    folder.mkdir(parents=True, exist_ok=True)
    [(_, data)] = sample_files(SampleOptions(events=100, nodes=1))
    path = folder / f"part-{part}.json"
    path.write_text(json.dumps(json.loads(data)[part * 20 :][:count]))
    return [path]


def contents(repository: Repository) -> list[tuple[object, ...]]:
    events = [event for name in repository.workspaces() for event in repository.events(0, 10_000, name.writer)]
    return sorted((event.source_node, event.source_ordinal, event.event_type, event.event_time) for event in events)


@pytest.mark.parametrize("template", TEMPLATES)
@given(seconds=st.integers(0, 3 * 366 * 86400), minutes=st.integers(0, 4000))
def test_the_folders_of_an_interval_are_those_of_all_its_minutes(template: str, seconds: int, minutes: int) -> None:
    begun = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    interval = Interval(begun, begun + timedelta(minutes=minutes))
    moments = [begun, *(begun + timedelta(minutes=number) for number in range(minutes))]
    last = interval.end - timedelta(microseconds=1)
    expected = {moment.strftime(template) for moment in [*moments, *([last] if minutes else [])]}
    folders = folders_of(Path(template), interval)
    assert {str(folder) for folder in folders} == expected
    assert len(folders) == len(expected)


def test_a_folder_without_a_date_belongs_to_every_interval() -> None:
    assert folders_of(Path("spool"), Interval(NOON, NOON + 24 * HOUR)) == [Path("spool")]


@pytest.mark.parametrize("template", ["%Y/%H", "%d", "%m/%d", "%Y-%m-%d/%M", "%s", "100%", "../%Y", "%Y/../../etc"])
def test_a_template_that_is_no_folder_of_an_interval_is_refused(template: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"part|upwards|larger|year"):
        date_parts(template)
    with pytest.raises(ConfigurationError, match=r"custody\.toml \[landing\.folder\]"):
        landing(tmp_path / "repository", folder=f'"{template}"')


def test_an_interval_that_ends_before_it_begins_or_is_none_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="after its start"):
        Interval.parse("2026-03-02T12:00", "2026-03-02T11:00")
    with pytest.raises(InvalidInputError, match="yesterday"):
        Interval.parse("yesterday", "2026-03-02T11:00")
    with pytest.raises(InvalidInputError, match="shorter interval"):
        folders_of(Path("%Y/%m/%d/%H/%M"), Interval(NOON - timedelta(days=200), NOON))
    assert Interval.parse("2026-03-02T13:00+01:00", "2026-03-02T13:00Z") == Interval(NOON, NOON + HOUR)


def test_a_file_waits_until_it_is_whole_and_until_it_was_taken(tmp_path: Path) -> None:
    repository = landing(tmp_path / "repository", quiet_seconds=60)
    [path] = drop(repository, NOON, 20, 1)
    for name in ("notes.txt", ".hidden.json", "half.json.partial"):
        (path.parent / name).write_text("[]")
    interval = Interval(NOON, NOON + HOUR)

    def seen(now_ms: int) -> list[LandedFile]:
        return landed_files(PosixFileSystem(), repository.settings, interval, now_ms)

    written = path.stat().st_mtime_ns // 1_000_000
    [fresh] = seen(written + 59_000)
    assert (fresh.path, fresh.is_quiet, fresh.waits) == (path, False, False)
    [whole] = seen(written + 60_000)
    assert whole.waits
    [report] = ingest_landed(repository, [whole], "run 1")
    assert (report.events, report.error) == (20, None)
    [taken] = seen(written + 60_000)
    assert taken.taken is not None
    assert (taken.waits, taken.taken.stored, taken.taken.run_id) == (False, 20, "run 1")
    path.write_bytes(path.read_bytes() + b"\n")
    os.utime(path, (written / 1000 + 5, written / 1000 + 5))
    [changed] = seen(written + 600_000)
    assert changed.waits
    [again] = ingest_landed(repository, [changed], "run 2")
    assert (again.events, again.note) == (0, "20 read, 0 stored, 20 repeated")


def test_runs_in_any_order_and_twice_and_without_a_ledger_give_the_same_repository(tmp_path: Path) -> None:
    results = []
    for number, order in enumerate([[0, 1, 2, 3], [3, 1, 0, 2, 1], [2, 2, 0, 3, 1, 0]]):
        repository = landing(tmp_path / f"r{number}", late_minutes=0)
        for hour in range(4):
            drop(repository, NOON + hour * HOUR, 15, hour)
        for hour in order:
            interval = Interval(NOON + hour * HOUR, NOON + (hour + 1) * HOUR)
            ingest_landed(repository, waiting_files(repository, interval), None)
            if number == 2:
                for entry in (repository.settings.root / "landed").rglob("*.json"):
                    entry.unlink()
        results.append(contents(repository))
    assert len(results[0]) == 60
    assert results[0] == results[1] == results[2]


def test_a_file_that_came_late_is_found_by_a_later_run(tmp_path: Path) -> None:
    repository = landing(tmp_path / "repository")
    [late] = drop(repository, NOON, 10, 1)
    [next_one] = drop(repository, NOON + HOUR, 10, 2)
    waiting = waiting_files(repository, Interval(NOON + HOUR, NOON + 2 * HOUR))
    assert [file.path for file in waiting] == [late, next_one]
    assert waiting_files(repository, Interval(NOON + 3 * HOUR, NOON + 4 * HOUR)) == []


def test_a_file_that_cannot_be_read_stops_no_other_and_stays_waiting(tmp_path: Path) -> None:
    repository = landing(tmp_path / "repository")
    [good] = drop(repository, NOON, 10, 1)
    large = good.with_name("a-large.json")
    large.write_bytes(b"[" + b" " * 4096 + b"]")
    (repository.settings.root / "custody.toml").write_text(
        (repository.settings.root / "custody.toml").read_text() + "[capture]\nfile_bytes_max = 1024\n"
    )
    interval = Interval(NOON, NOON + HOUR)
    repository = Repository.open(repository.settings.root)
    reports = ingest_landed(repository, waiting_files(repository, interval), None)
    assert [bool(report.error) for report in reports] == [True, good.stat().st_size > 1024]
    assert "capture.file_bytes_max" in (reports[0].error or "")
    assert large in [file.path for file in waiting_files(repository, interval)]


def test_when_no_slot_comes_free_every_file_says_so_and_waits(tmp_path: Path) -> None:
    repository = landing(tmp_path / "repository", writer_wait_seconds=0)
    drop(repository, NOON, 10, 1)
    interval = Interval(NOON, NOON + HOUR)
    with repository.writer():
        other = Repository.open(repository.settings.root)
        [report] = ingest_landed(other, waiting_files(other, interval), None)
    assert "LockedError" in (report.error or "")
    assert len(waiting_files(repository, interval)) == 1


def test_files_are_dealt_out_by_their_size_in_their_order() -> None:
    def file(name: str, size: int) -> LandedFile:
        return LandedFile(file=name, bytes=size, modified_ms=0, is_quiet=True, taken=None)

    files = [file("a", 10), file("b", 70), file("c", 20), file("d", 40)]
    assert [[item.path.name for item in share] for share in shares(files, 2)] == [["b"], ["a", "c", "d"]]
    assert shares(files, 1) == [files]
    assert len(shares(files, 16)) == 4
    assert shares([], 4) == []


def test_a_damaged_entry_of_the_ledger_is_named_and_what_to_do(tmp_path: Path) -> None:
    repository = landing(tmp_path / "repository")
    drop(repository, NOON, 10, 1)
    interval = Interval(NOON, NOON + HOUR)
    [file] = waiting_files(repository, interval)
    ingest_landed(repository, [file], None)
    entry = LandingLedger(PosixFileSystem(), repository.settings.landed).path(file.path)
    written = entry.read_bytes()
    entry.write_bytes(b"{")
    with pytest.raises(CorruptionError, match="Remove it"):
        waiting_files(repository, interval)
    newer = {**json.loads(written), "version": 2}
    del newer["checksum"]
    entry.write_bytes(with_checksum(json.dumps(newer).encode()))
    with pytest.raises(FormatVersionError, match="newer custody"):
        waiting_files(repository, interval)
    entry.unlink()
    [report] = ingest_landed(repository, waiting_files(repository, interval), None)
    assert report.events == 0


def test_the_page_of_the_format_says_its_keys_and_where_an_entry_lies(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/formats/ledger.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [*LedgerEntry.__struct_fields__, "checksum"]
    path = LandingLedger(PosixFileSystem(), tmp_path).path(Path("/landing/2026-11-10/07/part-1.json"))
    digest = hashlib.sha256(b"/landing/2026-11-10/07/part-1.json").hexdigest()[:32]
    assert path == tmp_path / digest[:2] / f"{digest}.json"


def test_a_repository_whose_landing_folder_nobody_made_has_nothing_to_take(repository: Repository) -> None:
    assert waiting_files(repository, Interval(NOON, NOON + HOUR)) == []


@pytest.mark.parametrize(("grows", "waits"), [(False, True), (True, False)])
def test_a_file_from_a_clock_ahead_is_quiet_when_it_stays_as_it_is(tmp_path: Path, grows: bool, waits: bool) -> None:
    repository = landing(tmp_path / "repository", quiet_seconds=60)
    [path] = drop(repository, NOON, 20, 1)
    ahead = time.time() + 3 * 86400
    os.utime(path, (ahead, ahead))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if grows:
            path.write_bytes(path.read_bytes() + b"\n")
            os.utime(path, (ahead, ahead))

    interval, now_ms = Interval(NOON, NOON + HOUR), int(time.time() * 1000)
    [found] = landed_files(PosixFileSystem(), repository.settings, interval, now_ms, pause=pause)
    assert (found.waits, pauses) == (waits, [60.0])


def test_a_file_from_a_clock_ahead_that_was_taken_costs_no_pause(tmp_path: Path) -> None:
    repository = landing(tmp_path / "repository", quiet_seconds=0)
    [path] = drop(repository, NOON, 20, 1)
    os.utime(path, (time.time() + 86400,) * 2)
    interval, now_ms = Interval(NOON, NOON + HOUR), int(time.time() * 1000)
    ingest_landed(repository, waiting_files(repository, interval), None)
    [found] = landed_files(PosixFileSystem(), repository.settings, interval, now_ms, pause=_no_pause)
    assert not found.waits


def _no_pause(_: float) -> None:
    raise AssertionError("nothing is left to look at twice")
