"""The steps: each can be done again, stopped after, or left half done; readers only ever see what is committed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from custody.catalog.transaction_summary import summary_of
from custody.config import SETTINGS_FILE
from custody.errors import CorruptionError, NotFoundError
from custody.eventlog import EventLog
from custody.model import Event
from custody.recovery import STEPS
from custody.repository import Repository
from custody.rollover import pending
from custody.vfs import PosixFileSystem
from custody.workspace import Unit, Workspace
from tests.support import append, event, files_below, flipped, numbered, run_steps, sample, unnumbered

EVENTS = sample(120)
TARGETS = {"merged": 1 << 30, "apart": 75_000, "split": 8_000}
QUESTIONS = ["", "event_type:SEND", "filename:*order*", "NOT event_type:DROP", "file_size:[1000 TO]", "details:auto"]


def answers(repository: Repository) -> list[list[int]]:
    return [[stored.event.event_id for stored in repository.search(text).events] for text in QUESTIONS]


def stored(repository: Repository) -> list[Event]:
    return list(repository.events(count=10_000))


def data_files(repository: Repository) -> dict[str, bytes]:
    """All files but the locks, which name the process that held them last."""
    return {name: data for name, data in files_below(repository.settings.root).items() if not name.endswith("LOCK")}


@pytest.fixture(params=["merged", "apart", "split"])
def waiting(tmp_path: Path, request: pytest.FixtureRequest) -> Repository:
    """Two sealed groups, and a third one that a dead writer left open; they become one log, one each, or many."""
    repository = Repository.create(tmp_path / "repository")
    settings = f"[eventlog]\nlog_bytes_target = {TARGETS[request.param]}\n"
    (repository.settings.root / SETTINGS_FILE).write_text(settings)
    repository = Repository.open(repository.settings.root)
    for part in (EVENTS[:50], EVENTS[50:80], EVENTS[80:]):
        append(repository, part)
    last = max(repository.settings.root.glob("containers/1/main/journals/*.sealed"))
    last.rename(last.with_suffix(".journal"))
    return repository


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """What a repository answers whose groups went through without a stop."""
    created = Repository.create(tmp_path_factory.mktemp("whole") / "repository")
    for part in (EVENTS[:50], EVENTS[50:80], EVENTS[80:]):
        append(created, part)
    run_steps(created.settings)
    return answers(created)


def test_a_pass_makes_every_event_live_and_leaves_nothing_to_do(waiting: Repository, expected: list[list[int]]) -> None:
    assert pending(waiting.settings).is_any
    run_steps(waiting.settings)
    assert stored(waiting) == numbered(EVENTS)
    assert answers(waiting) == expected
    assert all(expected)
    assert not pending(waiting.settings).is_any
    assert all(step.units(waiting.settings) == [] for step in STEPS.values())
    assert list(waiting.settings.root.rglob("*.sealed")) == []
    assert list(waiting.settings.root.rglob("*.arrow")) == []


@pytest.mark.in_parts(3)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_done_twice_changes_nothing(waiting: Repository, expected: list[list[int]], name: str) -> None:
    for step in STEPS:
        units = STEPS[step].units(waiting.settings)
        run_steps(waiting.settings, step)
        if step == name:
            before = data_files(waiting)
            run_steps(waiting.settings, step)
            for unit in units:  # as a second attempt does that listed them before the first one ended
                STEPS[step].run(Workspace(waiting.settings, unit.writer), unit)
            assert data_files(waiting) == before
    assert stored(waiting) == numbered(EVENTS)
    assert answers(waiting) == expected


@pytest.mark.in_parts(3)
@pytest.mark.parametrize("stop", range(len(STEPS)))
def test_a_pass_that_stopped_after_any_step_is_finished_by_the_next(
    waiting: Repository, expected: list[list[int]], stop: int
) -> None:
    run_steps(waiting.settings, *list(STEPS)[: stop + 1])
    assert stored(waiting) == numbered(EVENTS)
    assert answers(waiting) == expected
    run_steps(waiting.settings)
    assert stored(waiting) == numbered(EVENTS)
    assert answers(waiting) == expected
    assert not pending(waiting.settings).is_any


def test_a_step_that_stopped_after_its_first_unit_is_finished_by_the_next(
    waiting: Repository, expected: list[list[int]]
) -> None:
    for name in STEPS:
        for unit in STEPS[name].units(waiting.settings)[:1]:
            STEPS[name].run(Workspace(waiting.settings, unit.writer), unit)
        if name == "commit":
            break
        run_steps(waiting.settings, name)
    run_steps(waiting.settings)
    assert stored(waiting) == numbered(EVENTS)
    assert answers(waiting) == expected


def test_the_logs_of_groups_that_were_merged_become_live_in_one_transaction(waiting: Repository) -> None:
    run_steps(waiting.settings, "recover", "rollover")
    manifests = waiting.workspace().manifests()
    assert [group for manifest in manifests for group in manifest.groups] == [0, 50, 80]
    run_steps(waiting.settings)
    for manifest, transaction in zip(manifests, waiting.timeline(), strict=True):
        assert transaction.attempt_id == manifest.transaction.bytes
        kinds = [action.WhichOneof("kind") for action in transaction.actions]
        assert kinds == ["add_file", "add_shard"] * len(manifest.logs)
        assert transaction.next_event_id == manifest.logs[-1].last_event_id + 1
        files = [action.add_file for action in transaction.actions if action.HasField("add_file")]
        assert [file.rows for file in files] == [log.rows for log in manifest.logs]
        assert {group for file in files for group in file.groups} == set(manifest.groups)
        for file in files:
            [held] = [log for log in manifest.logs if log.first_event_id == file.first_event_id]
            assert EventLog(
                PosixFileSystem(), waiting.workspace().paths.home / file.path
            ).metadata == manifest.metadata(held)
    assert sum(log.rows for manifest in manifests for log in manifest.logs) == len(EVENTS)


def test_groups_are_merged_kept_apart_or_split_by_their_size(
    waiting: Repository, request: pytest.FixtureRequest
) -> None:
    run_steps(waiting.settings, "recover", "rollover")
    units, logs = {"merged": (1, 1), "apart": (3, 3), "split": (3, 15)}[request.node.callspec.params["waiting"]]
    manifests = waiting.workspace().manifests()
    assert len(manifests) == units
    assert len([log for manifest in manifests for log in manifest.logs]) >= logs
    for log in [log for manifest in manifests for log in manifest.logs]:
        assert log.plain_bytes <= waiting.settings.eventlog.log_bytes_target or log.rows == 1


def test_a_transaction_describes_its_files_truly(waiting: Repository) -> None:
    run_steps(waiting.settings)
    state = waiting.workspace().catalog.load()
    home = waiting.workspace().paths.home
    for file in state.files.values():
        events = EVENTS[file.first_event_id : file.last_event_id + 1]
        assert (home / file.path).stat().st_size == file.size_bytes
        assert (home / file.toc_path).is_file()
        assert file.rows == len(events)
        assert file.first_event_time_ms == min(item.event_time for item in events)
        bounds = {s.node: (s.first_ordinal, s.last_ordinal) for s in file.sources}
        for node in {item.source_node for item in events}:
            ordinals = [item.source_ordinal or 0 for item in events if item.source_node == node]
            assert bounds[node or ""] == (min(ordinals), max(ordinals))


def test_sweep_removes_only_committed_journals(waiting: Repository) -> None:
    run_steps(waiting.settings)
    append(waiting, [event(500)])
    run_steps(waiting.settings, "rollover", "compress", "index", "sweep")
    assert len(list(waiting.settings.root.rglob("*.sealed"))) == 1
    assert len(waiting.workspace().staged()) == 1
    assert unnumbered(stored(waiting)) == [*EVENTS, event(500)]
    run_steps(waiting.settings, "commit", "sweep")
    assert list(waiting.settings.root.rglob("*.sealed")) == []
    assert unnumbered(stored(waiting)) == [*EVENTS, event(500)]


def test_leftovers_are_never_seen(waiting: Repository, expected: list[list[int]]) -> None:
    run_steps(waiting.settings)
    before = (stored(waiting), answers(waiting), waiting.status().writers, waiting.status().pending)
    home = waiting.workspace().paths.home
    log = next((home / "data").rglob("*.parquet"))
    (log.parent / "00000000000000009999.parquet").write_bytes(log.read_bytes())
    (log.parent / "00000000000000009999.parquet.0123.partial").write_bytes(b"half")
    (home / "staging" / "building-00000000000000009999-0123").mkdir()
    (home / "staging" / "building-00000000000000009999-0123" / "00000000000000009999.arrow").write_bytes(b"half")
    shard = next((waiting.settings.containers[0] / "main/index").iterdir())
    (shard.parent / "1772409600000-00000000000000009999").mkdir()
    (shard.parent / f"building-{shard.name}-0123").mkdir()
    (waiting.settings.store / "notes.txt").write_text("mine")
    (waiting.settings.store / "notes").write_text("mine")
    (waiting.settings.store / "lost+found").mkdir()
    (waiting.settings.containers[0] / "lost+found").mkdir()
    assert (stored(waiting), answers(waiting), waiting.status().writers, waiting.status().pending) == before
    run_steps(waiting.settings)
    assert answers(waiting) == expected


def test_a_lost_shard_is_made_again_from_its_log(waiting: Repository, expected: list[list[int]]) -> None:
    run_steps(waiting.settings)
    shards = sorted((waiting.settings.containers[0] / "main/index").iterdir())
    lost = shards[: max(len(shards) - 1, 1)]
    for shard in lost:
        shutil.rmtree(shard)
    assert answers(waiting) == expected
    assert len(waiting.search("").notices) == len(lost)
    assert len(run_steps(waiting.settings, "index")) == len(lost)
    told = [reason for one in waiting.workspace().catalog.timeline() for reason in summary_of(one).reasons]
    # Of the first builds nothing is told: only those that were gone are mended.
    assert sorted(reason.name for reason in told if reason.kind == "shard-rebuilt") == [path.name for path in lost]
    assert {reason.who for reason in told} == {"step index"}
    assert sum(reason.kind == "repair-finished" for reason in told) == len(lost)
    assert answers(waiting) == expected
    assert waiting.search("").notices == ()
    assert sorted((waiting.settings.containers[0] / "main/index").iterdir()) == shards


def test_a_commit_without_its_log_or_shard_fails_and_commits_nothing(waiting: Repository) -> None:
    run_steps(waiting.settings, "recover", "rollover")
    with pytest.raises(NotFoundError, match="parquet"):
        run_steps(waiting.settings, "commit")
    run_steps(waiting.settings, "compress")
    with pytest.raises(NotFoundError, match="Run the index step"):
        run_steps(waiting.settings, "commit")
    assert waiting.workspace().catalog.load().revision == -1


def test_events_without_a_source_are_committed_beside_those_that_have_one(repository: Repository) -> None:
    events = [event(0), event(1, source_node=None), event(2, source_ordinal=None), event(3, source_node="other")]
    append(repository, events)
    run_steps(repository.settings)
    [file] = repository.workspace().catalog.load().files.values()
    assert [source.node for source in file.sources] == ["node-1", "other"]
    assert unnumbered(stored(repository)) == events


def test_a_checkpoint_is_written_when_it_is_due(repository: Repository) -> None:
    checkpoints: list[int] = []
    for number in range(12):
        append(repository, [event(number)])
        run_steps(repository.settings)
        checkpoints.append(len(list(repository.settings.store.rglob("*.ckpt"))))
    assert checkpoints == [0] * 9 + [1] * 3
    assert repository.workspace().catalog.checkpoint_age() == 2


def test_a_unit_without_a_group_is_refused_where_a_group_is_meant(repository: Repository) -> None:
    with pytest.raises(ValueError, match="names no group"):
        STEPS["compress"].run(Workspace(repository.settings, "main"), Unit("main"))


def test_recovery_reports_the_bytes_that_it_cut(waiting: Repository) -> None:
    path = next(waiting.settings.root.rglob("*.journal"))
    path.write_bytes(path.read_bytes() + b"torn")
    [report] = run_steps(waiting.settings, "recover")
    assert report.note == "1 journals sealed, 4 unacknowledged bytes cut"
    assert not Path(path).exists()


def test_a_log_that_was_damaged_before_its_commit_is_not_listed_and_is_written_again(repository: Repository) -> None:
    append(repository, [event(number) for number in range(50)])
    run_steps(repository.settings, "rollover", "compress", "index")
    [log] = repository.settings.store.rglob("*.parquet")
    log.chmod(0o644)
    log.write_bytes(flipped(log.read_bytes(), 8 * 342))
    with pytest.raises(CorruptionError, match="block 0"):
        run_steps(repository.settings, "commit")
    assert not repository.workspace().catalog.load().files
    run_steps(repository.settings, "compress", "index", "commit", "sweep")
    assert repository.search("").total == 50
