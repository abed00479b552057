"""The model of `custody plan` is held to reality: the same work on a real repository gives what the model says."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.capture.nifi_json import event_from_json
from custody.catalog import stored_footer
from custody.cli.main import cli
from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import InvalidInputError
from custody.eventlog import row_bytes
from custody.model import Event
from custody.repository import Repository
from custody.repository.capacity_plan import SAMPLE, EventBytes, Workload, entry_bytes, plan_capacity, simulate_day
from custody.sample import SampleOptions, sample_events

EVENTS, PASSES, BATCH, COMPACT_EVERY = 3000, 10, 10, 5
PASS_SECONDS = 60.0


def events(count: int) -> list[Event]:
    documents = islice(sample_events(SampleOptions(events=count)), count)
    return [event_from_json(json.loads(json.dumps(document))) for document in documents]


def settings(root: Path, target: int, seal: int) -> Settings:
    return Settings.model_validate(
        {
            "root": root,
            "journal": {"seal_bytes": seal, "seal_seconds": 10 * PASS_SECONDS},
            "eventlog": {"log_bytes_target": target, "block_bytes_max": 65_536},
            "catalog": {"checkpoint_every": 4},
        }
    )


@pytest.mark.in_parts(3)
@pytest.mark.parametrize(
    ("target", "seal", "compact_every"),
    [
        pytest.param(2_000_000, 150_000, COMPACT_EVERY, id="several groups a log, several logs a compaction"),
        # Without compaction: full logs are just about as large as what it joins.
        pytest.param(120_000, 200_000, PASSES + 1, id="several logs a group"),
        pytest.param(330_000, 90_000, COMPACT_EVERY, id="several units a pass"),
    ],
)
def test_groups_units_logs_transactions_and_checkpoints_are_those_of_a_real_repository(
    tmp_path: Path, target: int, seal: int, compact_every: int
) -> None:
    repository = Repository(settings(tmp_path, target, seal), clock=ManualClock(1_772_409_600_000))
    data = events(EVENTS)
    each = EVENTS // PASSES
    rewrites = 0
    with repository.writer() as writer:
        for number in range(PASSES):
            part = data[number * each : (number + 1) * each]
            for start in range(0, each, BATCH):
                writer.append(part[start : start + BATCH])
            assert not any(report.failed for report in repository.roll_over())
            if (number + 1) % compact_every == 0:
                rewrites += sum(report.logs_before > 0 for report in repository.compact())
        state = repository.workspace().catalog.load()
        checkpoints = sum(item.is_checkpoint for item in repository.workspace().catalog.objects.list())
        waiting = EVENTS - sum(file.rows for file in state.files.values())

    workload = Workload(
        events_per_day=EVENTS / PASSES * 86_400 / PASS_SECONDS,
        years=1,
        pass_seconds=PASS_SECONDS,
        compact_seconds=compact_every * PASS_SECONDS,
    )
    # Sizes depend on how many events share a block, and blocks are small here: they are measured.
    sizes = measured(repository, data)
    day = simulate_day(repository.settings, workload, PASSES * PASS_SECONDS, sizes)
    assert day.logs is not None
    assert day.rewrites == rewrites
    # A group ends at a whole append, and events differ in size: a bound of one in ten, and of two.
    assert day.transactions == pytest.approx(state.revision + 1, abs=2, rel=0.1)
    assert len(day.logs) == pytest.approx(len(state.files), abs=2, rel=0.1)
    assert len(state.shards) == len(state.files)
    assert sum(day.logs) == pytest.approx(EVENTS - waiting, rel=0.1)
    assert checkpoints == pytest.approx(day.checkpoints, abs=1)


def measured(repository: Repository, data: list[Event]) -> EventBytes:
    """Return the sizes of events in a repository with the same settings, in one log."""
    root = repository.settings.root / "scratch"
    scratch = Repository(settings(root, 1 << 30, 1 << 30))
    with scratch.writer() as writer:
        writer.append(data)
        [sealed] = writer.seal()
        journal = sealed.stat().st_size
    plain = sum(int(row_bytes(table).sum()) for table in scratch.events(0, len(data)).tables())
    scratch.roll_over()
    [file] = scratch.workspace().state().files.values()
    footer = stored_footer(file)
    assert footer is not None
    encoded = sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
    return replace(SAMPLE, journal=journal / len(data), plain=plain / len(data), encoded=encoded / len(data))


@pytest.mark.parametrize(("layout", "factor"), [("packed", 1.0), ("whoosh", 5.4)])
def test_the_sizes_of_an_event_are_those_of_a_real_log(tmp_path: Path, layout: str, factor: float) -> None:
    root = tmp_path / "r"
    Repository.create(root)
    (root / "custody.toml").write_text(f'[index]\nlayout = "{layout}"\n')
    repository = Repository.open(root)
    count = 20_000
    with repository.writer() as writer:
        data = events(count)
        for start in range(0, count, 1000):
            writer.append(data[start : start + 1000])
        [sealed] = writer.seal()
        assert sealed.stat().st_size / count == pytest.approx(SAMPLE.journal, rel=0.05)
        plain = sum(int(row_bytes(table).sum()) for table in repository.events(0, count).tables())
        assert plain / count == pytest.approx(SAMPLE.plain, rel=0.05)
        repository.roll_over()
    state = repository.workspace().state()
    [file] = [state.files[path] for path in state.files]
    [shard] = state.shards.values()
    footer = stored_footer(file)
    assert footer is not None
    encoded = sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
    assert encoded / count == pytest.approx(SAMPLE.encoded, rel=0.1)
    assert file.size_bytes / count == pytest.approx(SAMPLE.log, rel=0.15)
    assert shard.size_bytes / count == pytest.approx(SAMPLE.shard * factor, rel=0.1)
    entry = file.ByteSize() + shard.ByteSize()
    assert entry_bytes(repository.settings, SAMPLE, count) == pytest.approx(entry, rel=0.15)
    entry -= len(file.footer)
    assert entry_bytes(repository.settings, SAMPLE, count, with_footer=False) == pytest.approx(entry, rel=0.15)
    files = sum(path.is_file() for path in repository.workspace().shard_path(shard).iterdir())
    planned = plan_capacity(repository.settings, Workload(events_per_day=1e6, years=1))
    without_catalog = planned.files - planned.transactions_kept - 2 * planned.checkpoints_per_day * 365
    assert without_catalog / planned.live_logs == pytest.approx(2 + files)


def test_what_breaks_first_comes_first_and_names_a_setting_that_helps(tmp_path: Path) -> None:
    small = plan_capacity(settings(tmp_path, 256 << 20, 100 << 20), Workload(events_per_day=10_000, years=1))
    assert small.limits[-1].breaks_after_days is None
    default = Settings(root=tmp_path)
    large = plan_capacity(default, Workload(events_per_day=1e9, years=5))
    broken = [item for item in large.limits if item.breaks_after_days is not None]
    assert [item.breaks_after_days for item in broken] == sorted(item.breaks_after_days or 0 for item in broken)
    assert all(item.remedy for item in broken)
    [catalog] = [item for item in broken if item.name == "catalog on disk"]
    assert "catalog.history_age_max" in catalog.remedy
    # What the remedy says does help.
    bounded = plan_capacity(default, Workload(events_per_day=1e9, years=5, history_days=30))
    assert bounded.catalog_bytes < large.catalog_bytes / 10
    assert bounded.kept_old_bytes < large.kept_old_bytes / 10


def test_retention_bounds_what_is_live(tmp_path: Path) -> None:
    default = Settings(root=tmp_path)
    kept = plan_capacity(default, Workload(events_per_day=1e6, years=5, retention_days=10))
    every = plan_capacity(default, Workload(events_per_day=1e6, years=5))
    assert kept.live_events == 1e7
    assert every.live_logs == pytest.approx(kept.live_logs * 182.5)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"events_per_day": 0}, "events-per-day"),
        ({"events_per_day": float("nan")}, "events-per-day"),
        ({"years": 0}, "years"),
        ({"years": 1e9}, "years"),
        ({"retention_days": -1}, "retention-days"),
        ({"history_days": float("inf")}, "history-days"),
        ({"writers": 0}, "writers"),
        ({"pass_seconds": 0.001}, "pass-seconds"),
        ({"event_bytes": float("inf")}, "event-bytes"),
    ],
)
def test_a_workload_that_makes_no_sense_is_refused_by_name(
    tmp_path: Path, changed: dict[str, float], named: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"^{named}: expected"):
        plan_capacity(Settings(root=tmp_path), Workload(**{"events_per_day": 1.0, "years": 1.0, **changed}))  # type: ignore[arg-type]


def test_the_command_prints_a_table_and_json(tmp_path: Path) -> None:
    arguments = ["-r", str(tmp_path), "plan", "--events-per-day", "903e6", "--years", "5"]
    text = CliRunner().invoke(cli, arguments)
    assert text.exit_code == 0, text.output
    assert "what breaks first" in text.stdout
    document = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).stdout)
    assert {"live_logs", "transactions_per_day", "limits"} <= document.keys()
    assert not list(tmp_path.iterdir())
    refused = CliRunner().invoke(cli, ["plan", "--events-per-day", "-1", "--years", "5"])
    assert isinstance(refused.exception, InvalidInputError) or refused.exit_code
