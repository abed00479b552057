"""One writer's catalog: chain, checkpoints, statistics, hint, and what it knows to be lost."""

from __future__ import annotations

from custody.catalog import AddLoss, Defect, Verification, verify
from custody.errors import CustodyError
from custody.maintenance.findings import Finding
from custody.rollover import Workspace


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
