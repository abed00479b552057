"""The second copies of tombstones and marks: all there, whole, and none that the catalog has lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from custody.catalog import CatalogState, Copies, Forgotten, added_by, known_to, names_in
from custody.catalog.forgotten import says
from custody.errors import CustodyError
from custody.maintenance.findings import Finding
from custody.rollover import Workspace


def check_forgotten(workspace: Workspace, state: CatalogState) -> Iterator[Finding]:
    """Yield the copies that are missing, cannot be read, or say what no kept revision says."""
    forgotten = Forgotten(workspace.catalog.objects)
    copies = forgotten.read()
    for key, text in sorted(copies.unread.items()):
        yield _finding(workspace, "forgotten-damaged", key, text, key)
    known = known_to(state)
    for name in sorted(names_in(state) - set(copies.found)):
        where = workspace.catalog.objects.store.locate(forgotten.prefix)
        if not copies.unread:
            kind = "forgotten-missing" if copies.since is not None else "catalog-notice"
            text = f"{where}: expected a copy of {name}, which the catalog has; the next checkpoint writes it."
            yield _finding(workspace, kind, forgotten.prefix, text, name)
    for name, copy in copies.found.items():
        stone = known.get(name)
        if stone is not None and copy.action.HasField("add_tombstone") and says(copy.action) != stone:
            text = f"{copy.key}: expected what the catalog says of the tombstone {name}, got something else."
            yield _finding(workspace, "forgotten-damaged", copy.key, text, copy.key)
    yield from _lost(workspace, state, copies)


def lost_copies(workspace: Workspace, state: CatalogState, copies: Copies) -> list[str]:
    """Return the ids of what was to be let go and stands in no kept revision; none when the history cannot be read."""
    left = {name for name, copy in copies.found.items() if copy.revision >= state.floor} - names_in(state)
    if not left:
        return []
    try:
        for transaction in workspace.catalog.timeline():
            left.difference_update(added_by(transaction.actions))
    except CustodyError:
        return []
    return sorted(left)


def _lost(workspace: Workspace, state: CatalogState, copies: Copies) -> Iterator[Finding]:
    for name in lost_copies(workspace, state, copies):
        copy = copies.found[name]
        text = (
            f"{workspace.catalog.objects.store.locate(copy.key)}: says what was forgotten or expired at revision "
            f"{copy.revision}, and no kept revision says it: it was interrupted, or its transaction is lost."
        )
        yield _finding(workspace, "forgotten-lost", copy.key, text, name)


def _finding(workspace: Workspace, kind: str, key: str, text: str, name: str) -> Finding:
    where = str(Path(workspace.catalog.objects.store.locate(key)))
    return Finding(kind=kind, writer=workspace.writer, path=where, message=text, name=name)
