"""A view over the catalogs of all writers of a database, and how one writer takes over a retired writer's files.

Each writer has a timeline of its own, with no order between them; the view refreshes them side by side. A writer that
retires is sealed: nothing can be committed after that, not even by a process that does not know of it. Another writer
may then write the sealed one's events into files of its own and say so in the same transaction (`Absorb`). From that
transaction on readers of the view pass over the absorbed files: one transaction decides, so at no moment are events
seen twice or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from custody.catalog.catalog import Catalog
from custody.catalog.state import CatalogState
from custody.catalog.transaction_pb2 import Absorb, Action, AddFile, Seal
from custody.clock import Clock
from custody.errors import ConflictError
from custody.format.names import is_name
from custody.model import require_text
from custody.store import ObjectStore

# Each thread waits for the store most of the time; more would only open more connections.
_PARALLEL = 16


@dataclass(frozen=True, slots=True)
class FederatedState:
    """The newest states of all writers, by writer."""

    database: str
    states: Mapping[str, CatalogState]
    newest: Callable[[str], CatalogState] | None = None
    """Reads the newest state of a writer: one of `states` may be of a moment before the writer was sealed."""

    @property
    def absorbed(self) -> dict[str, Absorb]:
        """Return which writers' files other files stand for, by the absorbed writer."""
        return {absorb.writer: absorb for _, absorb, is_true in self._absorptions() if is_true}

    @property
    def archives(self) -> frozenset[str]:
        """The writers whose files stand for those of others."""
        return frozenset(archive for archive, _, is_true in self._absorptions() if is_true)

    @property
    def refuted(self) -> dict[str, str]:
        """Return by writer why its files are not passed over although another catalog says that it absorbed them."""
        return {
            absorb.writer: (
                f"writer {absorb.writer!r}: the catalog of {archive!r} says that its files stand for this writer's, "
                "which was never retired. Its events are given out, those that are in both twice. See: custody verify"
            )
            for archive, absorb, is_true in self._absorptions()
            if not is_true
        }

    def _absorptions(self) -> Iterator[tuple[str, Absorb, bool]]:
        """Yield what catalogs say that they absorbed, each with its archive and whether the writer was retired."""
        for archive, state in self.states.items():
            for entry in state.absorbed.values():
                # The absorbed catalog may be gone by now, or be of another database: there is nothing to pass over.
                if entry.database != self.database or entry.writer not in self.states:
                    continue
                own = self.states[entry.writer]
                # A writer that may go on was not absorbed, whatever another catalog says of it. The digest in the entry
                # does not decide: a sealed catalog that was made anew has another one.
                is_true = own.revision < 0 or own.seal is not None
                if not is_true and self.newest is not None:
                    is_true = self.newest(entry.writer).seal is not None
                yield archive, entry, is_true

    def files(self) -> Iterator[tuple[str, AddFile]]:
        """Yield (writer, file) for every file whose events no other file stands for."""
        absorbed = self.absorbed
        for writer, state in self.states.items():
            if writer not in absorbed:
                yield from ((writer, state.files[path]) for path in state.files)


class Federation:
    """Reads the catalogs of all writers of a database; keeps them open, so that a refresh reads what is new only."""

    def __init__(self, store: ObjectStore, database: str, clock: Clock) -> None:
        self._store = store
        self._database = database
        self._clock = clock
        self._catalogs: dict[str, Catalog] = {}

    def load(self) -> FederatedState:
        """Return the newest state of every writer; new writers are found by listing the store's first level.

        Raises:
            CorruptionError: a catalog is damaged; the message names it.
        """
        # New writers appear without notice: the first level of the store is the only list of them.
        for writer in self._store.folders(""):
            if writer not in self._catalogs and is_name(writer):
                self._catalogs[writer] = Catalog(self._store, writer, self._database, self._clock)
        names = sorted(self._catalogs)
        # Each load waits for the store, and the writers are independent of each other.
        with ThreadPoolExecutor(max(1, min(_PARALLEL, len(names)))) as threads:
            states = list(threads.map(lambda name: self._catalogs[name].load(), names))
        # A folder with a valid name may have no catalog yet: its state is empty.
        states_by_writer = {name: state for name, state in zip(names, states, strict=True) if state.revision >= 0}
        return FederatedState(self._database, states_by_writer)


def seal(catalog: Catalog, reason: str) -> CatalogState:
    """Retire a writer: its last transaction; every later commit raises SealedError.

    Raises:
        SealedError: it is sealed already.
        InvalidInputError: the reason is no valid Unicode.
    """
    require_text(reason=reason)
    return catalog.commit([Action(seal=Seal(reason=reason))])


def absorb(
    into: Catalog,
    sealed: Catalog,
    actions: Sequence[Action],
    *,
    next_event_id: int = 0,
    first_event_id: int = 0,
    check: Callable[[CatalogState], None] = lambda _: None,
) -> CatalogState:
    """Commit files that hold the events of a sealed catalog, and record that they replace its files.

    Event N of the sealed catalog is event `first_event_id` + N of these files. `check` as in `Catalog.commit`.

    Raises:
        ConflictError: the other catalog is not sealed, or was absorbed already.
    """
    state = sealed.load()
    # A sealed catalog cannot change any more, so the state that is read here is still its end when the commit lands.
    if state.seal is None:
        raise ConflictError(f"{sealed.objects}: is not sealed, its writer may go on. Seal it first.")
    entry = Absorb(
        writer=sealed.objects.writer,
        database=sealed.objects.database,
        catalog_id=state.catalog_id.bytes,
        revision=state.revision,
        digest=state.digest,
        first_event_id=first_event_id,
    )
    return into.commit([*actions, Action(absorb=entry)], next_event_id=next_event_id, check=check)
