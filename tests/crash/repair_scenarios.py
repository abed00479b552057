"""Scenarios of a repair and of the scrub: a store is damaged before the first crash, and mended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from custody.catalog import Catalog, FileRepair
from custody.catalog.file_repairs import open_repairs
from custody.clock import ManualClock
from custody.config import Settings
from custody.index import builder
from custody.index.manifest import NAME as MANIFEST
from custody.maintenance.findings import Finding, Level, damages
from custody.maintenance.maintenance_steps import MAINTENANCE_STEPS
from custody.maintenance.repair import repair_repository
from custody.maintenance.rewriting import open_event_log
from custody.maintenance.scrub import read_scrub, scrub_once
from custody.maintenance.verification import verify_repository
from custody.quarantine import Quarantine
from custody.repository import Repository
from custody.rollover import STEPS
from custody.vfs import FileSystem
from custody.vfs.memory import MemoryFileSystem
from custody.vfs.wrapping import WrappingFileSystem
from custody.workspace import Workspace
from tests.crash.lease_scenarios import processes
from tests.crash.memory_repository import EVERYTHING, SETTINGS, WRITER, Promises, check_events, copied_segment, run_pass
from tests.crash.memory_repository import repository as opened
from tests.crash.rollover_scenarios import Prepared

NOW_MS = 1_772_409_600_000
EACH = 26
"""Events of a log: two blocks of them."""
COPIES = Path("/copies")
SMALL_BLOCKS = Settings.model_validate(
    {
        "root": SETTINGS.root,
        "repository": {"writer": WRITER, "containers": ["disk1", "disk2"]},
        "catalog": {"checkpoint_every": 1},
        "eventlog": {"block_bytes_max": 4096, "log_bytes_target": 20_000},
    }
)


@dataclass
class Held(Promises):
    """What is promised, and whether all of it must be given out by now: damage may hide events until it is mended."""

    is_mended: bool = False

    def copy(self) -> Held:
        return Held(self.tried, dict(self.acknowledged), self.is_mended)


Inflict = Callable[[MemoryFileSystem, Workspace, Promises], None]


class Mending(Prepared):
    """Two live logs of two blocks each and a sealed group; `inflict` damages them and takes what is lost for good off
    the promises. A repair is crashed; the next one finishes the work, and notes each loss once.
    """

    def __init__(self, inflict: Inflict, *, accept_loss: bool = False) -> None:
        disk = MemoryFileSystem()
        self._promises = Held()
        self._accept_loss = accept_loss
        self._inflict = inflict
        for _ in range(2):
            _append(disk, self._promises, EACH)
            _steps(disk, *STEPS)
        _append(disk, self._promises, 2, 2)
        held = len(self._promises.acknowledged)
        inflict(disk, Workspace(SMALL_BLOCKS, WRITER, disk), self._promises)
        self._lost = held - len(self._promises.acknowledged)
        self._broken = _broken(disk)
        self._disk = disk

    def run(self, fs: FileSystem, record: Promises) -> None:
        # Who crashed is gone, though it was this very process.
        with patch.object(builder, "write_segment", copied_segment), processes(gone=True):
            copies = COPIES if fs.exists(COPIES) else None
            repair_repository(SMALL_BLOCKS, fs, ManualClock(NOW_MS), accept_loss=self._accept_loss, copies=copies)

    def check(self, fs: FileSystem, record: Promises) -> None:
        # A process of its own: what a reader keeps open of a damaged file it goes on to see.
        process = WrappingFileSystem(fs)
        self._check_told(process)
        if isinstance(record, Held) and record.is_mended:
            check_events(process, record)
            return
        known = self._promises.acknowledged
        for item in opened(process).events(0, EVERYTHING):
            assert item == known.get(item.event_id, item), f"event {item.event_id} is not what was appended"

    def _check_told(self, fs: FileSystem) -> None:
        """Whatever was broken and is not any more, the catalog tells of: before it was mended, or as it was."""
        catalog = Workspace(SMALL_BLOCKS, WRITER, fs).catalog
        told = [repair.name for repair in _told(catalog)]
        live = {*catalog.load().shards}
        for kind, name in self._broken - _broken(fs):
            # A shard that went with its log is not mended: the log's own repair is told.
            if not kind.startswith("shard-") or name in live:
                assert name in told, f"{name}: {kind}, was mended, and the catalog tells nothing of it"

    def use(self, fs: FileSystem, record: Promises) -> None:
        self.run(fs, record)
        told = [
            (repair.kind, repair.name, repair.reason) for repair in _told(Workspace(SMALL_BLOCKS, WRITER, fs).catalog)
        ]
        assert len(told) == len(set(told)), "a repair was told twice"
        self._check_told(fs)
        self._check_finished(fs)
        left = damages(_verify(fs, Level.DEFAULT))
        assert not left, left[0].message
        state = opened(fs).workspace().catalog.load()
        noted = sum(loss.events for loss in state.losses.values())
        assert noted == self._lost, f"{self._lost} events are lost, {noted} are noted"
        has_evidence = any(Quarantine(fs, SETTINGS.quarantine).entries())
        assert self._inflict is remove_a_log or not self._lost or has_evidence, "no evidence"
        assert isinstance(record, Held)
        record.is_mended = True
        super().use(fs, record)
        run_pass(fs)
        check_events(fs, record)

    def _check_finished(self, fs: FileSystem) -> None:
        assert not open_repairs(Workspace(SMALL_BLOCKS, WRITER, fs).catalog), "what is done stands open"


class RebuildingShards(Mending):
    """One shard is gone and one is damaged: the step of the maintenance builds them anew, and tells of it first."""

    def __init__(self) -> None:
        super().__init__(damage_the_shards)

    def run(self, fs: FileSystem, record: Promises) -> None:
        step = MAINTENANCE_STEPS["rebuild"]
        with patch.object(builder, "write_segment", copied_segment), processes(gone=True):
            for unit in step.units(SMALL_BLOCKS, fs):
                step.run(Workspace(SMALL_BLOCKS, unit.writer, fs, ManualClock(NOW_MS)), unit)

    def _check_finished(self, fs: FileSystem) -> None:
        """A step does not look for what earlier ones left open: the next repair says that it is done."""
        super().run(fs, self._promises)
        super()._check_finished(fs)


class Scrubbing(Prepared):
    """Two runs of the scrub over a store with a damaged block: whatever is kept is whole, and nothing is left out."""

    def __init__(self) -> None:
        disk = MemoryFileSystem()
        self._promises = Promises()
        _append(disk, self._promises, EACH)
        _steps(disk, *STEPS)
        damage_a_block(disk, Workspace(SMALL_BLOCKS, WRITER, disk), self._promises)
        self._disk = disk

    def run(self, fs: FileSystem, record: Promises) -> None:
        clock = ManualClock(NOW_MS)
        scrub_once(SMALL_BLOCKS, fs, clock, bytes_max=3000, save_bytes=1)
        scrub_once(SMALL_BLOCKS, fs, clock, whole=True, save_bytes=1)

    def check(self, fs: FileSystem, record: Promises) -> None:
        scrub = read_scrub(SMALL_BLOCKS, fs)
        if scrub.former is not None:
            whole = verify_repository([Workspace(SMALL_BLOCKS, WRITER, fs)], SMALL_BLOCKS, fs, Level.QUICK)
            assert scrub.former.pieces == whole.pieces, "a piece was left out of a round"
            kinds = sorted(item.kind for item in damages(scrub.former.findings))
            assert kinds == ["log-damaged", "shard-missing", "toc-damaged"], kinds

    def use(self, fs: FileSystem, record: Promises) -> None:
        before = read_scrub(SMALL_BLOCKS, fs)
        after = scrub_once(SMALL_BLOCKS, fs, ManualClock(NOW_MS), whole=True)
        assert after.former is not None
        assert after.former.number == before.current.number


def damage_a_block(fs: MemoryFileSystem, workspace: Workspace, promises: Promises) -> None:
    """Change a byte in the second block of a log, and one in its table of contents; the shard is gone."""
    state = workspace.catalog.load()
    file = state.files[min(state.files)]
    log = open_event_log(workspace, file)
    block = log.toc.blocks[1]
    _flip(fs, workspace.paths.home / file.path, int(block["offset"]) + 10)
    _flip(fs, workspace.paths.home / file.toc_path, 20)
    [shard] = [item for item in state.shards.values() if file.path in item.log_paths]
    fs.remove_tree(workspace.shard_path(shard))
    fs.sync_directory(workspace.shard_path(shard).parent)
    for number in range(int(block["rows"])):
        del promises.acknowledged[int(block["first_event_id"]) + number]


def damage_beside_a_copy(fs: MemoryFileSystem, workspace: Workspace, promises: Promises) -> None:
    """Change a byte of a log, of which a copy lies in a folder of the user's."""
    state = workspace.catalog.load()
    path = workspace.paths.home / min(state.files)
    fs.make_directory(COPIES)
    fs.write_durably(COPIES / "rescued", fs.read(path))
    _flip(fs, path, 100)


def damage_and_put_back(fs: MemoryFileSystem, workspace: Workspace, promises: Promises) -> None:
    """Damage a block, note its loss, and put an intact copy of the log back into its place."""
    state = workspace.catalog.load()
    path = workspace.paths.home / min(state.files)
    good = fs.read(path)
    damage_a_block(fs, workspace, Promises(promises.tried, dict(promises.acknowledged)))
    with patch.object(builder, "write_segment", copied_segment), processes(gone=True):
        repair_repository(SMALL_BLOCKS, fs, ManualClock(NOW_MS), accept_loss=True)
    assert workspace.catalog.load().losses
    fs.write_durably(path, good)


def damage_the_shards(fs: MemoryFileSystem, workspace: Workspace, promises: Promises) -> None:
    """Take one shard away, and change a byte of the other one's description."""
    gone, damaged = (workspace.shard_path(shard) for _, shard in sorted(workspace.catalog.load().shards.items()))
    fs.remove_tree(gone)
    fs.sync_directory(gone.parent)
    _flip(fs, damaged / MANIFEST, 40)


def damage_what_is_made_anew(fs: MemoryFileSystem, workspace: Workspace, promises: Promises) -> None:
    """Change a byte of both tables of contents; one shard is gone, one damaged."""
    for file in workspace.catalog.load().files.values():
        _flip(fs, workspace.paths.home / file.toc_path, 20)
    damage_the_shards(fs, workspace, promises)


def swap_logs(fs: MemoryFileSystem, workspace: Workspace, promises: Promises) -> None:
    """Let two logs change places."""
    first, second = (workspace.paths.home / path for path in sorted(workspace.catalog.load().files)[:2])
    fs.rename(first, first.with_name("aside"))
    fs.rename(second, first)
    fs.rename(first.with_name("aside"), second)
    fs.sync_directory(first.parent)


def damage_a_journal(fs: MemoryFileSystem, workspace: Workspace, promises: Promises) -> None:
    """Change a byte in the second record of the sealed journal."""
    [group] = workspace.groups()
    [path] = group.sealed
    _flip(fs, path, len(fs.read(path)) - 200)
    for event_id in (2 * EACH + 2, 2 * EACH + 3):
        del promises.acknowledged[event_id]


def remove_a_log(fs: MemoryFileSystem, workspace: Workspace, promises: Promises) -> None:
    """Take a log away for good."""
    state = workspace.catalog.load()
    file = state.files[min(state.files)]
    fs.remove(workspace.paths.home / file.path)
    fs.sync_directory((workspace.paths.home / file.path).parent)
    for event_id in range(file.first_event_id, file.last_event_id + 1):
        del promises.acknowledged[event_id]


def _append(fs: FileSystem, promises: Promises, *counts: int) -> None:
    with Repository(SMALL_BLOCKS, fs, ManualClock(NOW_MS)).writer() as writer:
        for count in counts:
            promises.append(writer, count)


def _steps(fs: FileSystem, *names: str) -> None:
    for name in names:
        for unit in STEPS[name].units(SMALL_BLOCKS, fs):
            STEPS[name].run(Workspace(SMALL_BLOCKS, unit.writer, fs, ManualClock(NOW_MS)), unit)


def _flip(fs: MemoryFileSystem, path: Path, offset: int) -> None:
    data = bytearray(fs.read(path))
    data[offset] ^= 1
    fs.write_durably(path, bytes(data))


def _verify(fs: FileSystem, level: Level) -> list[Finding]:
    return verify_repository([Workspace(SMALL_BLOCKS, WRITER, fs)], SMALL_BLOCKS, fs, level).findings


def _broken(fs: FileSystem) -> set[tuple[str, str]]:
    """Return kind and name of the damage of live files."""
    kinds = ("log-", "toc-", "shard-")
    return {(item.kind, item.name) for item in damages(_verify(fs, Level.DEFAULT)) if item.kind.startswith(kinds)}


def _told(catalog: Catalog) -> list[FileRepair]:
    """Return the repairs that a catalog tells of."""
    if catalog.load().revision < 0:
        return []
    return [each for one in catalog.timeline() for action in one.actions for each in action.note.repairs]
