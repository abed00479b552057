"""The action of a repair with its outcome, and two things that many actions do: note a loss, keep damaged bytes."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from custody import quarantine
from custody.catalog import AddLoss
from custody.quarantine import QuarantineEntry
from custody.workspace import Workspace


class RepairAction(msgspec.Struct, frozen=True, kw_only=True):
    """One action; `outcome` or `error` say what became of it, both are None when it was not done."""

    what: str
    writer: str | None
    target: str
    """A path, a name or a revision."""
    reason: str
    events: int = 0
    """How many events it gives up."""
    accept_loss: bool = False
    """Whether it is done only with --accept-loss."""
    copy: str = ""
    """The path of the copy that it takes; empty if it takes none."""
    wanted: str = ""
    """Which copy would make it superfluous, and where to put it; empty if it gives up nothing."""
    outcome: str | None = None
    error: str | None = None

    @property
    def key(self) -> tuple[str, str | None, str]:
        """Identifies the action in a plan."""
        return self.what, self.writer, self.target


def loss_action(ranges: Sequence[tuple[int, int]], events: int, path: str, reason: str, now_ms: int) -> AddLoss:
    """Return the entry that tells the catalog of lost events; `ranges` are runs of ids, first and last."""
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
    """Put unreadable bytes into the quarantine, durably; the same bytes are kept once."""
    # Past the limit of the quarantine, which is for rejected input: evidence is never refused.
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
