"""The catalog of one writer's database, read: a linear log of transactions, its newest state and the former ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from custody.catalog.chain import Chain
from custody.catalog.conflict import PrunedError
from custody.catalog.history import Difference, revision_at
from custody.catalog.objects import Objects
from custody.catalog.state import EMPTY, CatalogState
from custody.catalog.transaction_pb2 import Transaction
from custody.errors import CorruptionError, NotFoundError, StorageError
from custody.store import ObjectStore


class CatalogReader:
    """Reads one catalog; cheap to make, keeps the state that it read last.

    Args:
        store: where the catalog lies.
        writer: whose it is; one linear timeline for each writer and database.
        database: of what.
    """

    def __init__(self, store: ObjectStore, writer: str, database: str) -> None:
        self.objects = Objects(store, writer, database)
        self.chain = Chain(self.objects)
        self.notices: list[str] = []
        """What was found and could be passed over, such as a damaged checkpoint."""
        self._store = store
        self._state = EMPTY
        self._opened = False
        self._checkpointed = (-1, 0)
        """Revision and size in bytes of the newest checkpoint that this object knows of."""
        self._log_bytes = 0

    def load(self) -> CatalogState:
        """Return the newest state; the work is proportional to what was committed since the last call.

        The first call looks for revisions behind the last one too; a later call looks for the next one only.

        Raises:
            CorruptionError: an object is damaged, missing, or does not follow from its predecessor.
            FormatVersionError: a newer custody wrote something that this one does not know.
        """
        if self._opened:
            return self._refresh()
        found = self.chain.open()
        self.notices += found.start.passed_over
        self._checkpointed = (found.start.state.revision, found.start.size_bytes)
        self._log_bytes += found.log_bytes
        self._state, self._opened = found.state, found.state.revision >= 0
        return found.state

    def timeline(self, start: int | None = None, stop: int | None = None) -> Iterator[Transaction]:
        """Yield the transactions that are kept, oldest first, each checked against its predecessor.

        Raises:
            PrunedError: `start` is not kept any more, or what comes next was pruned while this was read.
            CorruptionError: a transaction is damaged or missing.
        """
        state = self.load()
        first = state.floor if start is None else self._kept(start, state)
        last = state.revision if stop is None else self._kept(stop, state)
        with self._beside_prunes(first):
            yield from self.chain.transactions(first, last)

    def at(self, revision: int, *, check_files: bool = False) -> CatalogState:
        """Return the state at a revision; with `check_files` only if all its files exist.

        Raises:
            PrunedError: the revision is not kept any more; the error says which is the earliest.
            NotFoundError: there is no such revision yet.
            CorruptionError: it cannot be read, or one of its files is missing.
        """
        newest = self.load()
        state = newest
        if revision != newest.revision:
            kept = self._kept(revision, newest)
            with self._beside_prunes(revision):
                state = self.chain.at(kept)
        for path in state.files if check_files else ():
            if self._store.head(self.objects.home + path) is None:
                where = self._store.locate(self.objects.home + path)
                raise CorruptionError(f"{where}: expected a file of revision {revision}, found none.")
        return state

    def revision_at(self, time_ms: int) -> int:
        """Return the last revision that was committed at or before a time; reads a logarithmic number of them.

        Raises:
            NotFoundError: the catalog begins later.
            PrunedError: what is kept of it does.
        """
        newest = self.load()
        with self._beside_prunes(newest.floor):
            return revision_at(self.chain, newest, time_ms)

    def difference(self, former: int, later: int) -> Difference:
        """Return what differs between two revisions, either of which may be the earlier one; raises as `at` does."""
        old, new = self.at(former), self.at(later)
        return Difference(
            {path: new.files[path] for path in new.files if path not in old.files},
            {path: old.files[path] for path in old.files if path not in new.files},
            {name: new.shards[name] for name in new.shards if name not in old.shards},
            {name: old.shards[name] for name in old.shards if name not in new.shards},
        )

    def _refresh(self) -> CatalogState:
        before = self._state
        try:
            self._state, size = self.chain.follow(before)
        except CorruptionError:
            # What lies behind a pruned revision may be what a process left there that did not know.
            if self.chain.stands(before):
                raise
            self._state, size = before, 0
        self._log_bytes += size
        if before.revision >= 0 and not self.chain.stands(before):
            # It was pruned, and what follows it may be too, or be of one that did not know; or it is lost, and a
            # checkpoint stands in for it.
            self._forget()
            return self.load()
        return self._state

    @contextmanager
    def _beside_prunes(self, revision: int) -> Iterator[None]:
        """Say of what cannot be read from a revision on that it was pruned meanwhile, if it was."""
        try:
            yield
        except (CorruptionError, StorageError, NotFoundError) as error:
            self._forget()
            floor = self.load().floor
            if revision >= floor or isinstance(error, PrunedError):
                raise
            raise PrunedError(
                f"{self.objects}: revision {revision} was pruned, the earliest is {floor}.", floor
            ) from error

    def _forget(self) -> None:
        self._state, self._opened = EMPTY, False

    def _kept(self, revision: int, newest: CatalogState) -> int:
        if revision < newest.floor:
            raise PrunedError(
                f"{self.objects}: revision {revision} was pruned, the earliest is {newest.floor}.", newest.floor
            )
        if revision > newest.revision:
            raise NotFoundError(f"{self.objects}: there is no revision {revision}, the newest is {newest.revision}.")
        return revision
