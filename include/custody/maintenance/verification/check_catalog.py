"""One writer's catalog: chain, checkpoints, statistics, hint, and what it knows to be lost.

The second copies of tombstones and marks: all there, whole, and none that the catalog has lost.

Catalogs beside that of the event logs: of what the sink of NGSI keeps, and of the provenance tables of software.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from custody.catalog import (
    AddFile,
    AddLoss,
    Catalog,
    CatalogState,
    Defect,
    SecondCopies,
    SecondCopyStore,
    Verification,
    copied_entries,
    copied_ids,
    ids_added_by,
    store_of,
    verify,
)
from custody.catalog.second_copies import copied_entry
from custody.clock import Clock
from custody.config import Settings
from custody.errors import CustodyError
from custody.format.names import SINK, SINK_DATABASE, SINK_FOLDER, SOFTWARE
from custody.maintenance.findings import Finding, Level
from custody.store import LocalStore
from custody.vfs import FileSystem
from custody.workspace import Workspace


def check_catalog(workspace: Workspace) -> tuple[list[Finding], Verification]:
    """Walk the whole chain; return what was found, and the counts of the walk."""
    found = verify(workspace.catalog, files=False)
    good = _readable_revision(workspace)
    findings = [_finding(workspace, defect, good) for defect in found.defects]
    findings += [
        Finding(kind="catalog-notice", writer=workspace.writer, path=str(workspace.catalog.objects), message=text)
        for text in found.notices
    ]
    if found.state is not None:
        findings += [_known(workspace, loss) for _, loss in sorted(found.state.losses.items())]
    return findings, found


def _known(workspace: Workspace, loss: AddLoss) -> Finding:
    where = str(workspace.paths.home / loss.path) if loss.path else str(workspace.catalog.objects)
    return Finding(
        kind="known-loss",
        writer=workspace.writer,
        path=where,
        message=f"{loss.events} events are known to be lost: {loss.reason}",
        events=loss.events,
        first_event_id=loss.firsts[0] if loss.firsts else None,
        last_event_id=loss.firsts[-1] + loss.counts[-1] - 1 if loss.firsts else None,
    )


def _finding(workspace: Workspace, defect: Defect, good: int | None) -> Finding:
    revision = defect.revision
    kind = "catalog-damaged"
    if defect.part == "object":
        kind = "catalog-object"
    elif defect.part == "transaction" and revision is not None and good is not None and revision <= good:
        kind = "catalog-history"
    return Finding(
        kind=kind,
        writer=workspace.writer,
        path=defect.file,
        offset=defect.offset,
        message=str(defect),
        name="" if revision is None else str(revision),
    )


def _readable_revision(workspace: Workspace) -> int | None:
    """Return up to which revision the state can be told in spite of damage; None when it cannot be told at all."""
    try:
        return workspace.catalog.load().revision
    except CustodyError:
        return None


def check_forgotten(workspace: Workspace, state: CatalogState) -> Iterator[Finding]:
    """Yield the copies that are missing, cannot be read, or say what no kept revision says."""
    forgotten = SecondCopyStore(workspace.catalog.objects)
    copies = forgotten.read()
    for key, text in sorted(copies.unreadable.items()):
        yield _copy_finding(workspace, "forgotten-damaged", key, text, key)
    known = copied_entries(state)
    for name in sorted(copied_ids(state) - set(copies.by_id)):
        where = workspace.catalog.objects.store.locate(forgotten.prefix)
        if not copies.unreadable:
            kind = "forgotten-missing" if copies.since is not None else "catalog-notice"
            text = f"{where}: expected a copy of {name}, which the catalog has; the next checkpoint writes it."
            yield _copy_finding(workspace, kind, forgotten.prefix, text, name)
    for name, copy in copies.by_id.items():
        stone = known.get(name)
        if stone is not None and copy.action.HasField("add_tombstone") and copied_entry(copy.action) != stone:
            text = f"{copy.key}: expected what the catalog says of the tombstone {name}, got something else."
            yield _copy_finding(workspace, "forgotten-damaged", copy.key, text, copy.key)
    yield from _lost(workspace, state, copies)


def lost_copies(workspace: Workspace, state: CatalogState, copies: SecondCopies) -> list[str]:
    """Return the ids of what was to be let go and stands in no kept revision; none when the history cannot be read."""
    left = {name for name, copy in copies.by_id.items() if copy.revision >= state.floor} - copied_ids(state)
    if not left:
        return []
    try:
        for transaction in workspace.catalog.timeline():
            left.difference_update(ids_added_by(transaction.actions))
    except CustodyError:
        return []
    return sorted(left)


def _lost(workspace: Workspace, state: CatalogState, copies: SecondCopies) -> Iterator[Finding]:
    for name in lost_copies(workspace, state, copies):
        copy = copies.by_id[name]
        text = (
            f"{workspace.catalog.objects.store.locate(copy.key)}: says what was forgotten or expired at revision "
            f"{copy.revision}, and no kept revision says it: it was interrupted, or its transaction is lost."
        )
        yield _copy_finding(workspace, "forgotten-lost", copy.key, text, name)


def _copy_finding(workspace: Workspace, kind: str, key: str, text: str, name: str) -> Finding:
    where = str(Path(workspace.catalog.objects.store.locate(key)))
    return Finding(kind=kind, writer=workspace.writer, path=where, message=text, name=name)


def check_sink(settings: Settings, fs: FileSystem, clock: Clock, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with the catalog of the sink and with the objects that it lists."""
    folder = settings.root / SINK_FOLDER
    if fs.exists(folder / SINK / SINK_DATABASE):
        yield from _check(Catalog(LocalStore(fs, folder), SINK, SINK_DATABASE, clock), "sink-damaged", level)


def check_software(settings: Settings, writer: str, fs: FileSystem, clock: Clock, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with the catalog of the provenance tables of software, and with the tables."""
    if fs.exists(settings.store / writer / SOFTWARE):
        catalog = Catalog(store_of(settings, fs), writer, SOFTWARE, clock)
        yield from _check(catalog, "software-damaged", level, writer)


def _check(catalog: Catalog, kind: str, level: Level, writer: str | None = None) -> Iterator[Finding]:
    found = verify(catalog, files=False)
    for defect in found.defects:
        yield Finding(kind=kind, path=defect.file, offset=defect.offset, message=str(defect), writer=writer)
    for text in found.notices:
        yield Finding(kind="catalog-notice", path=str(catalog.objects), message=text, writer=writer)
    state = found.state
    for path in sorted(state.files) if state is not None and level is not Level.QUICK else ():
        for text in _wrong(catalog, state.files[path] if state is not None else AddFile()):
            where = catalog.objects.store.locate(catalog.objects.home + path)
            yield Finding(kind=kind, path=where, message=text, writer=writer)


def _wrong(catalog: Catalog, file: AddFile) -> Iterator[str]:
    objects = catalog.objects
    for path, sha256 in ((file.path, file.sha256), (file.toc_path, file.toc_sha256)):
        where = objects.store.locate(objects.home + path)
        try:
            if path and hashlib.sha256(objects.store.get(objects.home + path)).digest() != sha256:
                yield f"{where}: expected other bytes (SHA-256)."
        except CustodyError as error:
            yield str(error)
