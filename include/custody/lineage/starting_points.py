"""Where a lineage begins: FlowFiles, events, runs, datasets or alternate identifiers, as people name them.

A dataset is named by one text, `namespace/name`, perhaps with `@version`. Both parts may hold slashes, so each slash
may be the one between them. Of the uuids that follow, those exist that some event mentions: no two names have the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from custody.capture.openlineage import dataset_uuid, run_uuid
from custody.errors import InvalidInputError
from custody.model import Event

_SLASHES_MAX = 64
_ID_MAX = (1 << 63) - 1

AssetUuid = Callable[[str], str]
"""Given the address of an asset, returns its FlowFile uuid."""
GetEvent = Callable[[int, str | None], Event]
"""Given an id and perhaps a writer, returns the event; raises as `Repository.get`."""


class StartKind(StrEnum):
    """The kinds of starting points; each is a parameter of the API, and a prefix on the command line."""

    WHAT = "what"
    """A name of any kind: a FlowFile's uuid, an alternate identifier, a run's id, a dataset."""
    FLOWFILE = "flowfile"
    IDENTIFIER = "identifier"
    EVENT = "event"
    RUN = "run"
    DATASET = "dataset"


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """A name, and what it is the name of."""

    kind: StartKind
    text: str

    @classmethod
    def of(cls, word: str) -> StartingPoint:
        """Return what a word of the command line means: `KIND=NAME`, the id of an event, or a name of any kind."""
        kind, _, name = word.partition("=")
        if name and kind in list(StartKind):
            return cls(StartKind(kind), name)
        return cls(StartKind.EVENT if word.isdecimal() else StartKind.WHAT, word)


@dataclass(frozen=True, slots=True)
class Beginning:
    """What some starting points mean: uuids of which some may be nobody's, and alternate identifiers."""

    names: dict[str, tuple[str, ...]]
    """Each name with its uuids."""
    identifiers: tuple[str, ...] = ()

    @property
    def uuids(self) -> tuple[str, ...]:
        """All uuids, each once."""
        return tuple(dict.fromkeys(uuid for uuids in self.names.values() for uuid in uuids))

    def missing(self, known: Iterable[str], identifiers: Iterable[str]) -> list[str]:
        """Return the names of which neither a uuid nor the name itself as an identifier is known."""
        found = {*known, *identifiers}
        return [name for name, uuids in self.names.items() if name not in found and found.isdisjoint(uuids)]


def beginning(
    points: Iterable[StartingPoint],
    get: GetEvent,
    asset_uuid: AssetUuid,
    writer: str | None = None,
    *,
    is_joined: bool = True,
) -> Beginning:
    """Return what some starting points mean.

    Args:
        points: at least one.
        get: finds events by their ids.
        asset_uuid: knows the assets of Airflow, which are datasets with one name.
        writer: whose events are meant where an event is named without one.
        is_joined: whether alternate identifiers are indexed; else a name of any kind is none.

    Raises:
        InvalidInputError: there is no starting point, or an event is not named as `WRITER:ID` or `ID`.
        NotFoundError, ConfigurationError: as `get`.
    """
    names: dict[str, tuple[str, ...]] = {}
    identifiers: dict[str, None] = {}
    for point in points:
        names[point.text] = (*names.get(point.text, ()), *_uuids(point, get, asset_uuid, writer))
        if point.kind == StartKind.IDENTIFIER or (point.kind == StartKind.WHAT and is_joined):
            identifiers[point.text] = None
    if not names:
        expected = ", ".join(StartKind)
        raise InvalidInputError(f"lineage: expected where it begins, by one of {expected}.")
    return Beginning(names, tuple(identifiers))


def _uuids(point: StartingPoint, get: GetEvent, asset_uuid: AssetUuid, writer: str | None) -> tuple[str, ...]:
    match point.kind:
        case StartKind.IDENTIFIER:
            return ()
        case StartKind.FLOWFILE:
            return (point.text,)
        case StartKind.EVENT:
            return (_event(point.text, get, writer).flowfile_uuid,)
        case StartKind.RUN:
            return (run_uuid(point.text),)
        case StartKind.DATASET:
            return (asset_uuid(point.text), *_datasets(point.text))
        case _:
            return (point.text, run_uuid(point.text), asset_uuid(point.text), *_datasets(point.text))


def _event(text: str, get: GetEvent, writer: str | None) -> Event:
    by, _, number = text.rpartition(":")
    if not number.isdecimal() or int(number) > _ID_MAX:
        raise InvalidInputError(f"event: expected WRITER:ID, got {text[:80]!r}.")
    return get(int(number), by or writer)


def _datasets(text: str) -> Iterable[str]:
    """Yield the uuids of the datasets that a text may name."""
    parts = text.split("/")
    for at in range(1, min(len(parts), _SLASHES_MAX + 1)):
        namespace, name = "/".join(parts[:at]), "/".join(parts[at:])
        if namespace and name:
            yield dataset_uuid(namespace, name)
            without, _, version = name.rpartition("@")
            if without and version:
                yield dataset_uuid(namespace, without, version)
