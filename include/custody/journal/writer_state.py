"""The state of a writer on each of its containers: which containers it has, and up to which id ids are reserved.

Each container keeps both in `<container>/<writer>/STATE` (docs/formats/writer-state.md). So a disk that is not mounted
is told from a new one, and ids are not given out again when the journals that hold them cannot be read: ids are
reserved in blocks, durably on every container, before the first of a block is used.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from custody.errors import CorruptionError, FormatVersionError, StorageError
from custody.format.framing import DocumentFormat
from custody.format.names import ContainerPaths, container_paths
from custody.journal.groups import writers
from custody.vfs import FileSystem

# Part of the format, like the fields of `WriterState`: add, never change.
PREAMBLE = b"CUSTWST\x01"
KIND_STATE = 1
# One durable write a container for a million ids; a start that has to go on at the bound leaves out about as many.
RESERVED_IDS = 1 << 20


class WriterState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a writer as one container keeps it."""

    writer: str
    container: str
    """The container's own identity: 32 hexadecimal digits."""
    containers: dict[str, str]
    """All containers of the writer: identity to the path where it was last seen."""
    reserved: int
    """No id from this one on was ever given out."""
    floor: int = 0
    """No id below this one is given out any more: which of them were given out is no longer known."""
    incarnation: str = ""
    """Under which incarnation the writer claims its name in the store; empty in a state of an older custody."""
    sealed: int | msgspec.UnsetType = msgspec.UNSET
    """Ids below it were sealed when a journal of this container was sealed last; absent where nobody knows."""


@dataclass(frozen=True, slots=True)
class MissingContainer:
    """A container of a writer that is not among the mounted ones of the settings."""

    writer: str
    container: str
    place: Path
    """Where it was last seen."""
    reserved: int | None = None
    """No id from this one on was ever given out, as far as the containers that are there know."""
    host: str = ""
    """The other machine that it is on; empty for one of this machine."""

    def __str__(self) -> str:
        if self.host:
            return (
                f"writer {self.writer!r}: its container {self.place} is on the machine {self.host!r}. Do there what "
                "needs the events that wait on it."
            )
        return (
            f"writer {self.writer!r}: container {self.container}, last seen at {self.place}, is missing. Mount it, or "
            "name its folder in repository.containers. If it is lost for good, with all journals on it: "
            f"custody containers drop {self.container}"
        )


_FORMAT = DocumentFormat(
    PREAMBLE,
    KIND_STATE,
    msgspec.json.Decoder(WriterState),
    name="writer state",
    content="a writer's state",
    remedy="Move the file away: it is made again from those of the other containers, or from the journals.",
)
encode_state = _FORMAT.encode
decode_state = _FORMAT.decode
# Every question reads the states, to find containers that are gone; their bytes are nearly always the same.
_decoded = lru_cache(maxsize=1 << 12)(decode_state)


def writer_states(fs: FileSystem, roots: Sequence[Path], writer: str) -> dict[Path, WriterState]:
    """Return the writer's state on each container of the settings; new containers have none.

    Raises:
        CorruptionError: a container's state is damaged and no other container knows what it was.
    """
    states: dict[Path, WriterState] = {}
    damaged: dict[Path, CorruptionError] = {}
    for root in roots:
        path = container_paths(root, writer).state
        try:
            states[root] = _decoded(fs.read(path), path)
        except CorruptionError as error:
            damaged[root] = error
        except StorageError as error:
            # Absent: a new container, or a mount point without its disk. The states of the others tell which.
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
    for root, failure in damaged.items():
        states[root] = _healed(root, states, failure)
    return states


def check_containers(fs: FileSystem, roots: Sequence[Path], writer: str) -> dict[Path, WriterState]:
    """Return the writer's state on each container, after checking that all of its containers are there.

    Raises:
        StorageError: a container that belongs to the writer is not among them, or one is there twice.
        CorruptionError: as of writer_states.
    """
    states = writer_states(fs, roots, writer)
    _check_distinct(writer, states)
    _check_present(writer, states)
    return states


def _healed(root: Path, states: Mapping[Path, WriterState], error: CorruptionError) -> WriterState:
    """Return the state of a container whose own is damaged, from what the others know of it."""
    for state in states.values():
        for identity, place in state.containers.items():
            if place == str(root):
                return msgspec.structs.replace(state, container=identity, sealed=msgspec.UNSET)
    raise error


def _check_distinct(writer: str, states: Mapping[Path, WriterState]) -> None:
    here: dict[str, Path] = {}
    for root, state in states.items():
        other = here.setdefault(state.container, root)
        if other != root:
            raise StorageError(
                f"writer {writer!r}: {other} and {root} are the same container {state.container}: one is a copy. "
                "Name only one of them in repository.containers."
            )


def _check_present(writer: str, states: Mapping[Path, WriterState]) -> None:
    for missing in missing_containers(writer, states):
        raise StorageError(str(missing))


def missing_containers(writer: str, states: Mapping[Path, WriterState]) -> list[MissingContainer]:
    """Return the containers that a writer's states name and that have no state among them, by place."""
    here = {state.container for state in states.values()}
    places = {identity: place for state in states.values() for identity, place in state.containers.items()}
    reserved = max((state.reserved for state in states.values()), default=None)
    missing = [
        MissingContainer(writer, identity, Path(place), reserved)
        for identity, place in places.items()
        if identity not in here
    ]
    return sorted(missing, key=lambda item: item.place)


def unmounted_suspects(fs: FileSystem, roots: Sequence[Path]) -> dict[Path, MissingContainer]:
    """Return the containers of the settings that may be mount points without their disk.

    While a container of any writer is missing, each folder without a state of that writer may be one. An unreadable
    state counts as none here; the start of its writer, and verify, report it.
    """
    unmounted: dict[Path, MissingContainer] = {}
    for writer in writers(fs, roots) if len(roots) > 1 else ():  # a single one has a state, or nobody knows of any
        try:
            states = writer_states(fs, roots, writer)
        except (CorruptionError, FormatVersionError):
            continue
        for missing in missing_containers(writer, states):
            unmounted |= {root: missing for root in roots if root not in states}
    return unmounted


class WriterContainers:
    """The containers of one writer, as its live process knows them.

    The caller holds the writer's lock.

    Raises:
        StorageError, CorruptionError: as of check_containers.
    """

    def __init__(self, fs: FileSystem, roots: Sequence[Path], writer: str) -> None:
        self._fs = fs
        self._writer = writer
        states = check_containers(fs, roots, writer)
        self.reserved = max((state.reserved for state in states.values()), default=0)
        """No id from this one on was ever given out."""
        self.floor = max((state.floor for state in states.values()), default=0)
        """No id below this one is given out any more."""
        self._identities = {root: state.container for root, state in states.items()}
        self._sealed = {root: state.sealed for root, state in states.items()}
        claimed = (state.incarnation for state in states.values() if state.incarnation)
        self.incarnation = next(claimed, "") or uuid.uuid4().hex
        """Under which the name is claimed in the store, journals carry it."""
        # Each container gets an identity first, and only then do all of them list all: a crash in between must not
        # make a new container look lost.
        for root in roots:
            if root not in states:
                self._identities[root] = uuid.uuid4().hex
                self._write(root, {self._identities[root]: str(root)})
        if any(root not in states for root in roots[1:]) or any(
            not self._is_up_to_date(state) for state in states.values()
        ):
            self._write_all(roots)

    @property
    def containers(self) -> dict[str, str]:
        """All containers of the writer: identity to path."""
        return {identity: str(root) for root, identity in sorted(self._identities.items())}

    @property
    def sealed(self) -> dict[str, int]:
        """How far each container is sealed: identity to the id below which ids were sealed, where that is known."""
        ends = {identity: self._sealed.get(root, 0) for root, identity in self._identities.items()}
        return {identity: end for identity, end in ends.items() if end is not msgspec.UNSET}

    def note_sealed(self, root: Path, next_event_id: int) -> None:
        """Let a container know that it has sealed journals with ids below one.

        Durability: on return it survives power loss.

        Raises:
            StorageError: it cannot be written.
        """
        former = self._sealed.get(root, 0)
        if former is msgspec.UNSET or former < next_event_id:
            self._sealed[root] = next_event_id
            try:
                self._write(root, self.containers)
            except OSError:
                self._sealed[root] = former
                raise

    def become(self, incarnation: str) -> None:
        """Take on another incarnation, durably in all containers."""
        self.incarnation = incarnation
        self._write_all(list(self._identities))

    def _is_up_to_date(self, state: WriterState) -> bool:
        return state.containers == self.containers and state.incarnation == self.incarnation

    def reserve(self, next_event_id: int, working: Sequence[Path], failed: Callable[[Path, OSError], None]) -> None:
        """Reserve ids up to a block beyond `next_event_id`, durably on the containers that work.

        Raises:
            StorageError: one of them could not be written, and `failed` was called with it; try again with the others.
        """
        # On every container that works: after a crash any one of them may be the only one that is there.
        reserved, self.reserved = self.reserved, next_event_id + RESERVED_IDS
        for root in working:
            try:
                self._write(root, self.containers)
            except OSError as error:
                self.reserved = reserved
                # No id of the block may be used while one container does not know it; those written already know a
                # higher bound, which does no harm.
                failed(root, error)
                raise

    def rejoin(self, root: Path) -> int:
        """Bring the state of a container up to date that was out of use; return up to which id ids are reserved in it.

        Durability: on return it survives power loss.

        Raises:
            StorageError: the container cannot be written.
        """
        reserved = self.reserved
        self._write(root, self.containers)
        return reserved

    def raise_floor(self, least: int) -> None:
        """Never give out an id below `least` again: which of them were given out is no longer known."""
        if least > self.floor:
            self.floor = least
            self.reserved = max(self.reserved, least)
            self._write_all(list(self._identities))

    def _write_all(self, roots: Sequence[Path]) -> None:
        for root in roots:
            self._write(root, self.containers)

    def _write(self, root: Path, containers: dict[str, str]) -> None:
        state = WriterState(
            writer=self._writer,
            container=self._identities[root],
            containers=containers,
            reserved=self.reserved,
            floor=self.floor,
            incarnation=self.incarnation,
            sealed=self._sealed.get(root, 0),
        )
        self._fs.write_durably(ContainerPaths(root, self._writer).state, encode_state(state))


def drop_container(fs: FileSystem, roots: Sequence[Path], writer: str, identity: str) -> str | None:
    """Forget a container that is lost for good; return where it was last seen, None when it is not known.

    The caller holds the writer's lock. Ids that may have been given out on it are not given out again.
    """
    place = None
    for root in roots:
        path = ContainerPaths(root, writer).state
        if fs.exists(path):
            state = decode_state(fs.read(path), path)
            place = state.containers.get(identity, place)
            remaining = {key: value for key, value in state.containers.items() if key != identity}
            # The lost journals may hold any id that was reserved.
            floor = max(state.floor, state.reserved) if place is not None else state.floor
            fs.write_durably(path, encode_state(msgspec.structs.replace(state, containers=remaining, floor=floor)))
    return place
