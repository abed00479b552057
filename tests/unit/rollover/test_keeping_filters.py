"""Filters of live shards in few files: made by the pass, asked by new processes, gone when what they tell is gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from custody.config import Settings
from custody.format.names import container_paths, filters_name
from custody.index import FilterFile, OpenShard
from custody.maintenance.findings import Finding, Level
from custody.maintenance.verification.check_orphans import of_writer
from custody.maintenance.verification.verifier import verify_repository
from custody.read.search import SearchResult
from custody.repository import Repository
from custody.retention.disk_usage import measure_disk
from custody.rollover import keeping_filters
from custody.rollover.keeping_filters import SHARDS_MIN, forget_filters, keep_filters
from custody.vfs import PosixFileSystem
from tests.support import event, run_steps

FS = PosixFileSystem()
SHARDS, EVENTS = 12, 20


def uuid_of(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def grow(repository: Repository, shards: int) -> None:
    """Make logs of a few events live, each with a shard, in passes without a checkpoint."""
    for _ in range(shards):
        with repository.writer() as writer:
            first = repository.workspace().state().next_event_id
            writer.append([event(first + item) for item in range(EVENTS)])
        run_steps(repository.settings, "rollover", "compress", "index", "commit", "sweep")


@pytest.fixture
def grown(tmp_path: Path) -> Repository:
    repository = Repository.create(tmp_path / "repository")
    grow(repository, SHARDS)
    return repository


def files(repository: Repository) -> dict[str, FilterFile]:
    kept = {}
    for root in repository.settings.containers:
        folder = container_paths(root, "main").filters
        kept.update({name: FilterFile(FS, folder / name) for name in FS.list(folder)})
    return kept


def found(repository: Repository, level: Level) -> list[Finding]:
    return verify_repository([repository.workspace()], repository.settings, FS, level).findings


def asked_by_a_new_reader(repository: Repository, text: str) -> tuple[SearchResult, int]:
    """Return the answer, and how many shards were asked for it."""
    result = Repository.open(repository.settings.root).search(text, limit=20)
    [stats] = result.explained.values()
    assert not result.notices
    return result, stats.shards - stats.pruned


def test_a_pass_keeps_filters_and_a_new_reader_opens_only_shards_that_match(grown: Repository) -> None:
    text = f"flowfile_uuid:{uuid_of(EVENTS + 3)}"
    before, asked = asked_by_a_new_reader(grown, text)
    assert asked == SHARDS
    [report] = run_steps(grown.settings, "checkpoint")
    assert str(report.note).endswith(f"filters of {SHARDS} shards")
    [file] = files(grown).values()
    assert set(file.names) == set(grown.workspace().state().shards)
    after, asked = asked_by_a_new_reader(grown, text)
    assert after.events == before.events
    assert after.total == 1
    assert asked <= 2
    # Nothing is left to do.
    assert keep_filters(grown.workspace()) == 0
    assert [same.path for same in files(grown).values()] == [file.path]


def test_totals_are_told_without_shards(grown: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_filters(grown.workspace())
    monkeypatch.delattr(OpenShard, "count")
    result, _ = asked_by_a_new_reader(grown, "event_type:CREATE")
    assert result.total == SHARDS * EVENTS


def test_a_few_shards_are_worth_no_file(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    grow(repository, SHARDS_MIN - 1)
    assert keep_filters(repository.workspace()) == 0
    assert not files(repository)
    grow(repository, 1)
    assert keep_filters(repository.workspace()) == SHARDS_MIN


def test_files_stay_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping_filters, "SHARDS_MIN", 1)
    repository = Repository.create(tmp_path / "repository")
    sizes = []
    for shards in range(1, 28):
        grow(repository, 1)
        assert keep_filters(repository.workspace()) == 1
        kept = files(repository)
        sizes.append(sorted(len(file.names) for file in kept.values()))
        assert sum(sizes[-1]) == shards
        # No shard is in two files.
        assert len({name for file in kept.values() for name in file.names}) == shards
        # Each is so much larger than the one before.
        assert all(large > 4 * small for small, large in zip(sizes[-1], sizes[-1][1:], strict=False))
    assert max(map(len, sizes)) > 1


def test_what_is_not_live_is_not_told_of_and_goes(grown: Repository) -> None:
    keep_filters(grown.workspace())
    [name] = files(grown)
    while len(left := grown.workspace().state().shards) >= SHARDS // 2:
        _expire(grown)
    assert left
    # More than half of the file is of shards that are gone.
    keep_filters(grown.workspace())
    [(new, file)] = files(grown).items()
    assert new > name
    assert set(file.names) == set(grown.workspace().state().shards)
    while len(grown.workspace().state().shards) > 1:
        _expire(grown)
    keep_filters(grown.workspace())
    assert sum(len(file.names) for file in files(grown).values()) <= 1


def _expire(repository: Repository) -> None:
    """Let the oldest log go, and what room takes of the catalog itself perhaps another one."""
    settings = repository.settings
    used = measure_disk(settings, FS).total_bytes
    limits = {"bytes_max": used - 1, "purge_percent": 100, "grace": "0 seconds"}
    section = settings.retention.model_copy(update=limits)
    limited = Repository(settings.model_copy(update={"retention": section}))
    for _ in range(2):
        limited.apply_retention()


Damage = Callable[[Path], object]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-20]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-60] + b"x" + path.read_bytes()[-59:]),
    ],
    ids=["cut", "empty", "flipped"],
)
def test_a_damaged_file_is_written_anew(grown: Repository, damage: Damage) -> None:
    keep_filters(grown.workspace())
    [(name, file)] = files(grown).items()
    damage(file.path)
    text = f"flowfile_uuid:{uuid_of(EVENTS + 3)}"
    result, asked = asked_by_a_new_reader(grown, text)
    assert (result.total, asked) == (1, SHARDS)
    assert [finding.kind for finding in found(grown, Level.QUICK)] == ["filters-damaged"]
    assert keep_filters(grown.workspace()) == SHARDS
    assert list(files(grown)) != [name]
    assert not found(grown, Level.QUICK)
    assert asked_by_a_new_reader(grown, text)[1] <= 2


def test_a_damaged_page_is_found_by_a_check_and_its_shards_are_asked(grown: Repository) -> None:
    keep_filters(grown.workspace())
    [file] = files(grown).values()
    data = bytearray(file.path.read_bytes())
    data[: len(grown.workspace().state().shards) * 64 : 7] = bytes(len(data[: SHARDS * 64 : 7]))
    file.path.write_bytes(data)
    for number in (3, EVENTS + 3, 5 * EVENTS):
        result, asked = asked_by_a_new_reader(grown, f"flowfile_uuid:{uuid_of(number)}")
        assert (result.total, asked) == (1, SHARDS)
    assert not found(grown, Level.QUICK)
    [finding] = found(grown, Level.DEFAULT)
    assert finding.kind == "filters-damaged"
    assert str(file.path) in str(finding)


def test_a_shard_that_is_built_anew_is_forgotten(grown: Repository) -> None:
    keep_filters(grown.workspace())
    name = sorted(grown.workspace().state().shards)[4]
    list(grown.rebuild_index([name]))
    assert not files(grown)
    assert keep_filters(grown.workspace()) == SHARDS
    # One that is gone is built by the next pass.
    shard = grown.workspace().shard_path(grown.workspace().state().shards[name])
    FS.remove_tree(shard)
    run_steps(grown.settings, "index")
    assert FS.exists(shard)
    assert not files(grown)


def test_only_files_that_tell_of_a_shard_are_forgotten(grown: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_filters(grown.workspace())
    [first] = files(grown)
    monkeypatch.setattr(keeping_filters, "_TAKES_UP", 0)
    grow(grown, SHARDS_MIN)
    keep_filters(grown.workspace())
    assert len(files(grown)) == 2
    workspace = grown.workspace()
    newest = workspace.state().shards[max(workspace.state().shards)]
    forget_filters(workspace, workspace.shard_path(newest))
    assert list(files(grown)) == [first]


def test_what_an_attempt_left_is_removed_and_other_files_stay(grown: Repository) -> None:
    folder = container_paths(grown.settings.containers[0], "main").filters
    folder.mkdir()
    (folder / f"{filters_name(3)}.0123.partial").write_bytes(b"half")
    (folder / "notes.txt").write_text("mine")
    keep_filters(grown.workspace())
    assert FS.list(folder) == [filters_name(0), "notes.txt"]
    assert [(finding.kind, finding.path) for finding in of_writer(grown.workspace())] == [
        ("foreign", str(folder / "notes.txt"))
    ]


def test_each_container_has_the_filters_of_its_own_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping_filters, "SHARDS_MIN", 2)
    repository = Repository.create(tmp_path / "repository")
    settings = Settings.model_validate(
        {"root": repository.settings.root, "repository": {"containers": ["disk1", "disk2"]}}
    )
    repository = Repository(settings)
    grow(repository, 6)
    keep_filters(repository.workspace())
    written = files(repository)
    shards = repository.workspace().state().shards.values()
    for root in repository.settings.containers:
        own = {shard.name for shard in shards if repository.settings.root / shard.container == root}
        names = {name for file in written.values() if file.path.is_relative_to(root) for name in file.names}
        assert names == (own if len(own) > 1 else set())
