"""Whose journals are on the containers: the writer's own, or those of another incarnation of its name."""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from custody.errors import CorruptionError, FormatVersionError, StorageError
from custody.format.names import ContainerPaths
from custody.journal import (
    Claim,
    Group,
    Incarnations,
    Missing,
    groups,
    is_own,
    missing_of,
    read_header,
    writer_states,
)
from custody.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class Groups:
    """A writer's groups, those of its own and those of other incarnations; a first event id may be in both."""

    own: list[Group]
    foreign: list[Group]


class Ownership:
    """Tells journals by the incarnation in their headers; one without is that of its container's state.

    A journal's header never changes, so it is read once.
    """

    def __init__(self, fs: FileSystem, containers: Sequence[Path], writer: str, incarnations: Incarnations) -> None:
        self._fs = fs
        self._containers = containers
        self._writer = writer
        self._incarnations = incarnations
        self._known: dict[Path, str] = {}

    def on_disk(self, among: Collection[int] | None = None) -> list[Group]:
        """Return the groups that are on disk, whosever they are; `among` names those that are looked for."""
        return groups(self._fs, self._containers, self._writer, among)

    def missing(self) -> list[Missing]:
        """Return the containers of the writer that are not there; one whose states cannot be read misses none."""
        try:
            states = writer_states(self._fs, self._containers, self._writer)
        except (CorruptionError, FormatVersionError):
            return []
        claims = [] if states else self._incarnations.known()
        if not claims:
            return missing_of(self._writer, states)
        last = claims[-1]
        host = "" if last.host == socket.gethostname() else last.host
        return [Missing(self._writer, name, Path(place), host=host) for name, place in sorted(last.containers.items())]

    def groups(self, among: Collection[int] | None = None) -> Groups:
        """Return the groups that are on disk, all or some, by first event id."""
        found = self.on_disk(among)
        claims = self._incarnations.known() if found else []
        if not claims:
            return Groups(found, [])
        own, foreign = [], []
        for group in found:
            theirs = {path for path in (*group.sealed, *group.open) if not self._is_own(claims, group, path)}
            if not theirs:
                own.append(group)
                continue
            mine, other = _split(group, theirs)
            own += [mine] if mine.sealed or mine.open else []
            foreign.append(other)
        return Groups(own, foreign)

    def incarnation(self, path: Path) -> str:
        """Return under which incarnation a journal was written, empty when nothing says so.

        Raises:
            StorageError: it is gone: sealed or swept in this moment.
        """
        found = self._known.get(path, "")
        if not found:
            header = read_header(self._fs, path)
            found = header.incarnation if header is not None else ""
            if not found:
                return self._of_container(path)  # a state may change
            self._known[path] = found
        return found

    def of_group(self, group: Group) -> str:
        """Return under which incarnation a group was written, empty when nothing says so; raises as `incarnation`."""
        return self.incarnation((*group.sealed, *group.open)[0])

    def _is_own(self, claims: list[Claim], group: Group, path: Path) -> bool:
        try:
            incarnation = self.incarnation(path)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return True  # who reads it looks again
        return is_own(claims, incarnation, group.first_event_id)

    def _of_container(self, path: Path) -> str:
        """Return the incarnation of the container of a journal; by its identity, where its state names none."""
        root = next(root for root in self._containers if path.is_relative_to(ContainerPaths(root, self._writer).home))
        claims = self._incarnations.known()
        try:
            state = writer_states(self._fs, self._containers, self._writer).get(root)
        except (CorruptionError, FormatVersionError):
            return claims[-1].incarnation if claims else ""  # nobody can tell; the start of a writer says what is wrong
        if state is None or state.incarnation:
            return "" if state is None else state.incarnation
        named = (claim.incarnation for claim in claims if not claim.containers.keys().isdisjoint(state.containers))
        return next(named, "")


def _split(group: Group, theirs: Collection[Path]) -> tuple[Group, Group]:
    """Return the part of a group without some journals, and the part that consists of them."""
    sealed = tuple(path for path in group.sealed if path in theirs)
    opened = tuple(path for path in group.open if path in theirs)
    mine = replace(
        group,
        sealed=tuple(path for path in group.sealed if path not in theirs),
        open=tuple(path for path in group.open if path not in theirs),
    )
    return mine, replace(group, sealed=sealed, open=opened)
