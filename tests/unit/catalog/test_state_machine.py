"""Any order of commits, conflicts, checkpoints, prunings, reopenings and damage to checkpoints, against a model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from obstore.store import MemoryStore

from custody.catalog import Action, AddFile, Catalog, CommitConflictError, PrunedError, RemoveFile, prune, verify
from custody.clock import ManualClock
from custody.store.remote import RemoteStore

NAMES = st.sampled_from([f"f{number}" for number in range(6)])
HANDLES = st.integers(0, 1)


class CatalogMachine(RuleBasedStateMachine):
    """Two handles on one catalog; the model keeps the files of every revision."""

    def __init__(self) -> None:
        super().__init__()
        self.client = MemoryStore()
        self.clock = ManualClock(1_000_000)
        self.handles = [self.opened(), self.opened()]
        self.history: list[frozenset[str]] = []
        self.times: list[int] = []
        self.floor = 0
        self.damaged = False

    def opened(self) -> Catalog:
        return Catalog(RemoteStore(self.client, "memory://test"), "main", "provenance", self.clock)

    @rule(
        which=HANDLES, added=st.sets(NAMES, max_size=2), removed=st.sets(NAMES, max_size=1), step=st.integers(-50, 50)
    )
    def commit(self, which: int, added: set[str], removed: set[str], step: int) -> None:
        self.clock.advance(step)
        live = self.history[-1] if self.history else frozenset()
        actions = [Action(remove_file=RemoveFile(path=name)) for name in sorted(removed)]
        actions += [Action(add_file=AddFile(path=name)) for name in sorted(added)]
        if removed <= live and not added & (live - removed):
            state = self.handles[which].commit(actions)
            self.history.append(live - removed | added)
            self.times.append(state.commit_time_ms)
        else:
            with pytest.raises(CommitConflictError):
                self.handles[which].commit(actions)

    @rule(which=HANDLES)
    def checkpoint(self, which: int) -> None:
        if self.history:
            self.handles[which].checkpoint()

    @rule(which=HANDLES)
    def reopen(self, which: int) -> None:
        self.handles[which] = self.opened()

    @rule(data=st.data())
    def cut_the_front(self, data: Any) -> None:
        if self.history and not self.damaged:
            before = data.draw(st.integers(self.floor, len(self.history) - 1))
            pruned = prune(self.handles[0], before)
            assert self.floor <= pruned.floor <= before
            if pruned.floor > self.floor:
                self.floor = pruned.floor
                self.history.append(self.history[-1])
                self.times.append(self.handles[0].load().commit_time_ms)

    @rule()
    def lose_the_newest_checkpoint(self) -> None:
        """Only while every transaction is kept: otherwise it may be the one to start from."""
        checkpoints = self.opened().objects.checkpoints()
        if checkpoints and self.floor == 0:
            self.opened().objects.store.put(checkpoints[0].key, b"damaged")
            self.damaged = True

    @invariant()
    def every_kept_revision_reads_as_it_was(self) -> None:
        reader = self.opened()
        state = reader.load()
        assert state.revision == len(self.history) - 1
        if not self.history:
            return
        assert set(state.files) == self.history[-1] == set(self.handles[1].load().files)
        assert self.times == sorted(set(self.times))
        middle = (self.floor + state.revision) // 2
        assert set(reader.at(middle).files) == self.history[middle]
        assert reader.revision_at(self.times[middle]) == middle
        if self.floor:
            with pytest.raises(PrunedError):
                reader.at(self.floor - 1)
        if not self.damaged:
            assert verify(reader, files=False).defects == []


CatalogMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestCatalogMachine = CatalogMachine.TestCase
