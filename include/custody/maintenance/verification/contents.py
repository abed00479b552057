"""Contents: every byte against its checksum, and what events speak of against what is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from custody.errors import CorruptionError, CustodyError
from custody.flow.content import ClaimFile, claims_in
from custody.flow.content.record import read_header
from custody.maintenance.findings import Finding, Level
from custody.maintenance.references import Reference, in_journals, in_kept_logs
from custody.maintenance.verification.digests import check_digests
from custody.rollover import Workspace


def check_section(workspace: Workspace, name: str, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with the resource claims of a section, `<container>/<section>`; quick reads heads only."""
    container, _, section = name.partition("/")
    fs, store = workspace.fs, workspace.settings.store
    for resource in claims_in(fs, store, workspace.writer, container, section):
        path = resource.path(store)
        try:
            if level is Level.QUICK:
                read_header(fs.view(path), path)
                continue
            for offset, error in ClaimFile.read(fs, path).damage():
                yield _finding("content-damaged", workspace, path, str(error), offset)
        except CustodyError as error:
            if fs.exists(path):
                yield _finding("content-damaged", workspace, path, str(error))


def check_claims(workspace: Workspace, level: Level) -> Iterator[Finding]:
    """Yield the contents that events of a writer speak of and that are not there, or break off; quick looks at none.

    Deep also compares the digests that events state.
    What cannot be read of logs and journals is found elsewhere, and so is what is damaged inside of a file.
    """
    if level is Level.QUICK:
        return
    if level is Level.DEEP:
        yield from check_digests(workspace)
    fs, store = workspace.fs, workspace.settings.store
    for read in (in_journals, in_kept_logs):
        try:
            references = read(workspace)
        except CustodyError:
            continue
        for resource, reference in sorted(references.items()):
            path = resource.path(store)
            if not fs.exists(path):
                text = f"{path}: expected contents that {reference.events} events speak of, found no file."
                yield _finding("content-missing", workspace, path, text, events=reference.events)
                continue
            yield from _short(workspace, path, reference)


def _short(workspace: Workspace, path: Path, reference: Reference) -> Iterator[Finding]:
    try:
        file = ClaimFile.read(workspace.fs, path)
    except CustodyError:
        return
    whole = len(file.data) if file.torn is None else file.torn.offset
    if whole < reference.end:
        error = CorruptionError(
            f"{path} @{whole}: expected contents with their records up to {reference.end}, which events speak of, "
            f"got {len(file.data) - whole} other bytes."
        )
        yield _finding("content-damaged", workspace, path, str(error), whole)


def _finding(
    kind: str, workspace: Workspace, path: Path, text: str, offset: int | None = None, events: int = 0
) -> Finding:
    return Finding(
        kind=kind,
        writer=workspace.writer,
        path=str(path),
        message=text,
        offset=offset,
        events=events,
        name=str(path.relative_to(workspace.settings.store)),
    )
