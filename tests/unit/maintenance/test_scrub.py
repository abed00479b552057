"""The scrub: everything is read once in the days that the settings say, from where the last run stopped."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from custody.clock import ManualClock
from custody.config import Settings, load_settings
from custody.errors import CorruptionError, FormatVersionError
from custody.maintenance.findings import Finding, damages
from custody.maintenance.maintenance_steps import MAINTENANCE_STEPS, MaintenanceReport, MaintenanceUnit
from custody.maintenance.scrub import (
    _DAY_MS,
    FINDINGS_MAX,
    SCRUB_FILE,
    ScrubRound,
    ScrubSlice,
    ScrubState,
    decode_scrub,
    encode_scrub,
    is_scrub_behind,
    next_slice,
    read_scrub,
    save_progress,
    scrub_once,
)
from custody.maintenance.verification import CheckUnit
from custody.vfs import PosixFileSystem
from custody.workspace import UnitReport, Workspace
from tests.support import flipped
from tests.unit.maintenance.damaged_samples import NOW_MS, Sample, flip

FS = PosixFileSystem()


def _settings(sample: Sample, days: float = 5, bytes_per_run: int = 1 << 30) -> Settings:
    with (sample.root / "custody.toml").open("a") as file:
        file.write(f"[maintenance]\nscrub_days = {days}\nscrub_bytes_per_run = {bytes_per_run}\n")
    return load_settings(sample.root)


def _daily(settings: Settings, clock: ManualClock, runs_max: int = 100) -> list[ScrubState]:
    """Run once a day until the round is over."""
    seen = []
    for _ in range(runs_max):
        seen.append(scrub_once(settings, FS, clock))
        if seen[-1].former is not None:
            return seen
        clock.advance(_DAY_MS)
    raise AssertionError("the round does not end")


def test_a_daily_run_reads_everything_once_in_the_days_that_are_set(sample: Sample) -> None:
    settings, clock = _settings(sample, days=5), ManualClock(NOW_MS)
    seen = _daily(settings, clock)
    assert 4 <= len(seen) <= 6  # a run ends with the piece that it is at
    former = seen[-1].former
    assert former is not None
    whole = sample.verify()
    assert (former.pieces, former.bytes) == (whole.pieces, whole.bytes)
    assert (former.number, former.started_ms, former.findings) == (0, NOW_MS, ())
    assert (seen[-1].current.number, seen[-1].after) == (1, "")
    assert [item.current.pieces for item in seen[:-1]] == sorted(item.current.pieces for item in seen[:-1])


def test_a_run_that_was_left_out_is_made_up_for(sample: Sample) -> None:
    settings, clock = _settings(sample, days=5), ManualClock(NOW_MS)
    first = scrub_once(settings, FS, clock)
    clock.advance(4 * _DAY_MS)
    assert scrub_once(settings, FS, clock).former is not None
    assert first.former is None


def test_a_run_reads_no_more_than_is_allowed_and_says_when_that_is_too_little(sample: Sample) -> None:
    settings, clock = _settings(sample, days=0.5, bytes_per_run=40_000), ManualClock(NOW_MS)
    largest = max(piece.bytes for piece in next_slice(settings, FS, clock, whole=True)[1].pieces)
    before = 0
    for item in _daily(settings, clock)[:-1]:
        assert item.current.bytes - before <= 40_000 + largest
        before = item.current.bytes
        assert is_scrub_behind(settings, item, clock.now_ms()) == (
            clock.now_ms() > item.current.started_ms + _DAY_MS // 2
        )


def test_what_is_found_is_kept_until_a_later_round_finds_it_no_more(sample: Sample) -> None:
    settings, clock = _settings(sample), ManualClock(NOW_MS)
    log = sample.logs()[1]
    good = log.read_bytes()
    flip(log, 2000)
    former = scrub_once(settings, FS, clock, whole=True).former
    assert former is not None
    [finding] = damages(former.findings)
    assert (finding.kind, finding.path) == ("log-damaged", str(log))
    log.write_bytes(good)
    assert damages(read_scrub(settings, FS).findings) == [finding]
    assert not damages(scrub_once(settings, FS, clock, whole=True).findings)


def test_a_second_run_goes_on_where_the_first_was_killed(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, clock = _settings(sample), ManualClock(NOW_MS)
    _, begun = next_slice(settings, FS, clock, whole=True)

    def killed(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scrub_once(settings, FS, clock, whole=True, save_bytes=1, on_piece=killed)
    half = read_scrub(settings, FS)
    assert 0 < half.current.pieces < len(begun.pieces)
    _, rest = next_slice(settings, FS, clock, whole=True)
    assert [*begun.pieces[: half.current.pieces], *rest.pieces] == list(begun.pieces)


def test_of_two_runs_at_once_one_counts(sample: Sample) -> None:
    settings, clock = _settings(sample), ManualClock(NOW_MS)
    _, begun = next_slice(settings, FS, clock)
    first = save_progress(settings, FS, clock, begun, begun.pieces, (), is_end=False)
    assert (
        save_progress(settings, FS, clock, begun, begun.pieces, (), is_end=False) == first == read_scrub(settings, FS)
    )


def test_a_damaged_file_of_the_scrub_is_told_and_begins_a_new_round(sample: Sample) -> None:
    settings, clock = _settings(sample), ManualClock(NOW_MS)
    scrub_once(settings, FS, clock, bytes_max=1)
    path = settings.maintenance_folder / SCRUB_FILE
    good = path.read_bytes()
    for bit in range(8 * len(good)):
        with pytest.raises((CorruptionError, FormatVersionError)):
            decode_scrub(flipped(good, bit), path)
    path.write_bytes(flipped(good, 400))
    with pytest.raises(CorruptionError, match="begins a new round"):
        read_scrub(settings, FS)
    assert scrub_once(settings, FS, clock, whole=True).former is not None


def test_the_file_does_not_grow_without_bounds() -> None:
    finding = Finding(kind="log-missing", path="a", message="b")
    scrub_round = ScrubRound().with_found((), [finding] * (FINDINGS_MAX + 7))
    assert (len(scrub_round.findings), scrub_round.left_out) == (FINDINGS_MAX, 7)
    scrub = ScrubState(current=scrub_round, after="x", last_run_ms=3)
    assert decode_scrub(encode_scrub(scrub), "here") == scrub


def test_the_step_hands_out_pieces_and_its_driver_keeps_what_they_found(sample: Sample) -> None:
    settings = _settings(sample, days=1 / 24)
    flip(sample.logs()[1], 2000)
    step = MAINTENANCE_STEPS["scrub"]
    units = step.units(settings, FS)
    reports = [step.run(Workspace(settings, unit.writer or "main", FS), unit) for unit in units]
    # As a worker and its driver hand them on.
    units = [msgspec.json.decode(msgspec.json.encode(unit), type=MaintenanceUnit) for unit in units]
    reports = [msgspec.json.decode(msgspec.json.encode(report), type=MaintenanceReport) for report in reports]
    told = step.finish(settings, units, reports, FS)
    assert all(type(report) is UnitReport for report in told)
    former = read_scrub(settings, FS).former
    assert former is not None
    assert [item.kind for item in damages(former.findings)] == ["log-damaged"]
    assert sum(report.bytes_in for report in told) == former.bytes


def test_a_piece_that_could_not_be_looked_at_is_looked_at_by_the_next_run(sample: Sample) -> None:
    settings = _settings(sample, days=1 / 24)
    step = MAINTENANCE_STEPS["scrub"]
    units = step.units(settings, FS)
    reports: list[UnitReport] = [MaintenanceReport(unit=str(unit)) for unit in units]
    reports[3] = MaintenanceReport(unit="x", error="the worker died")
    step.finish(settings, units, reports, FS)
    _, left = next_slice(settings, FS, ManualClock(NOW_MS), whole=True)
    assert left.pieces[0] == units[3].piece  # type: ignore[attr-defined]


def test_the_other_steps_do_what_waits(sample: Sample) -> None:
    sample.finish()
    settings = load_settings(sample.root)
    for path in sorted((sample.root / "disk1/main/index").iterdir())[:1]:
        (path / "custody.shard").unlink()
    before = sample.answered()
    for name in ("compact", "rebuild"):
        step = MAINTENANCE_STEPS[name]
        units = step.units(settings, FS)
        assert units, name
        for unit in units:
            assert step.run(Workspace(settings, unit.writer, FS), unit).error is None
        assert not step.units(settings, FS)
    assert sample.answered() == before
    assert not sample.damage()


def test_a_slice_names_its_round_and_place() -> None:
    assert ScrubSlice(1, "a", (CheckUnit("log", "main", "x", 3),), True).pieces[0].key == "main/4/x"


def test_the_folder_of_the_scrub_is_no_orphan(sample: Sample) -> None:
    scrub_once(load_settings(sample.root), FS, ManualClock(NOW_MS))
    assert not sample.verify().findings
    assert Path(sample.root / "maintenance" / SCRUB_FILE).is_file()
