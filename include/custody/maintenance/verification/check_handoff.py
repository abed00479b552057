"""Checks of what was handed over and is not live yet: the manifest of each group, and the journals that it names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from custody.catalog import CatalogState
from custody.errors import CorruptionError, CustodyError, FormatVersionError, NotFoundError
from custody.maintenance.findings import Finding, Level
from custody.workspace import Workspace
from custody.workspace.handoff import HandedJournal, HandoffFolder, HandoffManifest


def check_handoff(workspace: Workspace, state: CatalogState | None, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with the groups that were handed over; those that are live are swept soon.

    At the level QUICK the journals' sizes count, else their digests.
    """
    for folder in workspace.handoff.folders() if workspace.hands_over else ():
        if state is None or not workspace.is_committed(state, folder.first_event_id):
            yield from _check_group(workspace, folder, level)


def _check_group(workspace: Workspace, folder: HandoffFolder, level: Level) -> Iterator[Finding]:
    where = workspace.handoff.locate(folder)
    try:
        manifest = workspace.handoff.manifest(folder)
    except (CorruptionError, FormatVersionError) as error:
        yield _damaged(workspace, folder, where, error)
        return
    if manifest is None:
        text = f"{where}: has journals and no manifest: a hand-over is under way, or was interrupted."
        yield Finding.of("handoff-unfinished", where, text, writer=workspace.writer, name=str(folder))
        return
    for journal in manifest.journals:
        yield from _check_journal(workspace, folder, manifest, journal, level)


def _check_journal(
    workspace: Workspace, folder: HandoffFolder, manifest: HandoffManifest, journal: HandedJournal, level: Level
) -> Iterator[Finding]:
    where = workspace.handoff.locate(folder, journal)
    try:
        if level == Level.QUICK:
            size = workspace.handoff.size(folder, journal)
            wrong = None if size == journal.bytes else f"{size} bytes"
        else:
            data = workspace.handoff.read(folder, journal)
            digest = hashlib.sha256(data).hexdigest()
            wrong = None if digest == journal.sha256 else f"{len(data)} bytes with the SHA-256 {digest}"
    except NotFoundError:
        wrong = "no object"
    except CustodyError as error:
        yield _damaged(workspace, folder, where, error)
        return
    if wrong is not None:
        text = f"{where} @0: expected {journal.bytes} bytes with the SHA-256 {journal.sha256}, got {wrong}."
        yield _damaged(workspace, folder, where, text, manifest.events)


def _damaged(workspace: Workspace, folder: HandoffFolder, where: str, text: object, events: int = 0) -> Finding:
    return Finding.of(
        "handoff-damaged", where, text, writer=workspace.writer, offset=0, events=events, name=str(folder)
    )
