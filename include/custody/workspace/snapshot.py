"""The snapshot rule: one moment of a writer, at which every event is in its journals, in its catalog, or in both.

Rollover moves events from journals to live logs while others read. Whoever lists the journals first and reads the
catalog afterwards may see an event twice, and knows from the catalog which groups are live. The other way round, an
event that becomes live in between would be in neither. A journal that is listed may still be gone when it is opened,
because it was sealed (and got another name) or swept: then the whole look starts again.

This module is the only place that knows the rule. `look` and `attempts` obey it, `read_at_one_moment` wraps it for a
single read, and `look_undisturbed` is for those who need that nothing was committed while the journals were listed.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

from custody.catalog import CatalogState
from custody.errors import ConflictError, StorageError
from custody.journal import Group
from custody.workspace.question import current_question
from custody.workspace.workspace import Workspace

# A bound, so that a file that stays away for another reason than a seal or a sweep ends in an error.
_ATTEMPTS_MAX = 10
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Moment:
    """The journals and the catalog of one writer at one moment."""

    groups: list[Group]
    """The groups whose journals were on disk, by first event id."""
    state: CatalogState
    """The catalog, read after the journals were listed."""
    waiting: list[Group]
    """Those of the groups that are not live in that state."""
    foreign: list[Group] = field(default_factory=list)
    """The groups of other incarnations of the writer's name: they hold other events."""


class SnapshotAttempt:
    """One look at a writer; its moment is read inside of `with`.

    A journal that is gone ends the block without an error: `attempts` then gives another look.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.moment = look(workspace)
        self.is_done = False

    def __enter__(self) -> Moment:
        return self.moment

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.is_done = error is None
        # Only a file that is gone means that the events moved on. Any other error would come again, so it is raised.
        return isinstance(error, StorageError) and error.errno == errno.ENOENT


def look(workspace: Workspace) -> Moment:
    """Look at a writer's journals and catalog once.

    Raises:
        CorruptionError: the catalog is damaged.
    """
    question = current_question(workspace.settings)
    ahead = None if question is None else question.moment(workspace)
    if ahead is not None:
        return ahead
    groups, foreign = workspace.own_and_foreign_groups()  # before the catalog, so that no event falls in between
    state = workspace.newest_state()
    if question is not None:
        question.see(workspace, state)
    committed = workspace.live_groups(state)
    return Moment(groups, state, [group for group in groups if group.first_event_id not in committed], foreign)


def attempts(workspace: Workspace) -> Iterator[SnapshotAttempt]:
    """Yield looks at a writer, to be used with `with`, until one of the blocks comes to its end.

    Raises:
        ConflictError: journals change too fast to be read.
        CorruptionError: the catalog is damaged.
    """
    for _ in range(_ATTEMPTS_MAX):
        attempt = SnapshotAttempt(workspace)
        yield attempt
        if attempt.is_done:
            return
    raise ConflictError(f"writer {workspace.writer!r}: its journals change too fast to be read. Try again.")


def read_at_one_moment(workspace: Workspace, read: Callable[[Moment], T]) -> tuple[CatalogState, T]:
    """Return the state of the catalog, and what `read` makes of the same moment.

    Raises:
        ConflictError, CorruptionError: as `attempts`; and what `read` raises.
    """
    for attempt in attempts(workspace):
        with attempt as moment:
            return moment.state, read(moment)
    raise AssertionError("every attempt ended before its look was complete")


def look_undisturbed(workspace: Workspace) -> Moment:
    """Look at a writer while nothing is committed.

    `look` alone may miss a group that was opened after the listing, of which a later one is live already: a group can
    wait longer than those behind it when its disk failed. With the same revision before and after, there is none.
    """
    while True:
        # No bound on the attempts: commits are seconds apart, a look takes milliseconds.
        before = workspace.newest_state().revision
        moment = look(workspace)
        if moment.state.revision == before:
            return moment
