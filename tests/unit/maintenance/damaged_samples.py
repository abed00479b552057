"""A small repository with all kinds of files in it, and what can be done to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from custody import recovery
from custody.clock import ManualClock
from custody.config import load_settings
from custody.maintenance.findings import Finding, Level, damages
from custody.maintenance.repair import RepairReport, repair_repository
from custody.maintenance.verification import VerificationReport, verify_repository
from custody.quarantine import bad_piece
from custody.repository import Repository
from custody.rollover import STEPS
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from tests.support import event

NOW_MS = 1_772_409_600_000
LATER_MS = NOW_MS + 2000
"""The time of each read, repair and pass of a sample: no stamp is ahead of the clock of the next."""
SETTINGS = """
[repository]
containers = ["disk1", "disk2"]
[eventlog]
block_bytes_max = 4096
log_bytes_target = 24000
[index]
attributes = ["kind"]
"""
LIVE = 90
"""Events of the first three groups, which are live in several logs."""
EVENTS = 125
STORE = Path("store/main/provenance")
CONTENT = b"what five events speak of" * 40


def build(root: Path) -> None:
    """Make the repository: three live groups, one that is staged, a sealed one, a dead writer's open journal."""
    root.mkdir(parents=True)
    (root / "custody.toml").write_text(SETTINGS)
    repository = Repository(load_settings(root), PosixFileSystem(), ManualClock(NOW_MS))
    for number in range(3):
        _append(repository, 30 * number, 30)
        _steps(repository, *STEPS)
    repository.workspace().catalog.checkpoint()
    _append(repository, 90, 20)
    _steps(repository, "rollover", "compress", "index", "commit", "checkpoint")  # not swept: its journals are there
    _append(repository, 110, 5)
    _steps(repository, "rollover")
    _append(repository, 115, 5)
    _append(repository, 120, 5)
    journal = sorted(root.glob("disk*/main/journals/*120.*.sealed"))[0]
    data = journal.read_bytes()
    journal.rename(journal.with_suffix(".journal")).write_bytes(data[: data.rindex(b"\xc5\x7e\xa1\x1d")])
    piece = bad_piece(
        b"not an event", severity="error", code="not-json", message="broken", file="a.json",
        index=None, offset=0, node=None, received_ms=NOW_MS,
    )  # fmt: skip
    repository.quarantine.add(piece)


def _append(repository: Repository, first: int, count: int) -> None:
    with repository.writer() as writer:
        for start in range(first, first + count, 5):
            events = [
                event(number, updated_attributes={"kind": f"k{number % 3}"}) for number in range(start, start + 5)
            ]
            if start == 0:
                writer.append_with_content(events, CONTENT)
            else:
                writer.append(events)


def _steps(repository: Repository, *names: str, time_ms: int = NOW_MS) -> None:
    for name in names:
        workspace = Workspace(repository.settings, "main", PosixFileSystem(), ManualClock(time_ms))
        for unit in list(recovery.STEPS[name].waiting(workspace)):
            recovery.STEPS[name].run(workspace, unit)


@dataclass(frozen=True)
class Sample:
    """One copy of the repository."""

    root: Path

    @property
    def fs(self) -> PosixFileSystem:
        return PosixFileSystem()

    def repository(self) -> Repository:
        return Repository(load_settings(self.root), self.fs, ManualClock(LATER_MS))

    def workspace(self) -> Workspace:
        return self.repository().workspace()

    def verify(self, level: Level = Level.DEFAULT) -> VerificationReport:
        repository = self.repository()
        return verify_repository(repository.workspaces(), repository.settings, self.fs, level)

    def damage(self, level: Level = Level.DEFAULT) -> list[Finding]:
        return damages(self.verify(level).findings)

    def repair(self, *, accept_loss: bool = False, level: Level = Level.DEFAULT) -> RepairReport:
        clock = ManualClock(LATER_MS)
        return repair_repository(load_settings(self.root), self.fs, clock, level, accept_loss=accept_loss)

    def finish(self) -> None:
        """Do a whole pass, as the next run of the pipeline does."""
        _steps(self.repository(), *recovery.STEPS, time_ms=LATER_MS)

    def answered(self) -> dict[int, str]:
        """Every event that is given out, by id: what it is about."""
        return {item.event_id: item.flowfile_uuid for item in self.repository().events(0, 10_000)}

    def glob(self, pattern: str) -> list[Path]:
        paths = sorted(self.root.glob(pattern))
        assert paths, pattern
        return paths

    def logs(self) -> list[Path]:
        """The swept logs: nothing else holds their events."""
        return [path for path in self.glob(str(STORE / "data/*/events/*.parquet")) if int(path.stem) < LIVE]

    def claim(self) -> Path:
        """The one file of contents."""
        [path] = self.glob("store/main/content/*/*/*")
        return path

    def transactions(self) -> list[Path]:
        return self.glob(str(STORE / "transactions/*/*.txn"))


def flip(path: Path, offset: int, mask: int = 1) -> None:
    """Change a byte of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= mask
    path.write_bytes(data)


def cut(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])


def swap(first: Path, second: Path) -> None:
    """Let two files change places."""
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


Damage = Callable[[Sample], object]
__all__ = ["EVENTS", "LIVE", "Damage", "Sample", "build", "cut", "flip", "swap"]
