"""Scenarios of the catalog alone: commits, checkpoints, and two writers that race for a revision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from custody.catalog import Action, AddFile, Catalog
from custody.clock import ManualClock
from custody.vfs import FileSystem
from custody.vfs.faults import EFFECTS, FaultyFileSystem
from tests.crash.enumeration import Scenario
from tests.crash.machine_with_bucket import machine_of, store_on


@dataclass
class Commits:
    """How many files were tried to be added, and which additions were acknowledged."""

    tried: int = 0
    acknowledged: set[str] = field(default_factory=set)

    def commit(self, catalog: Catalog) -> None:
        """Add a file that nobody added before."""
        path = f"data/{self.tried:04d}.parquet"
        self.tried += 1
        catalog.commit([Action(add_file=AddFile(path=path, rows=1))])
        self.acknowledged.add(path)


def catalog(fs: FileSystem) -> Catalog:
    """The catalog, opened by a process that just started."""
    return Catalog(store_on(fs, Path("/store")), "main", "provenance", ManualClock(1_772_409_600_000))


class Committing(Scenario[Commits]):
    """Two handles take turns, so that each finds the other's commits, with checkpoints in between."""

    def new_record(self) -> Commits:
        return Commits()

    def copy(self, record: Commits) -> Commits:
        return Commits(record.tried, set(record.acknowledged))

    def run(self, fs: FileSystem, record: Commits) -> None:
        first, second = catalog(fs), catalog(fs)
        for handle in (first, second, second, first):
            record.commit(handle)
            if handle is second:
                handle.checkpoint()

    def check(self, fs: FileSystem, record: Commits) -> None:
        opened = catalog(fs)
        state = opened.load()
        timeline = [transaction.revision for transaction in opened.timeline()]
        assert timeline == list(range(state.revision + 1))
        tried = {f"data/{number:04d}.parquet" for number in range(record.tried)}
        assert record.acknowledged <= set(state.files), f"lost: {record.acknowledged - set(state.files)}"
        assert set(state.files) <= tried

    def use(self, fs: FileSystem, record: Commits) -> None:
        opened = catalog(fs)
        record.commit(opened)
        opened.checkpoint()
        record.commit(catalog(fs))


class Racing(Committing):
    """One writer commits in the middle of the other one's commit.

    Args:
        before: the number of the operation of the slow commit before which the fast one takes place.
    """

    def __init__(self, before: int) -> None:
        self._before = before

    def run(self, fs: FileSystem, record: Commits) -> None:
        record.commit(catalog(fs))
        fast, machine = catalog(fs), machine_of(fs)
        if machine is None:
            slow = catalog(Interleaving(fs, self._before, lambda: record.commit(fast)))
        else:
            slow = catalog(fs)
            machine.let_in(self._before, lambda: record.commit(fast))
        record.commit(slow)


class Interleaving(FaultyFileSystem):
    """Does something else once, right before its own operation number `before`."""

    def __init__(self, inner: FileSystem, before: int, action: Callable[[], None]) -> None:
        super().__init__(inner)
        self._before = before
        self._action = action
        self.done = 0
        """Its own operations with an effect."""

    def meet(self, kind: str, path: Path) -> None:
        self._step(kind)

    def admit(self, path: Path, length: int) -> tuple[int, int | None]:
        self._step("write")
        return length, None

    def _step(self, kind: str) -> None:
        self.done += kind in EFFECTS
        if kind in EFFECTS and self.done == self._before:
            self._action()
