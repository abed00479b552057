"""One look at each catalog a question: what a read asks an object store of the state of things, it asks once.

In an object store a look at a catalog is two requests, one after the other. Within `one_question` the first look of
each writer counts for the whole block: it is made after the block began, so that the answer shows all that was
committed before. The looks of all writers that are known, and the listing of writers, go out side by side.

A look at a catalog on a disk is cheap, and the parts of a long read look for themselves. To read one event it costs as
much as the event: a short question (`as_short_question`) looks once there, too.

The snapshot rule holds (`custody.workspace.snapshot`): a look lists the journals first, and who finds a journal gone
looks again.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from threading import Lock
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from custody.store import carried

if TYPE_CHECKING:
    from custody.catalog import CatalogState
    from custody.config import Settings
    from custody.journal import MissingContainer
    from custody.workspace.snapshot import Moment
    from custody.workspace.workspace import Workspace

# Each thread waits for the store most of the time.
_PARALLEL = 32
P = ParamSpec("P")
R = TypeVar("R")


class Question:
    """What was seen of the writers since a question began; of those on disks only in a short one."""

    def __init__(self, *, is_short: bool = False) -> None:
        self._is_short = is_short
        self._lock = Lock()
        self._states: dict[int, CatalogState] = {}
        self._moments: dict[int, Moment] = {}
        self._missing: dict[int, list[MissingContainer]] = {}
        self._names: list[str] | None = None

    def is_about(self, settings: Settings) -> bool:
        """Whether what was seen of the writers of a repository counts for the whole question."""
        return self._is_short or settings.is_store_remote

    def state(self, workspace: Workspace) -> CatalogState:
        """Return the state of a writer's catalog as it was seen in this question; the first call looks."""
        state = self._states.get(id(workspace.catalog))
        return state if state is not None else self.see(workspace, workspace.newest_state())

    def see(self, workspace: Workspace, state: CatalogState) -> CatalogState:
        """Take the state of a look that was made just now; an earlier look does not replace a later one's."""
        with self._lock:
            former = self._states.get(id(workspace.catalog))
            if former is None or former.revision <= state.revision:
                self._states[id(workspace.catalog)] = state
        return state

    def moment(self, workspace: Workspace) -> Moment | None:
        """Return the look that was made ahead at a writer, once: who asks again wants to see what changed."""
        return self._moments.pop(id(workspace.catalog), None)

    def missing(self, workspace: Workspace) -> list[MissingContainer] | None:
        """Return the containers that are not there, if they were looked for ahead."""
        return self._missing.get(id(workspace.catalog))

    def look_ahead(
        self, workspaces: Sequence[Workspace], names: Callable[[], list[str]], *, containers: bool
    ) -> list[str]:
        """Return the names of the writers, listed once; meanwhile look at those that are known.

        With `containers` it is also looked for containers that are not there.
        """

        def look_at(workspace: Workspace) -> None:
            # Imported here: that module asks this one.
            from custody.workspace.snapshot import look

            # A hand-over is listed in the store: who finds an event in a log needs no list of the journals.
            if containers or not workspace.hands_over:
                self._moments[id(workspace.catalog)] = look(workspace)
            else:
                self.state(workspace)

        def look_for_containers(workspace: Workspace) -> None:
            self._missing[id(workspace.catalog)] = workspace.missing()

        known = [item for item in workspaces if id(item.catalog) not in self._states]
        with ThreadPoolExecutor(min(_PARALLEL, 2 * len(known) + 1)) as threads:
            listed = threads.submit(carried(names)) if self._names is None else None
            seen = [threads.submit(carried(look_at), item) for item in known]
            seen += [threads.submit(carried(look_for_containers), item) for item in known if containers]
            for task in seen:
                task.result()
            self._names = listed.result() if listed is not None else self._names
            return self._names or []


_QUESTION: contextvars.ContextVar[Question | None] = contextvars.ContextVar("_QUESTION", default=None)


def current_question(settings: Settings) -> Question | None:
    """Return the question that is being answered, if it is about a repository of these settings."""
    question = _QUESTION.get()
    return question if question is not None and question.is_about(settings) else None


@contextmanager
def one_question(*, is_short: bool = False) -> Iterator[None]:
    """Within the block each catalog of an object store is looked at once, in a short one each catalog.

    A block within another one belongs to it.
    """
    if _QUESTION.get() is not None:
        yield
        return
    token = _QUESTION.set(Question(is_short=is_short))
    try:
        yield
    finally:
        _QUESTION.reset(token)


def as_one_question(read: Callable[P, R]) -> Callable[P, R]:
    """Return a function that answers within `one_question`; what it yields later is no part of it."""

    @wraps(read)
    def within(*args: P.args, **kwargs: P.kwargs) -> R:
        with one_question():
            return read(*args, **kwargs)

    return within


def as_short_question(read: Callable[P, R]) -> Callable[P, R]:
    """Return a function that answers within a short `one_question`: it is over before much can be committed."""

    @wraps(read)
    def within(*args: P.args, **kwargs: P.kwargs) -> R:
        with one_question(is_short=True):
            return read(*args, **kwargs)

    return within
