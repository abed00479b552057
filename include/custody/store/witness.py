"""Witnesses: the newest state of a writer's catalog and claims that was seen, kept on its containers and beside them.

A part of a repository can be lost, away, or restored from an earlier moment by itself: a store that is not mounted, a
volume whose snapshot was brought back, the newest transaction. By itself it looks whole. So each container and the
repository's folder keep a `Witness` of all parts (docs/formats/witness.md). Whoever opens or changes a part compares it
with the newest of them: a state that is earlier than one that was seen is answered with a notice, and nothing is
written to it.

A witness is a lower bound. It is written after the state that it names is durable, so that a crash in between leaves an
earlier witness, which does no harm.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import msgspec

from custody.errors import CorruptionError, CustodyError, FormatVersionError, LockedError, StorageError
from custody.format.framing import DocumentFormat, misplaced_parts
from custody.format.names import WITNESS, DatabasePaths, container_paths, witness_file, witness_lock
from custody.vfs import FileSystem

WITNESSES = "witness"
"""The folder of witnesses in a repository's folder."""
# Part of the format, like the fields of `Witness`: add, never change.
PREAMBLE = b"CUSTSEE\x01"
KIND_WITNESS = 1
# Each try waits a second for a process that writes a witness, which takes it milliseconds.
_LOCK_TRIES = 30
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_LOGGER = logging.getLogger(__name__)


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """The newest state that was seen of each part of one writer's database."""

    writer: str
    database: str
    accepted: int = 0
    """How often a person accepted an earlier state: a greater number replaces all that was seen before."""
    catalog: str = ""
    """The id of the catalog, 32 hexadecimal digits; empty before the first transaction."""
    revision: int = -1
    """The newest transaction that was seen of it, -1 for none."""
    digest: str = ""
    """The digest of that transaction, 64 hexadecimal digits."""
    next_event_id: int = 0
    """Ids below it were given out."""
    claim: int = 0
    """The number of the newest claim of the writer's name."""
    containers: dict[str, int] = {}
    """By identity of a container: ids below were sealed when a journal of it was sealed last."""

    def merge(self, other: Witness) -> Witness:
        """Return the newest of both, part by part."""
        if self.accepted != other.accepted:
            latest, former = (self, other) if self.accepted > other.accepted else (other, self)
            # Whatever state was accepted: no id is given out twice.
            return msgspec.structs.replace(latest, next_event_id=max(latest.next_event_id, former.next_event_id))
        newest = self if self.revision >= other.revision else other
        return msgspec.structs.replace(
            newest,
            next_event_id=max(self.next_event_id, other.next_event_id),
            claim=max(self.claim, other.claim),
            containers=_greatest(self.containers, other.containers),
        )


def _greatest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in sorted({*one, *other})}


_FORMAT = DocumentFormat(
    PREAMBLE,
    KIND_WITNESS,
    msgspec.json.Decoder(Witness),
    name="witness",
    content="a witness of a writer's state",
    remedy="Remove the file: it is written again with the next transaction.",
)
encode_witness = _FORMAT.encode
decode_witness = _FORMAT.decode
# Every look at a catalog reads the witnesses; their bytes are nearly always the same.
_decoded = lru_cache(maxsize=1 << 12)(decode_witness)


@dataclass(frozen=True, slots=True)
class EarlierState:
    """A part of a repository that is of an earlier moment than one that was seen of it."""

    writer: str
    part: str
    """Where it lies."""
    seen: str
    """The state that was seen."""
    found: str
    """The state that is there."""
    next_event_id: int
    """Ids below it were given out."""

    def __str__(self) -> str:
        return (
            f"writer {self.writer!r}: {self.part} is of an earlier moment, or away: expected {self.seen}, or a later "
            f"state, got {self.found}. Mount it, or bring the newer state back. What is left of it is put together by "
            "custody repair. To go on from the earlier state for good: custody recover --accept-earlier"
        )


class WitnessLook(NamedTuple):
    """What the witnesses say at one moment."""

    newest: list[tuple[str, Witness]]
    """Where each lies and what it says; never empty."""
    passed_by: tuple[Path, int, int] | None
    """A witness on a disk from before an earlier state was accepted, how many acceptances it knows, and how many there
    were: its disk is of an earlier moment, although its catalog may be a longer one. None where there is none."""


class Witnesses:
    """The witnesses of one writer's database, on its containers and in the repository's folder.

    Threads share it.

    Args:
        fs: where containers and the repository's folder lie.
        folder: of the witnesses in the repository's folder.
        containers: one folder a disk.
        writer: whose state it is.
        database: the database of the writer's events.
        store: the store's folder, where it is one of this machine; a container is witnessed there, too.
    """

    def __init__(
        self,
        fs: FileSystem,
        folder: Path,
        containers: Sequence[Path],
        writer: str,
        database: str,
        store: Path | None = None,
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._writer = writer
        self._database = database
        self._own = witness_file(folder, writer, database)
        self._of_disks = {
            container_paths(container, writer).home: container_paths(container, writer).witness(database)
            for container in containers
        }
        if store is not None:
            home = DatabasePaths(store, writer, database).home
            self._of_disks[home] = home / WITNESS
        # What this process saw holds also where the disks with the witnesses went away.
        self._remembered = Witness(writer=writer, database=database)
        self._lock = Lock()

    @property
    def paths(self) -> list[Path]:
        """The files, whether or not they are there."""
        return [self._own, *self._of_disks.values()]

    @property
    def accepted(self) -> int:
        """How often an earlier state was accepted."""
        return self.look().newest[0][1].accepted

    def seen(self) -> Witness:
        """Return the newest state that any witness or this process has seen; one that cannot be read is passed over."""
        return reduce(Witness.merge, (found for _, found in self.each()))

    def each(self) -> list[tuple[str, Witness]]:
        """Return where each witness lies and what it says, this process last; without those that were replaced.

        Each is to be compared by itself: of two histories of one catalog the longer one is not the newer one.
        """
        return self.look().newest

    def look(self) -> WitnessLook:
        """Read all witnesses once."""
        stored = list(self._stored())
        for _, witness in stored:
            self.remember(witness)
        remembered = self._remembered
        accepted = max((remembered.accepted, *(witness.accepted for _, witness in stored)))
        newest = [(str(path), witness) for path, witness in stored if witness.accepted == accepted]
        newest += [("this process", remembered)] if remembered.accepted == accepted else []
        passed_by = next(
            (
                (path, witness.accepted, accepted)
                for path, witness in stored
                if witness.accepted < accepted and path != self._own
            ),
            None,
        )
        return WitnessLook(newest, passed_by)

    def on_disk(self, home: Path) -> Witness | None:
        """Return the witness in a writer's folder on one disk, None where it is absent or damaged."""
        path = self._of_disks.get(home)
        return None if path is None else self._read(path)

    def of_now(self, *, next_event_id: int, containers: dict[str, int]) -> Witness:
        """Return a witness of ids and containers alone, which counts beside what was seen of the others."""
        return Witness(
            writer=self._writer,
            database=self._database,
            accepted=self.accepted,
            next_event_id=next_event_id,
            containers=containers,
        )

    def remember(self, witness: Witness) -> None:
        """Take a state for seen as long as this process lives; it is one that no witness contradicts."""
        if self._remembered.merge(witness) != self._remembered:
            with self._lock:
                self._remembered = self._remembered.merge(witness)

    def note(self, witness: Witness) -> None:
        """Write a state that is durable into all witnesses, merged with what they have.

        Durability: on return it survives power loss in every witness whose disk takes it, in one at least.

        Raises:
            StorageError: no disk takes it.
            LockedError: another process holds them for too long.
        """
        self.remember(witness)
        places = [path for path in self._places() if self._read(path) != self._merged(path, witness)]
        if not places:
            return
        failures: list[StorageError] = []
        with self._held():
            for path in places:
                try:
                    # Read again: what others wrote until now must not be lost.
                    self._fs.write_durably(path, encode_witness(self._merged(path, witness)))
                except StorageError as error:
                    failures.append(error)
        if len(failures) == len(list(self._places())):
            raise failures[0]

    def try_to_note(self, witness: Witness) -> None:
        """Write a state as `note` does where that can be done: an earlier witness proves less, and nothing false."""
        try:
            self.note(witness)
        # The state itself is durable: its caller was told so, whatever becomes of its witnesses.
        except CustodyError as error:
            _LOGGER.warning("writer %s: its newest state was not witnessed: %s", self._writer, error)

    def accept(self, witness: Witness) -> Witness:
        """Let a state count from here on, whatever was seen before; return it as it is witnessed.

        Durability: as of `note`.
        """
        seen = self.seen()
        accepted = msgspec.structs.replace(
            witness,
            accepted=seen.accepted + 1,
            next_event_id=max(witness.next_event_id, seen.next_event_id),
            # Of a catalog that was repaired alone, the others are as they were.
            claim=witness.claim or seen.claim,
            containers=witness.containers or seen.containers,
        )
        self.note(accepted)
        return accepted

    def damaged(self) -> Iterator[tuple[Path, str]]:
        """Yield the witnesses that cannot be read, and why."""
        for path in self.paths:
            try:
                # No checksum covers the mark of a record.
                if self._found(path) and any(misplaced_parts(self._fs.read(path), len(PREAMBLE))):
                    raise CorruptionError(f"{path} @8: expected the mark of a record, got that of a part.")
            except (CorruptionError, FormatVersionError, StorageError) as error:
                yield path, str(error)

    def _stored(self) -> Iterator[tuple[Path, Witness]]:
        for path in self.paths:
            found = self._read(path)
            if found is not None:
                yield path, found

    def _read(self, path: Path) -> Witness | None:
        try:
            return self._found(path)
        except (CorruptionError, FormatVersionError, StorageError):
            return None  # verify names it; the other witnesses are enough

    def _found(self, path: Path) -> Witness | None:
        try:
            found = _decoded(self._fs.read(path), path)
        except StorageError as error:
            if error.errno in _ABSENT:
                return None
            raise
        if (found.writer, found.database) != (self._writer, self._database):
            raise CorruptionError(
                f"{path}: expected the witness of {self._writer!r} and {self._database!r}, got that of "
                f"{found.writer!r} and {found.database!r}. Remove the file."
            )
        return found

    def _merged(self, path: Path, witness: Witness) -> Witness:
        found = self._read(path)
        return witness if found is None else found.merge(witness)

    def _places(self) -> Iterator[Path]:
        """Yield the files whose disks are there: a folder that is made at a mount point would be hidden by its disk."""
        if self._fs.exists(self._folder.parent):
            yield self._own
        for home, path in self._of_disks.items():
            if self._fs.exists(home):
                yield path

    def _held(self) -> _Held:
        self._fs.make_directory(self._folder)
        return _Held(self._fs, witness_lock(self._folder))


class _Held:
    """Keeps other processes, and other threads, from writing witnesses."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs = fs
        self._path = path

    def __enter__(self) -> None:
        for tries_left in reversed(range(_LOCK_TRIES)):
            self._context = self._fs.lock(self._path)
            try:
                self._context.__enter__()
                return
            except LockedError:
                if not tries_left:
                    raise

    def __exit__(self, *_: object) -> None:
        self._context.__exit__(None, None, None)
