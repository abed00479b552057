"""Change feed: what is new in a repository, for those who start runs or announce data sets.

Two things are announced. New event logs, `new_logs_since`, are read from the catalogs alone. Groups of journals that
wait for a run are announced by a `GroupWatch`, which remembers in a file of the repository, the mark, the newest group
of each writer that was announced. The ids of a writer go up, so one number for each writer is enough to know which
groups are new.

The mark is written only after somebody took the announcement over durably. A watcher that is killed in between
announces the same once more; it never announces too little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

import msgspec

from custody.catalog import AddFile, Catalog, CatalogState, PrunedError
from custody.clock import Clock
from custody.config import Settings
from custody.errors import CorruptionError, FormatVersionError
from custody.format.checked_json import is_changed, with_checksum
from custody.format.names import parse_written_anew
from custody.vfs import FileSystem
from custody.workspace.workspace import Workspace

# Below 0, the first revision: nothing was announced.
_NONE = -1
# Of the mark on disk; part of its format.
_VERSION = 1


class NewLogs(msgspec.Struct, frozen=True, kw_only=True):
    """New event logs of all writers, between the revisions `since` (those without did not exist) and `revisions`."""

    repository: str
    since: dict[str, int]
    revisions: dict[str, int]
    files: int
    events: int
    bytes: int


class WaitingGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The newest group of each writer that waits for a run; `again` when it was announced before and still waits."""

    groups: dict[str, int]
    again: bool


class WatchMark(msgspec.Struct, frozen=True, kw_only=True):
    """The newest group of each writer that was announced, by its first event id."""

    groups: dict[str, int]
    version: int = _VERSION


_MARK = msgspec.json.Decoder(WatchMark)


class GroupWatch:
    """Watches the groups of a repository; for one process at a time.

    Args:
        fs: where the repository and the mark lie.
        settings: those of the repository.
        clock: measures how long groups wait.
        again_ms: groups that still wait after this time are announced again, in case the run that they started failed.
    """

    def __init__(self, fs: FileSystem, settings: Settings, clock: Clock, again_ms: int) -> None:
        self._fs = fs
        self._settings = settings
        self._clock = clock
        self._again_ms = again_ms
        self._announced = dict(read_mark(fs, settings.watch_mark).groups)
        self._announced_ms = clock.now_ms()

    def poll(self) -> WaitingGroups | None:
        """Return the groups that wait, once; None when there are no new ones."""
        waiting = waiting_groups(self._settings, self._fs)
        again = bool(waiting) and self._clock.now_ms() - self._announced_ms >= self._again_ms
        is_new = any(first > self._announced.get(writer, -1) for writer, first in waiting.items())
        if not (is_new or again):
            return None
        # Remembered in memory at once, so that this process announces a group once; the mark on disk follows when
        # somebody has taken it over.
        self._announced |= waiting
        self._announced_ms = self._clock.now_ms()
        return WaitingGroups(groups=waiting, again=not is_new)

    def confirm(self, groups: WaitingGroups) -> None:
        """Remember that somebody took the announcement over.

        Durability: on return the groups are not announced again, also after a power loss.
        """
        path = self._settings.watch_mark
        # From disk, not from memory: what was polled and not confirmed must not get into the mark.
        before = read_mark(self._fs, path)
        mark = WatchMark(groups=before.groups | groups.groups)
        # The same again after a repeated announcement: then there is nothing to write.
        if mark != before:
            self._fs.make_directory(path.parent)
            self._fs.write_durably(path, with_checksum(msgspec.json.encode(mark)))


def new_logs_since(settings: Settings, announced: Mapping[str, int], fs: FileSystem | None = None) -> NewLogs | None:
    """Return what became live after the revisions that were announced, by writer; None when no event did.

    Logs that a compaction wrote anew are not new, and what retention took away does not count. Of a writer that is not
    in `announced`, or whose transactions since then were pruned, everything that is live counts as new.
    """
    revisions: dict[str, int] = {}
    files: list[AddFile] = []
    for workspace in Workspace.all(settings, fs):
        state = workspace.catalog.load()
        if state.revision > _NONE:
            revisions[workspace.writer] = state.revision
            files += _new_files(workspace.catalog, state, announced.get(workspace.writer, _NONE))
    if not files:
        return None
    return NewLogs(
        repository=str(settings.root),
        since=dict(announced),
        revisions=revisions,
        files=len(files),
        events=sum(file.rows for file in files),
        bytes=sum(file.size_bytes for file in files),
    )


def waiting_groups(settings: Settings, fs: FileSystem) -> dict[str, int]:
    """Return the first event id of each writer's newest group that is sealed, or whose writer is dead."""
    newest = {}
    for workspace in Workspace.all(settings, fs):
        groups = workspace.groups()
        # A dead writer seals nothing any more: its open journals wait for a run, too, which seals them.
        is_dead = any(group.open for group in groups) and not workspace.is_held()
        waiting = [group.first_event_id for group in groups if is_dead or group.is_sealed]
        if waiting:
            newest[workspace.writer] = max(waiting)
    return newest


def read_mark(fs: FileSystem, path: Path) -> WatchMark:
    """Return the mark of a repository; one without groups when nothing was announced yet.

    Raises:
        CorruptionError: it cannot be read.
        FormatVersionError: a newer custody wrote it.
    """
    if not fs.exists(path):
        return WatchMark(groups={})
    data = fs.read(path)
    if is_changed(data):
        raise CorruptionError(
            f"{path}: expected the mark of a watcher with its checksum, got other bytes. "
            "Remove it: what waits is then announced once more."
        )
    try:
        mark = _MARK.decode(data)
    except msgspec.DecodeError as error:
        raise CorruptionError(
            f"{path}: expected the mark of a watcher: {error}. Remove it: what waits is then announced once more."
        ) from error
    if mark.version != _VERSION:
        raise FormatVersionError(
            f"{path}: expected version {_VERSION} of a watcher's mark, got {mark.version}. Use a newer custody."
        )
    return mark


def _new_files(catalog: Catalog, state: CatalogState, announced: int) -> Iterable[AddFile]:
    if announced == state.revision:
        return ()
    # A catalog that was rebuilt may be shorter than it was.
    if _NONE < announced < state.revision:
        try:
            return [
                action.add_file
                for transaction in catalog.timeline(announced + 1, state.revision)
                for action in transaction.actions
                if action.HasField("add_file") and not parse_written_anew(PurePosixPath(action.add_file.path).name)
            ]
        except PrunedError:
            pass  # the transactions are gone, so everything that is live counts
    return [state.files[path] for path in state.files]
