"""What became live since it was last told: the content of an announcement, read from the catalogs alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

import msgspec

from custody.catalog import AddFile, Catalog, CatalogState, PrunedError
from custody.config import Settings
from custody.format.names import parse_written_anew
from custody.rollover.workspace import Workspace
from custody.vfs import FileSystem

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
