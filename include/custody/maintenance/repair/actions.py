"""What a repair would do, and what became of it; and what several kinds of repair share."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from custody import quarantine
from custody.catalog import AddLoss
from custody.quarantine import QuarantineEntry
from custody.workspace import Workspace


class RepairAction(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do; `outcome` and `error` say what became of it, both None when it was not done."""

    what: str
    writer: str | None
    target: str
    """A path, a name, a revision: what it is done to."""
    reason: str
    events: int = 0
    """How many events are given up by it."""
    accept_loss: bool = False
    """Whether it is done only when asked for with --accept-loss."""
    outcome: str | None = None
    error: str | None = None

    @property
    def key(self) -> tuple[str, str | None, str]:
        """What tells it from other actions."""
        return self.what, self.writer, self.target


def loss_action(ranges: Sequence[tuple[int, int]], events: int, path: str, reason: str, now_ms: int) -> AddLoss:
    """Return what the catalog is told of lost events; `ranges` are runs of ids, first and last."""
    return AddLoss(
        id=uuid.uuid4().bytes,
        firsts=[first for first, _ in ranges],
        counts=[last - first + 1 for first, last in ranges],
        events=events,
        path=path,
        reason=reason,
        created_ms=now_ms,
    )


def quarantine_bytes(
    workspace: Workspace, data: bytes, *, code: str, message: str, path: str, offset: int
) -> QuarantineEntry:
    """Put bytes that cannot be read into the quarantine, durably; those that are there already stay as they are."""
    return quarantine.keep_evidence(
        workspace.fs,
        workspace.settings.quarantine,
        data,
        code=code,
        message=message,
        file=path,
        offset=offset,
        now_ms=workspace.clock.now_ms(),
    )
