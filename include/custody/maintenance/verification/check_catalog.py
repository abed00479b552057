"""Checks of catalogs: a writer's own, the second copies of its tombstones and marks, the sink's and the software's.

Of a writer's catalog the whole chain is walked, with checkpoints, statistics and hint; the losses that it knows are
reported too. Of the second copies all must be there and whole, and none may say what the catalog has lost.
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
    is_remnant,
    verify,
)
from custody.catalog.attest import Attestation, compare_walk
from custody.catalog.second_copies import copied_entry
from custody.clock import Clock
from custody.config import Settings
from custody.errors import CustodyError
from custody.format.names import SINK, SINK_DATABASE, SINK_FOLDER, SOFTWARE
from custody.maintenance.attestations import read_attestations
from custody.maintenance.findings import Finding, Level
from custody.store import LocalStore
from custody.store.witness import Witnesses
from custody.swh.publishing import catalog_of
from custody.vfs import FileSystem
from custody.workspace import Workspace


def check_catalog(workspace: Workspace) -> tuple[list[Finding], Verification]:
    """Walk the whole chain; return the findings, and the counts of the walk.

    The chain is compared with the attestations that are kept, too.
    """
    attested, findings_of_files = _attestations(workspace)
    walk = verify(workspace.catalog, files=False, states_at={each.revision for _, each in attested})
    readable = _readable_revision(workspace)
    findings = [_from_defect(workspace, defect, readable) for defect in walk.defects]
    findings += [
        Finding.of("catalog-notice", workspace.catalog.objects, text, writer=workspace.writer) for text in walk.notices
    ]
    findings += _clocks(workspace, walk)
    if walk.state is not None:
        findings += [_known_loss(workspace, loss) for _, loss in sorted(walk.state.losses.items())]
    findings += findings_of_files
    for path, attestation in attested:
        compared = compare_walk(workspace.catalog, walk, attestation)
        findings += [_attested(workspace, "catalog-attested", path, text) for text in compared.defects]
        if not (compared.proven or compared.defects):
            findings += [_attested(workspace, "attestation-pruned", path, text) for text in compared.unproven]
    return findings, walk


def _clocks(workspace: Workspace, walk: Verification) -> Iterator[Finding]:
    """Yield the revisions whose times are uncertain; none where damage that the walk found hides the times."""
    try:
        uncertain = workspace.catalog.uncertain_now()
    except CustodyError:
        if walk.defects:
            return
        raise
    if uncertain is not None:
        text = f"{workspace.catalog.objects}: {uncertain}."
        yield Finding.of("catalog-clocks", workspace.catalog.objects, text, writer=workspace.writer)


def _attestations(workspace: Workspace) -> tuple[list[tuple[Path, Attestation]], list[Finding]]:
    """Return the kept attestations that are about a writer, and a finding if the folder of them is away."""
    try:
        read = read_attestations(workspace.settings, workspace.fs)
    except CustodyError as error:
        where = workspace.settings.attestations or ""
        return [], [Finding.of("unreadable", where, error, writer=workspace.writer)]
    about = (workspace.writer, workspace.database)
    return [
        (path, one) for path, one in read if isinstance(one, Attestation) and (one.writer, one.database) == about
    ], []


def _attested(workspace: Workspace, kind: str, path: Path, text: str) -> Finding:
    return Finding.of(kind, path, f"{path}: {text}", writer=workspace.writer)


def check_absorbed(workspace: Workspace, state: CatalogState) -> Iterator[Finding]:
    """Yield what a catalog says that it absorbed and did not: such a writer's events may be in no answer."""
    if not state.absorbed:
        return
    copied = _copied_rows(workspace)
    for entry in state.absorbed.values():
        if entry.database != workspace.database:
            continue
        absorbed = Workspace(workspace.settings, entry.writer, workspace.fs, workspace.clock)
        try:
            own = absorbed.state()
        except CustodyError:
            continue  # the check of that catalog says what is wrong with it
        if own.revision < 0:
            continue
        live = sum(file.rows for file in own.files.values())
        text = f"{workspace.catalog.objects}: says that it absorbed writer {entry.writer!r}, "
        if own.seal is None:
            text += "which was never retired."
        elif copied is not None and not _may_be_copied(own, live, copied.get(entry.writer, 0)):
            text += f"which has {live} live events, and the same transaction lists {copied.get(entry.writer, 0)}."
        else:
            continue
        yield Finding.of(
            "absorb-false", workspace.catalog.objects, text, writer=workspace.writer, events=live, name=entry.writer
        )


def _copied_rows(workspace: Workspace) -> dict[str, int] | None:
    """Return by absorbed writer how many events the transaction lists that says so; None where history is lost.

    Of a transaction that was pruned there is no number.
    """
    rows: dict[str, int] = {}
    state = workspace.state()
    try:
        kept = workspace.catalog.at(state.floor).absorbed if state.floor else {}
        for transaction in workspace.catalog.timeline(state.floor):
            added = sum(action.add_file.rows for action in transaction.actions if action.HasField("add_file"))
            rows.update((action.absorb.writer, added) for action in transaction.actions if action.HasField("absorb"))
    except CustodyError:
        return None
    return rows if not kept else None


def _may_be_copied(own: CatalogState, live: int, copied: int) -> bool:
    """Whether so many events can be all of a sealed catalog that are not forgotten."""
    hides = any(not is_remnant(stone) for stone in own.tombstones.values())
    return copied <= live if hides else copied == live


def _known_loss(workspace: Workspace, loss: AddLoss) -> Finding:
    return Finding.of(
        "known-loss",
        workspace.log_place(loss.path) if loss.path else workspace.catalog.objects,
        f"{loss.events} events are known to be lost: {loss.reason}",
        writer=workspace.writer,
        events=loss.events,
        ids=(loss.firsts[0], loss.firsts[-1] + loss.counts[-1] - 1) if loss.firsts else (None, None),
        name=loss.path,
    )


def _from_defect(workspace: Workspace, defect: Defect, readable: int | None) -> Finding:
    revision = defect.revision
    kind = "catalog-damaged"
    if defect.part == "object":
        kind = "catalog-object"
    elif defect.part == "transaction" and revision is not None and readable is not None and revision <= readable:
        # A checkpoint behind it still tells the state: only the history has a hole.
        kind = "catalog-history"
    name = "" if revision is None else str(revision)
    return Finding.of(kind, defect.file, defect, writer=workspace.writer, offset=defect.offset, name=name)


def _readable_revision(workspace: Workspace) -> int | None:
    """Return the newest revision whose state can be read in spite of damage; None when there is none."""
    try:
        return workspace.catalog.load().revision
    except CustodyError:
        return None


def check_forgotten(workspace: Workspace, state: CatalogState) -> Iterator[Finding]:
    """Yield the second copies that are missing, cannot be read, or differ from every kept revision."""
    forgotten = SecondCopyStore(workspace.catalog.objects)
    copies = forgotten.read()
    for key, text in sorted(copies.unreadable.items()):
        yield _copy_finding(workspace, "forgotten-damaged", key, text, key)
    entries = copied_entries(state)
    for name in sorted(copied_ids(state) - set(copies.by_id)):
        where = workspace.catalog.objects.store.locate(forgotten.prefix)
        # An unreadable copy may be the missing one: then its damage alone is reported.
        if not copies.unreadable:
            text = f"{where}: expected a copy of {name}, which the catalog has; the next checkpoint writes it."
            yield _copy_finding(workspace, "forgotten-missing", forgotten.prefix, text, name)
    for name, copy in copies.by_id.items():
        stone = entries.get(name)
        if stone is not None and copy.action.HasField("add_tombstone") and copied_entry(copy.action) != stone:
            text = f"{copy.key}: expected what the catalog says of the tombstone {name}, got something else."
            yield _copy_finding(workspace, "forgotten-damaged", copy.key, text, copy.key)
    yield from _lost(workspace, state, copies)


def lost_copies(workspace: Workspace, state: CatalogState, copies: SecondCopies) -> list[str]:
    """Return the ids of copies of which no kept revision knows; none when the history cannot be read."""
    # Transactions before the floor are pruned: only a later copy can show that its transaction is lost.
    missing = {name for name, copy in copies.by_id.items() if copy.revision >= state.floor} - copied_ids(state)
    if not missing:
        return []
    try:
        for transaction in workspace.catalog.timeline():
            missing.difference_update(ids_added_by(transaction.actions))
    except CustodyError:
        return []
    return sorted(missing)


def _lost(workspace: Workspace, state: CatalogState, copies: SecondCopies) -> Iterator[Finding]:
    for name in lost_copies(workspace, state, copies):
        copy = copies.by_id[name]
        text = (
            f"{workspace.catalog.objects.store.locate(copy.key)}: says what was forgotten or expired at revision "
            f"{copy.revision}, and no kept revision says it: it was interrupted, or its transaction is lost."
        )
        yield _copy_finding(workspace, "forgotten-lost", copy.key, text, name)


def _copy_finding(workspace: Workspace, kind: str, key: str, text: str, name: str) -> Finding:
    where = Path(workspace.catalog.objects.store.locate(key))
    return Finding.of(kind, where, text, writer=workspace.writer, name=name)


def check_sink(settings: Settings, fs: FileSystem, clock: Clock, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with the catalog of the sink and with the objects that it lists."""
    folder = settings.root / SINK_FOLDER
    if fs.exists(folder / SINK / SINK_DATABASE):
        yield from _check(Catalog(LocalStore(fs, folder), SINK, SINK_DATABASE, clock), "sink-damaged", level)
        for path, text in Witnesses(fs, settings.witnesses, (), SINK, SINK_DATABASE).damaged():
            yield Finding.of("witness-damaged", path, text, offset=0)


def check_software(settings: Settings, writer: str, fs: FileSystem, clock: Clock, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with the catalog of the provenance tables of software, and with the tables."""
    catalog = catalog_of(settings, writer, fs, clock)
    if settings.is_store_remote:
        exists = bool(catalog.objects.store.folders(f"{writer}/{SOFTWARE}/"))
    else:
        exists = fs.exists(settings.store / writer / SOFTWARE)
    if exists:
        yield from _check(catalog, "software-damaged", level, writer)


def _check(catalog: Catalog, kind: str, level: Level, writer: str | None = None) -> Iterator[Finding]:
    walk = verify(catalog, files=False)
    for defect in walk.defects:
        yield Finding.of(kind, defect.file, defect, offset=defect.offset, writer=writer)
    for text in walk.notices:
        yield Finding.of("catalog-notice", catalog.objects, text, writer=writer)
    state = walk.state
    for path in sorted(state.files) if state is not None and level is not Level.QUICK else ():
        for text in _wrong(catalog, state.files[path] if state is not None else AddFile()):
            where = catalog.objects.files.locate(path)
            yield Finding.of(kind, where, text, writer=writer)


def _wrong(catalog: Catalog, file: AddFile) -> Iterator[str]:
    files = catalog.objects.files
    for path, sha256 in ((file.path, file.sha256), (file.toc_path, file.toc_sha256)):
        where = files.locate(path)
        try:
            if path and hashlib.sha256(files.get(path)).digest() != sha256:
                yield f"{where}: expected other bytes (SHA-256)."
        except CustodyError as error:
            yield str(error)
