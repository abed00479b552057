"""What goes wrong with a commit or with a question about the past, as errors that carry their facts."""

from __future__ import annotations

from dataclasses import dataclass

from custody.errors import ConflictError, CorruptionError, NotFoundError


@dataclass(frozen=True, slots=True)
class Conflict:
    """One action that cannot be done: what it does, to what, and why not."""

    action: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"cannot {self.action} {self.name}: it {self.reason}."


class NotApplicableError(ConflictError):
    """An action contradicts the state."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict


class CommitConflictError(ConflictError):
    """A commit was not written: `conflict` says what contradicts what was committed up to `revision`."""

    def __init__(self, message: str, revision: int, conflict: Conflict | None) -> None:
        super().__init__(message)
        self.revision = revision
        self.conflict = conflict


class SealedError(ConflictError):
    """The catalog's writer was retired: nothing more is committed to it."""


class FencedError(ConflictError):
    """A later process took over this writer: the one that reads this has to stop."""


class ForkError(CorruptionError):
    """Two transactions claim one revision; `uuids` are their names."""

    def __init__(self, message: str, revision: int, uuids: tuple[str, ...]) -> None:
        super().__init__(message)
        self.revision = revision
        self.uuids = uuids


class PrunedError(NotFoundError):
    """The revision is not kept any more; `earliest` is."""

    def __init__(self, message: str, earliest: int) -> None:
        super().__init__(message)
        self.earliest = earliest
