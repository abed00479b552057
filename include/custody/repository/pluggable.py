"""Repositories of other hands: what an implementation of the API has to answer, and how one is found by its name.

A package names its implementation in the entry point group `custody.repositories`; the setting
`repository.implementation` chooses one. `custody_conformance.repositories` shows whether an implementation keeps the
promises of this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from custody.config import Settings, load_settings
from custody.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

    from custody.flow import Component, Session
    from custody.flow.session import Appender
    from custody.lineage import Bounds, Lineage
    from custody.model import Acknowledged, Event
    from custody.read.search import SearchResult
    from custody.workspace import StepReport

GROUP = "custody.repositories"
"""The group of entry points: the name of each is a value of `repository.implementation`, its object a `Factory`."""
OWN = "custody"
"""The name of this implementation, on the files that docs/formats describes."""


class ProvenanceRepository(Protocol):
    """What producers and readers ask of a repository; `Repository` says what each method promises and raises."""

    settings: Settings

    def append(self, events: Iterable[Event]) -> Acknowledged:
        """Store events in one piece; on return they survive a power loss."""
        ...

    def append_columns(self, events: pa.Table | pa.RecordBatch) -> Acknowledged:
        """Store events that are columns, as `append` does."""
        ...

    def writer(self) -> AbstractContextManager[Appender]:
        """Hold a writer, to which any number of threads append."""
        ...

    def session(self, component: Component) -> AbstractContextManager[Session]:
        """Do a piece of work with FlowFiles; its events are stored at the end of the block, or none of them."""
        ...

    def get(self, event_id: int, writer: str | None = None) -> Event:
        """Return one event."""
        ...

    def get_many(self, event_ids: Sequence[int], writer: str | None = None) -> Sequence[Event]:
        """Return the events with these ids in the order of ids; ids without an event are left out."""
        ...

    def events(self, first_event_id: int = 0, count: int = 1000, writer: str | None = None) -> Iterable[Event]:
        """Yield up to `count` events from an id on, in the order of ids."""
        ...

    def search(
        self,
        text: str | dict[str, object] = "",
        *,
        limit: int | None = None,
        offset: int = 0,
        oldest_first: bool = False,
        cursor: str | None = None,
        writer: str | None = None,
    ) -> SearchResult:
        """Return a page of the events that match."""
        ...

    def lineage(
        self, uuids: Sequence[str] = (), bounds: Bounds | None = None, *, identifiers: Sequence[str] = ()
    ) -> Lineage:
        """Return all that led to some FlowFiles and all that came of them."""
        ...

    def roll_over(
        self, *, retention: bool = False, workers: int = 1, take_over: bool = False, run_id: str | None = None
    ) -> Sequence[StepReport]:
        """Do the housekeeping that is due; no answer changes by it."""
        ...


Factory = Callable[[Settings], ProvenanceRepository]
"""Opens a repository by its settings, whose `root` is its folder."""


def open_repository(root: str | Path) -> ProvenanceRepository:
    """Open the repository in a folder, by the implementation that its settings name.

    Raises:
        NotFoundError: there is none.
        ConfigurationError: its settings are not valid, or no installed package has this implementation.
    """
    settings = load_settings(Path(root))
    return repository_factory(settings.repository.implementation)(settings)


def repository_factory(name: str) -> Factory:
    """Return what opens repositories of an implementation; raises ConfigurationError when it is not installed."""
    # Not by its entry point: a copy of the source that was not installed has none.
    if name == OWN:
        from custody.repository.repository import Repository

        return Repository
    points = metadata.entry_points(group=GROUP)
    matching = [point for point in points if point.name == name]
    if len({point.value for point in matching}) != 1:
        known = ", ".join(sorted({OWN, *points.names}))
        problem = "several packages have it" if matching else "no installed package has it"
        raise ConfigurationError(f"repository.implementation {name!r}: {problem}. Installed: {known}.")
    try:
        return cast(Factory, matching[0].load())
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"repository.implementation {name!r}: {matching[0].value} of the entry point cannot be imported: {error}."
        ) from error
