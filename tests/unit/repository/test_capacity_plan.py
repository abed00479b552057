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
from custody.repository.request_plan import Prices
from custody.sample import SampleOptions, sample_events

SCALE = (Path(__file__).resolve().parents[3] / "docs" / "scale.md").read_text(encoding="utf-8")
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


@pytest.mark.in_parts(6)
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


@pytest.mark.in_parts(2)
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


def test_cores_and_memory_are_what_the_machines_have(tmp_path: Path) -> None:
    default, workload = Settings(root=tmp_path), Workload(events_per_day=903e6, years=1)
    broken = {item.name: item for item in plan_capacity(default, workload).limits if item.breaks_after_days is not None}
    assert "--cores" in broken["cores of the rollover"].remedy
    two = plan_capacity(default, replace(workload, cores=2), memory_bytes=64 << 20)
    broken = {item.name: item for item in two.limits if item.breaks_after_days is not None}
    assert "cores of the rollover" not in broken
    assert broken.keys() >= {"memory of a compaction", "open shards in a reader's memory"}


def test_the_settings_that_the_documents_name_hold_for_five_years(tmp_path: Path) -> None:
    text = " ".join(SCALE.split())
    sizes = f"{SAMPLE.journal:,.0f} bytes in a journal, {SAMPLE.log:.0f} in a log, {SAMPLE.shard:.0f} in an index shard"
    assert sizes in text
    said = text.partition("## With settings that hold")[2].partition("## ")[0]
    assert "--years 5 --writers 16" in said
    assert said.count(" holds") == 7
    assert "breaks" not in said.partition("breaks after")[2]


def test_requests_and_storage_have_the_prices_that_are_given(tmp_path: Path) -> None:
    default, workload = Settings(root=tmp_path), Workload(events_per_day=1e6, years=1)
    assert plan_capacity(default, workload).cost is None
    plan = plan_capacity(default, workload, prices=Prices(gb_month=1.0, thousand_gets=1.0, thousand_puts=2.0))
    assert plan.cost is not None
    assert plan.cost.storage_a_month == pytest.approx(plan.disk_bytes / 1e9)
    asked = plan.writing_requests_per_day
    assert plan.cost.writing_a_month == pytest.approx((asked.reads + 2 * asked.writes) * 365 / 12 / 1000)
    [search] = [item for item in plan.questions if item.name == "search of a day"]
    assert plan.cost.thousand_questions[search.name] == search.new_process.reads + 2 * search.new_process.writes
    # Passes that find nothing ask less, and ten times as few ask a tenth.
    rarely = plan_capacity(default, replace(workload, pass_seconds=600)).writing_requests_per_day
    assert rarely.count == pytest.approx(asked.count / 10, rel=0.3)


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
        ({"cores": 0}, "cores"),
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
    assert {"live_logs", "transactions_per_day", "limits", "questions", "search_seconds", "cost"} <= document.keys()
    assert not list(tmp_path.iterdir())
    assert "price" not in text.stdout
    prices = ["--price-per-gb-month", "0.02", "--price-per-1000-gets", "0.001", "--price-per-1000-puts", "0.01"]
    assert "price of writing a month" in CliRunner().invoke(cli, [*arguments, *prices]).stdout
    refused = CliRunner().invoke(cli, [*arguments, *prices[:2]])
    assert isinstance(refused.exception, InvalidInputError) or refused.exit_code
    refused = CliRunner().invoke(cli, ["plan", "--events-per-day", "-1", "--years", "5"])
    assert isinstance(refused.exception, InvalidInputError) or refused.exit_code
