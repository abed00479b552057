"""What became live since it was last told: the content of an announcement, read from the catalogs alone.

What a watcher of a repository has told, and what is news: groups of journals that a run could take.

The mark, the newest group of each writer that was told, is a file in the repository. Ids of a writer go up, so one
number a writer says which groups are news. Who watches keeps what it has told in memory, and writes the mark only once
somebody took it durably: killed in between, it tells the same once more, and never too little.
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
from custody.rollover.pending import is_live
from custody.vfs import FileSystem
from custody.workspace.workspace import Workspace

_NONE = -1


class Commits(msgspec.Struct, frozen=True, kw_only=True):
    """New event logs of all writers, between the revisions `since` (those without did not exist) and `revisions`."""

    repository: str
    since: dict[str, int]
    revisions: dict[str, int]
    files: int
    events: int
    bytes: int


def commits_since(settings: Settings, told: Mapping[str, int], fs: FileSystem | None = None) -> Commits | None:
    """Return what became live after the revisions that were told, by writer; None when no event did.

    Logs that a compaction wrote anew are not news, and neither is what retention took away. Of a writer that is not in
    `told`, or whose transactions since then were pruned, everything that is live is news.
    """
    revisions: dict[str, int] = {}
    files: list[AddFile] = []
    for workspace in Workspace.all(settings, fs):
        state = workspace.catalog.load()
        if state.revision > _NONE:
            revisions[workspace.writer] = state.revision
            files += _new_files(workspace.catalog, state, told.get(workspace.writer, _NONE))
    if not files:
        return None
    return Commits(
        repository=str(settings.root),
        since=dict(told),
        revisions=revisions,
        files=len(files),
        events=sum(file.rows for file in files),
        bytes=sum(file.size_bytes for file in files),
    )


def _new_files(catalog: Catalog, state: CatalogState, told: int) -> Iterable[AddFile]:
    if told == state.revision:
        return ()
    # A catalog that was rebuilt may be shorter than it was.
    if _NONE < told < state.revision:
        try:
            return [
                action.add_file
                for transaction in catalog.timeline(told + 1, state.revision)
                for action in transaction.actions
                if action.HasField("add_file") and not parse_written_anew(PurePosixPath(action.add_file.path).name)
            ]
        except PrunedError:
            pass  # what is live stands for it
    return [state.files[path] for path in state.files]


_VERSION = 1


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The newest group that was told of each writer, by its first event id."""

    groups: dict[str, int]
    version: int = _VERSION


class News(msgspec.Struct, frozen=True, kw_only=True):
    """The newest group of each writer that waits; `again` when it was told before and still waits."""

    groups: dict[str, int]
    again: bool


def waiting_groups(settings: Settings, fs: FileSystem) -> dict[str, int]:
    """Return the first event id of each writer's newest group that is sealed, or whose writer is dead."""
    found = {}
    for workspace in Workspace.all(settings, fs):
        groups = workspace.groups()
        dead = any(group.open for group in groups) and not is_live(fs, settings, workspace.writer)
        waiting = [group.first_event_id for group in groups if dead or group.is_sealed]
        if waiting:
            found[workspace.writer] = max(waiting)
    return found


class GroupWatch:
    """Watches the groups of a repository; one process at a time does.

    Args:
        fs: where the repository and the mark lie.
        settings: those of the repository.
        clock: measures how long groups wait.
        again_ms: groups that still wait after this time are told again, in case that the run that they started failed.
    """

    def __init__(self, fs: FileSystem, settings: Settings, clock: Clock, again_ms: int) -> None:
        self._fs = fs
        self._settings = settings
        self._clock = clock
        self._again_ms = again_ms
        self._told = dict(read_mark(fs, settings.watch_mark).groups)
        self._told_ms = clock.now_ms()

    def look(self) -> News | None:
        """Return what is news, once; None when nothing is."""
        waiting = waiting_groups(self._settings, self._fs)
        again = bool(waiting) and self._clock.now_ms() - self._told_ms >= self._again_ms
        is_new = any(first > self._told.get(writer, -1) for writer, first in waiting.items())
        if not (is_new or again):
            return None
        self._told |= waiting
        self._told_ms = self._clock.now_ms()
        return News(groups=waiting, again=not is_new)

    def took(self, news: News) -> None:
        """Keep that somebody took the news.

        Durability: on return they are not told again, also after a power loss.
        """
        path = self._settings.watch_mark
        before = read_mark(self._fs, path)
        mark = Mark(groups=before.groups | news.groups)
        if mark != before:
            self._fs.make_directory(path.parent)
            self._fs.write_durably(path, with_checksum(msgspec.json.encode(mark)))


def read_mark(fs: FileSystem, path: Path) -> Mark:
    """Return the mark of a repository; one without groups when nothing was told yet.

    Raises:
        CorruptionError: it cannot be read.
        FormatVersionError: a newer custody wrote it.
    """
    if not fs.exists(path):
        return Mark(groups={})
    data = fs.read(path)
    if is_changed(data):
        raise CorruptionError(
            f"{path}: expected the mark of a watcher with its checksum, got other bytes. "
            "Remove it: what waits is then told once more."
        )
    try:
        mark = msgspec.json.decode(data, type=Mark)
    except msgspec.DecodeError as error:
        raise CorruptionError(
            f"{path}: expected the mark of a watcher: {error}. Remove it: what waits is then told once more."
        ) from error
    if mark.version != _VERSION:
        raise FormatVersionError(
            f"{path}: expected version {_VERSION} of a watcher's mark, got {mark.version}. Use a newer custody."
        )
    return mark
