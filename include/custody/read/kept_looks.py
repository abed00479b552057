"""Looks at writers that are kept: while nothing changed that a look asked for, the next one would see the same.

A look at a writer lists its journals, reads the states of its containers, and asks for two objects of its catalog; and
the folders of its logs are asked whether any is gone. All of these are files and folders, so their marks tell whether
another look could see anything else (`custody.vfs.file_marks`). The marks are taken before a look, and kept with what
it saw if they were settled then: whatever happens later shows in a mark. The journals come before the catalog, as in
the look itself (`custody.workspace.snapshot`).

A look is kept only where it saw nothing but live logs and nothing to tell of: no event that waits in a journal, which
may grow in place, no journal of another incarnation, no container or log that is away, no damage. And only where files
tell of every change: on known file systems of this machine. A catalog in a bucket has no marks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from custody.eventlog import Damage, OnDamage
from custody.format.names import INCARNATIONS, container_paths
from custody.vfs import FileSystem, Marks
from custody.workspace import Moment, Workspace

if TYPE_CHECKING:
    from custody.catalog import CatalogState
    from custody.read.reader import Snapshot

# More files than these take longer to ask for than a look takes.
_PATHS_MAX = 64


@dataclass(frozen=True, slots=True)
class _Watched:
    """What a look asked for, and what it saw if that may be seen again."""

    paths: tuple[str, ...]
    marks: Marks | None = None
    """From before the look, if they were settled."""
    view: Snapshot | None = None
    is_told: bool = True
    """False on a disk whose files do not tell of changes: its marks are not asked for again."""

    def is_as_before(self, marks: Marks | None) -> bool:
        """Whether another look would see the same, by marks of now."""
        return self.marks is not None and marks is not None and marks.is_unchanged_since(self.marks)


class KeptLooks:
    """The last looks of one reader at writers; may be used by several threads."""

    def __init__(self) -> None:
        # Threads may replace what another has just put there; either is right.
        self._watched: dict[str, _Watched] = {}
        self._names: tuple[_Watched, list[str]] | None = None
        self._of_states: tuple[list[CatalogState], object] | None = None

    def names(self, fs: FileSystem, look: Callable[[], tuple[list[str], tuple[Path, ...]]]) -> list[str]:
        """Return the names of writers; `look` lists them, and returns what tells of new ones beside the names."""
        former = self._names
        marks = _marks_now(fs, None if former is None else former[0])
        if former is not None and former[0].is_as_before(marks):
            return former[1]
        names, paths = look()
        self._names = _watched(fs, paths, None if former is None else former[0], marks), names
        return names

    def of_states(self, states: Sequence[CatalogState]) -> object | None:
        """Return what `keep_of_states` was given for these very states, None for others."""
        kept = self._of_states
        if kept is None or len(kept[0]) != len(states):
            return None
        return kept[1] if all(one is other for one, other in zip(kept[0], states, strict=True)) else None

    def keep_of_states(self, states: Sequence[CatalogState], what: object) -> None:
        """Keep what follows from the states of writers, until they are others."""
        self._of_states = [*states], what

    def has_all_logs(self, writer: str, view: Snapshot) -> bool:
        """Whether no log of a writer is gone, as far as that is known of a view that `snapshot` has just returned."""
        kept = self._watched.get(writer)
        return kept is not None and kept.view is view

    def snapshot(self, workspace: Workspace, on_damage: OnDamage) -> Snapshot:
        """Return the events of a writer now.

        Raises:
            ConflictError, CorruptionError: as `reader.snapshot`.
        """
        # Imported here: what only asks for the names of writers reads no events.
        from custody.read.reader import snapshot_and_moment

        former, fs = self._watched.get(workspace.writer), workspace.fs
        marks = _marks_now(fs, former)
        if former is not None and former.view is not None and former.is_as_before(marks):
            return former.view
        said: list[Damage] = []

        def note(damage: Damage) -> None:
            said.append(damage)
            on_damage(damage)

        view, moment = snapshot_and_moment(workspace, note)
        paths = () if said else _asked(workspace, moment)
        watched = _watched(fs, tuple(map(Path, paths)), former, marks)
        if watched.marks is not None:
            watched = _Watched(watched.paths, watched.marks, view)
        self._watched[workspace.writer] = watched
        return view


def _marks_now(fs: FileSystem, former: _Watched | None) -> Marks | None:
    return fs.marks(former.paths) if former is not None and former.paths else None


def _watched(fs: FileSystem, paths: tuple[Path, ...], former: _Watched | None, marks: Marks | None) -> _Watched:
    """Return what a look asked for, with the marks from before it where they were of the same files and settled."""
    if former is not None and not former.is_told:
        return former
    if not 0 < len(paths) <= _PATHS_MAX:
        return _Watched(())
    texts = tuple(map(str, paths))
    if former is None or former.paths != texts or marks is None or not marks.are_settled:
        return _Watched(texts)
    # Only where marks are about to count: a disk may have been mounted since the last time.
    return _Watched(texts, marks) if all(map(fs.keeps_times, paths)) else _Watched((), is_told=False)


def _asked(workspace: Workspace, moment: Moment) -> tuple[str, ...]:
    """Return the files and folders that a look asked for, none where they do not tell everything that it saw."""
    from custody.read.cache import caches_of

    objects = workspace.catalog.objects
    state, store = moment.state, objects.store
    is_told = not (moment.waiting or moment.foreign or workspace.hands_over or store.is_remote or state.revision < 0)
    if not is_told or objects.files.copies is not None:
        return ()
    following = workspace.catalog.chain.next_key(state)
    if following is None or caches_of(workspace).gone(workspace, state):
        return ()
    containers = [container_paths(root, workspace.writer) for root in workspace.settings.containers]
    needs_claims = moment.groups or not all(workspace.fs.exists(container.state) for container in containers)
    places = [store.locate(f"{objects.home}{INCARNATIONS}")] if needs_claims else []
    places += [
        *(str(container.journals) for container in containers),
        *(str(container.state) for container in containers),
        # The transaction itself: only its bytes say that it is in its place.
        store.locate(objects.key(state.revision, state.uuid)),
        *map(str, () if workspace.catalog.witnesses is None else workspace.catalog.witnesses.paths),
        # The folder of the next one, which is made before the transaction gets its name in it.
        store.locate(following.rpartition("/")[0]),
    ]
    folders = dict.fromkeys(str(workspace.log_place(path).parent) for path in state.files)
    return (*places, *folders)
