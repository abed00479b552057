"""Losses that can be taken back: an intact copy of the log that held the events lies in its place again."""

from __future__ import annotations

from collections.abc import Iterator

from custody.catalog import AddLoss, CatalogState
from custody.catalog.log_check import CheckedLog, check_log_itself
from custody.errors import CustodyError
from custody.format.names import parse_event_log
from custody.maintenance.findings import Finding, Level
from custody.workspace import Workspace


def check_losses(workspace: Workspace, state: CatalogState, level: Level) -> Iterator[Finding]:
    """Yield the logs in whose place an intact copy lies again after the loss of their events was noted."""
    if level is Level.QUICK:
        return
    for path in sorted({loss.path for loss in state.losses.values()}):
        losses = losses_of(state, path)
        if recoverable_log(workspace, state, path) is not None:
            where, events = workspace.log_place(path), sum(loss.events for loss in losses)
            text = f"{where}: holds {events} events again whose loss was noted; no answer gives them out."
            ids = losses[0].firsts[0], losses[-1].firsts[-1] + losses[-1].counts[-1] - 1
            yield Finding.of("loss-recoverable", where, text, writer=workspace.writer, ids=ids, name=path)


def losses_of(state: CatalogState, path: str) -> list[AddLoss]:
    """Return the noted losses of the events of a log, those of the smallest ids first."""
    return sorted(
        (loss for loss in state.losses.values() if loss.path == path and loss.firsts), key=lambda loss: loss.firsts[0]
    )


def recoverable_log(workspace: Workspace, state: CatalogState, path: str) -> CheckedLog | None:
    """Return an intact log in the place of one that is live no more and of which losses were noted; None if none is."""
    files = workspace.catalog.objects.files
    if path in state.files or parse_event_log(path) is None or not losses_of(state, path):
        return None
    try:
        log = check_log_itself(files.get(path), files.locate(path)) if files.exists(path) else None
    except CustodyError:
        return None
    is_ours = log is not None and (log.metadata.writer, log.metadata.database) == (workspace.writer, workspace.database)
    return log if is_ours and log is not None and log.is_whole else None
